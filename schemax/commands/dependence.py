"""Fields that look as if they depended on others, by their names: a guess, for `explain`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from schemax.attributes import Attribute

_UNITS = frozenset({"unit", "units", "uom", "currency", "measure"})
_REASONS = frozenset(
    {"reason", "reasons", "reasoning", "rationale", "explanation", "justification", "evidence"}
)
_NUMBERS, _CHOICES = ("integer", "number"), ("enum", "boolean")


def hints(attributes: Sequence[Attribute]) -> Iterator[str]:
    """A line for every field that reads like the unit of a number, or the outcome of a reason,
    beside it, and does not look at it."""
    for field in attributes:
        if field.after:
            continue
        beside = [other for other in attributes if other.path[:-1] == field.path[:-1]]
        free = [o for o in beside if o is not field and field.path not in o.after]
        if _words(field) & _UNITS and field.kind in ("string", "enum"):
            numbers = [other for other in free if other.kind in _NUMBERS]
            before = [other for other in numbers if beside.index(other) < beside.index(field)]
            # "weight unit" is that of "weight"; else it is the closest one's.
            near = [other for other in numbers if _words(other) & _words(field)]
            if found := near or before[::-1] or numbers:
                yield _hint(field, found[0])
        elif field.kind in _CHOICES:
            reasons = [o for o in free if o.kind == "string" and _words(o) & _REASONS]
            if reasons:
                yield _hint(field, reasons[0])
    for field in attributes:
        for line in hints(field.fields):
            yield f"{field.name}: {line}"


def _words(attribute: Attribute) -> set[str]:
    return set(attribute.label.casefold().replace("_", " ").split())


def _hint(field: Attribute, other: Attribute) -> str:
    return (
        f"{field.name} may depend on {other.name}; with attr(after={other.path[-1]!r}) it is read "
        "behind that value, in a later wave"
    )
