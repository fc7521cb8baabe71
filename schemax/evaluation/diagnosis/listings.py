"""Realistic product listings, and the cost of reading them in two ways."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from pydantic import BaseModel

from schemax.attributes import attr
from schemax.base.messages import track
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

WAYS = {"hyper-parallel": "isolated", "autoregressive": "autoregressive"}
"""Names of the compared ways -> their decodings."""

Cost = tuple[int, float]
"""Forward passes and seconds of a listing read alone."""


def read_listings(extractor: Extractor) -> list[Extraction[Any]]:
    """Reads all listings at once; returns them in order."""
    records = [{"category": category, "title": title} for category, title in LISTINGS]
    schemas = {category: _schema(category) for category, _ in LISTINGS}
    stream = extractor.stream(records, schemas, category="category")
    return sorted(track(stream, total=len(records), unit="listings"), key=lambda item: item.index)


def costs(extractor: Extractor) -> Iterator[tuple[Cost, ...]]:
    """Yields the costs of a listing in each of the ways, for as many listings as time allows."""
    until = time.perf_counter() + _BASELINE_SECONDS
    for listing in LISTINGS:
        yield tuple(_cost(extractor, listing, way) for way in WAYS.values())
        if time.perf_counter() >= until:
            return


def _cost(extractor: Extractor, listing: tuple[str, str], decoding: str) -> Cost:
    category, title = listing
    stream = extractor.stream([{"title": title}], _schema(category), decoding=decoding)
    started = time.perf_counter()  # compiling is done
    (item,) = stream
    return item.steps, time.perf_counter() - started


def _schema(category: str) -> type[BaseModel]:
    return Television if category == "television" else load_schema(category)
