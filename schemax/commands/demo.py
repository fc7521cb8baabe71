"""`schemax demo`: real-looking listings, read before your eyes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from statistics import mean
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel
from rich.console import Console
from rich.table import Table
from rich.text import Text

from schemax.attributes import attr
from schemax.catalog import load_schema
from schemax.commands import options
from schemax.commands.console import plain_warnings, show, table
from schemax.commands.option_groups import option, verb
from schemax.extractor import Extractor
from schemax.progress import track
from schemax.results import Extraction
from schemax.schema import AttrSchema


class Television(AttrSchema):
    """A television set, as the README declares it."""

    brand: str | None = attr("Manufacturer", examples=["Samsung", "LG"])
    screen_size: float | None = attr("Diagonal of the screen, inches", k_max=8)
    resolution: Literal["720p", "1080p", "4K", "8K"] | None = attr("Resolution class")
    ports: list[str] = attr("Connectors", default_factory=list)


# Written for this purpose; any likeness to a product on sale is in the style alone.
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
"""After this long, no further listing is read autoregressively."""


class Cost(NamedTuple):
    """What listings took that were read one by one: forward passes and seconds, of each."""

    name: str
    passes: Sequence[int]
    seconds: Sequence[float]


_COLUMNS: dict[str, Callable[[Cost], str]] = {
    "decoding": lambda cost: cost.name,
    "forward passes per listing": lambda cost: f"{mean(cost.passes):.1f}",
    "seconds per listing": lambda cost: f"{mean(cost.seconds):.2f}",
}


class Given(options.Model, without="device dtype"):
    """Options"""

    compare: bool = option("--compare/--no-compare", default=True)
    """Read some listings with autoregressive decoding as well."""


@verb
def demo(given: Given) -> None:
    """Reads a handful of listings with the embedded model, and shows what that took."""
    with plain_warnings():
        with Console(stderr=True).status("loading the model"):
            extractor = options.load_extractor(given.model)
        records = [{"category": category, "title": title} for category, title in LISTINGS]
        schemas = {category: _schema(category) for category, _ in LISTINGS}
        stream = extractor.stream(records, schemas, category="category")
        stream = track(stream, total=len(records), unit="listings")
        items = sorted(stream, key=lambda item: item.index)
        show(_values_table(items))
        if given.compare:
            show(_cost_table(list(track(_costs(extractor), total=None, unit="listings"))))
        else:
            show(f"{mean(item.steps for item in items):.1f} forward passes per listing")
    show(
        "\nNext, your own products, one JSON object or string per line:\n"
        "  schemax extract shoes products.jsonl -o shoes.jsonl\n"
        "`schemax schemas` lists what else is ready-made, `schemax explain shoes` shows how it is "
        "read."
    )


def _schema(category: str) -> type[BaseModel]:
    return Television if category == "television" else load_schema(category)


def _costs(extractor: Extractor) -> Iterator[tuple[tuple[int, float], ...]]:
    """What a listing costs, parallel and autoregressive: of as many as there is time for."""
    until = time.perf_counter() + _BASELINE_SECONDS
    for listing in LISTINGS:
        yield tuple(_cost(extractor, listing, way) for way in ("isolated", "autoregressive"))
        if time.perf_counter() >= until:
            return


def _cost(extractor: Extractor, listing: tuple[str, str], decoding: str) -> tuple[int, float]:
    category, title = listing
    stream = extractor.stream([{"title": title}], _schema(category), decoding=decoding)
    started = time.perf_counter()  # what is compiled is behind us
    (item,) = stream
    return item.steps, time.perf_counter() - started


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


def _cost_table(costs: Sequence[tuple[tuple[int, float], ...]]) -> Table:
    names = ("hyper-parallel", "autoregressive")
    ways = [
        Cost(name, *zip(*way, strict=True))
        for name, way in zip(names, zip(*costs, strict=True), strict=True)
    ]
    found = table(ways, _COLUMNS)
    found.caption = f"{len(costs)} of the listings, read one by one"
    return found
