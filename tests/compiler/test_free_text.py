"""The table of free text says of every token what its grammar's matcher says."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from conftest import DATA
from constrained import strictly
from pydantic import Field

from schemax.attributes import attr
from schemax.base.resources import resource_dir
from schemax.compiler import TextCodec, compile_schema, load_codec
from schemax.extraction.schema import AttrSchema
from schemax.formats import OutputFormat, get_format
from schemax.tokens import DONE, TEXT_ENDS, TEXT_REFUSED, TEXT_UNKNOWN


class Texts(AttrSchema):
    brand: str | None = None
    name: str
    short: str | None = Field(None, max_length=5)
    tags: list[str] = attr(default_factory=list)


def codecs() -> list[Any]:
    rest = ("phi-3", "qwen2")
    folders = [resource_dir("embedded"), *sorted((DATA / "tokenizers").glob("*/"))]
    return [
        pytest.param(folder, id=folder.name, marks=[pytest.mark.slow] * (folder.name in rest))
        for folder in folders
    ]


def allowed(matcher: Any, vocab_size: int) -> Any:
    bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
    return np.unpackbits(bits, bitorder="little")[:vocab_size].astype(bool)


@pytest.mark.parametrize("folder", codecs())
def test_the_table_is_the_matcher_s(folder: Any) -> None:
    """After random tokens that stay within the text: the same tokens are allowed, and what is
    said to end the slot does."""
    compiled = compile_schema(Texts, load_codec(folder))
    chance = random.Random(0)
    for spec in compiled.slots[:2]:
        assert spec.grammar is not None
        table = spec.grammar.text_table(compiled.stop)
        assert table is not None
        matcher = spec.grammar.new_matcher()
        walks = 40
        for _ in range(walks):
            assert matcher.reset()
            state, stop_state = 0, 0
            for step in range(chance.randrange(1, 12)):
                expected = allowed(matcher, table.shape[1])
                if step == 0:
                    expected[[*spec.grammar.not_first()]] = False
                assert ((table[state] != TEXT_REFUSED) == expected).all()
                ends = compiled.stop.next_state[stop_state] == DONE
                may = table[state] != TEXT_REFUSED
                assert ((table[state] == TEXT_ENDS) == (ends & may)).all()
                onward = np.flatnonzero(table[state] >= 0)
                token = int(chance.choice(onward))
                assert matcher.try_consume_tokens([token]) == 1
                stop_state = int(compiled.stop.next_state[stop_state, token])
                assert stop_state != DONE
                state = int(table[state, token])


@pytest.mark.release
@pytest.mark.parametrize("folder", codecs())
def test_real_texts_need_no_matcher(folder: Any) -> None:
    """Brands and titles stay within the table from their first token to the delimiter."""
    codec = load_codec(folder)
    compiled = compile_schema(Texts, codec)
    spec = compiled.slots[0]
    assert spec.grammar is not None
    table = spec.grammar.text_table(compiled.stop)
    assert table is not None
    unknown = 0
    for text in ("Samsung", "55 inch", "a very long name, with commas", "Fjällräven", "x"):
        state = 0
        for token in codec.encode(f' "{text}",'):
            if state == TEXT_ENDS:
                break
            state = int(table[state, token])
            assert state != TEXT_REFUSED
            if state == TEXT_UNKNOWN:
                unknown += 1
                break
    assert unknown <= 1  # a tokenizer may cut a character in two


@pytest.mark.parametrize("output", ["yaml", "xml"])
def test_formats_with_several_ways_to_write_texts_have_no_table(
    codec: TextCodec, output: str
) -> None:
    form: OutputFormat = get_format(output)
    compiled = compile_schema(Texts, codec, format=form)
    for spec in compiled.slots:
        assert spec.grammar is not None
        assert spec.grammar.text_table(compiled.stop) is None


def test_conditions_have_no_table(codec: TextCodec) -> None:
    compiled = compile_schema(Texts, codec)
    tables = [spec.grammar.text_table(compiled.stop) for spec in compiled.slots if spec.grammar]
    assert [table is None for table in tables] == [False, False, True, False]
    strict = compile_schema(strictly(Texts), codec)
    tables = [spec.grammar.text_table(strict.stop) for spec in strict.slots if spec.grammar]
    assert [table is None for table in tables] == [False, False, True, True]
