"""`schemax bench`: products per second of every engine, on the same weights and the same work."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from schemax.commands import bench_options as to
from schemax.commands import bench_special as special
from schemax.commands import options
from schemax.commands.console import UsageError, plain_warnings, refused_settings, say
from schemax.resources import resource_dir

if TYPE_CHECKING:
    from schemax.benchmark.report import Report


def bench(
    context: typer.Context,
    engines: to.Engines = None,
    repeats: to.Repeats = 3,
    batch_size: to.BatchSize = None,
    sweep: to.Sweep = False,
    data: to.Data = None,
    documents: to.Documents = 64,
    document_tokens: to.DocumentTokens = None,
    attributes: to.Attributes = 16,
    jitter: to.Jitter = 0.0,
    seed: to.Seed = 0,
    model: to.Model = None,
    shape: to.Shape = None,
    tokenizer: to.Tokenizer = None,
    device: to.Device = "auto",
    dtype: to.Dtype = "auto",
    threads: to.Threads = None,
    price_per_hour: to.PricePerHour = None,
    rival_documents: to.RivalDocuments = None,
    generate_batches: to.GenerateBatches = "1,8,32,64",
    draft: to.Draft = None,
    draft_acceptance: to.DraftAcceptance = 0.8,
    against: to.Against = None,
    concurrency: to.Concurrency = 32,
    host: to.Host = False,
    transfers: to.Transfers = False,
    constraints: to.Constraints = False,
    tables: to.Tables = None,
    earlier: to.Earlier = None,
    as_json: to.Json = None,
    picture: to.Plot = None,
    page: to.Page = None,
    quiet: to.Quiet = False,
) -> None:
    """Measures schemax and its rivals: one process, one model, the same answers for all.

    Every engine is made to write the same given tokens (replay), so that weights of any shape can
    be compared, random ones as well, and every run is checked for them. The floor is what plain
    forward passes over the tokens of the work take.
    """
    special.refuse_others(context)
    if tables is not None:
        special.tables(tables, documents, model, device, dtype, threads, quiet)
        return
    if host:
        few = documents if special.is_given(context, "documents") else None
        special.host(few, seed, as_json, quiet)
        return
    if transfers:
        special.transfers(seed, as_json, quiet)
        return
    if earlier is not None:
        _publish(_read_report(earlier), None, picture, page)
        return
    # Here and not above, since other verbs need neither torch nor transformers to start.
    from schemax.benchmark.compare import Comparison, compare_engines
    from schemax.benchmark.engines.base import EngineOptions
    from schemax.benchmark.generated import Sizes
    from schemax.benchmark.measure import Rules
    from schemax.benchmark.servers import ABSENT

    options.hush_libraries()
    with refused_settings():
        sizes = Sizes(
            documents=documents,
            document_tokens=document_tokens or 250,
            attributes=attributes,
            jitter=jitter,
            seed=seed,
        )
        comparison = Comparison(
            engines=_names(engines),
            rules=Rules(repeats, rival_documents, seed=seed),
            options=EngineOptions(
                batch_size=batch_size or "auto",
                generate_batches=_numbers(generate_batches, "--generate-batches"),
                draft=draft,
                draft_acceptance=draft_acceptance,
            ),
            model=_model_name(model, shape),
            shape=shape,
            tokenizer=tokenizer,
            device=device,
            dtype=dtype,
            threads=threads,
            data=data,
            sizes=sizes if data is None or document_tokens is not None else None,
            documents=documents,
            sweep=sweep,
            server=against,
            concurrency=concurrency,
            price_per_hour=price_per_hour,
        )
    if constraints:
        special.constraints(comparison, quiet)
        return
    with plain_warnings(quiet=quiet):
        report = compare_engines(comparison, (lambda _: None) if quiet else say)
    _publish(report, as_json, picture, page)
    if against is None and not quiet:
        say(ABSENT)


def _publish(report: Report, as_json: Path | None, picture: Path | None, page: Path | None) -> None:
    """The table on the terminal, and the files that were asked for."""
    from schemax.benchmark.page import write_page
    from schemax.benchmark.plot import plot
    from schemax.benchmark.table import columns, headline, notes, table_rows
    from schemax.evaluation.plots import can_plot

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
            for row in table_rows(report, rows):
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
    from schemax.benchmark.engines.registry import ENGINES

    if engines is None:
        return ENGINES
    names = tuple(name.strip() for name in engines.split(",") if name.strip())
    if not names:
        raise UsageError("--engines names no engine; give names, separated by commas")
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
        raise UsageError(f"{option} takes numbers separated by commas, not {text!r}") from error
