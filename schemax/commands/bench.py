"""`schemax bench`: measures documents per second of every engine, on a model and documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import MISSING
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from schemax.base.messages import say
from schemax.base.options import OptionGroup, option
from schemax.base.process import use_threads
from schemax.base.terminal import show, table
from schemax.commands import options
from schemax.commands.options import (
    UsageError,
    listed,
    numbers_of,
    plain_warnings,
    refused_settings,
    verb,
)

if TYPE_CHECKING:
    from schemax.evaluation.benchmark.compare import ComparisonSettings, Rivals
    from schemax.evaluation.benchmark.engines import EngineOptions
    from schemax.evaluation.benchmark.report import Report


class Loading(OptionGroup):
    """The model and the machine"""

    model: str | None = option("-m MODEL")
    """Folder or Hugging Face Hub id. Default: the embedded model."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps ..."""
    dtype: str = "auto"
    """float32, bfloat16 or float16; auto: as `load` chooses."""
    threads: int | None = option(min=1)
    """Threads of the CPU."""


class Compared(OptionGroup):
    """The engines"""

    engines: str | None = None
    """Names, separated by commas. Default: all that can run."""
    repeats: int = option(default=3, min=1)
    """Rounds; the median counts."""
    batch_size: int | None = option(min=1, show_default="auto")
    """Documents in flight, for schemax's own engines."""

    """The model and the machine"""

    price_per_hour: float | None = option(min=0.0)
    """Price of the machine, in dollars."""

    """Rivals"""

    rival_documents: int | None = option(min=1)
    """Rivals run on so many of the documents. Default: all."""
    generate_batches: str = "1,8,32,64"
    """Batch sizes for transformers' generate to choose from."""
    against: str | None = option("URL#MODEL")
    """A server of OpenAI's protocol, by completions or else by chat."""
    token_prices: str | None = option("IN,OUT")
    """Prices of --against: dollars for a million tokens, read and written."""
    concurrency: int = option(default=32, min=1)
    """Requests in flight to --against."""

    """Output"""

    as_json: Path | None = option("--json FILE")
    """Writes all results."""
    quiet: bool = option("-q", default=False)
    """No progress."""


class Args(Compared, Loading):
    """The documents"""

    data: Path = option("FILE", default=MISSING, show_default=False)
    """JSONL of annotated documents, as `evaluate` reads it."""
    documents: int = option(default=64, min=1)
    """Number of documents, evenly spread over the file."""


@verb
def bench(args: Args) -> None:
    """Measures schemax beside `generate`: one process, one model, the same answers for all.

    Every engine is made to write the annotated values (replay), and every run is checked for them.
    The floor is what plain forward passes over the tokens of the work take.
    """
    tell: Callable[[str], None] = (lambda _: None) if args.quiet else say
    with plain_warnings(quiet=args.quiet):
        if args.threads is not None:
            use_threads(args.threads)
        # Imported here because other verbs need neither torch nor transformers to start.
        from schemax.evaluation.benchmark.compare import (
            ABSENT,
            RIVALS,
            compare_engines,
            load_subject,
        )
        from schemax.evaluation.benchmark.engines import EngineOptions

        settings = comparison(args, EngineOptions, RIVALS)
        place = str(options.model_place(args.model))
        options.hush_libraries()
        subject = load_subject(
            place, args.data, args.documents, device=args.device, dtype=args.dtype
        )
        publish(compare_engines(subject, settings, tell), args.as_json)
        if args.against is None:
            tell(ABSENT)


def comparison(
    args: Compared, make: Callable[..., EngineOptions], rivals: Rivals
) -> ComparisonSettings:
    """Returns the comparison that the options ask for.

    make: makes the options of engines. rivals: those that may be named.

    Raises UsageError for settings that contradict each other.
    """
    from schemax.evaluation.benchmark.compare import ComparisonSettings, engine_names
    from schemax.evaluation.benchmark.measure import Rules

    if args.engines is not None and not listed(args.engines):
        raise UsageError("--engines names no engine; give names, separated by commas")
    with refused_settings():
        return ComparisonSettings(
            engines=tuple(listed(args.engines or "")) or engine_names(rivals),
            rules=Rules(args.repeats, args.rival_documents),
            options=make(
                batch_size=args.batch_size or "auto",
                generate_batches=tuple(
                    numbers_of(
                        args.generate_batches,
                        "--generate-batches takes numbers separated by commas",
                    )
                ),
            ),
            server=args.against,
            concurrency=args.concurrency,
            token_prices=_prices(args.token_prices, args.against),
            price_per_hour=args.price_per_hour,
            rivals=rivals,
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
