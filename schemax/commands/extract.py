"""`schemax extract`: JSON Lines in, JSON Lines out."""

from __future__ import annotations

import sys
import time
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

import typer

from schemax.commands import options
from schemax.commands.declarations import read_schemas
from schemax.commands.few_shot import few_shot
from schemax.commands.messages import (
    UsageError,
    one_line,
    plain_warnings,
    refused_settings,
    say,
)
from schemax.io import STANDARD, RowWriter, count_records, open_sink, open_source, read_records
from schemax.progress import track
from schemax.report import MOST_ROWS, Report, open_report
from schemax.results import Extraction, failed

_MOST_REPORTS = 20


def extract(
    schema: options.Schema,
    input: Annotated[
        str,
        typer.Argument(
            metavar="INPUT",
            show_default=False,
            help="JSON Lines, one product per line: an object or a string. - reads stdin.",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            show_default=False,
            help="Where rows go, as JSON Lines; it is replaced once all are done. Default: stdout.",
        ),
    ] = None,
    report: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            help="Also write a page to look through the results: HTML, all in that one file.",
        ),
    ] = None,
    report_rows: Annotated[
        int, typer.Option(min=1, metavar="N", help="Rows that the page holds: the first N.")
    ] = MOST_ROWS,
    id: Annotated[str, typer.Option("--id", metavar="KEY", help="Key of a record's id.")] = "id",
    text: Annotated[
        str | None,
        typer.Option(
            metavar="KEY,KEY",
            show_default=False,
            help="Keys that the model is shown. Default: all but id and category.",
        ),
    ] = None,
    category: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            show_default=False,
            help="Key of a record's category, for SCHEMA of several: Shoes=shoes,Tea=tea",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(min=0, show_default=False, help="Read the first so many records only."),
    ] = None,
    model: options.Model = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    format: options.Format = None,
    template: options.Template = None,
    examples: options.Examples = None,
    decoding: options.Decoding = None,
    batch_size: Annotated[
        int | None,
        typer.Option(min=1, show_default=False, help="Prompts in flight. Default: what fits."),
    ] = None,
    max_errors: Annotated[
        str,
        typer.Option(
            metavar="N or P%", help="Failed rows (a number or a percentage) that still give exit 0."
        ),
    ] = "0",
    details: Annotated[
        bool, typer.Option("--details", help="Add every field's raw text and how it ended.")
    ] = False,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress, no notes, no summary.")
    ] = False,
) -> None:
    """Reads the attributes of SCHEMA from every product of INPUT.

    Rows are written in the order of the input. A record that cannot be read becomes a row that
    says why, and the others are done all the same. Exit status: 0 done, 1 more failed rows than
    --max-errors allows, 2 bad usage or input that stops the run.
    """
    allowed = Allowance.parse(max_errors)
    keys = None if text is None else [key.strip() for key in text.split(",") if key.strip()]
    if keys == []:
        raise UsageError("--text names no key")
    with plain_warnings(quiet=quiet):
        schemas = read_schemas(schema)
        settings = options.checked_settings(format, template, decoding, batch_size)
        settings["examples"] = few_shot(examples, schemas)
        with (
            open_source(input) as lines,
            _open_page(report, input, report_rows) as page,
            open_sink(output) as sink,
        ):
            extractor = options.load_extractor(model, device, dtype)
            records = islice(read_records(lines), limit)
            with refused_settings():
                stream = extractor.stream(
                    records, schemas, text=keys, id=id, category=category, **settings
                )
            if _shows_progress(quiet, output):
                stream = track(stream, total=count_records(input, limit))
            tally = Tally()
            with closing(in_order(stream)) as rows:
                _write(rows, sink, page, tally, details)
    if not quiet:
        say(tally.summary())
    if tally.failed > allowed.of(tally.rows):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class Allowance:
    """How many rows may fail: a number, or a share of all."""

    number: float
    percent: bool

    @classmethod
    def parse(cls, text: str) -> Allowance:
        """Reads "3" and "1%". Raises UsageError."""
        percent = text.strip().endswith("%")
        digits = text.strip().removesuffix("%")
        try:
            number = float(digits) if percent else int(digits)
        except ValueError:
            number = -1
        if not 0 <= number < float("inf"):
            raise UsageError(f"--max-errors must be a number or a percentage, not {text!r}")
        return cls(number, percent)

    def of(self, rows: int) -> float:
        return self.number * rows / 100 if self.percent else self.number


class Tally:
    """Counts what became of the rows; the clock starts with it."""

    def __init__(self) -> None:
        self.rows = self.failed = self.field_errors = self.steps = self.decoded = 0
        self._started = time.monotonic()

    def add(self, item: Extraction[Any]) -> None:
        self.rows += 1
        self.steps += item.steps
        self.decoded += item.steps > 0
        if item.value is None:
            self.failed += 1
            self._report(item)
        else:
            self.field_errors += len(item.errors)

    def _report(self, item: Extraction[Any]) -> None:
        if self.failed <= _MOST_REPORTS:
            name = "" if item.document_id is None else f" ({item.document_id})"
            reasons = "; ".join(
                f"{error.field}: {error.message}" if error.field else error.message
                for error in item.errors
            )
            say(f"failed: record {item.index}{name}: {reasons}")
        elif self.failed == _MOST_REPORTS + 1:
            say("failed: more records, whose rows say why")

    def summary(self) -> str:
        seconds = max(1e-9, time.monotonic() - self._started)
        parts = [
            _counted(self.rows, "row"),
            f"{self.failed:,} failed",
            _counted(self.field_errors, "field error"),
            f"{self.rows / seconds:,.1f} products/s",
        ]
        if self.decoded:
            parts.append(f"{self.steps / self.decoded:.1f} passes per product")
        return ", ".join(parts)


def in_order(items: Iterable[Extraction[Any]]) -> Generator[Extraction[Any], None, None]:
    """Extractions by index, as soon as all before them are there.

    Bounded, because a stream finishes one window of records before it reads the next.
    """
    waiting: dict[int, Extraction[Any]] = {}
    due = 0
    for item in items:
        waiting[item.index] = item
        while due in waiting:
            yield waiting.pop(due)
            due += 1


def _open_page(
    name: str | None, input: str, most_rows: int
) -> AbstractContextManager[Report | None]:
    title = "stdin" if input == STANDARD else Path(input).name
    return nullcontext() if name is None else open_report(name, title, most_rows)


def _write(
    items: Iterable[Extraction[Any]],
    sink: RowWriter,
    page: Report | None,
    tally: Tally,
    details: bool,
) -> None:
    for item in items:
        try:
            row = item.to_row(details=details)
        except Exception as error:  # a serializer's of the user's schema: costs this row only
            reason = f"cannot be written: {type(error).__name__}: {one_line(error)}"
            item = failed(item.index, item.document_id, reason, steps=item.steps)
            row = item.to_row(details=details)
        sink.write(row)
        if page is not None:
            page.add(item)
        tally.add(item)


def _shows_progress(quiet: bool, output: str | None) -> bool:
    """Not on a terminal that the rows themselves are going to."""
    to_stdout = output is None or output == STANDARD
    return not quiet and not (to_stdout and sys.stdout.isatty())


def _counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
