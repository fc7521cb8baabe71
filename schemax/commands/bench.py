"""`schemax bench`: documents per second of every engine, on the same weights and the same work."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from schemax.commands import bench_options as given
from schemax.commands import options
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
    from schemax.benchmark.engines.base import EngineOptions
    from schemax.benchmark.engines.registry import Rivals
    from schemax.benchmark.report import Report

FORMAT = 1

# Options that each of them makes use of; any other would be ignored, so it is refused.
_USED = {
    "host": ("documents", "seed", "as_json", "quiet"),
    "earlier": ("as_json", "picture", "page", "quiet"),
}


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
    """Measures schemax beside `generate`: one process, one model, the same answers for all.

    Every engine is made to write the same given tokens (replay), so that weights of any shape can
    be compared, random ones as well, and every run is checked for them. The floor is what plain
    forward passes over the tokens of the work take.
    """
    _refuse_others(context)
    tell = (lambda _: None) if output.quiet else say
    with plain_warnings(quiet=output.quiet):
        if special.host:
            few = work.documents if is_given(context, "documents") else None
            _host(few, work.seed, output.as_json, tell)
        elif special.earlier is not None:
            publish(_read_report(special.earlier), output)
        else:
            # Here and not above, since other verbs need neither torch nor transformers to start.
            from schemax.benchmark.engines.base import EngineOptions
            from schemax.benchmark.engines.registry import RIVALS

            compare(comparison(run, work, machine, rivals, EngineOptions, RIVALS), output, tell)


def compare(asked: Comparison, output: given.OutputOptions, tell: Callable[[str], None]) -> None:
    """Runs a comparison and publishes its report."""
    from schemax.benchmark.compare import compare_engines
    from schemax.benchmark.servers import ABSENT

    options.hush_libraries()
    publish(compare_engines(asked, tell), output)
    if asked.server is None:
        tell(ABSENT)


def comparison(
    run: given.EngineOptions,
    work: given.WorkOptions,
    machine: given.MachineOptions,
    rivals: given.RivalOptions,
    make: Callable[..., EngineOptions],
    known: Rivals,
) -> Comparison:
    """What options ask for.

    make: makes the options of engines; known: the rivals that may be named.

    Raises UsageError for settings that contradict each other.
    """
    from schemax.benchmark.compare import Comparison
    from schemax.benchmark.engines.registry import engine_names
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
            engines=engine_names(known) if run.engines is None else _names(run.engines),
            rules=Rules(run.repeats, rivals.rival_documents, seed=work.seed),
            options=make(
                batch_size=run.batch_size or "auto",
                generate_batches=_numbers(rivals.generate_batches, "--generate-batches"),
            ),
            data=work.data,
            sizes=sizes if sized else None,
            documents=work.documents,
            sweep=run.sweep,
            server=rivals.against,
            concurrency=rivals.concurrency,
            token_prices=_prices(rivals),
            rivals=known,
        )


def _host(
    most_documents: int | None, seed: int, as_json: Path | None, tell: Callable[[str], None]
) -> None:
    """most_documents: of a setting; None takes as many as make its figures stable."""
    from schemax.benchmark.host import measure_host, settings

    rows = list(measure_host(settings(most_documents), seed, tell))
    write_rows("host", [row.to_dict() for row in rows], as_json)
    columns: dict[str, Callable[[Any], Any]] = {
        "slots": lambda row: f"{row.setting.slots} {row.setting.kind}",
        "flying": lambda row: (
            "auto" if row.setting.in_flight is None else f"{row.setting.in_flight:,}"
        ),
        "docs": lambda row: f"{row.setting.documents:,}",
        "tokens": lambda row: f"{row.tokens_per_slot:.1f}",
        "docs/s": lambda row: f"{row.documents_per_second:,.0f}",
        "docs/CPU s": lambda row: f"{row.documents_per_cpu_second:,.0f}",
        "model": lambda row: f"{row.model_share:.0%}",
        "host only": lambda row: f"{row.host_documents_per_cpu_second:,.0f}",
    }
    show(
        table(rows, columns),
        "flying: documents in flight; tokens: written per slot; model: share of the CPU time in\n"
        "forward passes and on logits; host only: documents per CPU second of all the rest",
    )


def write_rows(name: str, rows: Sequence[dict[str, Any]], path: Path | None) -> None:
    """Rows of a measurement on the host, with the machine, as JSON."""
    import torch

    from schemax.benchmark.report import describe_environment

    if path is None:
        return
    environment = {**describe_environment(torch.device("cpu")), "threads": 1}
    data = {f"schemax_bench_{name}": FORMAT, "environment": environment, "rows": rows}
    path.write_text(json.dumps(data, indent=2) + "\n", "utf-8")


def is_given(context: typer.Context, name: str | None) -> bool:
    source = context.get_parameter_source(name or "")
    return source is not None and source.name == "COMMANDLINE"


def _refuse_others(context: typer.Context) -> None:
    """Raises UsageError for an option that is given beside a special measurement without use."""
    found = [option for option in context.command.params if is_given(context, option.name)]
    special = next((option for option in found if option.name in _USED), None)
    if special is None:
        return
    used = (special.name, *_USED[str(special.name)])
    if others := [option.opts[0] for option in found if option.name not in used]:
        raise UsageError(f"{special.opts[0]} does not go with {', '.join(others)}")


def publish(report: Report, output: given.OutputOptions) -> None:
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


def _names(engines: str) -> tuple[str, ...]:
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
