"""`schemax discover`: makes a schema from documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from rich.console import Console

from schemax.attributes.ready_made import match_of
from schemax.base.messages import say
from schemax.base.terminal import table
from schemax.commands import options
from schemax.commands.console import UsageError, plain_warnings, refused_settings
from schemax.commands.option_groups import Options, argument, option, verb
from schemax.extraction.documents import RecordFields
from schemax.io.readers import InputFiles
from schemax.io.storage import refuse_inputs
from schemax.training.discovery import FoundAttribute, as_json, discovered

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


class Samples(Options):
    """Samples and results"""

    output: Path | None = option("-o FILE.json")
    """File for the schema, a JSON Schema document. Default: stdout."""
    report: Path | None = option("FILE.json")
    """Also write the table of what was found, as JSON."""
    samples: int = option(default=40, min=1)
    """Documents to draw and read, of the first 10,000."""
    max_attributes: int = option(default=16, min=1, max=100)
    """Attributes of the schema."""
    text: str | None = option("KEY,KEY")
    """Keys that the model is shown. Default: all but id and category."""


class Given(options.Server, Samples, options.Input):
    """Options"""

    input: list[str] = argument("INPUT...")
    category: str = option(default=MISSING, show_default=False)
    """The subject of the documents, in words."""


@verb
def discover(given: Given) -> None:
    """Makes a schema for documents of INPUT: the attributes that samples of them state.

    A model names attributes, as do lines that say `name: value`; the values that it finds for them
    in the samples tell their kinds. Look the schema through before you use it. Exit status: 0
    done, 2 bad usage, or nothing was found.
    """
    given.check()
    keys = None if given.text is None else [key.strip() for key in given.text.split(",")]
    shown = RecordFields.of(keys, "id", None)
    source = InputFiles.of(given.input, shown.needed, required=[keys] if keys else [])
    for place in filter(None, (given.output, given.report)):
        if not place.parent.is_dir():
            raise UsageError(f"cannot write {place}: no folder {place.parent}")
        refuse_inputs(str(place), source.files)
    if (known := match_of(given.category)) is not None:
        say(f"note: a ready-made schema is near to this category: {known.schema}")
    with plain_warnings():
        extractor = given.extractor()
        with refused_settings():
            found = discovered(
                (record for _, record in source.rows()),
                given.category,
                extractor,
                max_attributes=given.max_attributes,
                samples=given.samples,
                shown=shown,
            )
    Console(stderr=True).print(table(found.attributes, _COLUMNS, left=4))
    say(f"{found.samples} samples, {found.lists} lists of names; coverage is of the samples")
    for title, reason in list(found.left_out.items())[:_MOST_LEFT_OUT]:
        say(f"left out: {title}, {reason}")
    if found.doubt is not None:
        say(f"note: {found.doubt} (--model, --server, --samples)")
    if given.report is not None:
        report = json.dumps(found.report(), ensure_ascii=False, indent=2)
        given.report.write_text(report + "\n", "utf-8")
    if given.output is None:
        print(as_json(found.document), end="")
    else:
        given.output.write_text(as_json(found.document), "utf-8")
