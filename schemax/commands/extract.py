"""`schemax extract`: files of records in, files of rows out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer

from schemax.commands import options
from schemax.commands.declarations import read_schemas
from schemax.commands.extraction import Work
from schemax.commands.few_shot import few_shot
from schemax.commands.messages import UsageError, plain_warnings, refused_settings
from schemax.commands.pools import PoolOptions
from schemax.documents import Shown
from schemax.io.long_documents import TooLong
from schemax.io.readers import Shard, Source
from schemax.io.resumable import PART_ROWS
from schemax.report import MOST_ROWS


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
            help="Where rows go: a file of one of these kinds, which is replaced once all are "
            "done. Default: stdout, JSON Lines.",
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
    shard: Annotated[
        str | None,
        typer.Option(
            metavar="I/N",
            show_default=False,
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
        typer.Option(min=1, show_default=False, help="Prompts in flight. Default: what fits."),
    ] = None,
    overwrite: Annotated[
        bool,
        typer.Option("--overwrite", help="Start anew where an unfinished run (OUT.parts) lies."),
    ] = False,
    part_rows: Annotated[
        int,
        typer.Option(min=1, metavar="N", help="Rows of a part, which is kept if the run stops."),
    ] = PART_ROWS,
    max_errors: Annotated[
        str,
        typer.Option(
            metavar="N or P%", help="Failed rows (a number or a percentage) that still give exit 0."
        ),
    ] = "0",
    details: Annotated[
        bool, typer.Option("--details", help="Add every field's raw text and how it ended.")
    ] = False,
    on_too_long: Annotated[
        TooLong,
        typer.Option(
            help="What becomes of documents that the model's context does not hold: a failed row; "
            "their beginning is read; or all of it, in pieces.",
        ),
    ] = "error",
    ray: Annotated[
        bool,
        typer.Option(
            "--ray",
            help="Compute on Ray: the cluster that $RAY_ADDRESS names, one that was started on "
            "this machine, else this machine. Same rows, same parts.",
        ),
    ] = False,
    actors: Annotated[
        str | None,
        typer.Option(
            metavar="N or MIN,MAX",
            show_default=False,
            help="Models on Ray. Default: one for each GPU, else for each machine.",
        ),
    ] = None,
    gpus_per_actor: Annotated[
        float | None,
        typer.Option(show_default=False, help="Default: 1 if Ray has GPUs, else 0."),
    ] = None,
    cpus_per_actor: Annotated[
        float | None,
        typer.Option(
            show_default=False,
            help="Also the threads it computes with. Default: 1 beside a GPU, else its share.",
        ),
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only read a sample, and say what the run would take."),
    ] = False,
    price_per_hour: Annotated[
        float | None,
        typer.Option(min=0, show_default=False, help="Of the machine, for the cost in a dry run."),
    ] = None,
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="No progress, no notes, no summary.")
    ] = False,
) -> None:
    """Reads the attributes of SCHEMA from every product of INPUT.

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
        raise UsageError("--price-per-hour is of --dry-run")
    pool = PoolOptions.of(ray, actors, gpus_per_actor, cpus_per_actor)
    if pool is not None and dry_run:
        raise UsageError("--dry-run measures one process: leave --ray out")
    with plain_warnings(quiet=quiet):
        schemas = read_schemas(schema)
        settings = options.checked_settings(format, template, decoding, batch_size)
        settings["examples"] = few_shot(examples, schemas)
        with refused_settings():
            part = Shard() if shard is None else Shard.parse(shard)
        needed = None if keys is None else [*keys, id, category or "category"]
        named = [[] if id == "id" else [id], keys or [], [category] if category else []]
        work = Work(
            source=Source.of(input, needed, limit, part, required=[*filter(None, named)]),
            schemas=schemas,
            settings=settings,
            shown=Shown.of(keys, id, category),
            category=category,
            details=details,
            examples=examples,
            model=model,
            device=device,
            dtype=dtype,
            quiet=quiet,
            too_long=on_too_long,
            pool=pool,
        )
        if dry_run:
            work.estimate(price_per_hour)
            return
        tally = work.run(output, report, report_rows, part_rows, overwrite=overwrite)
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
