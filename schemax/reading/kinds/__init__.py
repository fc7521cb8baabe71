"""Kinds of values.

A new kind is a subclass of `Scalar` and its place in `SCALARS`. Unless it takes any text, its
grammar is a branch of `compiler/grammars.py: _Value.values`, which joins the terminals of
`compiler/terminals.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from schemax.reading.kinds.addresses import Email, Url
from schemax.reading.kinds.base import Scalar
from schemax.reading.kinds.codes import Country, Country3, Currency, Language
from schemax.reading.kinds.dates import Date, Moment
from schemax.reading.kinds.duration import Duration
from schemax.reading.kinds.number import Integer, Number
from schemax.reading.kinds.words import Boolean, Choice, Text

__all__ = ["SCALARS", "Scalar"]

SCALARS: Mapping[str, Scalar] = {
    scalar.name: scalar
    for scalar in (
        *(Boolean(), Integer(), Number(), Date(), Moment(), Duration()),
        *(Country(), Country3(), Language(), Currency(), Url(), Email(), Choice(), Text()),
    )
}
"""Kinds by name, the narrowest first: a text in a union is of the first kind that it is a literal
of."""
