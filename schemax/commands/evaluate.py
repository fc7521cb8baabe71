"""`schemax evaluate`: quality, forward passes and speed on annotated products, side by side."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Annotated, Any

import typer
from pydantic import BaseModel
from rich.console import Console
from rich.table import Table

from schemax.commands import options
from schemax.commands.messages import UsageError, plain_warnings
from schemax.evaluation.examples import (
    Example,
    Scores,
    read_examples,
    schemas_of,
    score_examples,
)
from schemax.extractor import Extractor
from schemax.results import Extraction

_WARM_UP = 16


@dataclass(frozen=True, slots=True)
class Report:
    """One decoding setting on all examples."""

    decoding: str
    scores: Scores
    passes: float
    seconds: float


def evaluate(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="INPUT",
            help='JSONL with one {"category", "text", "attributes": {name: value}} a line.',
        ),
    ],
    model: options.Model = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    format: options.Format = None,
    template: options.Template = None,
    decoding: Annotated[
        str, typer.Option(help="One or more of isolated, paper and autoregressive, by commas.")
    ] = "isolated",
    limit: Annotated[int | None, typer.Option(min=1, help="Read no more than so many.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as JSON.")] = False,
) -> None:
    """Scores extractions against annotations, by the protocol of ExtractGPT and strictly.

    Every setting reads the same products, in the same run; F1 counts exact matches. The strict
    score takes an attribute that is not annotated as null.
    """
    examples = read_examples(data)[:limit]
    if not examples:
        raise UsageError(f"{data} holds no products")
    names = [name.strip() for name in decoding.split(",")]
    checked = [options.checked_settings(format, template, name) for name in names]
    with plain_warnings(quiet=as_json):
        extractor = options.load_extractor(model, device, dtype)
        schemas = schemas_of(examples)
        reports = [
            _measure(extractor, examples, schemas, name, settings)
            for name, settings in zip(names, checked, strict=True)
        ]
    if as_json:
        typer.echo(json.dumps([_as_data(report, len(examples)) for report in reports], indent=2))
    else:
        _show(reports, examples, extractor)


def _measure(
    extractor: Extractor,
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    name: str,
    settings: Mapping[str, Any],
) -> Report:
    records = [{"category": e.category, "text": e.text} for e in examples]

    def run(part: Sequence[Mapping[str, str]]) -> list[Extraction[Any]]:
        stream = extractor.stream(part, schemas, category="category", **settings)
        return sorted(stream, key=lambda item: item.index)

    run(records[:_WARM_UP])
    started = time.perf_counter()
    items = run(records)
    seconds = time.perf_counter() - started
    values = [{name: field.value for name, field in item.fields.items()} for item in items]
    passes = mean(item.steps for item in items)
    return Report(name, score_examples(examples, values, schemas), passes, seconds)


def _as_data(report: Report, count: int) -> dict[str, Any]:
    return {
        "decoding": report.decoding,
        "products": count,
        "f1": report.scores.protocol.f1,
        "precision": report.scores.protocol.precision,
        "recall": report.scores.protocol.recall,
        "strict_f1": report.scores.strict.f1,
        "passes_per_product": report.passes,
        "seconds": report.seconds,
        "products_per_second": count / report.seconds,
        "f1_by_category": {name: score.f1 for name, score in report.scores.by_category.items()},
    }


def _show(reports: Sequence[Report], examples: Sequence[Example], extractor: Extractor) -> None:
    table = Table("decoding", pad_edge=False)
    for column in ("F1", "P", "R", "strict F1", "passes per product", "products/s"):
        table.add_column(column, justify="right")
    for report in reports:
        table.add_row(
            report.decoding,
            *(f"{report.scores.protocol.f1:.3f}", f"{report.scores.protocol.precision:.3f}"),
            *(f"{report.scores.protocol.recall:.3f}", f"{report.scores.strict.f1:.3f}"),
            *(f"{report.passes:.1f}", f"{len(examples) / report.seconds:.1f}"),
        )
    categories = Table("category", *(report.decoding for report in reports), pad_edge=False)
    for name in reports[0].scores.by_category:
        categories.add_row(
            name, *(f"{report.scores.by_category[name].f1:.3f}" for report in reports)
        )
    console = Console()
    console.print(f"{len(examples)} products; {_setting(extractor)}", highlight=False)
    console.print(table)
    if len(reports[0].scores.by_category) > 1:
        console.print("F1 by category", categories, sep="\n")


def _setting(extractor: Extractor) -> str:
    """Model shape, dtype and hardware: without them a speed says nothing."""
    import platform

    import torch

    model = extractor.model
    parameters = sum(p.numel() for p in model.model.parameters()) / 1e6
    place = (
        torch.cuda.get_device_name(model.device)
        if model.device.type == "cuda"
        else f"{platform.machine()} CPU, {torch.get_num_threads()} threads"
    )
    return (
        f"{type(model.model).__name__}, {parameters:.1f} M parameters, "
        f"{str(model.dtype).removeprefix('torch.')}, {place}"
    )
