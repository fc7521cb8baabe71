"""Kinds of values, one per file.

A new kind is a file with a subclass of `Scalar`, and its place in `SCALARS`."""

from __future__ import annotations

from collections.abc import Mapping

from schemax.reading.kinds.base import Scalar, Writing
from schemax.reading.kinds.boolean import Boolean
from schemax.reading.kinds.choice import Choice
from schemax.reading.kinds.codes import Country, Country3, Currency, Language
from schemax.reading.kinds.date import Date
from schemax.reading.kinds.duration import Duration
from schemax.reading.kinds.email import Email
from schemax.reading.kinds.moment import Moment
from schemax.reading.kinds.number import Integer, Number
from schemax.reading.kinds.text import Text
from schemax.reading.kinds.url import Url

__all__ = ["SCALARS", "Scalar", "Writing"]

SCALARS: Mapping[str, Scalar] = {
    scalar.name: scalar
    for scalar in (
        *(Boolean(), Integer(), Number(), Date(), Moment(), Duration()),
        *(Country(), Country3(), Language(), Currency(), Url(), Email(), Choice(), Text()),
    )
}
"""Kinds by name, the narrowest first: a text in a union is of the first kind that it is a literal
of."""
