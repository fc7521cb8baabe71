"""`schemax extract`: files of records in, files of rows out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperCommand

from schemax.calls import Options
from schemax.commands import extract_options as given
from schemax.commands import options
from schemax.commands.automatic import AUTO, schemas_by_category
from schemax.commands.console import UsageError, listed, plain_warnings, refused_settings, say
from schemax.commands.declarations import is_trained, read_schemas
from schemax.commands.extract_model import actors_for, task_of
from schemax.commands.few_shot import few_shot
from schemax.commands.option_groups import argument, grouped
from schemax.commands.options import LoadingOptions
from schemax.commands.process import terminable
from schemax.commands.server_options import ServerOptions
from schemax.io.columns import Schemas
from schemax.io.estimate import estimate
from schemax.io.finished import Retry, read_run_record
from schemax.io.input_columns import column_notes
from schemax.io.job import Job, is_resumable, source_of
from schemax.io.partitions import kept_for, layout_of
from schemax.io.readers import CSV, Shard
from schemax.io.records import STANDARD
from schemax.io.rows import Details
from schemax.io.storage import suffixes
from schemax.io.summary import reason_of, reasons
from schemax.io.task import in_process
from schemax.messages import clipped, harmless
from schemax.report import Report, open_report
from schemax.report.overview import facts_of
from schemax.report.table import add_table
from schemax.results import Extraction
from schemax.schema import AttrSchema

_MOST_TOLD = 20


# What of a command is not repeated when its failed rows are done again.
_ONCE = (
    "retry_failed",
    "if_complete",
    "reuse",
    "overwrite",
    "quiet",
    "report",
    "dry_run",
    "price_per_hour",
    "api_key",
)


class ExtractCommand(TyperCommand):
    """Lets --details stand alone; --retry-failed repeats what the table was made with."""

    def invoke(self, ctx: Any) -> Any:
        if output := ctx.params["retry_failed"]:
            before = {**read_run_record(output).command, "output": output}
            for name, value in before.items():
                source = ctx.get_parameter_source(name)
                if source is not None and source.name == "DEFAULT":  # None of an unknown option
                    ctx.params[name] = value
                    ctx.set_parameter_source(name, type(source).COMMANDLINE)
        return super().invoke(ctx)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        following = [*args[1:], ""]
        return super().parse_args(
            ctx,
            [
                "--details=all" if one == "--details" and after != "confidence" else one
                for one, after in zip(args, following, strict=False)
            ],
        )


@grouped
def extract(
    context: typer.Context,
    files: given.FileOptions,
    prompt: given.ModelOptions,
    loading: LoadingOptions,
    server: ServerOptions,
    run: given.RunOptions,
    pool: given.RayOptions,
    dry: given.DryRunOptions,
    # --retry-failed requires neither: its table tells.
    schema: str | None = argument(
        f"{options.SCHEMA_HELP} Or auto: the ready-made one of each record's category.",
        "SCHEMA",
        default=None,
    ),
    input: list[str] | None = argument(given.INPUT_HELP, "INPUT...", default=None),
) -> None:
    """Reads the attributes of SCHEMA from every record of INPUT.

    With `auto` as SCHEMA, the category of every record chooses a ready-made one.

    Rows are written in the order of the input. A record that cannot be read becomes a row that
    says why, and the others are done all the same. A run from files to a file that was stopped
    goes on where it stopped when the same command is given again. Exit status: 0 done; 1 all rows
    are written, and more of them failed than --max-errors allows; 2 nothing or not all was written:
    bad usage, or input, a store or a model that stops the run; 3 the same, by a fault of schemax.
    """
    allowed = _allowance(run.max_errors)
    keys = None if files.text is None else listed(files.text)
    keep = tuple(listed(files.keep or ""))
    name, quiet = files.output or STANDARD, run.quiet
    _check(files, pool, dry, keys)
    if prompt.model is None and server.server is None and schema and is_trained(schema):
        prompt = replace(prompt, model=schema)
    server.check(prompt.device, prompt.dtype, loading.named())
    if pool.ray and server.server is not None:
        raise UsageError("--ray computes on machines of its own; ask a --server without it")
    if schema is None or not input:
        raise UsageError(f"{'SCHEMA' if schema is None else 'INPUT'} is missing")
    with plain_warnings(quiet=quiet):
        is_auto = schema == AUTO
        schemas: Schemas = {} if is_auto else read_schemas(schema)
        settings = options.checked_settings(
            prompt.format, prompt.template, prompt.decoding, prompt.batch_size
        )
        category = files.category or ("category" if is_auto else None)
        settings |= {"text": keys, "id": files.id, "category": category, "html": files.html}
        wanted = cast(Options, settings)
        with refused_settings():
            shard = None if files.shard is None else Shard.parse(files.shard)
            by = listed(files.partition_by or "")
            layout = layout_of(by, files.rows_per_file)
        if not is_auto:
            keep = kept_for(by, keep, schemas)
        source = source_of(input, wanted, files.limit, shard, keep)
        if is_auto:
            schemas = schemas_by_category(source, str(category), quiet=quiet)
            keep = kept_for(by, keep, schemas)
            source = source_of(input, wanted, files.limit, shard, keep)
        wanted["examples"] = few_shot(prompt.examples, schemas)
        more: Any = {"details": _details(files.details), "on_too_long": run.on_too_long}
        more["keep"] = keep
        task = task_of(prompt, server, schemas, wanted, loading=loading.named(), **more)
        if not quiet:
            for note in column_notes(source.there, task.shown, schemas):
                say(f"note: {note}")
        if dry.dry_run:
            for line in estimate(source, task, dry.price_per_hour):
                print(harmless(line))
            return
        if pool.ray and not is_resumable(source, name):
            raise UsageError("--ray reads files and writes a file: name one with -o OUT")
        if not is_resumable(source, name) and (run.reuse or run.if_complete != "replace"):
            raise UsageError("--reuse and --if-complete need files and a file: name one with -o")
        title = "stdin" if source.is_stdin else Path(source.files[0]).name
        report = nullcontext() if files.report is None else open_report(files.report, title)
        with report as page, terminable():
            teller = _Teller(page)
            summary = Job(
                task,
                source,
                name,
                csv_formulas=files.csv_formulas,
                layout=layout,
                overwrite=run.overwrite,
                retry=None if run.retry_failed is None else Retry.of(run.retry_failed),
                if_complete=run.if_complete,
                reuse=run.reuse,
                command=_named(context),
                backend=partial(actors_for, prompt, pool) if pool.ray else in_process,
                on_extraction=teller,
                on_resume=None if quiet else _say_resumed,
                on_finished=lambda note: None if quiet else say(f"note: {note}"),
                # A bar would be in the way of rows on the same terminal.
                show_progress=not quiet and not (name == STANDARD and sys.stdout.isatty()),
            ).run()
            if page is not None and is_resumable(source, name):
                record = read_run_record(name)
                page.overview.facts += facts_of(record)
                if summary.computed < summary.rows:
                    add_table(page, name, record, AttrSchema.from_json_schema, teller.indexes)
        if not quiet:
            for line in summary.lines():
                say(line)
    if summary.failed > allowed(summary.rows):
        raise typer.Exit(1)


def _check(
    files: given.FileOptions, pool: given.RayOptions, dry: given.DryRunOptions, keys: Any
) -> None:
    """Raises UsageError for options that do not go together."""
    of_ray = ("actors", "gpus_per_actor", "cpus_per_actor")
    for name in () if pool.ray else of_ray:
        if getattr(pool, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} requires --ray")
    if pool.ray and dry.dry_run:
        raise UsageError("--dry-run measures one process: leave --ray out")
    if files.text is not None and not keys:
        raise UsageError("--text names no key")
    if dry.price_per_hour is not None and not dry.dry_run:
        raise UsageError("--price-per-hour requires --dry-run")
    if files.csv_formulas == "escape" and suffixes(files.output or "")[0] not in CSV:
        raise UsageError("--csv-formulas requires -o with a .csv or .tsv file")


def _named(context: typer.Context) -> dict[str, Any]:
    """What of the command line was named."""
    return {
        name: value
        for name, value in context.params.items()
        if name not in _ONCE and context.get_parameter_source(name).name != "DEFAULT"  # type: ignore[union-attr]
    }


def _details(text: str | None) -> Details:
    """Raises UsageError."""
    if text in (None, "all"):
        return text is not None
    if text != "confidence":
        raise UsageError(f"--details takes nothing or confidence, not {text!r}")
    return "confidence"


def _say_resumed(rows: int, place: str) -> None:
    say(f"note: {rows:,} finished rows are in {place}; the run goes on after them")


class _Teller:
    """Says on stderr which rows failed, the first of each kind, and puts all on the page."""

    def __init__(self, page: Report | None) -> None:
        self._page = page
        self._told: set[str] = set()
        self.indexes: set[int] = set()  # of the rows on the page

    def __call__(self, item: Extraction[Any]) -> None:
        if self._page is not None:
            self._page.add(item)
            self.indexes.add(item.index)
        if item.value is not None:
            return
        errors = [asdict(error) for error in item.errors]
        kind = reason_of(errors)
        if kind in self._told or len(self._told) > _MOST_TOLD:
            return
        self._told.add(kind)
        if len(self._told) > _MOST_TOLD:
            say("failed: more records for other reasons, which their rows tell")
            return
        name = "" if item.document_id is None else f" ({clipped(item.document_id)})"
        say(f"failed: record {item.index}{name}: {reasons(errors)}")


def _allowance(text: str) -> Callable[[int], float]:
    """How many of so many rows may fail, by "3" or "1%". Raises UsageError."""
    digits = text.strip().removesuffix("%")
    is_share = digits != text.strip()
    try:
        number = float(digits) if is_share else int(digits)
    except ValueError:
        number = -1
    if not 0 <= number < inf:
        raise UsageError(f"--max-errors must be a number or a percentage, not {text!r}")
    return lambda rows: number * rows / 100 if is_share else number
