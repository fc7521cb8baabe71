"""`schemax bench`: documents per second of every engine, on the same weights and the same work."""

from __future__ import annotations

import json
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from schemax.commands import bench_options as given
from schemax.commands import bench_special, options
from schemax.commands.console import (
    UsageError,
    listed,
    plain_warnings,
    refused_settings,
    say,
    show,
    table,
)
from schemax.commands.option_groups import grouped

if TYPE_CHECKING:
    from schemax.benchmark.compare import Comparison
    from schemax.benchmark.report import Report


@grouped
def bench(
    context: typer.Context,
    run: given.EngineOptions,
    work: given.WorkOptions,
    machine: given.MachineOptions,
    rivals: given.RivalOptions,
    special: given.SpecialOptions,
    output: given.OutputOptions,
) -> None:
    """Measures schemax and its rivals: one process, one model, the same answers for all.

    Every engine is made to write the same given tokens (replay), so that weights of any shape can
    be compared, random ones as well, and every run is checked for them. The floor is what plain
    forward passes over the tokens of the work take.
    """
    bench_special.refuse_others(context)
    tell = (lambda _: None) if output.quiet else say
    with plain_warnings(quiet=output.quiet):
        if special.tables is not None:
            bench_special.tables(special.tables, work.documents, machine, tell)
        elif special.waves:
            bench_special.waves(work.documents, run.repeats, machine, tell)
        elif special.host:
            is_given = bench_special.is_given(context, "documents")
            few = work.documents if is_given else None
            bench_special.host(few, work.seed, output.as_json, tell)
        elif special.gpu_suite is not None:
            options.hush_libraries()
            few = work.documents if bench_special.is_given(context, "documents") else None
            bench_special.gpu_suite(special.gpu_suite, few, run.repeats, machine, tell)
        elif special.transfers:
            bench_special.transfers(work.seed, output.as_json)
        elif special.earlier is not None:
            _publish(_read_report(special.earlier), output)
        else:
            # Here and not above, since other verbs need neither torch nor transformers to start.
            from schemax.benchmark.compare import compare_engines
            from schemax.benchmark.servers import ABSENT

            options.hush_libraries()
            comparison = _comparison(run, work, machine, rivals)
            if special.constraints or special.served:
                measure = bench_special.served if special.served else bench_special.constraints
                measure(comparison, tell)
                return
            _publish(compare_engines(comparison, tell), output)
            if rivals.against is None:
                tell(ABSENT)


def _comparison(
    run: given.EngineOptions,
    work: given.WorkOptions,
    machine: given.MachineOptions,
    rivals: given.RivalOptions,
) -> Comparison:
    from schemax.benchmark.compare import Comparison
    from schemax.benchmark.engines.base import EngineOptions
    from schemax.benchmark.generated import Sizes
    from schemax.benchmark.measure import Rules

    # Without a shape, the default model.
    model = machine.model if machine.shape else str(options.model_place(machine.model))
    sized = work.data is None or work.document_tokens is not None
    with refused_settings():
        sizes = Sizes(
            documents=work.documents,
            document_tokens=work.document_tokens or 250,
            attributes=work.attributes,
            jitter=work.jitter,
            seed=work.seed,
        )
        return Comparison(
            **asdict(machine) | {"model": model},
            engines=_names(run.engines),
            rules=Rules(run.repeats, rivals.rival_documents, seed=work.seed),
            options=EngineOptions(
                batch_size=run.batch_size or "auto",
                generate_batches=_numbers(rivals.generate_batches, "--generate-batches"),
                draft=rivals.draft,
                draft_acceptance=rivals.draft_acceptance,
            ),
            data=work.data,
            sizes=sizes if sized else None,
            documents=work.documents,
            sweep=run.sweep,
            server=rivals.against,
            concurrency=rivals.concurrency,
            token_prices=_prices(rivals),
        )


def _publish(report: Report, output: given.OutputOptions) -> None:
    """The table on the terminal, and the files that were asked for."""
    from schemax.benchmark.plot import plot
    from schemax.benchmark.table import columns, headline, notes, table_rows, write_page
    from schemax.evaluation.plots import can_plot

    if output.as_json is not None:
        output.as_json.write_text(json.dumps(report.to_dict(), indent=2) + "\n", "utf-8")
    cells = {name: itemgetter(place) for place, name in enumerate(columns(report))}
    show(headline(report))
    for rows in (report.engines, report.sweep):
        if rows:
            made = table(table_rows(report, rows), cells)
            made.columns[0].no_wrap = True
            show(made)
    show(*notes(report))
    if output.page is not None:
        write_page(output.page, report)
    if output.picture is not None and not can_plot():
        say("no plot: matplotlib is not installed; pip install '.[bench]' in a checkout")
    elif output.picture is not None:
        with refused_settings():
            plot(report, output.picture)


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
    names = tuple(listed(engines))
    if not names:
        raise UsageError("--engines names no engine; give names, separated by commas")
    return names


def _prices(rivals: given.RivalOptions) -> tuple[float, float] | None:
    if rivals.token_prices is None:
        return None
    if rivals.against is None:
        raise UsageError("--token-prices requires --against")
    try:
        read, written = map(float, rivals.token_prices.split(","))
    except ValueError:
        read = written = -1.0
    if min(read, written) < 0:
        raise UsageError(f"--token-prices takes two prices, not {rivals.token_prices!r}")
    return read, written


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"{option} takes numbers separated by commas, not {text!r}") from error
