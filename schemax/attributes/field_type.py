"""`FieldType`, the type of a field, and the constraints on its values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, TypeAlias

from annotated_types import BaseMetadata, GroupedMetadata
from pydantic import TypeAdapter
from pydantic.fields import FieldInfo

from schemax.reading.kinds import SCALARS, Scalar

Constraints: TypeAlias = tuple[tuple[str, Any], ...]
"""Pairs of a JSON Schema keyword and its value. All hold, even where a keyword is repeated.

Keywords of a list (minItems, maxItems, uniqueItems) stand beside keywords of its items. Pydantic's
names serve where JSON Schema has none: max_digits, decimal_places, tz_constraint (aware or naive).
"""

LIST_KEYWORDS = ("minItems", "maxItems", "uniqueItems")


def limits_of(constraints: Sequence[tuple[str, Any]], word: str) -> tuple[int, int | None]:
    """The narrowest limits among the constraints min<word> and max<word>: "Items", "Length"."""
    least = [value for keyword, value in constraints if keyword == f"min{word}"]
    most = [value for keyword, value in constraints if keyword == f"max{word}"]
    return max(least, default=0), min(most, default=None)


_KEYWORDS = {
    "ge": "minimum",
    "gt": "exclusiveMinimum",
    "le": "maximum",
    "lt": "exclusiveMaximum",
    "multiple_of": "multipleOf",
    "pattern": "pattern",
    "max_digits": "max_digits",
    "decimal_places": "decimal_places",
}
_LENGTHS = {"min_length": ("minLength", "minItems"), "max_length": ("maxLength", "maxItems")}


_BOUNDS, _LENGTH = ("numbers and dates", "a number"), ("texts and lists", "a text")
_APPLIES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(("ge", "gt", "le", "lt"), _BOUNDS),
    **dict.fromkeys(("min_length", "max_length"), _LENGTH),
    "multiple_of": ("numbers", "a number"),
    "allow_inf_nan": ("numbers", "a number"),
    "pattern": ("texts", "a text"),
    "max_digits": ("Decimals", "a Decimal"),
    "decimal_places": ("Decimals", "a Decimal"),
}
"""A constraint -> the types that it applies to, and an example of such a type."""


def constraints_of(metadata: Iterable[Any], is_list: bool) -> Iterator[tuple[str, Any]]:
    """Yields the constraints in the metadata of an `Annotated` list or scalar."""
    for piece in _pieces(metadata):
        if isinstance(piece, BaseMetadata):
            for name, keyword in _KEYWORDS.items():
                if (value := getattr(piece, name, None)) is not None:
                    yield keyword, _source(value) if keyword == "pattern" else value
            for name, keywords in _LENGTHS.items():
                if (value := getattr(piece, name, None)) is not None:
                    yield keywords[is_list], value


def misplaced(bare: Any, metadata: Iterable[Any], samples: Sequence[Any]) -> str | None:
    """The reason why a constraint does not apply to a type, or None.

    Pydantic builds the class all the same, and raises a TypeError for every value.

    samples: values of the type; [] for a type without constraints.
    """
    for piece in _pieces(metadata):
        if not isinstance(piece, BaseMetadata) and hasattr(piece, "__get_pydantic_core_schema__"):
            return None  # the piece may convert the value to another type
        name = next((name for name in _APPLIES if getattr(piece, name, None) is not None), None)
        if name is None or (samples and not _fails(Annotated[bare, piece], samples)):
            continue
        fitting, example = _APPLIES[name]
        remedy = f"remove it, or declare {example}"
        if isinstance(next(iter(samples), None), list):
            remedy = f"of items: list[Annotated[..., Field({name}=...)]]"
        return f"{name} applies to {fitting} only; {remedy}"
    return None


def _fails(annotation: Any, samples: Sequence[Any]) -> bool:
    try:
        reader: TypeAdapter[Any] = TypeAdapter(annotation)
    except Exception:  # a class not built yet, or refused by Pydantic, which is reported elsewhere
        return False
    for sample in samples:
        try:
            reader.validate_python(sample)
        except TypeError:
            return True
        except Exception:  # the sample violates the constraint, which thus applies
            continue
    return False


def _pieces(metadata: Iterable[Any]) -> Iterator[Any]:
    """Yields constraints one by one, and metadata for Pydantic as it is."""
    for piece in metadata:
        if isinstance(piece, FieldInfo):
            yield from _pieces(piece.metadata)
        elif isinstance(piece, GroupedMetadata):
            yield from _pieces(piece)
        else:
            yield piece


def _source(pattern: str | re.Pattern[str]) -> str:
    """A pattern as text, with the flags of a compiled pattern before it."""
    if isinstance(pattern, str):
        return pattern
    flags = "".join(letter for letter in "aimsx" if pattern.flags & re.RegexFlag[letter.upper()])
    return f"(?{flags}){pattern.pattern}" if flags else pattern.pattern


Kind: TypeAlias = str
"""A name in `reading.kinds.SCALARS`, "union" for several scalars, or "model" for a class."""


FieldPath: TypeAlias = tuple[str, ...]
"""Names of fields, from the declaration's own down to a leaf."""


class UnsupportedType(ValueError):
    """An annotation or field that cannot be compiled; the message names reason and remedy.

    path: of the leaf at fault, where the error is raised for all leaves together.
    """

    def __init__(self, reason: str, path: FieldPath = ()) -> None:
        super().__init__(reason)
        self.path = path


MOST_CHOICES, _MOST_CHARACTERS = 10_000, 1_000_000
"""The most choices of a field, and characters of all choices: the prompt shows every choice, and
the grammar tells them apart token by token."""

MOST_MEMBERS = 100
"""The most members of a union, and values of a tuple of fixed length."""


@dataclass(frozen=True, slots=True)
class FieldType:
    """The type of an annotation: a scalar, nested classes, a list of either; or just None.

    models: the nested class, or all classes of a union.
    members: the scalars of a "union".
    positions: the types of a tuple of different types, by place.
    is_mapping: True for a dict, which is a list of pairs: `models` is the class of a pair.
    is_one_or_several: True for X | list[X], a list whose value may be a single item.
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
        """The scalar of the kind; None for models, and for unions, whose members have scalars."""
        return SCALARS.get(self.kind or "")

    @property
    def is_text(self) -> bool:
        """True if a value or item consists of words of the document."""
        return self.scalar is not None and self.scalar.is_text


def samples_of(field_type: FieldType) -> list[Any]:
    """Sample values of a type; [] for types without constraints, such as bool or a class."""
    if field_type.is_mapping:
        return [{}]
    places = field_type.positions
    if field_type.is_list and not places:
        fewest, _ = limits_of(field_type.constraints, "Items")
        places = (replace(field_type, is_list=False),) * fewest
    if field_type.is_list:
        return [[sample for place in places for sample in samples_of(place)[:1]]]
    if field_type.kind == "enum":
        return [value for _, value in field_type.choices]
    members = field_type.members or (field_type,)
    return [sample for member in members if member.scalar for sample in member.scalar.samples]


def unlike(types: Sequence[FieldType]) -> tuple[FieldType, ...]:
    """The types without repeats. Enum members need not be hashable."""
    return tuple(member for place, member in enumerate(types) if member not in types[:place])


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
