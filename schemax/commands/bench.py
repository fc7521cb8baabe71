"""`schemax bench`: measures documents per second of every engine, on a model and documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from schemax.base.messages import say
from schemax.base.terminal import show, table
from schemax.commands import options
from schemax.commands.bench_options import Compared, Given
from schemax.commands.console import UsageError, listed, plain_warnings, refused_settings
from schemax.commands.option_groups import verb

if TYPE_CHECKING:
    from schemax.evaluation.benchmark.compare import Comparison, Rivals
    from schemax.evaluation.benchmark.engines import EngineOptions
    from schemax.evaluation.benchmark.report import Report


@verb
def bench(given: Given) -> None:
    """Measures schemax beside `generate`: one process, one model, the same answers for all.

    Every engine is made to write the annotated values (replay), and every run is checked for them.
    The floor is what plain forward passes over the tokens of the work take.
    """
    tell: Callable[[str], None] = (lambda _: None) if given.quiet else say
    with plain_warnings(quiet=given.quiet):
        # Imported here because other verbs need neither torch nor transformers to start.
        import torch

        from schemax.evaluation.benchmark.compare import (
            ABSENT,
            RIVALS,
            compare_engines,
            load_subject,
        )
        from schemax.evaluation.benchmark.engines import EngineOptions

        settings = comparison(given, EngineOptions, RIVALS)
        place = str(options.model_place(given.model))
        options.hush_libraries()
        if given.threads is not None:
            torch.set_num_threads(given.threads)
        subject = load_subject(
            place, given.data, given.documents, device=given.device, dtype=given.dtype
        )
        publish(compare_engines(subject, settings, tell), given.as_json)
        if given.against is None:
            tell(ABSENT)


def comparison(given: Compared, make: Callable[..., EngineOptions], known: Rivals) -> Comparison:
    """Returns the comparison that the options ask for.

    make: makes the options of engines; known: the rivals that may be named.

    Raises UsageError for settings that contradict each other.
    """
    from schemax.evaluation.benchmark.compare import Comparison, engine_names
    from schemax.evaluation.benchmark.measure import Rules

    if given.engines is not None and not listed(given.engines):
        raise UsageError("--engines names no engine; give names, separated by commas")
    with refused_settings():
        return Comparison(
            engines=tuple(listed(given.engines or "")) or engine_names(known),
            rules=Rules(given.repeats, given.rival_documents),
            options=make(
                batch_size=given.batch_size or "auto",
                generate_batches=_numbers(given.generate_batches, "--generate-batches"),
            ),
            server=given.against,
            concurrency=given.concurrency,
            token_prices=_prices(given.token_prices, given.against),
            price_per_hour=given.price_per_hour,
            rivals=known,
        )


def publish(report: Report, as_json: Path | None) -> None:
    """Shows the tables on the terminal, and writes the report to `as_json`."""
    from schemax.evaluation.benchmark.report import columns, headline, notes, table_rows

    if as_json is not None:
        as_json.write_text(json.dumps(report.to_dict(), indent=2) + "\n", "utf-8")
    cells = {name: itemgetter(place) for place, name in enumerate(columns(report))}
    show(headline(report))
    for rows in filter(None, (report.engines, report.sweep)):
        shown = table(table_rows(report, rows), cells)
        shown.columns[0].no_wrap = True
        show(shown)
    show(*notes(report))


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
