"""Second chances: what is refused is asked for once more, and nothing about it is hidden."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import pytest
import tokenizers
from conftest import TITLES, slow_but
from constrained import forked
from decoding import TEMPLATE, filled
from oracle import oracle_outputs
from pydantic import BaseModel, field_validator

from schemax.attributes import attr, compile_attributes
from schemax.compiler import TextCodec, compile_schema
from schemax.config import DecodingConfig, resolve_decoding
from schemax.extraction.extractor import Extractor
from schemax.extraction.schema import AttrSchema
from schemax.formats import get_format
from schemax.results import SlotText, build
from schemax.results.extraction import values_of
from schemax.results.repairs import refusals, repaired_slots
from schemax.runtime.models.model import DecoderModel
from schemax.tokens import SlotOutput, SlotSpec

REPAIRING = DecodingConfig(max_repairs=1)


class Line(BaseModel):
    kind: Literal["ab", "cd", "ef"] | None = attr(k_max=6, default=None)


class Offer(AttrSchema):
    kind: Literal["ab", "cd", "ef"] | None = attr(k_max=6)
    grade: Literal["x", "y", "z"] = attr(after="kind", k_max=6)
    lines: list[Line] = attr(max_length=2, min_length=2)
    note: str | None = attr(k_max=3)


@pytest.mark.slow
@pytest.mark.parametrize("format", slow_but({"json"}, ["json", "yaml", "xml"]))
@pytest.mark.parametrize("kind", ["in sequence", "forks"])
def test_what_is_asked_again_equals_a_plain_request(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, format: str, kind: str
) -> None:
    """Behind what it looks at, the value that was wrong, and the message."""
    model = decoder_model() if kind == "in sequence" else forked(codec)
    compiled = compile_schema(Offer, codec, format=format, template=TEMPLATE, decoding=REPAIRING)
    assert compiled.waves is not None
    said = {("grade",): 'not "so"\nplease', ("lines", "1", "kind"): "wrong", ("lines",): "few"}
    waves = replace(compiled.waves, review=lambda outputs: said)
    prompts = [replace(prompt, waves=waves) for prompt in compiled.encode(TITLES[:3])]
    form = compiled.format
    for prompt, output in zip(prompts, filled(model, compiled, prompts), strict=True):
        first, grade, lines, note = output.slots
        assert first.repaired is None
        assert note.repaired is None
        assert lines.repaired is None  # a count
        assert lines.items[0].repaired is None
        texts = {slot: compiled.decode_slot(slot.ids)[0] for slot in (first, grade)}
        key = form.key(("kind",), None) + texts[first] + form.key(("grade",), ("kind",))
        key += texts[grade] + form.key(("grade (error)",), ("grade",))
        key += form.escape('not "so" please') + form.key(("grade",), ("grade (error)",))
        asked = replace(
            prompt,
            keys=((tuple(codec.encode(key)),),),
            k_max=compiled.k_max[1:2],
            slots=(SlotSpec(compiled.slots[1].null_id, compiled.slots[1].grammar),),
            numbers=(),
            waves=None,
        )
        again = grade.repaired
        assert again is not None
        bare = (replace(again, followed=()),)
        budgets = [2 * compiled.k_max[1]]
        expected = oracle_outputs(model, asked, compiled.stop, REPAIRING, bare, budgets)
        assert bare == expected
        assert lines.items[1].repaired is not None
        assert again.passes_before > grade.passes_before > first.passes_before == 0
        assert output.steps >= again.passes_before + again.passes


def test_what_is_asked_again_is_drawn_anew(codec: TextCodec) -> None:
    """Sampled with the same random numbers, a second answer would resemble the first one."""
    compiled = compile_schema(Offer, codec, template=TEMPLATE, decoding=REPAIRING)
    assert compiled.waves is not None
    waves = replace(compiled.waves, review=lambda outputs: {("kind",): "wrong"})
    null = SlotOutput(tuple(codec.encode(" null,")), "stop")
    none = SlotOutput(tuple(codec.encode(" 0,")), "stop")
    (kind,) = waves.next_wave((null, none, null, null), None)
    assert kind.number not in range(4)


def read(values: dict[str, str], again: dict[str, str]) -> tuple[Any, Any]:
    """An extraction of texts, and of others that were written when these were refused."""

    class Checked(AttrSchema):
        price: float | None = None
        code: str

        @field_validator("price", "code")
        @classmethod
        def _no_thirteen(cls, value: Any) -> Any:
            if str(value).startswith("13"):
                raise ValueError("thirteen brings bad luck")
            return value

    attributes, form = compile_attributes(Checked), get_format("json")
    slots = []
    for attribute in attributes:
        slot = SlotText(values[attribute.name], "stop", 2, complete=True, confidence=0.5)
        if attribute.name in again:
            second = SlotText(again[attribute.name], "stop", 3, complete=True, confidence=0.9)
            slot = replace(slot, repaired=second)
        slots.append(slot)

    def refused(some: Any) -> Any:
        return refusals(Checked, attributes, some, form, {})

    made = repaired_slots(attributes, slots, refused, "null")
    texts = {"text": "It costs 13.5, or 14.5"}
    found = build(Checked, attributes, made, form, index=0, document_id=None, texts=texts)
    return found, refused(slots)


def test_a_repaired_value_tells_what_it_was() -> None:
    found, refused = read({"price": " 13.5", "code": ' "a"'}, {"price": " 14.5"})
    assert refused == {("price",): "thirteen brings bad luck"}
    assert found.value.price == 14.5
    assert found.errors == ()
    price = found.fields["price"]
    assert price.note == "13.5 was refused (thirteen brings bad luck), and asked for again"
    assert (price.raw, price.confidence, price.tokens) == (" 14.5", 0.9, 5)
    assert price.span is not None
    assert "It costs 13.5, or 14.5"[price.span.start : price.span.end] == "14.5"
    assert found.fields["code"].note is None


def test_a_repair_that_fails_leaves_the_first_error() -> None:
    values = {"price": " 13.5", "code": ' "13"'}
    found, _ = read(values, {"price": " 13.7", "code": ' "b"'})
    assert found.value.price is None
    assert found.value.code == "b"
    (error,) = found.errors
    assert (error.field, error.message, error.raw) == ("price", "thirteen brings bad luck", " 13.5")
    assert found.fields["price"].tokens == 5
    assert "was refused" in found.fields["code"].note


def test_a_repair_to_nothing_leaves_the_first_error() -> None:
    found, _ = read({"price": " 13.5", "code": ' "a"'}, {"price": " null"})
    assert [error.raw for error in found.errors] == [" 13.5"]
    assert found.value.price is None


def test_null_and_what_is_cut_off_are_not_asked_for_again() -> None:
    _, refused = read({"price": " null", "code": " null"}, {})
    assert refused == {}
    attributes, form = compile_attributes(Offer), get_format("json")
    cut = SlotText(' "a', "length", 2, complete=False)
    null = SlotText(" null", "stop", 1, complete=True)
    assert refusals(Offer, attributes, [cut, null, null, null], form, {}) == {}


def test_extractions_are_repaired(
    decoder_model: Callable[..., DecoderModel], backend: tokenizers.Tokenizer
) -> None:
    """What a first run wrote is refused in the second one: another value, or the first error."""
    extractor = Extractor(decoder_model().model, backend, template=TEMPLATE)

    class Free(AttrSchema, category="offer"):
        kind: Literal["ab", "cd", "ef"] | None = attr(k_max=6)
        grade: Literal["x", "y", "z"] | None = attr(k_max=6)

    usual = {item.index: item for item in extractor.stream(TITLES, Free)}
    wrong = {item.fields["kind"].value for item in usual.values()}
    assert wrong - {None}

    class Strict(Free, category="offer"):
        @field_validator("kind")
        @classmethod
        def _not_as_before(cls, value: Any) -> Any:
            if value is not None and value in wrong:
                raise ValueError(f"{value} is not sold")
            return value

    plain = {item.index: item for item in extractor.stream(TITLES, Strict)}
    found = {i.index: i for i in extractor.stream(TITLES, Strict, decoding=REPAIRING)}
    assert len(found) == len(TITLES)
    for index, item in found.items():
        first, kind = plain[index], item.fields["kind"]
        assert item.fields["grade"].raw == first.fields["grade"].raw
        if not first.errors:
            assert kind.raw == first.fields["kind"].raw
            assert kind.note is None
            assert item.steps == first.steps
            continue
        assert item.steps > first.steps
        assert kind.tokens > first.fields["kind"].tokens
        assert bool(item.errors) == (kind.note is None)
        if item.errors:
            assert item.errors == first.errors
        else:
            assert kind.value not in wrong
            assert "is not sold" in str(kind.note)
    assert any(item.fields["kind"].tokens > 0 for item in found.values())
    extractor.close()


def test_settings_are_checked() -> None:
    assert resolve_decoding("isolated:max_repairs=1") == REPAIRING
    with pytest.raises(ValueError, match="max_repairs must be from 0 to 1"):
        resolve_decoding("isolated:max_repairs=2")
    with pytest.raises(ValueError, match="max_repairs requires layout"):
        resolve_decoding("paper:max_repairs=1")


@pytest.mark.parametrize("raw", [' ["a", "b', " 12"])
def test_a_list_that_is_cut_off_is_told_of(raw: str, caplog: pytest.LogCaptureFixture) -> None:
    """Inline, and a count: the instance has [], and both errors and a warning say why."""

    class Tagged(AttrSchema):
        tags: list[str] = attr(long=raw == " 12", default_factory=list)

    items = () if raw == " 12" else None
    slot = SlotText(raw, "length", 3, complete=False, items=items)
    attributes = compile_attributes(Tagged)
    found = build(Tagged, attributes, [slot], get_format("json"), index=0, document_id=None)
    assert found.value is not None
    assert found.value.tags == []
    assert "truncated" in found.errors[0].message
    values_of([found], "raise")
    assert "tags 1" in caplog.text
    assert "truncated" in caplog.text
