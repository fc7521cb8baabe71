"""`schemax discover`: makes a schema from documents."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any

from rich.console import Console

from schemax.attributes.ready_made import match_of
from schemax.base.messages import counted, say
from schemax.base.options import option
from schemax.base.terminal import table
from schemax.commands import options
from schemax.commands.options import UsageError, argument, plain_warnings, refused_settings, verb
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


class Args(options.Server):
    """Options"""

    input: list[str] = argument("INPUT...")
    """Documents, in all that `extract` reads: files, folders, addresses and patterns; - reads JSON
    Lines from stdin."""
    category: str = option(default=MISSING, show_default=False)
    """The subject of the documents, in words."""

    """Samples and results"""

    output: Path | None = option("-o FILE.json")
    """File for the schema, a JSON Schema document. Default: stdout."""
    report: Path | None = option("FILE.json")
    """Also write the table of attributes, as JSON."""
    samples: int = option(default=40, min=1)
    """Documents to draw and read, of the first 10,000."""
    max_attributes: int = option(default=16, min=1, max=100)
    """The most attributes of the schema."""
    text: str | None = option("KEY,KEY")
    """Keys that the model is shown. Default: all but id and category."""


@verb
def discover(args: Args) -> None:
    """Makes a schema for documents of INPUT: the attributes that samples of them state.

    A model names attributes, as do lines of the form `name: value`; their values in the samples
    determine their kinds. Review the schema before you use it. Exit status: 0 done, 2 bad usage, or
    no attribute was found.
    """
    args.check()
    keys = None if args.text is None else [key.strip() for key in args.text.split(",")]
    shown = RecordFields.of(keys)
    source = InputFiles.of(args.input, shown.needed, required=[keys] if keys else [])
    for place in filter(None, (args.output, args.report)):
        if not place.parent.is_dir():
            raise UsageError(f"cannot write {place}: no folder {place.parent}")
        refuse_inputs(str(place), source.files)
    if (known := match_of(args.category)) is not None:
        say(f"note: a ready-made schema is near to this category: {known[0]}")
    with plain_warnings():
        extractor = args.extractor()
        with refused_settings():
            discovery = discovered(
                (record for _, record in source.rows()),
                args.category,
                extractor,
                max_attributes=args.max_attributes,
                samples=args.samples,
                shown=shown,
            )
    Console(stderr=True).print(table(discovery.attributes, _COLUMNS, left=4))
    say(
        f"{counted(discovery.samples, 'sample')}, "
        f"{counted(discovery.lists, 'list of names', 'lists of names')}; coverage is of the samples"
    )
    for title, reason in list(discovery.left_out.items())[:_MOST_LEFT_OUT]:
        say(f"left out: {title}, {reason}")
    if discovery.doubt is not None:
        say(f"note: {discovery.doubt} (--model, --server, --samples)")
    if args.report is not None:
        report = json.dumps(discovery.report(), ensure_ascii=False, indent=2)
        args.report.write_text(report + "\n", "utf-8")
    if args.output is None:
        print(as_json(discovery.document), end="")
    else:
        args.output.write_text(as_json(discovery.document), "utf-8")
