"""Keywords that compare JSON values, by hashes: `enum`, `const` and `uniqueItems`.

`jsonschema` compares all pairs of values, and writes all values into its message. Equality is the
standard's: 1 equals 1.0, and neither equals true.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any

from schemax.messages import clipped

Count = Callable[[int], None]

# The most choices of an enum, and characters of a value, in a message.
_SHOWN, _LONGEST = 10, 150


class Comparisons:
    """Validators of these keywords. count: called with the number of values compared."""

    def __init__(self, count: Count) -> None:
        self._count = count
        # By the identity of a node, which the validator keeps alive as long as this cache.
        self._known: dict[tuple[int, str], tuple[Any, frozenset[Hashable]]] = {}

    def enum(self, _validator: Any, choices: Any, instance: Any, node: Any) -> Iterator[Any]:
        if self._key(instance) not in self._keys(node, "enum", choices):
            yield _error(instance, f"is not one of {_shown(choices[:_SHOWN])}")

    def const(self, _validator: Any, value: Any, instance: Any, node: Any) -> Iterator[Any]:
        if self._key(instance) not in self._keys(node, "const", [value]):
            yield _error(value, "was expected")

    def unique_items(self, validator: Any, is_asked: Any, items: Any, _node: Any) -> Iterator[Any]:
        if not is_asked or not validator.is_type(items, "array"):
            return
        seen = set()
        for item in items:
            key = self._key(item)
            if key in seen:
                yield _error(items, "has non-unique elements")
                return
            seen.add(key)

    def _keys(self, node: Any, word: str, values: Iterable[Any]) -> frozenset[Hashable]:
        place = id(node), word
        if place not in self._known:
            self._known[place] = node, frozenset(map(_key, values))
        return self._known[place][1]

    def _key(self, value: Any) -> Hashable:
        """The key of a part of the instance."""
        return _key(value, self._count)


def _key(value: Any, count: Count | None = None) -> Hashable:
    """A key that equal values share, and no others. count: called for each part."""
    if count is not None:
        count(1)
    if isinstance(value, dict):
        return frozenset((name, _key(part, count)) for name, part in value.items())
    if isinstance(value, list):
        return tuple(_key(part, count) for part in value)
    return (bool, value) if isinstance(value, bool) else value


def _error(value: Any, reason: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(f"{_shown(value)} {reason}")


def _shown(value: Any) -> str:
    text = clipped(repr(value))
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
