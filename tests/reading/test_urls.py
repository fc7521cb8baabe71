"""Addresses of pages, as texts name them."""

from __future__ import annotations

import pytest
from pydantic import AnyUrl, HttpUrl
from values_of_kinds import check_kind, read_as

from schemax.reading.kinds import SCALARS

read = SCALARS["url"].read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("www.example.com.", "https://www.example.com"),
        ("example.com/shop?a=b", "https://example.com/shop?a=b"),
        ("<http://a.example>", "http://a.example"),
        ("(see-us.example)", "https://see-us.example"),
    ],
)
def test_addresses_in_prose(text: str, value: str) -> None:
    reading = read(text)
    assert (reading.value, reading.note is not None) == (value, True)


@pytest.mark.parametrize(
    "text", ["https://a.b/c?d=e#f", "ftp://a.b", "see our site", "", "v2.0 is"]
)
def test_what_is_left_as_it_is(text: str) -> None:
    assert read(text) == (text, None)


def test_urls_are_a_kind() -> None:
    check_kind(AnyUrl, "https://example.com/a", "example.com/a", kind="url")
    check_kind(HttpUrl, "https://example.com/a", "<https://example.com/a>", kind="url")
    (error,) = read_as(HttpUrl, "ftp://a.example").errors
    assert "http" in error.message
