"""`schemax bench`: products per second of every engine, on the same weights and the same work."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from schemax.commands import options
from schemax.commands.console import UsageError, plain_warnings, refused_settings, say
from schemax.resources import resource_dir

if TYPE_CHECKING:
    from schemax.benchmark.compare import Request
    from schemax.benchmark.report import Report

_Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        show_default=False,
        help="Folder or Hugging Face Hub id. Default: --shape, else the embedded model.",
    ),
]


# What --tables makes use of.
_OF_TABLES = ("tables", "documents", "model", "device", "dtype", "threads", "quiet")


def bench(
    context: typer.Context,
    model: _Model = None,
    shape: Annotated[
        str | None,
        typer.Option(
            show_default=False,
            help="Random weights of a published shape instead: qwen3-0.6b, qwen3-8b ...",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(show_default=False, help="Folder of a tokenizer, for --data with --shape."),
    ] = None,
    device: options.Device = "auto",
    dtype: Annotated[
        str,
        typer.Option(help="float32, bfloat16, float16; auto: bfloat16 for shapes, else as always."),
    ] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the CPU.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            show_default=False,
            help="JSONL of annotated products, as `evaluate` reads it. With --document-tokens "
            "only the lengths of its values are taken.",
        ),
    ] = None,
    documents: Annotated[int, typer.Option(min=1, help="How many listings.")] = 64,
    document_tokens: Annotated[
        int | None, typer.Option(min=2, show_default="250", help="Generated listings: their size.")
    ] = None,
    attributes: Annotated[int, typer.Option(min=1, help="... attributes of each.")] = 16,
    key_tokens: Annotated[int, typer.Option(min=1, help="... tokens of a key.")] = 4,
    instruction_tokens: Annotated[int, typer.Option(min=1, help="... of the instruction.")] = 250,
    jitter: Annotated[float, typer.Option(help="... lengths vary by this share, to 0.5.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the listings and of the order of runs.")] = 0,
    engines: Annotated[
        str | None,
        typer.Option(show_default=False, help="Names by commas. Default: all that can run."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 3,
    rival_documents: Annotated[
        int | None,
        typer.Option(min=1, show_default=False, help="Rivals run on so many listings. All if not."),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, show_default="auto", help="Of schemax's own engines.")
    ] = None,
    generate_batches: Annotated[
        str, typer.Option(help="Batch sizes for transformers' generate to choose from.")
    ] = "1,8,32,64",
    draft: Annotated[
        str | None,
        typer.Option(show_default=False, help="Shape of the draft model. Default: an eighth."),
    ] = None,
    draft_acceptance: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="How often a drafted token is right.")
    ] = 0.8,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="The grid of documents per prompt and batch sizes.")
    ] = False,
    constraints: Annotated[
        bool,
        typer.Option("--constraints", help="Instead, what constraints cost a decode step."),
    ] = False,
    tables: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="ROWS",
            show_default=False,
            help="Instead, what runs over tables cost beside the model, up to so many rows.",
        ),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="URL", show_default=False, help="A server of OpenAI's protocol."),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests in flight there.")] = 32,
    price_per_hour: Annotated[
        float | None, typer.Option(min=0.0, show_default=False, help="Of the machine, in dollars.")
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", show_default=False, help="Results.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", show_default=False, help="SVG or PNG.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default=False, help="A page to write the results into."),
    ] = None,
    earlier: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", show_default=False, help="Shows results; measures nothing."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Measures schemax and its rivals: one process, one model, the same answers for all.

    Every engine is made to write the same given tokens (replay), so that weights of any shape can
    be compared, random ones as well, and every run is checked for them. The floor is what plain
    forward passes over the tokens of the work take.
    """
    if tables is not None:
        _refuse_others(context)
        _measure_tables(tables, documents, model, device, dtype, threads, quiet)
        return
    if earlier is not None:
        _publish(_read_report(earlier), None, picture, page)
        return
    # Here and not above, since other verbs need neither torch nor transformers to start.
    from schemax.benchmark.compare import Request, compare
    from schemax.benchmark.generated import Sizes
    from schemax.benchmark.measure import Rules
    from schemax.benchmark.servers import ABSENT

    options.hush_libraries()
    with refused_settings():
        sizes = Sizes(
            documents=documents,
            document_tokens=document_tokens or 250,
            attributes=attributes,
            key_tokens=key_tokens,
            instruction_tokens=instruction_tokens,
            jitter=jitter,
            seed=seed,
        )
        request = Request(
            engines=_names(engines),
            rules=Rules(repeats, rival_documents, seed=seed),
            model=_model_name(model, shape),
            shape=shape,
            tokenizer=tokenizer,
            device=device,
            dtype=dtype,
            threads=threads,
            data=data,
            sizes=sizes if data is None or document_tokens is not None else None,
            documents=documents,
            batch_size=batch_size or "auto",
            generate_batches=_numbers(generate_batches, "--generate-batches"),
            draft=draft,
            draft_acceptance=draft_acceptance,
            sweep=sweep,
            server=against,
            concurrency=concurrency,
            price_per_hour=price_per_hour,
        )
    if constraints:
        _measure_constraints(request, quiet)
        return
    with plain_warnings(quiet=quiet):
        report = compare(request, (lambda _: None) if quiet else say)
    _publish(report, as_json, picture, page)
    if against is None and not quiet:
        say(ABSENT)


def _refuse_others(context: typer.Context) -> None:
    """Raises UsageError for what was given, but means nothing to --tables."""
    others = [
        option.opts[0]
        for option in context.command.params
        if option.name not in _OF_TABLES and _is_given(context, option.name)
    ]
    if others:
        raise UsageError(f"--tables does not go with {', '.join(others)}")


def _is_given(context: typer.Context, name: str | None) -> bool:
    source = context.get_parameter_source(name or "")
    return source is not None and source.name == "COMMANDLINE"


def _measure_constraints(request: Request, quiet: bool) -> None:
    from schemax.benchmark.compare import load_model
    from schemax.benchmark.constraints import measure_constraints

    with plain_warnings(quiet=quiet), refused_settings():
        model, tokenizer = load_model(request)
        costs = measure_constraints(
            model,
            tokenizer,
            documents=request.documents,
            document_tokens=request.sizes.document_tokens if request.sizes else 250,
            repeats=request.rules.repeats,
            seed=request.rules.seed,
            tell=(lambda _: None) if quiet else say,
        )
    for line in costs.lines():
        print(line)


def _measure_tables(
    rows: int,
    documents: int,
    model: str | None,
    device: str,
    dtype: str,
    threads: int | None,
    quiet: bool,
) -> None:
    import torch

    from schemax.commands.table_costs import measure_tables

    if threads is not None:
        torch.set_num_threads(threads)
    with plain_warnings(quiet=quiet):
        costs = measure_tables(
            rows,
            documents=documents,
            model=model,
            device=device,
            dtype=dtype,
            tell=(lambda _: None) if quiet else say,
        )
    for line in costs.lines():
        print(line)


def _publish(report: Report, as_json: Path | None, picture: Path | None, page: Path | None) -> None:
    """The table on the terminal, and the files that were asked for."""
    from schemax.benchmark.page import write_page
    from schemax.benchmark.plot import can_plot, plot
    from schemax.benchmark.table import cells, columns, headline, notes

    if as_json is not None:
        as_json.write_text(json.dumps(report.to_dict(), indent=2) + "\n", "utf-8")
    console = Console()
    console.print(headline(report), highlight=False, markup=False, soft_wrap=True)
    for rows in (None, report.sweep):
        if rows is None or rows:
            table = Table(pad_edge=False, box=SIMPLE_HEAD)
            table.add_column(columns(report)[0], no_wrap=True)
            for name in columns(report)[1:]:
                table.add_column(name, justify="right")
            for row in cells(report, rows):
                table.add_row(*row)
            console.print(table)
    for note in notes(report):
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    if page is not None:
        write_page(page, report)
    if picture is not None and not can_plot():
        say("no plot: matplotlib is not installed; pip install 'schemax-hpd[bench]'")
    elif picture is not None:
        with refused_settings():
            plot(report, picture)


def _read_report(path: Path) -> Report:
    from schemax.benchmark.report import Report

    try:
        return Report.from_dict(json.loads(path.read_text("utf-8")))
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error


def _names(engines: str | None) -> tuple[str, ...]:
    from schemax.benchmark.suite import ENGINES

    if engines is None:
        return ENGINES
    names = tuple(name.strip() for name in engines.split(",") if name.strip())
    if not names:
        raise UsageError("--engines names none")
    return names


def _model_name(model: str | None, shape: str | None) -> str | None:
    """What was named; without a shape, the default model. Raises UsageError for no folder."""
    if shape is not None:
        return model
    name = model or os.environ.get("SCHEMAX_MODEL")
    if name:
        options.check_folder(name)
    return name or str(resource_dir("embedded"))


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"{option} takes numbers by commas, not {text!r}") from error
