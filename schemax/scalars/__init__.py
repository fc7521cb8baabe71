"""Kinds of values, one per file.

A new kind is a file with a subclass of `Scalar`, and its place in `SCALARS`."""

from __future__ import annotations

from collections.abc import Mapping

from schemax.scalars.base import Scalar, Writing
from schemax.scalars.boolean import Boolean
from schemax.scalars.choice import Choice
from schemax.scalars.codes import Country, Country3, Currency, Language
from schemax.scalars.date import Date
from schemax.scalars.duration import Duration
from schemax.scalars.email import Email
from schemax.scalars.moment import Moment
from schemax.scalars.number import Integer, Number
from schemax.scalars.text import Text
from schemax.scalars.url import Url

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
