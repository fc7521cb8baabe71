"""Documents that are read in pieces: every field from the piece that states it best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import SimpleNamespace
from typing import Any, Literal

import pytest

from schemax import Calibration, Extractor
from schemax.attributes import attr, compile_attributes
from schemax.compiler import TextCodec
from schemax.config import DecodingConfig
from schemax.documents import RecordFields
from schemax.formats import get_format
from schemax.io.long_documents import Fitted
from schemax.results import Extraction, SlotText, build
from schemax.schema import AttrSchema

JSON = get_format("json")
WIDTH = 30
SHOWN = RecordFields(("t",))


class Line(AttrSchema):
    name: str
    price: float | None


class Receipt(AttrSchema):
    shop: str | None
    currency: str = "EUR"
    notes: list[str] = attr(long=True, default_factory=list)
    lines: list[Line] = attr(default_factory=list)


def slot(raw: str, confidence: float = 0.5, **other: Any) -> SlotText:
    return SlotText(raw, "stop", 2, True, confidence, confidence, **other)


NULL = slot(" null", 0.99)
NONE = slot(" null", 0.99, items=())


def count(*rows: Sequence[SlotText]) -> SlotText:
    return slot(f" {len(rows)}", items=tuple(map(tuple, rows)))


def joined(*pieces: Sequence[SlotText]) -> Extraction[Any]:
    """Of a text of so many pieces, of which these slots were read."""
    attributes = compile_attributes(Receipt)

    def extract(records: Iterable[Any]) -> Iterator[Extraction[Any]]:
        for index, (_, slots) in enumerate(zip(records, pieces, strict=True)):
            yield build(
                Receipt, attributes, slots, JSON, index=index, document_id=None, texts={"t": "x"}
            )

    known = {"schema": Receipt, "attributes": attributes, "decoding": DecodingConfig()}
    compiled: Any = {"": SimpleNamespace(**known, format=JSON)}
    text = ("Corner shop, " * 9)[: WIDTH + (len(pieces) - 1) * (WIDTH - WIDTH // 10)]
    made = Fitted(extract, compiled, lambda _, t: len(t) <= WIDTH, SHOWN, "chunk")
    (item,) = made([{"t": text.replace(" ", "-")}])
    return item


def test_the_highest_confidence_wins() -> None:
    one, two, three = (slot(f' "{name}"', p) for name, p in (("a", 0.4), ("b", 0.8), ("c", 0.6)))
    item = joined(*([shop, NULL, NONE, NONE] for shop in (one, two, three)))
    assert item.value == Receipt(shop="b")
    assert item.fields["shop"].confidence == 0.8


def test_neither_null_nor_a_default_is_a_value() -> None:
    item = joined(
        [NULL, NULL, NONE, NONE],
        [slot(' "a"', 0.2), slot(' "USD"', 0.3), NONE, NONE],
    )
    assert item.value == Receipt(shop="a", currency="USD")
    assert joined(*[[NULL, NULL, NONE, NONE]] * 2).value == Receipt()


def test_what_was_left_out_stays_out() -> None:
    faint = slot(' "a"', 0.1, left_out=True)
    item = joined(*[[faint, faint, NONE, NONE]] * 2)
    assert item.value == Receipt()
    assert item.fields["shop"].raw == ' "a"'


def test_lists_are_those_of_the_piece_that_states_most() -> None:
    short, long = (count(*([slot(f' "{n}"')] for n in names)) for names in ("a", "bcd"))
    few = count([slot(' "x"', 0.9), slot(" 1", 0.9)])
    many = count([slot(' "y"'), slot(" 1")], [slot(" null"), slot(" 2")], [slot(' "z"'), NULL])
    item = joined([NULL, NULL, short, many], [NULL, NULL, long, few])
    assert item.value is not None
    assert item.value.notes == ["b", "c", "d"]
    assert item.value.lines == [Line(name="y", price=1), Line(name="z", price=None)]
    assert item.fields["lines.2.name"].value == "z"
    assert {error.field for error in item.errors} == {"lines.1.name", "lines.1.price"}


def test_of_a_real_model(codec: TextCodec, decoder_model: Callable[..., Any]) -> None:
    class Shoe(AttrSchema):
        brand: str | None = attr(k_max=6)
        colour: Literal["red", "blue"]
        new: bool
        kinds: list[Literal["a", "b"]] = attr(long=True, min_length=1, max_length=3)

    extractor = Extractor(decoder_model().model, codec, calibration=Calibration(temperature=2.0))
    seen: list[Extraction[Any]] = []

    def extract(records: Iterable[Any]) -> Iterator[Extraction[Any]]:
        for item in extractor.stream(records, Shoe, text="t"):
            seen.append(item)
            yield item

    compiled = extractor.extractions((), Shoe).compiled
    made = Fitted(extract, compiled, lambda _, t: len(t) <= WIDTH, SHOWN, "chunk")
    (item,) = made([{"t": "Samsung red shoe, LG blue sandal, Sony boots, TCL heels"}])
    assert item.value is not None, item.errors
    assert len(seen) > 1
    for name in ("colour", "new"):
        best = max(seen, key=lambda one: one.fields[name].confidence or 0.0)
        assert item.fields[name].confidence == best.fields[name].confidence
        assert item.fields[name].value == best.fields[name].value
        assert item.fields[name].alternatives == best.fields[name].alternatives
    assert len(item.value.kinds) == max(len(one.value.kinds) for one in seen if one.value)
    assert item.fields["kinds"].confidence in [one.fields["kinds"].confidence for one in seen]
    assert item.steps == sum(one.steps for one in seen)
    assert item.fields["brand"].confidence == pytest.approx(
        max(one.fields["brand"].confidence or 0.0 for one in seen)
    )
