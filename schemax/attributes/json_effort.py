"""A JSON Schema validator of bounded effort, since strangers write both schemas and instances.

`jsonschema` follows cyclic references, validates the same part again and again, and searches with
Python's `re`, whose time has no bound. Here every step counts, and every pattern, wherever it
stands, goes to the engine of `Pattern`. Values that `enum`, `const` and `uniqueItems` compare are
compared by hashes; `jsonschema` compares all pairs, and writes all values into its message.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any

from schemax.attributes.json_document import MOST_PARTS
from schemax.attributes.patterns import Pattern
from schemax.base.messages import clipped

# The most steps to validate an instance, and a document against the standard; references behind
# references; and seconds of a thread for all searches in an instance, since some patterns have no
# engine that takes linear time.
_MOST_STEPS = 200_000
MOST_CHECKING = 1_000_000
_DEEPEST = 32
_MOST_SEARCHING = 1.0
# The keywords, names or items of a step, and its characters.
_ITEMS_OF_STEP, _CHARACTERS_OF_STEP = 16, 256

_REFERENCES = {"$ref", "$dynamicRef", "$recursiveRef"}


class TooMuch(Exception):
    """An instance that cannot be validated within bounds; the message names the bound."""


class Effort(threading.local):
    """The effort of a thread on the instance that it validates, and the bounds of the effort."""

    def __init__(
        self,
        steps: float = _MOST_STEPS,
        references: float = MOST_PARTS,
        deepest: float = _DEEPEST,
    ) -> None:
        self._most_steps, self._most_references = steps, references
        self._deepest = deepest
        self.begin()

    def begin(self) -> None:
        self._steps = self._references = self._depth = 0
        self._searching = 0.0

    def step(self, count: int = 1) -> None:
        """Counts schemas that are entered and values that are compared."""
        self._steps += count
        if self._steps > self._most_steps:
            raise TooMuch(f"the document's conditions take more than {self._most_steps:,} steps")

    def entering(self, part: Any) -> None:
        """Counts a schema, the value of a keyword, or an instance, by its size."""
        each = _CHARACTERS_OF_STEP if isinstance(part, str) else _ITEMS_OF_STEP
        self.step(1 + len(part) // each if isinstance(part, (list, dict, str)) else 1)

    def telling(self, message: str) -> str:
        """Counts a message, which holds the values that it is about; then returns the message."""
        self.step(1 + len(message) // _CHARACTERS_OF_STEP)
        return message

    def following(self, follow: Any) -> Any:
        """Wraps the keyword of a reference, bounded in number and depth.

        Nothing else ends cycles: where Python runs out of stack, extension modules panic.
        """

        def counted(*arguments: Any) -> Iterator[Any]:
            self._references += 1
            if self._references > self._most_references or self._depth == self._deepest:
                raise TooMuch("the document's conditions refer to themselves too often")
            self._depth += 1
            try:
                yield from follow(*arguments) or ()
            finally:
                self._depth -= 1

        return counted

    def is_in(self, pattern: str, text: str) -> bool:
        """True if a pattern is found in a text. Raises ValueError for an unusable pattern."""
        began = time.thread_time()
        try:
            return Pattern(pattern).is_in(text)
        except ValueError as error:  # a pattern that no engine takes, or that takes too long
            raise ValueError(f"its pattern cannot be used: {clipped(str(error))}") from None
        finally:
            self._searching += time.thread_time() - began
            if self._searching > _MOST_SEARCHING:
                raise TooMuch(f"searching for patterns took more than {_MOST_SEARCHING:g} second")


def bounded(kind: Any, effort: Effort) -> Any:
    """Makes a validator class like `kind`, of a draft of the standard, whose effort is bounded."""
    import attrs
    from jsonschema.validators import extend

    own = _Keywords(effort)
    words: dict[str, Callable[..., Iterator[Any]]] = {
        **kind.VALIDATORS,
        "pattern": own.pattern,
        "patternProperties": own.pattern_properties,
        "additionalProperties": own.additional_properties,
        "multipleOf": _multiple_of,
        "enum": own.enum,
        "const": own.const,
        "uniqueItems": own.unique_items,
    }
    words = {word: judge for word, judge in words.items() if word in kind.VALIDATORS}
    for word in words.keys() & _REFERENCES:
        words[word] = effort.following(words[word])
    made = extend(kind, {word: _counted(word, judge, effort) for word, judge in words.items()})

    def evolve(self: Any, **changes: Any) -> Any:
        # jsonschema's own `evolve` leaves a part with a `$schema` to a class without bounds.
        effort.entering(changes.get("schema"))
        return attrs.evolve(self, **changes)

    made.evolve = evolve
    return made


def check_standard(kind: Any, root: Any) -> None:
    """Raises jsonschema's SchemaError for a document that violates a draft, or TooMuch.

    `check_schema` of jsonschema would compare each item of a list with every other.
    """
    from jsonschema import SchemaError
    from jsonschema.validators import validator_for

    effort = Effort(MOST_CHECKING, math.inf, math.inf)
    judge = bounded(validator_for(kind.META_SCHEMA, default=kind), effort)
    for error in judge(kind.META_SCHEMA, format_checker=kind.FORMAT_CHECKER).iter_errors(root):
        raise SchemaError.create_from(error)


def _counted(word: str, judge: Callable[..., Any], effort: Effort) -> Callable[..., Iterator[Any]]:
    """Wraps a keyword so that its work counts, and that a `nullable` schema allows null."""

    def judged(validator: Any, said: Any, instance: Any, node: Any) -> Iterator[Any]:
        effort.entering(None if word == "enum" else said)
        effort.entering(instance)
        if word.startswith("unevaluated") and isinstance(instance, (list, dict)):
            effort.step(len(instance) ** 2 // _ITEMS_OF_STEP)  # compares all pairs
        if instance is not None or node.get("nullable") is not True:
            for error in judge(validator, said, instance, node) or ():
                effort.telling(error.message)
                yield error

    return judged


def _multiple_of(validator: Any, step: float, value: Any, _node: Any) -> Iterator[Any]:
    """Validates `multipleOf` in decimal numbers, so that 19.99 is a multiple of 0.01."""
    if not validator.is_type(value, "number") or not math.isfinite(value):
        return
    if (_exact(value) / _exact(step)).denominator != 1:
        yield _fault(f"{value!r} is not a multiple of {step!r}")


def _exact(number: float) -> Fraction:
    """The exact value of a number's decimal notation."""
    return Fraction(number if isinstance(number, int) else repr(number))


# The most choices of an enum, and characters of a value, in a message.
_SHOWN, _LONGEST = 10, 150


class _Keywords:
    """Validators of the keywords that search texts or compare values.

    Where values are compared, 1 equals 1.0, and neither equals true.
    """

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        # By the identity of a node, which the validator keeps alive as long as this cache.
        self._known: dict[tuple[int, str], tuple[Any, frozenset[Hashable]]] = {}

    def pattern(self, validator: Any, pattern: str, text: Any, _node: Any) -> Iterator[Any]:
        if not validator.is_type(text, "string"):
            return
        try:
            if not self._effort.is_in(pattern, text):
                yield _fault(f"String should match pattern {clipped(repr(pattern))}")
        except ValueError as error:
            yield _fault(str(error))

    def pattern_properties(
        self, validator: Any, schemas: Mapping[str, Any], instance: Any, _node: Any
    ) -> Iterator[Any]:
        for pattern, schema in schemas.items() if isinstance(instance, dict) else ():
            try:
                found = [key for key in instance if self._effort.is_in(pattern, key)]
            except ValueError as error:
                yield _fault(str(error))
                continue
            for key in found:
                yield from validator.descend(instance[key], schema, path=key, schema_path=pattern)

    def additional_properties(
        self, validator: Any, schema: Any, instance: Any, node: Mapping[str, Any]
    ) -> Iterator[Any]:
        if not isinstance(instance, dict):
            return
        named, patterns = node.get("properties", {}), node.get("patternProperties", ())
        try:
            extra = [
                key
                for key in instance
                if key not in named and not any(self._effort.is_in(one, key) for one in patterns)
            ]
        except ValueError as error:
            yield _fault(str(error))
            return
        if schema is False and extra:
            shown = ", ".join(map(repr, extra))
            yield _fault(clipped(f"Additional properties are not allowed ({shown})"))
        elif schema is not False:
            for key in extra:
                yield from validator.descend(instance[key], schema, path=key)

    def enum(self, _validator: Any, choices: Any, instance: Any, node: Any) -> Iterator[Any]:
        if _key(instance, self._effort.step) not in self._keys(node, "enum", choices):
            yield _fault(f"{self._shown(instance)} is not one of {self._shown(choices[:_SHOWN])}")

    def const(self, _validator: Any, value: Any, instance: Any, node: Any) -> Iterator[Any]:
        if _key(instance, self._effort.step) not in self._keys(node, "const", [value]):
            yield _fault(f"{self._shown(value)} was expected")

    def unique_items(self, validator: Any, is_asked: Any, items: Any, _node: Any) -> Iterator[Any]:
        if not is_asked or not validator.is_type(items, "array"):
            return
        seen = set()
        for item in items:
            key = _key(item, self._effort.step)
            if key in seen:
                yield _fault(f"{self._shown(items)} has non-unique elements")
                return
            seen.add(key)

    def _shown(self, value: Any) -> str:
        text = clipped(self._effort.telling(repr(value)))
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."

    def _keys(self, node: Any, word: str, values: Iterable[Any]) -> frozenset[Hashable]:
        place = id(node), word
        if place not in self._known:
            self._known[place] = node, frozenset(map(_key, values))
        return self._known[place][1]


def _key(value: Any, count: Callable[[], None] | None = None) -> Hashable:
    """A key that equal values share, and no others. count: called for each part."""
    if count is not None:
        count()
    if isinstance(value, dict):
        return frozenset((name, _key(part, count)) for name, part in value.items())
    if isinstance(value, list):
        return tuple(_key(part, count) for part in value)
    return (bool, value) if isinstance(value, bool) else value


def _fault(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)
