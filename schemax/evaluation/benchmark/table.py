"""Turns a report into tables of cells, and into notes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemax.evaluation.benchmark.report import EngineRow, Report

COLUMNS = ("engine", "documents/s", "±", "x floor", "x generate", "passes", "MiB", "batch")
PRICE = "$ per 1,000"


def columns(report: Report) -> tuple[str, ...]:
    return (*COLUMNS, PRICE) if _priced(report) else COLUMNS


def table_rows(
    report: Report, rows: Sequence[EngineRow] | None = None
) -> Iterator[tuple[str, ...]]:
    """Yields the cells of a row per engine, in the order of `columns`: bounds first, then by speed.

    passes: forward passes per product; ±: half the range of the repeats; MiB: peak memory.
    """
    priced = _priced(report)
    chosen = report.engines if rows is None else rows
    ordered = sorted(chosen, key=lambda row: (row.kind != "bound", -row.products_per_second))
    for row in ordered:
        spread = (row.fastest - row.slowest) / 2 / row.products_per_second
        cells = (
            row.name,
            number(row.products_per_second),
            f"{spread:.0%}" if len(row.seconds) > 1 else "",
            "" if row.of_floor is None else f"{row.of_floor:.2f}",
            "" if row.times_generate is None else f"{row.times_generate:.2f}",
            "" if row.passes_per_product is None else number(row.passes_per_product),
            "" if row.peak_bytes is None else f"{row.peak_bytes / 2**20:,.0f}",
            "" if row.batch_size is None else str(row.batch_size),
        )
        price = "" if row.dollars_per_1000 is None else number(row.dollars_per_1000)
        yield (*cells, price) if priced else cells


def headline(report: Report) -> str:
    """A sentence that names model, hardware, work and versions."""
    model, place, work = report.model, report.environment, report.work
    hardware = place["accelerator"] or f"{place['cpu']}, threads: {place['threads']}"
    return (
        f"{model['name']} ({model['parameters'] / 1e6:,.1f} M parameters, {model['dtype']}) on "
        f"{hardware}; {work['listings']} listings of {work['mean_document_tokens']:,.0f} tokens, "
        f"{work['slots'] / work['listings']:.1f} attributes each, values of "
        f"{work['mean_value_tokens']:.1f} tokens; torch {place['torch']}, transformers "
        f"{place['transformers']}"
    )


def notes(report: Report) -> Iterator[str]:
    """Yields remarks on figures, and the engines that took no part."""
    for row in report.engines:
        if row.note:
            yield f"{row.name}: {row.note}"
    for row in report.engines:
        if row.kind == "rival" and row.documents < report.work["listings"]:
            yield f"{row.name}: measured on {row.documents} of the listings"
    if (server := report.server) is not None:
        price = server.get("dollars_per_1000")
        dollars = "" if price is None else f", ${number(price)} for 1,000 documents"
        yield (
            f"{server['model']} at {server['url']}: {number(server['products_per_second'])} "
            f"documents/s with {server['concurrency']} requests in flight, "
            f"{server['agreement']:.1%} of the fields as annotated{dollars}"
        )
    for item in report.skipped:
        yield f"{item['name']}: skipped; {item['reason']}"


def number(value: float) -> str:
    """A number with three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def _priced(report: Report) -> bool:
    return any(row.dollars_per_1000 is not None for row in report.engines)
