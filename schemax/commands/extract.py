"""`schemax extract`: files of records in, files of rows out."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, cast

import typer

from schemax.calls import Options
from schemax.commands import extract_options as given
from schemax.commands import options
from schemax.commands.automatic import AUTO, schemas_by_category
from schemax.commands.console import UsageError, plain_warnings, refused_settings, say
from schemax.commands.declarations import is_trained, read_schemas
from schemax.commands.extract_model import actors_for, task_of
from schemax.commands.few_shot import few_shot
from schemax.commands.option_groups import grouped
from schemax.commands.process import terminable
from schemax.commands.server_options import ServerOptions
from schemax.io.columns import Schemas
from schemax.io.estimate import estimate
from schemax.io.job import Job, is_resumable, source_of
from schemax.io.readers import CSV, Shard
from schemax.io.records import STANDARD
from schemax.io.storage import suffixes
from schemax.io.summary import reasons
from schemax.io.task import in_process
from schemax.messages import clipped, harmless
from schemax.report import Report, open_report
from schemax.results import Extraction

_MOST_REPORTS = 20


@grouped
def extract(
    schema: given.Schema,
    input: given.Input,
    files: given.FileOptions,
    prompt: given.ModelOptions,
    server: ServerOptions,
    run: given.RunOptions,
    pool: given.RayOptions,
    dry: given.DryRunOptions,
) -> None:
    """Reads the attributes of SCHEMA from every record of INPUT.

    With `auto` as SCHEMA, the category of every record chooses a ready-made one.

    Rows are written in the order of the input. A record that cannot be read becomes a row that
    says why, and the others are done all the same. A run from files to a file that was stopped
    goes on where it stopped when the same command is given again. Exit status: 0 done, 1 more
    failed rows than --max-errors allows, 2 bad usage or input that stops the run.
    """
    allowed = _allowance(run.max_errors)
    keys = files.text and [key.strip() for key in files.text.split(",") if key.strip()]
    name, quiet = files.output or STANDARD, run.quiet
    _check(files, pool, dry, keys)
    if prompt.model is None and server.server is None and is_trained(schema):
        prompt = replace(prompt, model=schema)
    server.check(prompt.device, prompt.dtype)
    if pool.ray and server.server is not None:
        raise UsageError("--ray computes on machines of its own; ask a --server without it")
    with plain_warnings(quiet=quiet):
        is_auto = schema == AUTO
        schemas: Schemas = {} if is_auto else read_schemas(schema)
        settings = options.checked_settings(
            prompt.format, prompt.template, prompt.decoding, prompt.batch_size
        )
        category = files.category or ("category" if is_auto else None)
        settings |= {"text": keys, "id": files.id, "category": category}
        wanted = cast(Options, settings)
        with refused_settings():
            shard = None if files.shard is None else Shard.parse(files.shard)
        source = source_of(input, wanted, files.limit, shard)
        if is_auto:
            schemas = schemas_by_category(source, str(category), quiet=quiet)
        wanted["examples"] = few_shot(prompt.examples, schemas)
        more: Any = {"details": files.details, "on_too_long": run.on_too_long}
        task = task_of(prompt, server, schemas, wanted, **more)
        if dry.dry_run:
            for line in estimate(source, task, dry.price_per_hour):
                print(harmless(line))
            return
        if pool.ray and not is_resumable(source, name):
            raise UsageError("--ray reads files and writes a file: name one with -o OUT")
        title = "stdin" if source.is_stdin else Path(source.files[0]).name
        report = nullcontext() if files.report is None else open_report(files.report, title)
        with report as page, terminable():
            summary = Job(
                task,
                source,
                name,
                csv_formulas=files.csv_formulas,
                overwrite=run.overwrite,
                backend=partial(actors_for, prompt, pool) if pool.ray else in_process,
                on_extraction=_Teller(page),
                on_resume=None if quiet else partial(_say_resumed, page is not None),
                # A bar would be in the way of rows on the same terminal.
                show_progress=not quiet and not (name == STANDARD and sys.stdout.isatty()),
            ).run()
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
