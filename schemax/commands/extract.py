"""`schemax extract`: reads files of records, writes files of rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import asdict, replace
from difflib import get_close_matches
from functools import partial
from itertools import pairwise
from math import inf
from pathlib import Path
from typing import Any, cast

import typer
from typer.core import TyperCommand

from schemax.base.messages import clipped, counted, escape_controls, say
from schemax.base.options import option
from schemax.base.process import terminable
from schemax.base.terminal import show
from schemax.base.trained import note_trained
from schemax.commands import options
from schemax.commands.auto_schemas import AUTO, matches_shown, schemas_by_category
from schemax.commands.options import (
    UsageError,
    argument,
    listed,
    numbers_of,
    plain_warnings,
    refused_settings,
    verb,
)
from schemax.compiler.prompt import template_source
from schemax.evaluation.shots import few_shot
from schemax.extraction.declarations import in_language, is_trained, read_schemas
from schemax.extraction.documents import Options as Settings
from schemax.extraction.extractor import Extractor
from schemax.extraction.prompt_file import PromptFile, read_prompt_file
from schemax.extraction.schema import AttrSchema
from schemax.io.columns import Schemas
from schemax.io.earlier import Retry
from schemax.io.estimate import estimate
from schemax.io.finished import read_run_record
from schemax.io.input_columns import column_notes
from schemax.io.job import IfComplete, Job, is_resumable, source_of
from schemax.io.long_documents import TooLong
from schemax.io.partitions import kept_for, layout_of
from schemax.io.ray.parts import on_ray
from schemax.io.ray.pool import Pool, connected, named_for_actors
from schemax.io.readers import CSV, Shard
from schemax.io.records import STANDARD
from schemax.io.rows import Details
from schemax.io.storage import place_of, refuse_inputs, suffixes
from schemax.io.summary import reason_of, reasons
from schemax.io.task import Backend, Task, in_process
from schemax.io.writers import Formulas
from schemax.reading.markup import Html
from schemax.report.page import Report, facts_of, open_report, promised_of
from schemax.report.table import add_table
from schemax.results import Extraction

# Kinds of failures that the terminal shows.
_MOST_REPORTED = 20

# Options that --retry-failed does not repeat.
_ONCE = (
    *("retry_failed", "if_complete", "reuse", "overwrite", "quiet", "report", "dry_run"),
    *("rows", "price_per_hour", "api_key"),
)


class Args(options.Cascade, options.Server, options.Prompt, options.Language):
    """Options"""

    # --retry-failed requires neither: its table tells.
    schema: str | None = argument("SCHEMA", default=None)
    """A ready-made name (see `schemax schemas`), module:Class, file.py:Class, a JSON Schema file
    (schema.json), or a trained model's folder, for the schemas that it was trained on. auto: the
    ready-made schema of each record's category."""
    input: list[str] | None = argument("INPUT...", default=None)
    """Files, folders, addresses (s3://...) and patterns ('*.parquet'): JSON Lines (also .gz, .zst),
    .csv, .xlsx, .parquet, .arrow, .feather; documents, each of which is one record: .pdf, .docx,
    .html, .txt, .md. - reads JSON Lines from stdin."""

    """Input and output"""

    output: str | None = option("-o OUT")
    """File for the rows, of any kind that INPUT may have. It is replaced when all rows are done.
    Default: stdout, JSON Lines."""
    report: str | None = option("FILE")
    """Also write a page to look through the results: HTML, all in that one file."""
    details: str | None = option("[confidence]")
    """Add every field's raw text, confidence and place in the text. `--details confidence` adds
    only confidences, and the least of a row."""
    keep: str | None = option("KEY,KEY")
    """Keys of a record that stand in its row as well."""
    id: str = option("KEY", default="id")
    """Key of a record's id."""
    text: str | None = option("KEY,KEY")
    """Keys that the model is shown. Default: all but id and category."""
    category: str | None = option("KEY")
    """Key of a record's category, for SCHEMA of several: Shoes=shoes,Tea=tea. Default with auto:
    category."""
    html: Html = "strip"
    """HTML in texts: recognised and left out, or shown to the model as it is."""
    limit: int | None = option(min=0)
    """Read the first so many records only."""
    shard: str | None = option("I/N")
    """Read every N-th record only, from the I-th on: 0/4, 1/4, 2/4 and 3/4 are all. Sorting by
    index puts their rows in order."""
    partition_by: str | None = option("KEY,KEY")
    """OUT becomes a folder of Parquet, with a folder for each value of these columns: fields of
    SCHEMA, or keys of a record. A new Delta table is partitioned by them."""
    rows_per_file: int | None = option("N", min=1)
    """The most rows of a file of such a folder. Default: 1,000,000."""
    csv_formulas: Formulas = "keep"
    """Texts of CSV that a spreadsheet would take for formulas (=1+1): as they are, or with an
    apostrophe in front."""

    """Model and prompt"""

    compile: bool = False
    """Compile each chain of pointwise operations into one kernel when the model is loaded."""
    batch_size: int | None = option(min=1)
    """Documents in flight. Default: what fits."""

    """The run"""

    on_too_long: TooLong = "error"
    """Treatment of documents that the model's context does not hold: error makes a failed row,
    truncate reads the beginning, chunk reads all in overlapping chunks."""
    max_errors: str = option("N or P%", default="0")
    """Failed rows (a number or a percentage) that still give exit status 0."""
    retry_failed: str | None = option("OUT")
    """Repeat only the failed rows of a finished table, with its SCHEMA, INPUT and options. Options
    named now override the table's."""
    if_complete: IfComplete = "replace"
    """Treatment of a complete OUT: skip leaves a table of the same records, schema, model and
    settings as it is; error stops with exit status 2; replace computes all rows again."""
    reuse: str | None = option("TABLE")
    """Reuse the rows of an earlier table whose text, schema, model and settings are the same. It
    may be OUT itself."""
    overwrite: bool = False
    """Drop the rows of an unfinished run (_OUT.parts), and start anew."""
    quiet: bool = option("-q", default=False)
    """No progress, no notes, no summary."""

    """Scale-out on Ray"""

    ray: bool = False
    """Compute on Ray: the cluster that $RAY_ADDRESS names, one that was started on this machine,
    else this machine. Same rows, same parts."""
    actors: str | None = option("N or MIN,MAX")
    """Models on Ray. Default: one for each GPU, else for each machine."""
    gpus_per_actor: float | None = None
    """Default: 1 if Ray has GPUs, else 0."""
    cpus_per_actor: float | None = None
    """Also the threads of an actor. Default: 1 beside a GPU, else its share."""

    """Dry run"""

    dry_run: bool = False
    """Only read a sample, and estimate the time and cost of the run."""
    rows: int | None = option("N", min=1)
    """With --dry-run: estimate for N rows, of which INPUT is a sample."""
    price_per_hour: float | None = option(min=0)
    """Price of the machine, in dollars, for the cost of the run."""

    def task(self, schemas: Schemas, settings: Settings, **more: Any) -> Task:
        """Returns the model's task. more: further fields of the task."""
        place = options.model_place(self.model) if self.server is None else None
        load = partial(self._load, schemas, settings, self._prompt())
        return Task(schemas, settings, load, place, loading=self.loading, **more)

    def _prompt(self) -> PromptFile | None:
        """Reads the prompt file, which other machines may lack. Raises InputError."""
        return None if self.prompt is None else read_prompt_file(self.prompt)

    def _load(self, schemas: Schemas, settings: Settings, prompt: PromptFile | None) -> Extractor:
        """Loads the model. Raises UsageError for settings that do not suit it or each other."""
        in_language(schemas, self.language)  # actors may import the classes anew
        extractor = self.extractor(prompt, compile=self.compile)
        note_trained(self.model, extractor, settings, settings.get("examples"))
        with refused_settings():
            if self.batch_size is not None and settings.get("decoding") is None:
                extractor = copy(extractor)
                config = replace(extractor.defaults.decoding, batch_size=self.batch_size)
                extractor.defaults = replace(extractor.defaults, decoding=config)
            extractor.stream((), schemas, **settings)
        return extractor

    @contextmanager
    def actors_for(self, task: Task) -> Iterator[Backend]:
        """Yields a backend of actors for a task. Raises UsageError, and InputError without Ray."""
        actors = None if self.actors is None else _actors(self.actors)
        with connected(), terminable():  # in this order, since Ray installs its own handler
            with refused_settings():
                pool = Pool.of(actors, self.gpus_per_actor, self.cpus_per_actor)
            name = named_for_actors(self.model)
            settings = task.options.copy()
            if (template := settings.get("template")) is not None:
                assert isinstance(template, (str, Path))
                settings["template"] = template_source(template)
            reader = replace(self, model=name, device=pool.device(self.device), server=None)
            if reader.escalate_to is not None and Path(reader.escalate_to).exists():
                reader = replace(reader, escalate_to=str(Path(reader.escalate_to).resolve()))
            load = partial(reader._load, task.schemas, settings, self._prompt())
            place = options.model_place(name)
            with on_ray(replace(task, options=settings, load=load, place=place), pool) as backend:
                yield backend


class Command(TyperCommand):
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
                "--details=all" if word == "--details" and not _is_of_details(after) else word
                for word, after in pairs
            ],
        )


@verb
def extract(context: typer.Context, args: Args) -> None:
    """Reads the attributes of SCHEMA from every record of INPUT.

    With `auto` as SCHEMA, the category of every record chooses a ready-made one.

    Rows are written in the order of the input. A record that cannot be read becomes a row with the
    reason, and costs no other row. Repeat the command to resume a stopped file-to-file run.
    Exit status: 0 done; 1 all rows
    are written, and more of them failed than --max-errors allows; 2 nothing or not all was written:
    bad usage, or input, a store or a model that stops the run; 3 the same, by a fault of schemax.
    """
    allowed = _allowance(args.max_errors)
    keys = None if args.text is None else listed(args.text)
    keep = tuple(listed(args.keep or ""))
    name, quiet, spec = args.output or STANDARD, args.quiet, args.schema
    if name == "/dev/stdout":  # a link to a file or a pipe of the shell's
        name = STANDARD
    _check(args, keys)
    if args.model is None and args.server is None and spec and is_trained(spec):
        args = replace(args, model=spec)
    args.check()
    if args.ray and args.server is not None:
        raise UsageError("--ray computes on machines of its own; ask a --server without it")
    if spec is None or not args.input:
        raise UsageError(f"{'SCHEMA' if spec is None else 'INPUT'} is missing")
    with plain_warnings(quiet=quiet):
        is_auto = spec == AUTO
        schemas: Schemas = {} if is_auto else in_language(read_schemas(spec), args.language)
        category = args.category or ("category" if is_auto else None)
        shown = {"text": keys, "id": args.id, "category": category, "html": args.html}
        settings = cast(Settings, args.settings(args.batch_size) | shown)
        with refused_settings():
            shard = None if args.shard is None else Shard.parse(args.shard)
            by = listed(args.partition_by or "")
            layout = layout_of(by, args.rows_per_file)
        if not is_auto:
            keep = kept_for(by, keep, schemas)
        source = source_of(args.input, settings, args.limit, shard, keep, by)
        if is_auto:
            schemas, counts = schemas_by_category(source, str(category))
            in_language(schemas, args.language)
            if not quiet:
                show(*matches_shown(counts), on_stderr=True)
            keep = kept_for(by, keep, schemas)
            source = source_of(args.input, settings, args.limit, shard, keep, by)
        settings["examples"] = few_shot(args.examples, schemas, ignore_extra=args.ignore_extra)
        more = {"details": _details(args.details), "on_too_long": args.on_too_long}
        task = args.task(schemas, settings, keep=keep, **more)
        if not quiet:
            for note in column_notes(source.there, task.shown, schemas):
                say(f"note: {note}")
        if args.dry_run:
            for line in estimate(source, task, args.price_per_hour, args.rows):
                print(escape_controls(line))
            return
        into_file = is_resumable(source, name)
        if args.ray and not into_file:
            raise UsageError("--ray reads files and writes a file: name one with -o OUT")
        if not into_file and (args.reuse or args.if_complete != "replace"):
            raise UsageError("--reuse and --if-complete need files and a file: name one with -o")
        title = "stdin" if source.is_stdin else Path(source.files[0]).name
        if args.report is not None:
            if name and place_of(args.report) == place_of(name):
                raise UsageError(f"--report {args.report}: -o writes it; name another file")
            schema = args.schema or ""
            schema = schema.rpartition(":")[0] or schema
            used = (*source.files, schema, name, args.examples, args.prompt, args.reuse)
            refuse_inputs(args.report, map(str, filter(None, used)))
        report = nullcontext() if args.report is None else open_report(args.report, title)
        with report as page, terminable():
            on_page: set[int] = set()
            summary = Job(
                task,
                source,
                name,
                csv_formulas=args.csv_formulas,
                layout=layout,
                overwrite=args.overwrite,
                retry=None if args.retry_failed is None else Retry.of(args.retry_failed),
                if_complete=args.if_complete,
                reuse=args.reuse,
                command=_named_options(context),
                backend=args.actors_for if args.ray else in_process,
                on_extraction=_reporter(page, on_page),
                on_resume=None if quiet else _say_resumed,
                on_finished=lambda note: None if quiet else say(f"note: {note}"),
                # A bar would mix with rows on the same terminal.
                show_progress=not quiet and not (name == STANDARD and sys.stdout.isatty()),
            ).run()
            if page is not None and into_file:
                record = read_run_record(name)
                page.facts += facts_of(record)
                page.promised += promised_of(record)
                if summary.computed < summary.rows:
                    add_table(page, name, record, AttrSchema.from_json_schema, on_page)
        if not quiet:
            for line in summary.lines():
                say(line)
    if summary.failed > allowed(summary.rows):
        raise typer.Exit(1)


def _check(args: Args, keys: list[str] | None) -> None:
    """Raises UsageError for options that exclude or require each other."""
    for name in () if args.ray else ("actors", "gpus_per_actor", "cpus_per_actor"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} requires --ray")
    if args.ray and args.dry_run:
        raise UsageError("--dry-run measures one process: leave --ray out")
    if args.text is not None and not keys:
        raise UsageError("--text names no key")
    for name in () if args.dry_run else ("rows", "price_per_hour"):
        if getattr(args, name) is not None:
            raise UsageError(f"--{name.replace('_', '-')} requires --dry-run")
    if args.csv_formulas == "escape" and suffixes(args.output or "")[0] not in CSV:
        raise UsageError("--csv-formulas requires -o with a .csv or .tsv file")


def _named_options(context: typer.Context) -> dict[str, Any]:
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
    finished = counted(rows, "finished row is", "finished rows are")
    say(f"note: {finished} in {place}; the run goes on after {'it' if rows == 1 else 'them'}")


def _reporter(page: Report | None, shown: set[int]) -> Callable[[Extraction[Any]], None]:
    """Returns a function that reports the first failed row of each kind, and adds rows to the page.

    shown: takes the indexes of the rows on the page.
    """
    reported: set[str] = set()

    def report(item: Extraction[Any]) -> None:
        if page is not None:
            page.add(item)
            shown.add(item.index)
        if item.value is not None:
            return
        errors = [asdict(error) for error in item.errors]
        kind = reason_of(errors)
        if kind in reported or len(reported) > _MOST_REPORTED:
            return
        reported.add(kind)
        if len(reported) > _MOST_REPORTED:
            say("failed: more records for other reasons, which their rows tell")
            return
        name = "" if item.document_id is None else f" ({clipped(item.document_id)})"
        say(f"failed: record {item.index}{name}: {reasons(errors)}")

    return report


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


def _actors(text: str) -> int | tuple[int, int]:
    """Reads "8" and "1,8". Raises UsageError."""
    usage = "--actors must be a number, or MIN,MAX such as 1,8"
    numbers = numbers_of(text, usage)
    if len(numbers) > 2 or not 1 <= numbers[0] <= numbers[-1]:
        raise UsageError(f"{usage}, not {text!r}")
    return (numbers[0], numbers[1]) if len(numbers) == 2 else numbers[0]
