"""`schemax bench`: measures documents per second of every engine, on the same weights and work."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from schemax.base.messages import say
from schemax.base.terminal import show, table
from schemax.commands import options
from schemax.commands.bench_options import Compared, Given, Output
from schemax.commands.console import UsageError, listed, plain_warnings, refused_settings
from schemax.commands.option_groups import verb

if TYPE_CHECKING:
    from schemax.evaluation.benchmark.compare import Comparison
    from schemax.evaluation.benchmark.engines.base import EngineOptions
    from schemax.evaluation.benchmark.engines.registry import Rivals
    from schemax.evaluation.benchmark.report import Report

# The options that each special measurement uses; any other would be ignored, so it is refused.
_USED = {
    "host": ("documents", "seed", "as_json", "quiet"),
    "earlier": ("as_json", "picture", "page", "quiet"),
}

_HOST: dict[str, Callable[[Any], Any]] = {
    "slots": lambda row: f"{row.setting.slots} {row.setting.kind}",
    "flying": lambda row: "auto" if (n := row.setting.in_flight) is None else f"{n:,}",
    "docs": lambda row: f"{row.setting.documents:,}",
    "tokens": lambda row: f"{row.tokens_per_slot:.1f}",
    "docs/s": lambda row: f"{row.documents_per_second:,.0f}",
    "docs/CPU s": lambda row: f"{row.documents_per_cpu_second:,.0f}",
    "model": lambda row: f"{row.model_share:.0%}",
    "host only": lambda row: f"{row.host_documents_per_cpu_second:,.0f}",
}


@verb
def bench(context: typer.Context, given: Given) -> None:
    """Measures schemax beside `generate`: one process, one model, the same answers for all.

    Every engine is made to write the same given tokens (replay), so that weights of any shape can
    be compared, random ones as well, and every run is checked for them. The floor is what plain
    forward passes over the tokens of the work take.
    """
    _refuse_others(context)
    tell = (lambda _: None) if given.quiet else say
    with plain_warnings(quiet=given.quiet):
        # Imported here because other verbs need neither torch nor transformers to start.
        if given.host:
            from schemax.evaluation.benchmark.host import measure_host, settings

            few = given.documents if _is_given(context, "documents") else None
            rows = list(measure_host(settings(few), given.seed, tell))
            write_rows("host", [row.to_dict() for row in rows], given.as_json)
            show(
                table(rows, _HOST),
                "flying: documents in flight; tokens: written per slot; model: share of the CPU "
                "time in\nforward passes and on logits; host only: documents per CPU second of all "
                "the rest",
            )
        elif given.earlier is not None:
            from schemax.evaluation.benchmark.report import Report

            with refused_settings(f"{given.earlier}: "):
                report = Report.from_dict(json.loads(given.earlier.read_text("utf-8")))
            publish(report, given)
        else:
            from schemax.evaluation.benchmark.engines.base import EngineOptions
            from schemax.evaluation.benchmark.engines.registry import RIVALS

            compare(comparison(given, EngineOptions, RIVALS), given, tell)


def compare(asked: Comparison, output: Output, tell: Callable[[str], None]) -> None:
    """Runs a comparison and publishes its report."""
    from schemax.evaluation.benchmark.compare import compare_engines
    from schemax.evaluation.benchmark.servers import ABSENT

    options.hush_libraries()
    publish(compare_engines(asked, tell), output)
    if asked.server is None:
        tell(ABSENT)


def comparison(given: Compared, make: Callable[..., EngineOptions], known: Rivals) -> Comparison:
    """Returns the comparison that the options ask for.

    make: makes the options of engines; known: the rivals that may be named.

    Raises UsageError for settings that contradict each other.
    """
    from schemax.evaluation.benchmark.compare import Comparison
    from schemax.evaluation.benchmark.engines.registry import engine_names
    from schemax.evaluation.benchmark.generated import Sizes
    from schemax.evaluation.benchmark.measure import Rules

    if given.engines is not None and not listed(given.engines):
        raise UsageError("--engines names no engine; give names, separated by commas")
    sized = given.data is None or given.document_tokens is not None
    names = (
        *("shape", "tokenizer", "device", "dtype", "threads", "price_per_hour", "data"),
        *("documents", "sweep", "concurrency"),
    )
    with refused_settings():
        sizes = Sizes(
            documents=given.documents,
            document_tokens=given.document_tokens or 250,
            attributes=given.attributes,
            jitter=given.jitter,
            seed=given.seed,
        )
        return Comparison(
            **{name: getattr(given, name) for name in names},
            # Without a shape, the default model.
            model=given.model if given.shape else str(options.model_place(given.model)),
            engines=tuple(listed(given.engines or "")) or engine_names(known),
            rules=Rules(given.repeats, given.rival_documents, seed=given.seed),
            options=make(
                batch_size=given.batch_size or "auto",
                generate_batches=_numbers(given.generate_batches, "--generate-batches"),
            ),
            sizes=sizes if sized else None,
            server=given.against,
            token_prices=_prices(given.token_prices, given.against),
            rivals=known,
        )


def write_rows(name: str, rows: Sequence[dict[str, Any]], path: Path | None) -> None:
    """Writes rows of a measurement on the host, with the environment, as JSON."""
    import torch

    from schemax.evaluation.benchmark.report import FORMAT, describe_environment

    if path is None:
        return
    environment = {**describe_environment(torch.device("cpu")), "threads": 1}
    data = {f"schemax_bench_{name}": FORMAT, "environment": environment, "rows": rows}
    path.write_text(json.dumps(data, indent=2) + "\n", "utf-8")


def _is_given(context: typer.Context, name: str | None) -> bool:
    source = context.get_parameter_source(name or "")
    return source is not None and source.name == "COMMANDLINE"


def _refuse_others(context: typer.Context) -> None:
    """Raises UsageError for an option that the given special measurement does not use."""
    found = [option for option in context.command.params if _is_given(context, option.name)]
    special = next((option for option in found if option.name in _USED), None)
    if special is None:
        return
    used = (special.name, *_USED[str(special.name)])
    if others := [option.opts[0] for option in found if option.name not in used]:
        raise UsageError(f"{special.opts[0]} does not go with {', '.join(others)}")


def publish(report: Report, output: Output) -> None:
    """Shows the table on the terminal, and writes the files that were asked for."""
    from schemax.evaluation.benchmark.plot import plot
    from schemax.evaluation.benchmark.table import columns, headline, notes, table_rows, write_page
    from schemax.evaluation.plots import can_plot

    if output.as_json is not None:
        output.as_json.write_text(json.dumps(report.to_dict(), indent=2) + "\n", "utf-8")
    cells = {name: itemgetter(place) for place, name in enumerate(columns(report))}
    show(headline(report))
    for rows in filter(None, (report.engines, report.sweep)):
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


def _prices(text: str | None, server: str | None) -> tuple[float, float] | None:
    if text is None:
        return None
    if server is None:
        raise UsageError("--token-prices requires --against")
    try:
        read, written = map(float, text.split(","))
    except ValueError:
        read = written = -1.0
    if min(read, written) < 0:
        raise UsageError(f"--token-prices takes two prices, not {text!r}")
    return read, written


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"{option} takes numbers separated by commas, not {text!r}") from error
