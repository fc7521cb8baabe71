"""The report of a comparison, as plain data, as tables of cells and as notes."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

import torch
import transformers
from pydantic import TypeAdapter, ValidationError

from schemax.base.messages import counted, misfit_of
from schemax.base.resources import version
from schemax.evaluation.benchmark.measure import EngineRun
from schemax.evaluation.benchmark.workload import Workload
from schemax.runtime.models.packed import num_weights

FORMAT = 1


@dataclass(frozen=True, slots=True)
class EngineRow:
    """The figures of an engine.

    documents: the number of documents of each run.
    seconds: of each repeat.
    products_per_second: of the median repeat.
    slowest, fastest: of the extreme repeats.
    of_floor, times_generate: the speed relative to the engines "floor" and "generate"; None without
        them.
    passes: forward passes of a run.
    passes_per_product: of a document.
    tried: documents/s by batch size.
    batch_size: the fastest size.
    documents_per_prompt: the most documents of a prompt.
    """

    name: str
    title: str
    kind: str
    documents: int
    seconds: tuple[float, ...]
    products_per_second: float
    slowest: float
    fastest: float
    of_floor: float | None = None
    times_generate: float | None = None
    passes: int | None = None
    passes_per_product: float | None = None
    peak_bytes: int | None = None
    batch_size: int | None = None
    documents_per_prompt: int = 1
    tried: dict[str, float] = field(default_factory=dict)
    note: str = ""
    dollars_per_1000: float | None = None


@dataclass(frozen=True, slots=True)
class Report:
    """The report of a comparison.

    model: name, class, parameters, dtype and shape.
    environment: hardware and versions.
    work: source and numbers of tokens.
    skipped: name and reason.
    sweep: rows of the grid.
    server: figures of a server, measured over HTTP.
    """

    model: dict[str, Any]
    environment: dict[str, Any]
    work: dict[str, Any]
    settings: dict[str, Any]
    engines: tuple[EngineRow, ...]
    skipped: tuple[dict[str, str], ...]
    sweep: tuple[EngineRow, ...] = ()
    server: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Returns the report as plain data for JSON."""
        return {"schemax_bench": FORMAT, **asdict(self)}

    @classmethod
    def from_dict(cls, data: Any) -> Report:
        """Reads the data of `to_dict`. Raises ValueError for other data."""
        if not isinstance(data, dict) or data.get("schemax_bench") != FORMAT:
            raise ValueError("not a report of `schemax bench`, or written by another version")
        try:
            return TypeAdapter(cls).validate_python(data)
        except ValidationError as error:
            raise ValueError(f"a broken report: {misfit_of(error)}") from error


def engine_rows(
    outcomes: Sequence[EngineRun],
    dollars_per_hour: float | None = None,
    beside: Sequence[EngineRun] = (),
) -> tuple[EngineRow, ...]:
    """Returns the rows of engines that ran, in order.

    beside: runs that hold the floor and `generate`, if `outcomes` lacks them.
    """
    known = [outcome for outcome in (*outcomes, *beside) if outcome.skipped is None]
    rates = {o.engine.name: o.documents / median(o.seconds) for o in known}
    floor, baseline = rates.get("floor"), rates.get("generate")
    rows = []
    for outcome in (outcome for outcome in outcomes if outcome.skipped is None):
        engine, rate, passes = outcome.engine, rates[outcome.engine.name], outcome.passes
        priced = dollars_per_hour is not None and engine.kind != "bound"
        price = (dollars_per_hour or 0.0) / 3600 / rate if priced else None
        row = EngineRow(
            name=engine.name,
            title=engine.title,
            kind=engine.kind,
            documents=outcome.documents,
            seconds=tuple(outcome.seconds),
            products_per_second=rate,
            slowest=outcome.documents / max(outcome.seconds),
            fastest=outcome.documents / min(outcome.seconds),
            of_floor=rate / floor if floor else None,
            times_generate=rate / baseline if baseline else None,
            passes=passes,
            passes_per_product=passes / outcome.documents if passes else None,
            peak_bytes=outcome.peak_bytes,
            batch_size=engine.batch_size,
            documents_per_prompt=engine.documents_per_prompt,
            tried={str(size): tried for size, tried in outcome.tried.items()},
            note=engine.note,
            dollars_per_1000=None if price is None else 1e3 * price,
        )
        rows.append(row)
    return tuple(rows)


def describe_model(model: Any, name: str) -> dict[str, Any]:
    """Describes a model: name, class, dtype, and the sizes that decide speed."""
    config = model.config.get_text_config()
    names = (
        *("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
        *("num_attention_heads", "num_key_value_heads", "head_dim"),
    )
    return {
        "name": name,
        "class": type(model).__name__,
        "parameters": num_weights(model),
        "dtype": str(model.dtype).removeprefix("torch."),
        "attention": config._attn_implementation,
        "shape": {key: getattr(config, key) for key in names if hasattr(config, key)},
    }


def describe_environment(device: torch.device) -> dict[str, Any]:
    """Describes hardware and versions, on which speed depends."""
    accelerator = torch.cuda.get_device_name(device) if device.type == "cuda" else None
    return {
        "device": device.type,
        "accelerator": accelerator,
        "cpu": _cpu_name(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "schemax": version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "date": datetime.now(UTC).date().isoformat(),
    }


def describe_work(work: Workload) -> dict[str, Any]:
    """Describes the work: its source, and the numbers of its tokens by kind."""
    counts = work.counts()
    answers = [len(a) for listing in work.listings for a in listing.answers]
    return {
        **work.facts,
        "listings": len(work),
        "slots": len(answers),
        "tokens": counts,
        "mean_document_tokens": counts["documents"] / len(work),
        "mean_value_tokens": sum(answers) / len(answers),
        "max_value_tokens": max(answers),
    }


def _cpu_name() -> str:
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


COLUMNS = ("engine", "documents/s", "±", "x floor", "x generate", "passes", "MiB", "batch")
PRICE = "$ per 1,000"


def columns(report: Report) -> tuple[str, ...]:
    return (*COLUMNS, PRICE) if _is_priced(report) else COLUMNS


def table_rows(
    report: Report, rows: Sequence[EngineRow] | None = None
) -> Iterator[tuple[str, ...]]:
    """Yields the cells of a row per engine, in the order of `columns`: bounds first, then by speed.

    passes: forward passes per product; ±: half the range of the repeats; MiB: peak memory.
    """
    priced = _is_priced(report)
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
    """Returns a sentence that names model, hardware, work and versions."""
    model, place, work = report.model, report.environment, report.work
    hardware = place["accelerator"] or f"{place['cpu']}, threads: {place['threads']}"
    return (
        f"{model['name']} ({model['parameters'] / 1e6:,.1f} M parameters, {model['dtype']}) on "
        f"{hardware}; {counted(work['listings'], 'listing')} of "
        f"{work['mean_document_tokens']:,.0f} tokens, "
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
            f"documents/s with {counted(server['concurrency'], 'request')} in flight, "
            f"{server['agreement']:.1%} of the fields as annotated{dollars}"
        )
    for item in report.skipped:
        yield f"{item['name']}: skipped; {item['reason']}"


def number(value: float) -> str:
    """Returns a number with three significant digits."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3g}"


def _is_priced(report: Report) -> bool:
    return any(row.dollars_per_1000 is not None for row in report.engines)
