"""`FieldType`: what an annotation asks for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from schemax.attributes.constraints import Constraints
from schemax.scalars import SCALARS, Scalar

Kind: TypeAlias = str
"""A name in `schemax.scalars.SCALARS`; "union" of several such, "model" of a nested class."""


class UnsupportedType(Exception):
    """Why an annotation or field cannot be compiled, and what to do about it."""


MOST_CHOICES, _MOST_CHARACTERS = 10_000, 1_000_000
"""Of a field: all of them are shown to the model, and told apart token by token."""

MOST_MEMBERS = 100
"""Of a union, or of a tuple of fixed length."""


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of an annotation: a scalar, nested classes, a list of either; or just None.

    models: of a nested class, itself; of a union of such, all of them.
    members: of a "union" of scalars, what they are; positions: of a tuple of different types, what
        stands at each place.
    is_mapping: of a dict, which is a list of pairs: `models` is the class of a pair.
    is_one_or_several: of a list, one item of which may stand for it: X | list[X].
    """

    kind: Kind | None = None
    choices: tuple[tuple[str, Any], ...] = ()
    is_list: bool = False
    nullable: bool = False
    models: tuple[type[Any], ...] = ()
    constraints: Constraints = ()
    members: tuple[FieldType, ...] = ()
    positions: tuple[FieldType, ...] = ()
    is_mapping: bool = False
    is_one_or_several: bool = False

    @property
    def scalar(self) -> Scalar | None:
        """The scalar of its kind; None for a union, whose members have one each, and for models."""
        return SCALARS.get(self.kind or "")

    @property
    def is_text(self) -> bool:
        """True if a value or item is words of the document."""
        return self.scalar is not None and self.scalar.is_text


def samples_of(field_type: FieldType) -> list[Any]:
    """Values of a type; none of a nested class and of bool, which no condition applies to."""
    if field_type.is_mapping:
        return [{}]
    places = field_type.positions
    if field_type.is_list and not places:
        places = (replace(field_type, is_list=False),) * dict(field_type.constraints).get(
            "minItems", 0
        )
    if field_type.is_list:
        return [[sample for place in places for sample in samples_of(place)[:1]]]
    if field_type.kind == "enum":
        return [value for _, value in field_type.choices]
    members = field_type.members or (field_type,)
    return [sample for one in members if one.scalar for sample in one.scalar.samples]


def unlike(types: Sequence[FieldType]) -> tuple[FieldType, ...]:
    """Without repeats. Enum members need not be hashable."""
    return tuple(one for place, one in enumerate(types) if one not in types[:place])


def distinct(choices: tuple[tuple[str, Any], ...]) -> tuple[tuple[str, Any], ...]:
    characters = sum(len(text) for text, _ in choices)
    if len(choices) > MOST_CHOICES or characters > _MOST_CHARACTERS:
        raise UnsupportedType(
            f"has {len(choices):,} choices of {characters:,} characters; at most "
            f"{MOST_CHOICES:,} of {_MOST_CHARACTERS:,} are supported: declare it as str, and look "
            "its values up afterwards"
        )
    counts = Counter(text for text, _ in choices)
    twice = next((text for text, count in counts.items() if count > 1), None)
    if twice is not None:
        raise UnsupportedType(f"two choices have the same text {twice!r}; change one of them")
    return choices
