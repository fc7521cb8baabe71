"""Addresses of people, as texts name them."""

from __future__ import annotations

import pytest
from pydantic import EmailStr
from values_of_kinds import check_kind, read_as

from schemax.reading.kinds import SCALARS

read = SCALARS["email"].read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("mailto:a@example.com", "a@example.com"),
        ("A. Person <a.person@example.com>.", "a.person@example.com"),
        ("a [at] example [dot] com", "a@example.com"),
        ("a(at)example.com", "a@example.com"),
        ("a at example dot com", "a@example.com"),
    ],
)
def test_addresses_in_prose(text: str, value: str) -> None:
    reading = read(text)
    assert (reading.value, reading.note) == (value, f'"{text}" read as {value}')


def test_several_addresses_are_an_error() -> None:
    with pytest.raises(ValueError, match=r"several addresses \(a@b.example, c@b.example\)"):
        read("a@b.example, c@b.example")
    assert read("a@b.example (a@b.example)").value == "a@b.example"


@pytest.mark.parametrize("text", ["a@b.example", "meet at noon", "", "none"])
def test_what_is_left_as_it_is(text: str) -> None:
    assert read(text) == (text, None)


def test_addresses_are_a_kind() -> None:
    check_kind(EmailStr, "a@example.com", "mailto:a@example.com", kind="email")
    assert read_as(EmailStr, "nobody").errors


def test_long_texts_hold_no_address() -> None:
    """The search takes quadratic time."""
    for text in ("a" * 100_000, " " * 50_000 + "1", "a-" * 50_000 + "@x.org"):
        assert SCALARS["email"].read(text) == (text, None)
