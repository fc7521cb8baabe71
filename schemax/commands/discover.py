"""`schemax discover`: documents in, a schema for them out."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from schemax.commands import extract_options as given
from schemax.commands import options
from schemax.commands.console import UsageError, plain_warnings, refused_settings, say, table
from schemax.commands.option_groups import argument, grouped, option
from schemax.commands.options import LoadingOptions
from schemax.commands.server_options import ServerOptions
from schemax.discovery.discover import FoundAttribute, as_json, discovered
from schemax.documents import Shown
from schemax.io.readers import Source
from schemax.ready_made import match_of

_MOST_LEFT_OUT = 20

_COLUMNS: Mapping[str, Callable[[FoundAttribute], Any]] = {
    "attribute": lambda item: item.title,
    "kind": lambda item: item.kind,
    "unit": lambda item: item.unit,
    "typical values": lambda item: "; ".join(item.examples[:3]),
    "lists": lambda item: item.lists,
    "lines": lambda item: item.lines,
    "coverage": lambda item: f"{item.coverage:.0%}",
}


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """Samples and results"""

    output: Path | None = option(
        "Where the schema goes, a JSON Schema document. Default: stdout.",
        *("--output", "-o"),
        metavar="FILE.json",
    )
    report: Path | None = option(
        "Also write the table of what was found, as JSON.", metavar="FILE.json"
    )
    samples: int = option("Documents to draw and read, of the first 10,000.", default=40, min=1)
    max_attributes: int = option("Attributes of the schema.", default=16, min=1, max=100)
    text: str | None = option(
        "Keys that the model is shown. Default: all but id and category.", metavar="KEY,KEY"
    )


@dataclass(frozen=True, slots=True)
class ModelOptions:
    """Model"""

    model: options.Model = None
    device: options.Device = "auto"
    dtype: options.Dtype = "auto"


@grouped
def discover(
    input: list[str] = argument(given.INPUT_HELP, "INPUT..."),
    category: str = option(
        "What the documents are about, in words.", default=MISSING, show_default=False
    ),
    *,
    samples: SampleOptions,
    prompt: ModelOptions,
    loading: LoadingOptions,
    server: ServerOptions,
) -> None:
    """Makes a schema for documents of INPUT: the attributes that samples of them state.

    A model names attributes, as do lines that say `name: value`; the values that it finds for them
    in the samples tell their kinds. Look the schema through before you use it. Exit status: 0
    done, 2 bad usage, or nothing was found.
    """
    server.check(prompt.device, prompt.dtype, loading.named())
    keys = None if samples.text is None else [key.strip() for key in samples.text.split(",")]
    shown = Shown.of(keys, "id", None)
    source = Source.of(input, shown.needed, required=[keys] if keys else [])
    for place in filter(None, (samples.output, samples.report)):
        if not place.parent.is_dir():
            raise UsageError(f"cannot write {place}: no folder {place.parent}")
    if (known := match_of(category)) is not None:
        say(f"note: a ready-made schema is near to this category: {known.schema}")
    with plain_warnings():
        named = prompt.model, prompt.device, prompt.dtype
        extractor = server.reader(*named, loading.named())
        with refused_settings():
            found = discovered(
                (record for _, record in source.rows()),
                category,
                extractor,
                max_attributes=samples.max_attributes,
                samples=samples.samples,
                shown=shown,
            )
    Console(stderr=True).print(table(found.attributes, _COLUMNS, left=4))
    say(f"{found.samples} samples, {found.lists} lists of names; coverage is of the samples")
    for title, reason in list(found.left_out.items())[:_MOST_LEFT_OUT]:
        say(f"left out: {title}, {reason}")
    if found.doubt is not None:
        say(f"note: {found.doubt} (--model, --server, --samples)")
    if samples.report is not None:
        report = json.dumps(found.report(), ensure_ascii=False, indent=2)
        samples.report.write_text(report + "\n", "utf-8")
    if samples.output is None:
        print(as_json(found.document), end="")
    else:
        samples.output.write_text(as_json(found.document), "utf-8")
