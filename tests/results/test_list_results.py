"""Lists in two phases: what becomes of what was written."""

from __future__ import annotations

import json
from datetime import date
from typing import Any, Literal

import pytest
from conftest import combinations
from list_models import Port, Television
from pydantic import BaseModel, RootModel, field_validator, model_validator

from schemax import Extractor, report
from schemax.attributes import attr, compile_attributes
from schemax.compiler import TextCodec
from schemax.extraction.schema import AttrSchema
from schemax.formats import get_format
from schemax.results import Extraction, FieldError, SlotText, build

JSON = get_format("json")


def slot(raw: str, reason: Any = "stop", items: Any = None, p: float = 0.5) -> SlotText:
    return SlotText(raw, reason, 3, reason == "stop", p, p, items=items)


def count(number: int | None, *items: Any) -> SlotText:
    """A list's slots; an item is a raw text, or those of a model's leaves."""
    rows = tuple(
        tuple(
            x if isinstance(x, SlotText) else slot(x)
            for x in (item if isinstance(item, tuple) else (item,))
        )
        for item in items
    )
    return slot(" null" if number is None else f" {number}", items=rows)


def read(schema: type[BaseModel], text: str = "", **slots: SlotText) -> Extraction[Any]:
    attributes = compile_attributes(schema)
    return build(
        schema,
        attributes,
        [slots.get(attribute.name) for attribute in attributes],
        JSON,
        index=0,
        document_id=None,
        texts={"text": text} if text else None,
    )


def test_values_in_order() -> None:
    item = read(
        Television,
        "a red TV with blue, HDMI 2.1",
        colors=count(2, ' "red"', ' "blue"'),
        ports=count(2, (' "HDMI"', " 2.1"), (' "USB"', " null")),
    )
    assert item.value == Television(
        colors=["red", "blue"], ports=[Port(kind="HDMI", version=2.1), Port(kind="USB")]
    )
    assert item.errors == ()
    assert list(item.fields) == [
        *("brand", "colors", "ports"),
        *("ports.0.kind", "ports.0.version", "ports.1.kind", "ports.1.version"),
    ]
    colors = item.fields["colors"]
    assert colors.raw == '"red"; "blue"'
    assert [span and span.start for span in colors.spans] == [2, 14]
    assert colors.tokens == 9
    assert colors.confidence == pytest.approx(0.25)  # the count's, times the mean of the items'
    assert colors.probability == 0.125
    ports = item.fields["ports"]
    assert ports.raw == '"HDMI", 2.1; "USB", null'
    assert ports.value == item.value.ports
    assert [span is None for span in ports.spans] == [False, False, True]
    assert item.fields["ports.0.version"].value == 2.1
    assert item.fields["ports.1.kind"].value == "USB"
    row = item.to_row(details=True)
    assert json.loads(json.dumps(row))["fields"]["ports.1.version"]["raw"] == " null"


def test_no_items() -> None:
    class Shoe(AttrSchema):
        colors: list[str] | None = attr(long=True)
        sizes: list[str] = attr(long=True)
        ports: list[Port] | None = attr(min_length=1)

    item = read(Shoe, colors=count(None), sizes=count(None), ports=count(None))
    assert item.value == Shoe(colors=None, sizes=[], ports=None)
    assert item.errors == ()
    assert item.fields["sizes"].raw == " null"
    item = read(Shoe, colors=count(0), sizes=count(0), ports=count(0))
    assert item.value == Shoe(colors=[], sizes=[], ports=None)
    (error,) = item.errors
    assert (error.field, "at least 1 item" in error.message) == ("ports", True)


def test_a_count_that_cannot_be_used() -> None:
    for broken, reason in [
        (slot(" 1", "length", ()), "truncated"),
        (slot(' "x"', items=()), "'x'"),
    ]:
        item = read(Television, colors=broken)
        assert item.value == Television()
        (error,) = item.errors
        assert error.field == "colors"
        assert reason in error.message
        assert error.raw == broken.raw


def test_an_item_that_cannot_be_used_costs_itself() -> None:
    class Shoe(AttrSchema):
        sizes: list[int] = attr(long=True)
        ports: list[Port]

    item = read(
        Shoe,
        sizes=count(4, " 8", " x", slot(" 9", "length"), " 10"),
        ports=count(3, (' "USB"', " x"), (" null", " 3"), (' "HDMI"', " 2")),
    )
    assert item.value == Shoe(sizes=[8, 10], ports=[Port(kind="USB"), Port(kind="HDMI", version=2)])
    truncated, *others = item.errors
    assert truncated == FieldError(
        "sizes", "item 3: ran out of its budget of 3 tokens (truncated)", " 9"
    )
    assert [(error.field, error.raw) for error in others] == [
        ("ports.1.kind", " null"),
        ("sizes", " x"),
        ("ports.0.version", " x"),
        ("ports.1.version", " 3"),
    ]
    assert others[1].message.startswith("item 2: ")
    assert "discarded" in others[3].message
    assert item.fields["ports.2.kind"].value == "HDMI"
    assert item.fields["ports.1.version"].value is None
    assert item.fields["sizes"].finish_reason == "length"


def test_too_few_that_are_left() -> None:
    class Shoe(AttrSchema):
        sizes: list[int] | None = attr(long=True, min_length=2)

    item = read(Shoe, sizes=count(2, " 8", " x"))
    assert item.value == Shoe(sizes=None)
    assert [error.field for error in item.errors] == ["sizes", "sizes"]


def test_unique_after_coercion() -> None:
    class Shoe(AttrSchema):
        inline: list[int] = attr(unique=True)
        sizes: list[int] = attr(long=True, unique=True)
        ports: list[Port] = attr(unique=True)

    ports = count(3, (' "USB"', " 2"), (' "USB"', " 2.0"), (' "USB"', " 3"))
    item = read(
        Shoe, inline=slot(' ["7", 7]'), sizes=count(3, " 1000", ' "1,000"', " 5"), ports=ports
    )
    assert item.value is not None
    assert (item.value.inline, item.value.sizes) == ([7], [1000, 5])
    assert [port.version for port in item.value.ports] == [2, 3]
    assert item.errors == ()
    assert len(item.fields["sizes"].spans or ()) == 0
    assert item.fields["ports.2.version"].value == "3"  # as it was read: the list has moved


def test_sets_tuples_and_root_models() -> None:
    class Ports(RootModel[list[Port]]):
        pass

    class Shoe(AttrSchema):
        sizes: set[int] = attr(long=True)
        colors: tuple[str, ...] = attr(long=True)
        ports: Ports

    item = read(
        Shoe,
        sizes=count(2, " 8", " 8"),
        colors=count(2, ' "a"', ' "b"'),
        ports=count(1, (' "USB"', " 2")),
    )
    assert item.value is not None
    assert (item.value.sizes, item.value.colors) == ({8}, ("a", "b"))
    assert item.value.ports.root == [Port(kind="USB", version=2)]
    assert item.fields["ports.0.version"].value == 2


def test_validators_of_items() -> None:
    class Item(AttrSchema):
        low: int | None = None
        high: int | None = None

        @model_validator(mode="after")
        def ordered(self) -> Item:
            if (self.low or 0) > (self.high or 0):
                raise ValueError("low is above high")
            return self

    class Cart(AttrSchema):
        items: list[Item]
        days: list[date] = attr(long=True)

        @field_validator("items")
        @classmethod
        def last_first(cls, items: list[Item]) -> list[Item]:
            return items[::-1]

    item = read(
        Cart,
        items=count(3, (" 1", " 2"), (" 2", " 1"), (" null", " null")),
        days=count(2, ' "2024"', ' "2024-02-29"'),
    )
    assert item.value == Cart.model_construct(items=[Item(low=1, high=2)], days=[date(2024, 2, 29)])
    assert [error.field for error in item.errors][:1] == ["items.1"]
    assert {error.field for error in item.errors} == {
        *("items.1", "items.1.low", "items.1.high", "days"),
    }


def test_lists_within_items() -> None:
    class Part(AttrSchema):
        name: str

    class Item(AttrSchema):
        tags: list[str] = attr(long=True)
        parts: list[Part]

    class Cart(AttrSchema):
        items: list[Item]

    item = read(
        Cart,
        items=count(
            2,
            (count(2, ' "a"', ' "b"'), count(1, ' "wheel"')),
            (count(None), count(2, ' "leg"', slot(' "a', "length"))),
        ),
    )
    assert item.value is not None
    assert item.value.model_dump() == {
        "items": [
            {"tags": ["a", "b"], "parts": [{"name": "wheel"}]},
            {"tags": [], "parts": [{"name": "leg"}]},
        ]
    }
    assert [error.field for error in item.errors] == ["items.1.parts.1.name"]
    assert item.fields["items.0.tags"].value == ["a", "b"]
    assert item.fields["items.1.parts.0.name"].value == "leg"


def test_a_report_has_one_column_for_a_list() -> None:
    items = [
        read(Television, ports=count(n, *[(' "USB"', " 2")] * n), colors=count(1, ' "<b>"'))
        for n in range(3)
    ]
    page = report(items)
    assert "ports.0.kind" not in page
    assert '"ports"' in page


def test_a_format_of_ones_own(codec: TextCodec, decoder_model: Any, lines_format: Any) -> None:
    """Without a spelling nothing is constrained: a count may be anything."""
    extractor = Extractor(decoder_model().model, codec, format=lines_format)
    for item in extractor.stream(["a", "Sony b"], Television):
        assert item.value is not None, item.errors


@combinations(
    "format, decoding", ["json", "yaml", "xml"], ["isolated", "isolated:min_probability=0.5"]
)
def test_extraction_end_to_end(
    codec: TextCodec, decoder_model: Any, format: str, decoding: str
) -> None:
    extractor = Extractor(decoder_model().model, codec, format=format, decoding=decoding)

    class Forced(AttrSchema):
        kinds: list[Literal["a", "b"]] = attr(long=True, min_length=3, max_length=3)
        ports: list[Port] = attr(min_length=2, max_length=2)

    for item in extractor.stream(["a", "Sony b", "x" * 30], Forced):
        assert item.value is not None, item.errors
        assert len(item.value.kinds) == 3
        assert len(item.value.ports) == 2
        kinds = item.fields["kinds"]
        assert 0 < (kinds.probability or 0) <= (kinds.confidence or 0) <= 1
        assert set(item.fields["ports.1.kind"].alternatives) == {"HDMI", "USB"}
        assert sum(item.fields["ports.1.kind"].alternatives.values()) == pytest.approx(1, abs=1e-3)


class _Shoe(AttrSchema):
    brand: str | None = None
    size: int | None = None


class _Shop(AttrSchema):
    shoes: list[_Shoe] = attr(default_factory=list)
    notes: list[str] = attr(long=True, default_factory=list)


def test_items_that_the_text_states_less_often_are_left_out() -> None:
    shoe, other = (' "Nike"', " 10"), (' "Puma"', " 10")
    item = read(
        _Shop,
        "Nike 10, Puma 10, paid late",
        shoes=count(5, shoe, shoe, other, shoe, shoe),
        notes=count(2, ' "paid late"', ' "paid late"'),
    )
    # Size 10 stands twice, so the second Nike may be meant.
    assert [(one.brand, one.size) for one in item.value.shoes] == [
        ("Nike", 10),
        ("Nike", 10),
        ("Puma", 10),
    ]
    assert item.value.notes == ["paid late"]
    assert item.errors == ()
    assert item.fields["shoes"].note == ("items left out as copies: 4 (of item 1), 5 (of item 1)")
    assert item.fields["notes"].note == "items left out as copies: 2 (of item 1)"
    assert item.fields["shoes.3.brand"].value is None
    assert item.fields["shoes.3.brand"].raw == ' "Nike"'
    assert item.fields["shoes.2.brand"].value == "Puma"


@pytest.mark.parametrize("text", ["Nike 10 and Nike 10", "NIKE 10, nike 10", "", "two of them"])
def test_equal_items_stay_where_they_may_be_meant(text: str) -> None:
    shoe = (' "Nike"', " 10")
    item = read(_Shop, text, shoes=count(2, shoe, shoe))
    assert len(item.value.shoes) == 2
    assert item.fields["shoes"].note is None


def test_copies_stay_where_the_list_would_be_too_short() -> None:
    class Pair(AttrSchema):
        shoes: list[_Shoe] = attr(min_length=2)

    shoe = (' "Nike"', " 10")
    item = read(Pair, "Nike 10", shoes=count(2, shoe, shoe))
    assert len(item.value.shoes) == 2
