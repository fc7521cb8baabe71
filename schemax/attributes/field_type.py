"""`FieldType`, the type of a field by its annotation."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from schemax.attributes.constraints import Constraints
from schemax.reading.kinds import SCALARS, Scalar

Kind: TypeAlias = str
"""A name in `reading.kinds.SCALARS`, "union" for several scalars, or "model" for a class."""


FieldPath: TypeAlias = tuple[str, ...]
"""Names of fields, from the declaration's own down to a leaf."""


class UnsupportedType(Exception):
    """An annotation or field that cannot be compiled; the message names reason and remedy."""


MOST_CHOICES, _MOST_CHARACTERS = 10_000, 1_000_000
"""The most choices of a field, and characters of all: the model is shown all choices, and they are
told apart token by token."""

MOST_MEMBERS = 100
"""The most members of a union, and values of a tuple of fixed length."""


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of an annotation: a scalar, nested classes, a list of either; or just None.

    models: the nested class, or all classes of a union.
    members: the scalars of a "union"; positions: the types of a tuple of different types, by place.
    is_mapping: True for a dict, which is a list of pairs: `models` is the class of a pair.
    is_one_or_several: True for a list for which a single item may stand: X | list[X].
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
        """The scalar of the kind; None for a union, whose members have one each, and for models."""
        return SCALARS.get(self.kind or "")

    @property
    def is_text(self) -> bool:
        """True if a value or item consists of words of the document."""
        return self.scalar is not None and self.scalar.is_text


def samples_of(field_type: FieldType) -> list[Any]:
    """Sample values of a type; [] for a nested class and bool, to which no constraint applies."""
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
    """The types without repeats. Enum members need not be hashable."""
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
