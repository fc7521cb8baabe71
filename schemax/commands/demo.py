"""`schemax demo`: real-looking listings, read before your eyes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from statistics import mean
from typing import Annotated, Any, NamedTuple

import typer
from pydantic import BaseModel
from rich.table import Table
from rich.text import Text

from schemax.catalog import load_schema
from schemax.commands import options
from schemax.commands.console import plain_warnings, show, table
from schemax.extractor import Extractor
from schemax.results import Extraction

# Written for this purpose; any likeness to a product on sale is in the style alone.
LISTINGS: Sequence[tuple[str, str]] = (
    ("shoes", "Northfell Women's Tamarack Waterproof Hiking Boot, Dark Olive, 8.5 M US"),
    ("shoes", "Calder & Sons Men's Leather Slip-On Loafer Brown Size 11"),
    (
        "coffee",
        "Brightwater Roasters Ground Coffee, Hazelnut Creme, Medium Roast, 12 oz (Pack of 6)",
    ),
    ("tea", "Larkspur Organic Peppermint Herbal Tea, Caffeine Free, 20 Tea Bags"),
    ("sunscreen", "Solmara Kids Mineral Sunscreen Lotion SPF 50, Fragrance Free, 6 fl oz, 2 Pack"),
    ("vitamin", "Evergreen Vitality Vitamin D3 2000 IU Gummies for Adults, Peach, 120 Count"),
    ("toothbrush", "PearlPath Extra Soft Manual Toothbrush for Toddlers, Blue, 4 Count"),
    ("laundry detergent", "Meadowline Liquid Laundry Detergent, Lavender, 64 Loads, 100 fl oz"),
)


class TimedRun(NamedTuple):
    """All listings, read once."""

    name: str
    items: Sequence[Extraction[Any]]
    seconds: float


_COLUMNS: dict[str, Callable[[TimedRun], str]] = {
    "decoding": lambda run: run.name,
    "forward passes per listing": lambda run: f"{mean(item.steps for item in run.items):.1f}",
    f"seconds for all {len(LISTINGS)}": lambda run: f"{run.seconds:.2f}",
}


def demo(
    model: options.Model = None,
    compare: Annotated[
        bool, typer.Option(help="Read the listings with autoregressive decoding as well.")
    ] = True,
) -> None:
    """Reads a handful of listings with the embedded model, and shows what that took."""
    with plain_warnings():
        extractor = options.load_extractor(model)
        schemas = {name: load_schema(name) for name, _ in LISTINGS}
        runs = [_timed(extractor, schemas, "isolated", "hyper-parallel")]
        if compare:
            runs.append(_timed(extractor, schemas, "autoregressive", "autoregressive"))
    show(_values_table(runs[0].items), table(runs, _COLUMNS))
    show(
        "\nNext, your own products, one JSON object or string per line:\n"
        "  schemax extract shoes products.jsonl -o shoes.jsonl\n"
        "`schemax schemas` lists what else is ready-made, `schemax explain shoes` shows how it is "
        "read."
    )


def _timed(
    extractor: Extractor, schemas: Mapping[str, type[BaseModel]], decoding: str, name: str
) -> TimedRun:
    records = [{"category": category, "title": title} for category, title in LISTINGS]

    def run() -> list[Extraction[Any]]:
        return list(extractor.stream(records, schemas, category="category", decoding=decoding))

    run()  # the first time pays for what is compiled and allocated once
    started = time.perf_counter()
    items = run()
    seconds = time.perf_counter() - started
    return TimedRun(name, sorted(items, key=lambda item: item.index), seconds)


def _values_table(items: Sequence[Extraction[Any]]) -> Table:
    made = Table(show_header=False, show_lines=False, pad_edge=False)
    made.add_column(style="bold", no_wrap=True)
    made.add_column(overflow="fold")
    for place, (item, (_, title)) in enumerate(zip(items, LISTINGS, strict=True)):
        if place:
            made.add_section()
        made.add_row("", Text(title, style="italic"))
        for name, value in _stated(item):
            made.add_row(name, Text(value))
    return made


def _stated(item: Extraction[Any]) -> list[tuple[str, str]]:
    if item.value is None:
        return [("failed", error.message) for error in item.errors]
    return [
        (name.replace("_", " "), ", ".join(map(str, value if isinstance(value, list) else [value])))
        for name, result in item.fields.items()
        if (value := result.value) not in (None, [])
    ]
