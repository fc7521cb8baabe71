"""Validates instances by the keywords of a JSON Schema document that no declaration holds.

A declaration holds types, bounds, patterns and choices, and Pydantic enforces them. Conditions,
`not`, `contains`, dependencies between properties and formats such as `email` have no place in it:
`jsonschema` validates them, on the whole instance, as JSON.

Strangers write both schemas and instances, so the effort is bounded. `jsonschema` follows cyclic
references, validates the same part again and again, and searches with Python's `re`, whose time has
no bound. Here every step counts, and every pattern goes to the engine of `Pattern`. Values of
`enum`, `const` and `uniqueItems` are compared by hashes; `jsonschema` compares all pairs, and
writes all values into its message.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from pydantic import BaseModel, RootModel

from schemax.attributes.json_document import DATA, MOST_PARTS, Node, SchemaDocument
from schemax.attributes.json_values import DECLARED_FORMATS
from schemax.attributes.patterns import Pattern
from schemax.base.messages import clipped

# The most steps to validate an instance, and to validate a document against the standard.
_MOST_STEPS = 200_000
MOST_CHECKING = 1_000_000
# The most references behind references.
_DEEPEST = 32
# The most seconds of a thread for all searches in an instance; not every pattern has an engine that
# takes linear time.
_MOST_SEARCHING = 1.0
# The size of a step: keywords, names or items; or characters.
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
        """Counts steps: schemas that are entered, values that are compared."""
        self._steps += count
        if self._steps > self._most_steps:
            raise TooMuch(f"the document's conditions take more than {self._most_steps:,} steps")

    def entering(self, part: Any) -> None:
        """Counts a schema, the value of a keyword, or an instance, by its size."""
        each = _CHARACTERS_OF_STEP if isinstance(part, str) else _ITEMS_OF_STEP
        self.step(1 + len(part) // each if isinstance(part, (list, dict, str)) else 1)

    def telling(self, message: str) -> str:
        """Counts a message by its length, since it holds values; then returns the message."""
        self.step(1 + len(message) // _CHARACTERS_OF_STEP)
        return message

    def following(self, follow: Any) -> Any:
        """Wraps the keyword of a reference, bounded in number and depth.

        Only these bounds end cycles: if Python runs out of stack, extension modules panic.
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
        """True if a pattern matches within a text. Raises ValueError for an unusable pattern."""
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
    """The validator class `kind`, of a draft of the standard, with bounded effort."""
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
    validator = extend(kind, {word: _counted(word, judge, effort) for word, judge in words.items()})

    def evolve(self: Any, **changes: Any) -> Any:
        # jsonschema's own `evolve` validates a part with a `$schema` without bounds.
        effort.entering(changes.get("schema"))
        return attrs.evolve(self, **changes)

    validator.evolve = evolve
    return validator


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
    """Wraps a keyword: its work counts, and a `nullable` schema allows null."""

    def judged(validator: Any, value: Any, instance: Any, node: Any) -> Iterator[Any]:
        effort.entering(None if word == "enum" else value)
        effort.entering(instance)
        if word.startswith("unevaluated") and isinstance(instance, (list, dict)):
            effort.step(len(instance) ** 2 // _ITEMS_OF_STEP)  # compares all pairs
        if instance is not None or node.get("nullable") is not True:
            for error in judge(validator, value, instance, node) or ():
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

    1 equals 1.0, and neither equals true.
    """

    def __init__(self, effort: Effort) -> None:
        self._effort = effort
        # The keys are identities of nodes, which the validator keeps alive as long as this cache.
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
                keys = [key for key in instance if self._effort.is_in(pattern, key)]
            except ValueError as error:
                yield _fault(str(error))
                continue
            for key in keys:
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
                if key not in named
                and not any(self._effort.is_in(pattern, key) for pattern in patterns)
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
    """A key that values share if they are equal. count: called for each part."""
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


_BEYOND = frozenset(
    {"if", "then", "else", "not", "anyOf", "oneOf", "allOf", "contains", "propertyNames"}
    | {"dependentRequired", "dependentSchemas", "dependencies", "minProperties", "maxProperties"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_MOST_FOLLOWED = 64


class Problem(NamedTuple):
    """A fault of an instance. place: the path to the fault, by field names and item numbers."""

    place: tuple[str | int, ...]
    message: str


class Checks:
    """Validates instances of the class of a document.

    says_more: whether an instance may be at fault although each field is valid as declared.

    Raises SchemaError for a document that violates the standard, and for references that are
    cyclic, dangling, or lead to too many parts.
    """

    def __init__(self, document: SchemaDocument) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema import SchemaError as Broken
        from jsonschema.validators import validator_for
        from referencing import Registry

        kind = validator_for(document.root, default=Draft202012Validator)
        try:
            check_standard(kind, document.root)
        except Broken as error:
            place = tuple(str(part) for part in error.absolute_path)
            raise document.error((), clipped(f"{'/'.join(place)}: {error.message}")) from error
        except RecursionError:
            raise document.error((), "the document is nested too deeply; flatten it") from None
        except TooMuch as reason:
            raise document.error((), f"{reason}; shorten it") from None
        self.says_more = _says_more(document.root, True)
        if self.says_more:
            _check_unevaluated(document)
            _Measure(document).of(document.root)
        self._effort = Effort()
        self._validator = bounded(kind, self._effort)(
            document.root,
            registry=Registry().with_resource(document.uri, document.resource),
            format_checker=kind.FORMAT_CHECKER,
        )

    def forbidden(self, value: Any) -> str | None:
        """The first fault of a JSON value, or None. Formats are skipped: they only describe."""
        self._effort.begin()
        try:
            for error in self._validator.iter_errors(value):
                is_skipped = error.validator == "required" and not _asked(error)
                if error.validator != "format" and not is_skipped:
                    return clipped(f"{error.json_path}: {error.message}")
        except TooMuch as reason:
            return str(reason) if self.says_more else None
        return None

    def problems(self, instance: BaseModel) -> Iterator[Problem]:
        """Yields the faults that the declaration allows and the document forbids."""
        if not self.says_more:
            return
        try:
            as_json = instance.model_dump(mode="json", by_alias=False, warnings=False)
            shown = _stated(instance, as_json)
        except Exception:  # the base class's serializer fails: the writer of rows reports it
            return
        self._effort.begin()
        try:
            errors = list(self._validator.iter_errors(shown))
        except TooMuch as reason:
            yield Problem((), str(reason))
            return
        for error in errors:
            if error.validator != "format" and _BEYOND.isdisjoint(error.absolute_schema_path):
                continue
            for missing in _missing(error):
                path = [*error.absolute_path, *missing]
                yield Problem(_names(instance, path), clipped(error.message))


def _says_more(node: Any, is_schema: bool) -> bool:
    """True if a part has keywords that no declaration holds. is_schema: False for name maps."""
    if isinstance(node, list):
        return any(_says_more(part, True) for part in node)
    if not isinstance(node, Mapping):
        return False
    if is_schema:
        form = node.get("format")
        # An object's format is the model's output format.
        if form is not None and form not in DECLARED_FORMATS and "properties" not in node:
            return True
        if not _BEYOND.isdisjoint(node) and not _is_optional(node):
            return True
    names = ("properties", "$defs", "definitions")
    return any(
        _says_more(part, not (is_schema and key in names))
        for key, part in node.items()
        if not (is_schema and key in DATA)
    )


def _is_optional(node: Node) -> bool:
    """True if the alternatives are a value and null, as Pydantic writes optional values."""
    words = _BEYOND.intersection(node)
    if words == {"anyOf"} and isinstance(node["anyOf"], list):
        return {"type": "null"} in node["anyOf"]
    return words == {"allOf"} and isinstance(node["allOf"], list) and len(node["allOf"]) == 1


class _Measure:
    """Counts the parts of a document that the validation of an instance may visit."""

    def __init__(self, document: SchemaDocument) -> None:
        self._document = document
        self._sizes: dict[str, int | None] = {}
        self._bounds = 0  # the enclosing properties that bound their depth
        self._levels = 0  # the depth of references behind references

    def of(self, node: Any) -> int:
        """The number of parts. Raises SchemaError for too many, or for endless recursion."""
        if isinstance(node, list):
            return sum(map(self.of, node))
        if not isinstance(node, Mapping):
            return 0
        is_bound = "max_depth" in node
        self._bounds += is_bound
        size = 1 + sum(self.of(part) for key, part in node.items() if key not in DATA)
        if isinstance(node.get("$ref"), str):
            size += self._behind(node["$ref"])
        if size > MOST_PARTS:
            reason = f"the document has more than {MOST_PARTS:,} parts, references followed"
            raise self._document.error((), reason)
        self._bounds -= is_bound
        return size

    def _behind(self, ref: str) -> int:
        if ref not in self._sizes:
            if self._levels == _MOST_FOLLOWED:
                reason = f"{clipped(repr(ref))} is behind more than {_MOST_FOLLOWED} references"
                raise self._document.error((), reason)
            self._sizes[ref] = None
            self._levels += 1
            self._sizes[ref] = self.of(self._document.target(ref, ()))
            self._levels -= 1
        size = self._sizes[ref]
        if size is None and self._bounds:
            return 0  # the instance ends there
        if size is None:
            reason = f"{ref} refers to itself; a recursive schema has no fixed set of attributes"
            raise self._document.error((), reason)
        return size


def _check_unevaluated(document: SchemaDocument) -> None:
    """Raises SchemaError for keywords that only an engine without bounds validates."""
    words = set(_words_of(document.root))
    if "patternProperties" in words and "unevaluatedProperties" in words:
        reason = "unevaluatedProperties in a document with patternProperties is not supported"
        raise document.error((), f"{reason}; use additionalProperties")


def _words_of(node: Any) -> Iterator[str]:
    """Yields keywords and names of properties."""
    for part in node if isinstance(node, list) else ():
        yield from _words_of(part)
    for key, part in node.items() if isinstance(node, Mapping) else ():
        yield key
        if key not in DATA:
            yield from _words_of(part)


def _stated(value: Any, shown: Any) -> Any:
    """A value as JSON without nulls of absent properties."""
    if isinstance(value, RootModel):
        return _stated(value.root, shown)
    if isinstance(value, (list, tuple)) and isinstance(shown, list) and len(value) == len(shown):
        return [_stated(*pair) for pair in zip(value, shown, strict=True)]
    if isinstance(value, dict) and isinstance(shown, dict) and len(value) == len(shown):
        pairs = zip(value.values(), shown.items(), strict=True)
        return {key: _stated(item, plain) for item, (key, plain) in pairs}
    if not isinstance(value, BaseModel) or not isinstance(shown, dict):
        return shown
    return {
        key: _stated(getattr(value, name), shown[name])
        for name, (key, required) in json_properties(type(value)).items()
        if name in shown and (required or shown[name] is not None)
    }


def json_properties(schema: type[BaseModel]) -> Mapping[str, tuple[str, bool]]:
    """Field names -> the property in the document, and whether it is required."""
    properties: Mapping[str, tuple[str, bool]] = getattr(schema, "__json_properties__", {})
    return properties


def _asked(error: Any) -> bool:
    """False if all missing properties of an error are skipped, and so never read."""
    properties = error.schema.get("properties", {})
    missing = (key for (key,) in filter(None, _missing(error)))
    return not all(
        isinstance(properties.get(key), Mapping) and properties[key].get("skip") is True
        for key in missing
    )


def _names(instance: Any, path: Iterable[str | int]) -> tuple[str | int, ...]:
    """A path in JSON with field names instead of properties."""
    place: list[str | int] = []
    for step in path:
        instance = instance.root if isinstance(instance, RootModel) else instance
        if isinstance(instance, BaseModel):
            fields = {key: name for name, (key, _) in json_properties(type(instance)).items()}
            step = fields.get(str(step), str(step))
            instance = getattr(instance, step, None)
        elif isinstance(instance, list) and isinstance(step, int):
            instance = instance[step]
        place.append(step)
    return tuple(place)


def _missing(error: Any) -> list[tuple[str, ...]]:
    """The paths to the missing properties of an error; [()], its own place, for other errors."""
    there, wanted = error.instance, error.validator_value
    if error.validator == "required":
        return [(key,) for key in wanted if key not in there and repr(key) in error.message]
    if error.validator == "dependentRequired":
        lacking = {
            name for key in wanted if key in there for name in wanted[key] if name not in there
        }
        return [(key,) for key in sorted(lacking) if error.message.startswith(repr(key))]
    return [()]
