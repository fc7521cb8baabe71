"""`schemax extract`: reads files of records, writes files of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import asdict, replace
from difflib import get_close_matches
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperCommand

from schemax.base.messages import clipped, harmless, say
from schemax.base.process import terminable
from schemax.base.terminal import show
from schemax.commands.auto_schemas import AUTO, matches_shown, schemas_by_category
from schemax.commands.console import UsageError, listed, plain_warnings, refused_settings
from schemax.commands.extract_options import Given
from schemax.commands.option_groups import verb
from schemax.evaluation.shots import few_shot
from schemax.extraction.declarations import in_language, is_trained, read_schemas
from schemax.extraction.documents import Options
from schemax.extraction.schema import AttrSchema
from schemax.io.columns import Schemas
from schemax.io.earlier import Retry
from schemax.io.estimate import estimate
from schemax.io.finished import read_run_record
from schemax.io.input_columns import column_notes
from schemax.io.job import Job, is_resumable, source_of
from schemax.io.partitions import kept_for, layout_of
from schemax.io.readers import CSV, Shard
from schemax.io.records import STANDARD
from schemax.io.rows import Details
from schemax.io.storage import place_of, refuse_inputs, suffixes
from schemax.io.summary import reason_of, reasons
from schemax.io.task import in_process
from schemax.report import Report, open_report
from schemax.report.page import facts_of
from schemax.report.table import add_table
from schemax.results import Extraction

_MOST_TOLD = 20


# Options that --retry-failed does not repeat.
_ONCE = (
    *("retry_failed", "if_complete", "reuse", "overwrite", "quiet", "report", "dry_run"),
    *("price_per_hour", "api_key"),
)


class ExtractCommand(TyperCommand):
    """A command whose --details needs no value, and whose --retry-failed repeats former options."""

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
        pairs = pairwise([*args, ""])
        return super().parse_args(
            ctx,
            [
                "--details=all" if one == "--details" and not _is_of_details(after) else one
                for one, after in pairs
            ],
        )


@verb
def extract(context: typer.Context, given: Given) -> None:
    """Reads the attributes of SCHEMA from every record of INPUT.

    With `auto` as SCHEMA, the category of every record chooses a ready-made one.

    Rows are written in the order of the input. A record that cannot be read becomes a row that
    says why, and the others are done all the same. A run from files to a file that was stopped
    goes on where it stopped when the same command is given again. Exit status: 0 done; 1 all rows
    are written, and more of them failed than --max-errors allows; 2 nothing or not all was written:
    bad usage, or input, a store or a model that stops the run; 3 the same, by a fault of schemax.
    """
    allowed = _allowance(given.max_errors)
    keys = None if given.text is None else listed(given.text)
    keep = tuple(listed(given.keep or ""))
    name, quiet, spec = given.output or STANDARD, given.quiet, given.schema
    if name == "/dev/stdout":  # a link to a file or a pipe of the shell's
        name = STANDARD
    _check(given, keys)
    if given.model is None and given.server is None and spec and is_trained(spec):
        given = replace(given, model=spec)
    given.check()
    if given.ray and given.server is not None:
        raise UsageError("--ray computes on machines of its own; ask a --server without it")
    if spec is None or not given.input:
        raise UsageError(f"{'SCHEMA' if spec is None else 'INPUT'} is missing")
    with plain_warnings(quiet=quiet):
        is_auto = spec == AUTO
        schemas: Schemas = {} if is_auto else in_language(read_schemas(spec), given.language)
        category = given.category or ("category" if is_auto else None)
        settings = given.settings(given.batch_size)
        settings |= {"text": keys, "id": given.id, "category": category, "html": given.html}
        wanted = cast(Options, settings)
        with refused_settings():
            shard = None if given.shard is None else Shard.parse(given.shard)
            by = listed(given.partition_by or "")
            layout = layout_of(by, given.rows_per_file)
        if not is_auto:
            keep = kept_for(by, keep, schemas)
        source = source_of(given.input, wanted, given.limit, shard, keep)
        if is_auto:
            schemas, matches = schemas_by_category(source, str(category))
            in_language(schemas, given.language)
            if not quiet:
                show(*matches_shown(matches), on_stderr=True)
            keep = kept_for(by, keep, schemas)
            source = source_of(given.input, wanted, given.limit, shard, keep)
        wanted["examples"] = few_shot(given.examples, schemas)
        more = {"details": _details(given.details), "on_too_long": given.on_too_long}
        task = given.task(schemas, wanted, keep=keep, **more)
        if not quiet:
            for note in column_notes(source.there, task.shown, schemas):
                say(f"note: {note}")
        if given.dry_run:
            for line in estimate(source, task, given.price_per_hour):
                print(harmless(line))
            return
        into_file = is_resumable(source, name)
        if given.ray and not into_file:
            raise UsageError("--ray reads files and writes a file: name one with -o OUT")
        if not into_file and (given.reuse or given.if_complete != "replace"):
            raise UsageError("--reuse and --if-complete need files and a file: name one with -o")
        title = "stdin" if source.is_stdin else Path(source.files[0]).name
        if given.report is not None:
            if name and place_of(given.report) == place_of(name):
                raise UsageError(f"--report {given.report}: -o writes it; name another file")
            schema = given.schema or ""
            schema = schema.rpartition(":")[0] or schema
            used = (*source.files, schema, name, given.examples, given.prompt, given.reuse)
            refuse_inputs(given.report, map(str, filter(None, used)))
        report = nullcontext() if given.report is None else open_report(given.report, title)
        with report as page, terminable():
            teller = _Teller(page)
            summary = Job(
                task,
                source,
                name,
                csv_formulas=given.csv_formulas,
                layout=layout,
                overwrite=given.overwrite,
                retry=None if given.retry_failed is None else Retry.of(given.retry_failed),
                if_complete=given.if_complete,
                reuse=given.reuse,
                command=_named(context),
                backend=given.actors_for if given.ray else in_process,
                on_extraction=teller,
                on_resume=None if quiet else _say_resumed,
                on_finished=lambda note: None if quiet else say(f"note: {note}"),
                # A bar would mix with rows on the same terminal.
                show_progress=not quiet and not (name == STANDARD and sys.stdout.isatty()),
            ).run()
            if page is not None and into_file:
                record = read_run_record(name)
                page.overview.facts += facts_of(record)
                if summary.computed < summary.rows:
                    add_table(page, name, record, AttrSchema.from_json_schema, teller.indexes)
        if not quiet:
            for line in summary.lines():
                say(line)
    if summary.failed > allowed(summary.rows):
        raise typer.Exit(1)


def _check(given: Given, keys: list[str] | None) -> None:
    """Raises UsageError for options that exclude or require each other."""
    for name in () if given.ray else ("actors", "gpus_per_actor", "cpus_per_actor"):
        if getattr(given, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} requires --ray")
    if given.ray and given.dry_run:
        raise UsageError("--dry-run measures one process: leave --ray out")
    if given.text is not None and not keys:
        raise UsageError("--text names no key")
    if given.price_per_hour is not None and not given.dry_run:
        raise UsageError("--price-per-hour requires --dry-run")
    if given.csv_formulas == "escape" and suffixes(given.output or "")[0] not in CSV:
        raise UsageError("--csv-formulas requires -o with a .csv or .tsv file")


def _named(context: typer.Context) -> dict[str, Any]:
    """Returns the options that the command line named."""
    return {
        name: value
        for name, value in context.params.items()
        if name not in _ONCE and context.get_parameter_source(name).name != "DEFAULT"  # type: ignore[union-attr]
    }


def _is_of_details(text: str) -> bool:
    """True if an argument is the value of --details; also misspelt, so that its name is told."""
    is_near = bool(get_close_matches(text, ["confidence"])) and not Path(text).exists()
    return text == "confidence" or is_near


def _details(text: str | None) -> Details:
    """Reads the value of --details. Raises UsageError."""
    if text in (None, "all"):
        return text is not None
    if text != "confidence":
        raise UsageError(f"--details takes nothing or confidence, not {text!r}")
    return "confidence"


def _say_resumed(rows: int, place: str) -> None:
    say(f"note: {rows:,} finished rows are in {place}; the run goes on after them")


class _Teller:
    """A callback that reports the first failed row of each kind, and adds all rows to the page."""

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
    """Reads "3" or "1%": a number of rows -> how many of them may fail. Raises UsageError."""
    digits = text.strip().removesuffix("%")
    is_share = digits != text.strip()
    try:
        number = float(digits) if is_share else int(digits)
    except ValueError:
        number = -1
    if not 0 <= number < inf:
        raise UsageError(f"--max-errors must be a number or a percentage, not {text!r}")
    return lambda rows: number * rows / 100 if is_share else number
