"""`schemax demo`: reads realistic product listings and shows the results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import mean
from typing import Any, Literal

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from schemax.attributes import attr
from schemax.base.messages import track
from schemax.base.options import option
from schemax.base.terminal import show, table
from schemax.commands import options
from schemax.commands.options import plain_warnings, verb
from schemax.extraction.declarations import load_schema
from schemax.extraction.extractor import Extractor
from schemax.extraction.schema import AttrSchema
from schemax.results import Extraction


class Television(AttrSchema):
    """A television set, as the README declares it."""

    brand: str | None = attr("Manufacturer", examples=["Samsung", "LG"])
    screen_size: float | None = attr("Diagonal of the screen, inches", k_max=8)
    resolution: Literal["720p", "1080p", "4K", "8K"] | None = attr("Resolution class")
    ports: list[str] = attr("Connectors", default_factory=list)


# Invented; they resemble real listings in style alone.
LISTINGS: Sequence[tuple[str, str]] = (
    ("television", "Samsung 55-Inch Class 4K UHD Smart TV, 3x HDMI, USB"),
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

_BASELINE_SECONDS = 3.0
"""The seconds after which no further listing is read autoregressively."""

_Cost = tuple[int, float]
"""Forward passes and seconds of a listing read alone."""

# Items: (name of a way to decode, its costs).
_COLUMNS: dict[str, Callable[[tuple[str, Sequence[_Cost]]], str]] = {
    "decoding": lambda way: way[0],
    "forward passes per listing": lambda way: f"{mean(passes for passes, _ in way[1]):.1f}",
    "seconds per listing": lambda way: f"{mean(seconds for _, seconds in way[1]):.2f}",
}


class Args(options.Model, without="device dtype"):
    """Options"""

    compare: bool = option("--compare/--no-compare", default=True)
    """Read some listings with autoregressive decoding as well."""


@verb
def demo(args: Args) -> None:
    """Reads a handful of listings with the embedded model, and shows what that took."""
    with plain_warnings():
        with Console(stderr=True).status("loading the model"):
            extractor = options.load_extractor(args.model)
        items = _read_all(extractor)
        show(_values_table(items))
        if args.compare:
            costs = list(track(_costs(extractor), total=None, unit="listings"))
            ways = zip(("hyper-parallel", "autoregressive"), zip(*costs, strict=True), strict=True)
            shown = table(ways, _COLUMNS)
            shown.caption = f"{len(costs)} of the listings, read one by one"
            show(shown)
        else:
            show(f"{mean(item.steps for item in items):.1f} forward passes per listing")
    show(
        "\nNext, your own products, one JSON object or string per line:\n"
        "  schemax extract shoes products.jsonl -o shoes.jsonl\n"
        "`schemax schemas` lists all ready-made schemas, `schemax explain shoes` shows how shoes "
        "are read."
    )


def _values_table(items: Sequence[Extraction[Any]]) -> Table:
    values = Table(show_header=False, pad_edge=False)
    values.add_column(style="bold", no_wrap=True)
    values.add_column(overflow="fold")
    for item, (_, title) in zip(items, LISTINGS, strict=True):
        values.add_section()
        values.add_row("", Text(title, style="italic"))
        for error in item.errors if item.value is None else ():
            values.add_row("failed", Text(error.message))
        for name, result in item.fields.items() if item.value is not None else ():
            value = result.value if isinstance(result.value, list) else [result.value]
            if value not in ([], [None]):
                values.add_row(name.replace("_", " "), Text(", ".join(map(str, value))))
    return values


def _read_all(extractor: Extractor) -> list[Extraction[Any]]:
    """Reads all listings at once; returns them in order."""
    records = [{"category": category, "title": title} for category, title in LISTINGS]
    schemas = {category: _schema(category) for category, _ in LISTINGS}
    stream = extractor.stream(records, schemas, category="category")
    return sorted(track(stream, total=len(records), unit="listings"), key=lambda item: item.index)


def _costs(extractor: Extractor) -> Iterator[tuple[_Cost, _Cost]]:
    """Yields a listing's costs in both ways to decode, for as many listings as time allows."""
    until = time.perf_counter() + _BASELINE_SECONDS
    for listing in LISTINGS:
        yield _cost(extractor, listing, "isolated"), _cost(extractor, listing, "autoregressive")
        if time.perf_counter() >= until:
            return


def _cost(extractor: Extractor, listing: tuple[str, str], decoding: str) -> _Cost:
    category, title = listing
    stream = extractor.stream([{"title": title}], _schema(category), decoding=decoding)
    started = time.perf_counter()  # compiling is done
    (item,) = stream
    return item.steps, time.perf_counter() - started


def _schema(category: str) -> type[BaseModel]:
    return Television if category == "television" else load_schema(category)
