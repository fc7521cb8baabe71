"""Tokens that documents go on with are read before they are chosen, and change nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from conftest import TITLES, combinations
from seams import replaced

from schemax import AttrSchema, Extraction, Extractor, attr
from schemax.base.resources import resource_dir
from schemax.compiler import TextCodec
from schemax.runtime.models.model import DecoderModel

Model = Callable[..., DecoderModel]

TEXTS = [
    "Nike Men's Air Max 270 React Running Shoes, Black White, Size 10.5",
    "Oral-B Pro 1000 CrossAction Electric Toothbrush, Powered by Braun",
    "New Balance Women's Fresh Foam Roav V1 Sneaker, Magnet/Summer Fog, 8 B US",
    "",
    *TITLES[:3],
]


class Shoe(AttrSchema):
    """A shoe"""

    brand: str | None = attr("Brand")
    model: str | None = attr("Model name")
    gender: str | None = attr("Gender")
    color: str | None = attr("Color")
    size: float | None = attr("Size")
    parts: list[str] = attr(default_factory=list)


@pytest.fixture(scope="module")
def embedded() -> Iterator[Extractor]:
    with Extractor.from_pretrained(resource_dir("embedded")) as extractor:
        yield extractor


def read(extractor: Extractor, schema: Any = Shoe, **options: Any) -> list[Extraction[Any]]:
    items = extractor.stream(TEXTS, schema, **options)
    return sorted(items, key=lambda item: item.index)


WAYS = {
    "one by one": "isolated:batch_size=1",
    "three": "isolated:batch_size=3",
    "drawn": "isolated:batch_size=1:temperature=1.5:top_p=0.9",
    "unbound": "isolated:batch_size=1:constrain=types",
    "causal": "isolated:layout=gapped:slots=causal:batch_size=1",
    "stacked": "paper:documents_per_prompt=2:constrain=document:batch_size=2",
}


@combinations("way, format", [*WAYS], ["json", "yaml", "xml"])
def test_outputs_are_those_without_drafts(
    embedded: Extractor, monkeypatch: pytest.MonkeyPatch, way: str, format: str
) -> None:
    options: dict[str, Any] = {"format": format, "decoding": WAYS[way]}
    with_drafts = read(embedded, **options)
    replaced(monkeypatch, "share of a pass for drafts", 1 << 30)
    without = read(embedded, **options)
    for one, other in zip(with_drafts, without, strict=True):
        for slot, plain in zip(one.slots, other.slots, strict=True):
            assert (slot is None) == (plain is None)
            if slot is None or plain is None:
                continue
            assert (slot.raw, slot.finish_reason) == (plain.raw, plain.finish_reason)
            assert slot.confidence == pytest.approx(plain.confidence, abs=1e-4)
            assert slot.null_probability == pytest.approx(plain.null_probability, abs=1e-4)
    passes = [sum(item.steps for item in items) for items in (with_drafts, without)]
    if way == "one by one" and format == "json":
        assert 2 * passes[0] < 1.5 * passes[1]
    else:
        assert passes[0] <= passes[1]


def test_a_model_that_goes_on_otherwise(
    decoder_model: Model, codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A random model takes few tokens of a draft."""
    extractor = Extractor(decoder_model().model, codec)
    options: dict[str, Any] = {"decoding": "isolated:batch_size=1:max_retries=1"}
    with_drafts = read(extractor, **options)
    replaced(monkeypatch, "share of a pass for drafts", 1 << 30)
    without = read(extractor, **options)
    raws = [
        [[slot and slot.raw for slot in item.slots] for item in items]
        for items in (with_drafts, without)
    ]
    assert raws[0] == raws[1]
