"""`schemax extract`: files of records in, files of rows out."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, cast

import typer

from schemax.commands import options
from schemax.commands.console import UsageError, plain_warnings, say
from schemax.commands.declarations import read_schemas
from schemax.commands.few_shot import few_shot
from schemax.commands.named_model import NamedModel
from schemax.commands.pools import PoolOptions
from schemax.commands.signals import terminable
from schemax.extractor import Options
from schemax.io.csv_out import Formulas
from schemax.io.estimate import estimate
from schemax.io.job import is_resumable, run_job, source_of
from schemax.io.long_documents import TooLong
from schemax.io.readers import CSV, Shard, Source
from schemax.io.records import STANDARD
from schemax.io.storage import suffixes
from schemax.io.summary import reasons
from schemax.io.task import in_process
from schemax.messages import clipped, harmless
from schemax.report import Report, open_report
from schemax.results import Extraction

_INPUT = "Input and output"
_RUN = "The run"
_RAY = "Scale-out on Ray"
_DRY_RUN = "Dry run"

_MOST_REPORTS = 20


def extract(
    schema: options.Schema,
    input: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            show_default=False,
            help="Files, addresses (s3://...) and patterns ('*.parquet'): JSON Lines (also .gz, "
            ".zst), .csv, .parquet, .arrow, .feather. - reads JSON Lines from stdin.",
        ),
    ],
    output: Annotated[
        str | None,
        typer.Option(
            "--output",
            "-o",
            metavar="OUT",
            show_default=False,
            rich_help_panel=_INPUT,
            help="Where rows go: a file of one of these kinds, which is replaced once all are "
            "done. Default: stdout, JSON Lines.",
        ),
    ] = None,
    report: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            show_default=False,
            rich_help_panel=_INPUT,
            help="Also write a page to look through the results: HTML, all in that one file.",
        ),
    ] = None,
    details: Annotated[
        bool,
        typer.Option(
            "--details",
            rich_help_panel=_INPUT,
            help="Add every field's raw text, confidence and place in the text.",
        ),
    ] = False,
    id: Annotated[
        str,
        typer.Option("--id", metavar="KEY", rich_help_panel=_INPUT, help="Key of a record's id."),
    ] = "id",
    text: Annotated[
        str | None,
        typer.Option(
            metavar="KEY,KEY",
            show_default=False,
            rich_help_panel=_INPUT,
            help="Keys that the model is shown. Default: all but id and category.",
        ),
    ] = None,
    category: Annotated[
        str | None,
        typer.Option(
            metavar="KEY",
            show_default=False,
            rich_help_panel=_INPUT,
            help="Key of a record's category, for SCHEMA of several: Shoes=shoes,Tea=tea",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=0,
            show_default=False,
            rich_help_panel=_INPUT,
            help="Read the first so many records only.",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            show_default=False,
            rich_help_panel=_INPUT,
            help="Read every N-th record only, from the I-th on: 0/4, 1/4, 2/4 and 3/4 are all. "
            "Sorting by index puts their rows in order.",
        ),
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
        typer.Option(
            min=1,
            show_default=False,
            rich_help_panel=options.MODEL_PANEL,
            help="Documents in flight. Default: what fits.",
        ),
    ] = None,
    on_too_long: Annotated[
        TooLong,
        typer.Option(
            rich_help_panel=_RUN,
            help="What becomes of documents that the model's context does not hold: a failed row; "
            "their beginning is read; or all of it, in overlapping chunks.",
        ),
    ] = "error",
    csv_formulas: Annotated[
        Formulas,
        typer.Option(
            rich_help_panel=_INPUT,
            help="Texts of CSV that a spreadsheet would take for formulas (=1+1): as they are, or "
            "with an apostrophe in front.",
        ),
    ] = "keep",
    max_errors: Annotated[
        str,
        typer.Option(
            metavar="N or P%",
            rich_help_panel=_RUN,
            help="Failed rows (a number or a percentage) that still give exit status 0.",
        ),
    ] = "0",
    overwrite: Annotated[
        bool,
        typer.Option(
            "--overwrite",
            rich_help_panel=_RUN,
            help="Start anew where an unfinished run has left rows (OUT.parts).",
        ),
    ] = False,
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", rich_help_panel=_RUN, help="No progress, no notes, no summary."
        ),
    ] = False,
    ray: Annotated[
        bool,
        typer.Option(
            "--ray",
            rich_help_panel=_RAY,
            help="Compute on Ray: the cluster that $RAY_ADDRESS names, one that was started on "
            "this machine, else this machine. Same rows, same parts.",
        ),
    ] = False,
    actors: Annotated[
        str | None,
        typer.Option(
            metavar="N or MIN,MAX",
            show_default=False,
            rich_help_panel=_RAY,
            help="Models on Ray. Default: one for each GPU, else for each machine.",
        ),
    ] = None,
    gpus_per_actor: Annotated[
        float | None,
        typer.Option(
            show_default=False, rich_help_panel=_RAY, help="Default: 1 if Ray has GPUs, else 0."
        ),
    ] = None,
    cpus_per_actor: Annotated[
        float | None,
        typer.Option(
            show_default=False,
            rich_help_panel=_RAY,
            help="Also the threads of an actor. Default: 1 beside a GPU, else its share.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            rich_help_panel=_DRY_RUN,
            help="Only read a sample, and say what the run would take.",
        ),
    ] = False,
    price_per_hour: Annotated[
        float | None,
        typer.Option(
            min=0,
            show_default=False,
            rich_help_panel=_DRY_RUN,
            help="Price of the machine, for the cost of the run.",
        ),
    ] = None,
) -> None:
    """Reads the attributes of SCHEMA from every record of INPUT.

    Rows are written in the order of the input. A record that cannot be read becomes a row that
    says why, and the others are done all the same. A run from files to a file that was stopped
    goes on where it stopped when the same command is given again. Exit status: 0 done, 1 more
    failed rows than --max-errors allows, 2 bad usage or input that stops the run.
    """
    allowed = Allowance.parse(max_errors)
    keys = None if text is None else [key.strip() for key in text.split(",") if key.strip()]
    if keys == []:
        raise UsageError("--text names no key")
    if price_per_hour is not None and not dry_run:
        raise UsageError("--price-per-hour requires --dry-run")
    if csv_formulas == "escape" and (output is None or suffixes(output)[0] not in CSV):
        raise UsageError("--csv-formulas requires -o with a .csv or .tsv file")
    pool = PoolOptions.of(ray, actors, gpus_per_actor, cpus_per_actor)
    if ray and dry_run:
        raise UsageError("--dry-run measures one process: leave --ray out")
    with plain_warnings(quiet=quiet):
        schemas = read_schemas(schema)
        settings = options.checked_settings(format, template, decoding, batch_size)
        settings["examples"] = few_shot(examples, schemas)
        settings |= {"text": keys, "id": id, "category": category}
        wanted = cast(Options, settings)
        source = source_of(input, wanted, limit, _shard(shard))
        chosen = NamedModel(model, device, dtype)
        task = chosen.task(schemas, wanted, details=details, on_too_long=on_too_long)
        if dry_run:
            for line in estimate(source, task).lines(price_per_hour):
                print(harmless(line))
            return
        name = output or STANDARD
        if ray and not is_resumable(source, name):
            raise UsageError("--ray reads files and writes a file: name one with -o OUT")
        backend = in_process if pool is None else partial(chosen.on_ray, pool)
        with _report(report, source) as page, terminable():
            summary = run_job(
                task,
                source,
                name,
                csv_formulas=csv_formulas,
                overwrite=overwrite,
                backend=backend,
                on_extraction=_Teller(page),
                on_resume=None if quiet else partial(_say_resumed, page is not None),
                # A bar would be in the way of rows on the same terminal.
                show_progress=not quiet and not (name == STANDARD and sys.stdout.isatty()),
            )
        if not quiet:
            for line in summary.lines():
                say(line)
    if summary.failed > allowed.of(summary.rows):
        raise typer.Exit(1)


def _shard(text: str | None) -> Shard | None:
    try:
        return None if text is None else Shard.parse(text)
    except ValueError as error:
        raise UsageError(f"--{error}") from None


def _report(name: str | None, source: Source) -> AbstractContextManager[Report | None]:
    title = "stdin" if source.is_stdin else Path(source.files[0]).name
    return nullcontext() if name is None else open_report(name, title)


def _say_resumed(has_report: bool, rows: int, place: str) -> None:
    say(f"note: {rows:,} finished rows are in {place}; the run goes on after them")
    if has_report:
        say("note: the report shows the rows of this run only")


class _Teller:
    """Says on stderr which rows failed, and puts all on the page."""

    def __init__(self, page: Report | None) -> None:
        self._page = page
        self._failed = 0

    def __call__(self, item: Extraction[Any]) -> None:
        if self._page is not None:
            self._page.add(item)
        if item.value is not None:
            return
        self._failed += 1
        if self._failed <= _MOST_REPORTS:
            name = "" if item.document_id is None else f" ({clipped(item.document_id)})"
            say(f"failed: record {item.index}{name}: {reasons(item.errors)}")
        elif self._failed == _MOST_REPORTS + 1:
            say("failed: more records, whose rows say why")


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
