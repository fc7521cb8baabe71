"""Grammars of slots: what they accept reads back, and what can be written they accept."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pytest
from conftest import combinations
from grammar_walks import (
    FORMATS,
    TAILS,
    accepts_value,
    allowed_by,
    grammar_of,
    in_each_format,
    matcher_of,
    random_text,
    tokenizer_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from llguidance import LLMatcher
from pydantic import AwareDatetime, BaseModel, Field, NaiveDatetime, create_model

from schemax.attributes import compile_attributes
from schemax.compiler import TextCodec
from schemax.compiler.grammars import parser_limits
from schemax.compiler.tokenizer import load_codec
from schemax.formats import OutputFormat, get_format
from schemax.formats.base import clean, split_at_stop
from schemax.results import SlotText, build

NASTY = (
    *("a", "ab", "abc", "null", "true", "5", "", " ", 'q"x', "it's", "a, b", "a | b", "[x]", "{y}"),
    *("a: b", "# c", "a #b", "- d", "</x>", "<b>", "&amp;", "\\n", "a\nb", "\t", "e\u0301", "é"),
    *("\U0001f600", "\u2028", "\x85", "日本", "null ", "~", "2024-01-31", "1e3", "'", "|", ","),
)


class Colour(Enum):
    RED = "red"
    DARK_RED = "dark red"
    SEVEN = 7


class Everything(BaseModel):
    """A field for every type; nothing in it is left to validation."""

    text: str
    short: str | None = Field(min_length=2, max_length=5)
    code: str = Field(pattern=r'^[A-Z&"|]{2,3}-?\d+$')
    found: str = Field(pattern=r"[:#] ?x")
    count: int
    small: int = Field(ge=-7, lt=120)
    ratio: float | None
    bounded: float = Field(gt=-0.25, le=12.5)
    price: Decimal = Field(max_digits=5, decimal_places=2)
    flag: bool | None
    day: date
    recent: date = Field(gt=date(2019, 8, 30), le=date(2024, 2, 29))
    at: datetime
    aware: AwareDatetime
    naive: NaiveDatetime
    choice: Literal[NASTY]  # type: ignore[valid-type]
    number: Literal[5, 50, 2.5, True]
    colour: Colour | None
    words: list[str]
    codes: list[str] = Field(min_length=1, max_length=3)
    counts: set[int]
    days: list[date]
    times: tuple[datetime, ...]
    choices: list[Literal[NASTY]]  # type: ignore[valid-type]


def _decimals(low: str, high: str, places: int) -> st.SearchStrategy[Decimal]:
    return st.decimals(Decimal(low), Decimal(high), places=places)


TEXT = st.text().map(clean) | st.sampled_from(NASTY)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": TEXT,
    "short": st.text(min_size=2, max_size=5).map(clean) | st.none(),
    "code": st.from_regex(r'\A[A-Z&"|]{2,3}-?[0-9]{1,5}\Z'),
    "found": st.from_regex(r"[:#] ?x").map(clean),
    "count": st.integers(1 - 10**13, 10**13 - 1),
    "small": st.integers(-7, 119),
    "ratio": _decimals("-1e9", "1e9", 3).map(float).filter(lambda x: "e" not in repr(x)),
    "bounded": _decimals("-0.2499", "12.5", 4).map(float).filter(lambda x: "e" not in repr(x)),
    "price": _decimals("-999.99", "999.99", 2),
    "flag": st.booleans() | st.none(),
    "day": st.dates(),
    "recent": st.dates(date(2019, 8, 31), date(2024, 2, 29)),
    "at": st.datetimes() | st.datetimes(timezones=st.just(UTC)),
    "aware": st.datetimes(timezones=st.just(UTC)),
    "naive": st.datetimes(),
    "choice": st.sampled_from(NASTY),
    "number": st.sampled_from([5, 50, 2.5, True, "5"]),
    "colour": st.sampled_from(Colour) | st.none(),
    "words": st.lists(TEXT, max_size=4),
    "codes": st.lists(TEXT, min_size=1, max_size=3),
    "counts": st.lists(st.integers(-999, 999), max_size=4),
    "days": st.lists(st.dates(), max_size=3),
    "times": st.lists(st.datetimes(), max_size=3),
    "choices": st.lists(st.sampled_from(NASTY), max_size=4),
}
ATTRIBUTES = {attribute.name: attribute for attribute in compile_attributes(Everything)}


# --- all that can be written --------------------------------------------------------------------


@combinations("field, name", [*ATTRIBUTES], FORMATS)
def test_every_value_can_be_written_and_ends_where_its_literal_does(field: str, name: str) -> None:
    output = get_format(name)

    @settings(max_examples=settings.default.max_examples // 2)
    @given(VALUES[field])
    def check(value: Any) -> None:
        assert accepts_value(ATTRIBUTES[field], value, name)
        literal = output.escape(value)
        for tail in TAILS[name]:
            found = split_at_stop(output.stop, (literal + tail).encode())
            assert found == (literal.encode(), True)

    check()


# --- all that is accepted -----------------------------------------------------------------------


@cache
def alone(field: str) -> type[BaseModel]:
    """A class with nothing but this field of `Everything`."""
    info = Everything.model_fields[field]
    return create_model("Alone", **{field: (info.annotation, info)})  # type: ignore[call-overload]


def check_read_back(data: bytes, field: str, output: OutputFormat) -> None:
    value, complete = split_at_stop(output.stop, data)
    assert complete
    assert data[len(value) :].decode() in TAILS[output.name]
    schema = alone(field)
    slot = SlotText(value.decode(), "stop", 1, complete=True)
    attributes = compile_attributes(schema)
    item = build(schema, attributes, [slot], output, index=0, document_id=None)
    assert (item.errors, item.value is None) == ((), False)


@combinations("field, name", [*ATTRIBUTES], FORMATS)
def test_whatever_is_accepted_reads_back(field: str, name: str) -> None:
    matcher = matcher_of(grammar_of(ATTRIBUTES[field], name))
    table = [bytes([byte]) for byte in range(256)]
    finished = 0
    for seed in range(60):
        if (data := random_text(matcher, table, random.Random(seed))) is not None:
            finished += 1
            check_read_back(data, field, get_format(name))
    assert finished


def check_token_by_token(codec: TextCodec, name: str, fields: Sequence[str]) -> None:
    tokenizer = tokenizer_of(codec)
    output = get_format(name)
    table = codec.token_bytes
    for field in fields:
        grammar = grammar_of(ATTRIBUTES[field], name)
        matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=parser_limits())
        assert not matcher.is_error(), matcher.get_error()
        for seed in range(3):
            data = random_text(matcher, table, random.Random(seed))
            if data is not None:
                check_read_back(data, field, output)
        walked = matcher.deep_copy()
        for token in codec.encode(output.escape(SAMPLES[field]) + TAILS[name][0]):
            assert token in allowed_by(walked)
            assert walked.consume_token(token)
        assert walked.is_accepting()


SAMPLES: dict[str, Any] = {
    "text": 'A 55" "smart" TV, black: <b> & more',
    "short": "XL",
    "code": 'AB"12',
    "count": 1299,
    "bounded": 7.25,
    "price": Decimal("199.90"),
    "flag": True,
    "day": date(2024, 2, 29),
    "choice": 'q"x',
    "words": ["HDMI", "USB 3.0, fast", "null"],
    "times": [datetime(2024, 2, 29, 12, 30)],
}


@in_each_format
def test_token_by_token(codec: TextCodec, name: str) -> None:
    check_token_by_token(codec, name, list(SAMPLES))


@pytest.mark.release
@in_each_format
def test_tokens_of_a_large_vocabulary(data: Path, name: str) -> None:
    folder = data / "tokenizers" / "qwen2"
    if not folder.is_dir():
        pytest.skip("no such tokenizer here")
    check_token_by_token(load_codec(folder), name, ["text", "code", "price", "choice", "words"])


# --- spellings ----------------------------------------------------------------------------------


@pytest.mark.slow
@in_each_format
def test_a_spelling_writes_every_character_as_escape_does(name: str) -> None:
    output = get_format(name)
    spelling = output.spelling()  # type: ignore[attr-defined]
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    for forms, is_item in ((spelling.texts, False), (spelling.items, True)):
        form = forms[-1]
        plain = "".join(c for c in every if c not in form.characters)
        parts = [plain, *form.characters]
        # The backslash and the bracket ask YAML for quotes, letters at the ends XML for nothing.
        value = f"x{'[: '.join(parts)}x"
        literal = output.escape([value] if is_item else value)
        wanted = "[: ".join([plain, *(ways[0] for ways in form.characters.values())])
        opening = spelling.opening if is_item else ""
        closing = spelling.alone + spelling.closing if is_item else ""
        assert literal == f" {opening}{form.before}x{wanted}x{form.after}{closing}"
