"""Texts."""

from __future__ import annotations

from schemax.reading.kinds.base import Scalar


class Text(Scalar):
    """A str, or a value without a kind of its own: a time of day, a UUID, a path."""

    name = "string"
    types = (str,)
    json_types = (("string", None),)
    shown = "text"
    word = "text"
    # With samples for types that Pydantic reads from texts.
    samples = ("a", "01:00", "https://a.b", "00000000-0000-4000-8000-000000000000")
    is_text = True
