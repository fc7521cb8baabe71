"""Texts."""

from __future__ import annotations

from schemax.scalars.base import Scalar


class Text(Scalar):
    """Also what has no kind of its own: times of day, UUIDs, paths."""

    name = "string"
    types = (str,)
    json_types = (("string", None),)
    output = ("string", None)
    shown = "text"
    word = "text"
    # Also of types that Pydantic reads texts as.
    samples = ("a", "01:00", "https://a.b", "00000000-0000-4000-8000-000000000000")
    is_text = True
