"""Documents that are read in chunks: cuts between tokens, the best values, all items of lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemax import Calibration, Extractor
from schemax.attributes import attr, compile_attributes
from schemax.compiler import TextCodec
from schemax.config import DecodingConfig
from schemax.extraction.documents import RecordFields
from schemax.extraction.schema import AttrSchema
from schemax.formats import get_format
from schemax.io.long_documents import Fitted, TooLong
from schemax.results import Extraction, SlotText, build

JSON = get_format("json")
WIDTH = 30
SHOWN = RecordFields(("t",))


class Line(AttrSchema):
    name: str
    price: float | None


class Few(AttrSchema):
    tags: list[str] = attr(max_length=3, default_factory=list)


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


def joined(
    *chunks: Sequence[SlotText],
    text: str = "",
    schema: type[AttrSchema] = Receipt,
    width: int = WIDTH,
) -> Extraction[Any]:
    """Of a text of so many chunks, of which these slots were read; without spaces by default."""
    attributes = compile_attributes(schema)
    text = text or "x" * (WIDTH + (len(chunks) - 1) * (WIDTH - WIDTH // 10))

    def extract(records: Iterable[Any]) -> Iterator[Extraction[Any]]:
        for index, (record, slots) in enumerate(zip(records, chunks, strict=True)):
            yield build(
                schema, attributes, slots, JSON, index=index, document_id=None, texts=record
            )

    known = {"schema": schema, "attributes": attributes, "decoding": DecodingConfig()}
    compiled: Any = {"": SimpleNamespace(**known, format=JSON)}
    fitted = Fitted(extract, compiled, lambda _, t: len(t) <= width, SHOWN, "chunk")
    (item,) = fitted([{"t": text}])
    return item


def chunks_of(text: str, width: int = WIDTH, mode: TooLong = "chunk") -> list[str]:
    fitted = Fitted(iter, {}, lambda _, t: len(t) <= width, SHOWN, mode)
    return [str(chunk.record["t"]) for chunk in fitted.chunks({"t": text})]


# --- where documents are cut --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("coffee machine, white, 1,299.00 each", "coffee machine, white,"),
        ("coffee machine, whiter 1 299,00 €, new", "coffee machine, whiter"),
        ("a coffee machine of the 1/2/2024 or so", "a coffee machine of the"),
        ("a coffee machine for hotelkeepers", "a coffee machine for"),
        ("coffee machine\nfor all hotelkeepers", "coffee machine\nfor all"),
        ("coffee/machines/for/hotelkeepers/all", "coffee/machines/for/"),
        ("コーヒーメーカー、" * 9, "コーヒーメーカー、" * 3),
        ("x" * 40, "x" * WIDTH),
    ],
)
def test_a_document_is_cut_between_tokens(text: str, end: str) -> None:
    (first,) = chunks_of(text, mode="truncate")
    assert first.strip() == end


def test_no_tag_is_cut() -> None:
    fitted = Fitted(
        iter, {}, lambda _, t: len(t) <= WIDTH, RecordFields(("t",), html="keep"), "chunk"
    )
    texts = [
        str(chunk.record["t"])
        for chunk in fitted.chunks({"t": 'one two <b class="x y">bold</b> end'})
    ]
    assert texts[0].strip() == "one two"


@given(st.text(alphabet="ab1,. <>/-:\n€é赤", min_size=1, max_size=200), st.integers(5, 40))
def test_chunks_hold_the_whole_text(text: str, width: int) -> None:
    fitted = Fitted(iter, {}, lambda _, t: len(t) <= width, SHOWN, "chunk")
    chunks = fitted.chunks({"t": text})
    if chunks[0].text == "":
        return  # it fits
    for chunk, following in pairwise([*chunks, chunks[0]._replace(start=len(text))]):
        assert text.startswith(chunk.text, chunk.start)
        assert len(chunk.text.strip()) <= width
        end = chunk.start + len(chunk.text)
        assert chunk.start < following.start
        assert not text[end : following.start].strip()


def test_white_space_alone_is_no_chunk() -> None:
    texts = chunks_of(f"coffee{' ' * 200}tea{' ' * 200}")
    assert [text.strip() for text in texts] == ["coffee", "tea"]


def test_a_long_text_is_shown_in_linear_work() -> None:
    shown = 0

    def fits(category: str, text: str) -> bool:
        nonlocal shown
        shown += len(text)
        return len(text) <= 2000

    work = []
    for words in (20_000, 40_000):
        shown = 0
        fitted = Fitted(iter, {}, fits, SHOWN, "chunk")
        assert len(fitted.chunks({"t": "some words " * words})) > 100
        work.append(shown)
    assert work[1] < 2.5 * work[0]


# --- what the chunks state ----------------------------------------------------------------------


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


def test_lists_have_the_items_of_all_chunks() -> None:
    few, many = (count(*([slot(f' "{n}"')] for n in names)) for names in ("ab", "cde"))
    text = "a, b and no more of it at all, c, d, e"
    item = joined([NULL, NULL, few, NONE], [NULL, NULL, many, NONE], text=text)
    assert item.value is not None
    assert item.value.notes == ["a", "b", "c", "d", "e"]
    spans = [span and span.start for span in item.fields["notes"].spans]
    assert spans == [0, 3, 31, 34, 37]


def test_an_item_of_the_overlap_counts_once() -> None:
    tea, price = slot(' "tea"'), slot(" 2")
    text = f"coffee 1, {'more of it, ' * 5}tea 2, milk 3, tea 2"
    first, second = map(str.strip, chunks_of(text, 80))
    assert first.endswith("tea 2,")
    assert second.startswith("tea 2,")
    item = joined(
        [NULL, NULL, NONE, count([slot(' "coffee"'), slot(" 1")], [tea, price])],
        [NULL, NULL, NONE, count([tea, price], [slot(' "milk"'), slot(" 3")], [tea, price])],
        text=text,
        width=80,
    )
    assert item.value is not None
    lines = [(line.name, line.price) for line in item.value.lines]
    assert lines == [("coffee", 1), ("tea", 2), ("milk", 3), ("tea", 2)]
    spans = [item.fields[f"lines.{n}.name"].span for n in range(4)]
    assert [span and span.start for span in spans] == [0, 70, 77, 85]


def test_of_an_item_at_the_seam_the_whole_is_kept() -> None:
    tea = slot(' "tea"')
    text = "coffee 1, more of it, so tea 2, milk 3"
    assert chunks_of(text)[0].endswith("tea ")
    whole = count([tea, slot(" 2")], [slot(' "milk"'), slot(" 3")])
    item = joined([NULL, NULL, NONE, count([tea, NULL])], [NULL, NULL, NONE, whole], text=text)
    assert item.value is not None
    assert item.value.lines == [Line(name="tea", price=2), Line(name="milk", price=3)]


def test_inline_lists_name_a_text_once() -> None:
    item = joined(*([slot(raw)] for raw in (' ["a", "a"]', ' ["b", "a"]', " null")), schema=Few)
    assert item.value == Few(tags=["a", "a", "b"])
    best = joined(*([slot(raw)] for raw in (' ["a", "b"]', ' ["c", "d"]')), schema=Few)
    assert best.value == Few(tags=["a", "b"])  # more than three are none


def test_a_chunk_whose_list_is_not_read_is_told() -> None:
    cut = SlotText(' ["b", "c', "length", 9, False, 0.5, 0.5)
    item = joined([slot(' ["a"]')], [cut], schema=Few)
    assert item.value == Few(tags=["a"])
    (error,) = item.errors
    assert (error.field, error.message[:9]) == ("tags", "chunk 2: ")


def test_errors_of_items_name_the_joined_list() -> None:
    few = count([slot(' "x"'), slot(" 1")])
    many = count([slot(' "y"'), slot(" 1")], [slot(" null"), slot(" 2")], [slot(' "z"'), NULL])
    item = joined([NULL, NULL, NONE, few], [NULL, NULL, NONE, many])
    assert item.value is not None
    assert item.value.lines == [
        Line(name="x", price=1),
        Line(name="y", price=1),
        Line(name="z", price=None),
    ]
    assert {error.field for error in item.errors} == {"lines.2.name", "lines.2.price"}


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
    kinds = [kind for one in seen if one.value for kind in one.value.kinds]
    assert (
        len(kinds) > len(item.value.kinds) >= max(len(one.value.kinds) for one in seen if one.value)
    )
    assert item.steps == sum(one.steps for one in seen)
    assert item.fields["brand"].confidence == pytest.approx(
        max(one.fields["brand"].confidence or 0.0 for one in seen)
    )
