"""Validates instances by the keywords of a JSON Schema document that no declaration holds.

A declaration holds types, bounds, patterns and choices, and Pydantic enforces them. Conditions,
`not`, `contains`, dependencies between properties and formats such as `email` have no place in it:
`jsonschema` validates them, on the whole instance, as JSON.

Strangers write both schemas and instances, so time and the depth of references are bounded.
`jsonschema` searches with Python's `re`, which no time limit ends, so every pattern goes to the
engine of `Pattern`.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from fractions import Fraction
from typing import Any, TypeAlias

from pydantic import BaseModel, RootModel

from schemax.attributes.json_document import DATA, MOST_PARTS, Node, SchemaDocument
from schemax.attributes.json_values import DECLARED_FORMATS
from schemax.attributes.patterns import Pattern
from schemax.base.messages import clipped
from schemax.base.process import at_most

# The most seconds of processor time to validate an instance, and a document against the standard.
MOST_SECONDS, MOST_CHECKING = 1.0, 20.0
# The most references behind references, in an instance's validation and in a document.
_DEEPEST, _MOST_FOLLOWED = 32, 64

Problem: TypeAlias = tuple[tuple[str | int, ...], str]
"""A fault of an instance: its path, by field names and item numbers, and the message."""


class TooMuch(Exception):
    """An instance that cannot be validated within bounds; the message names the bound."""


def _bounded_validator(kind: Any) -> Any:
    """The validator class `kind`, of a draft of the standard, with bounded effort."""
    import attrs
    from jsonschema.validators import extend

    def enum(validator: Any, choices: Any, instance: Any, node: Any) -> Iterator[Any]:
        # jsonschema compares one by one, in Python.
        if not (isinstance(instance, str) and instance in choices):
            yield from kind.VALIDATORS["enum"](validator, choices, instance, node)

    own = {"pattern": _pattern, "patternProperties": _named, "additionalProperties": _additional}
    own |= {"multipleOf": _multiple_of, "enum": enum}
    words = {**kind.VALIDATORS, **{word: own[word] for word in own if word in kind.VALIDATORS}}
    for word in words.keys() & {"$ref", "$dynamicRef", "$recursiveRef"}:
        words[word] = _bounded_reference(words[word])
    validator = extend(kind, {word: _in_time(judge) for word, judge in words.items()})
    # jsonschema's own `evolve` validates a part with a `$schema` without bounds.
    validator.evolve = attrs.evolve
    return validator


class _Effort(threading.local):
    """The effort of this thread's validation. ends: its processor time; depth: of references."""

    ends = math.inf
    depth = 0


_effort = _Effort()


def _in_time(judge: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """Wraps a keyword: bounded in time, and passed over where a `nullable` schema allows null."""

    def judged(validator: Any, value: Any, instance: Any, node: Any) -> Iterator[Any]:
        if time.thread_time() > _effort.ends:
            seconds = f"{MOST_SECONDS:g} second"
            raise TooMuch(f"the document's conditions take more than {seconds}")
        if instance is not None or node.get("nullable") is not True:
            yield from judge(validator, value, instance, node) or ()

    return judged


def _bounded_reference(follow: Callable[..., Any]) -> Callable[..., Iterator[Any]]:
    """Wraps the keyword of a reference, bounded in depth.

    Only this bound ends cycles: if Python runs out of stack, extension modules panic.
    """

    def followed(*arguments: Any) -> Iterator[Any]:
        if _effort.depth == _DEEPEST:
            raise TooMuch("the document's conditions refer to themselves too often")
        _effort.depth += 1
        try:
            yield from follow(*arguments) or ()
        finally:
            _effort.depth -= 1

    return followed


def _pattern(validator: Any, pattern: str, text: Any, _node: Any) -> Iterator[Any]:
    if validator.is_type(text, "string"):
        try:
            if not Pattern(pattern).is_in(text):
                yield _fault(f"String should match pattern {clipped(repr(pattern))}")
        except ValueError as error:
            yield _fault(f"its pattern cannot be used: {clipped(str(error))}")


def _named(validator: Any, schemas: Mapping[str, Any], instance: Any, _node: Any) -> Iterator[Any]:
    for pattern, schema in schemas.items() if isinstance(instance, dict) else ():
        for key in filter(Pattern(pattern).is_in, instance):
            yield from validator.descend(instance[key], schema, path=key, schema_path=pattern)


def _additional(
    validator: Any, schema: Any, instance: Any, node: Mapping[str, Any]
) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    patterns = [Pattern(pattern) for pattern in node.get("patternProperties", ())]
    named = node.get("properties", {})
    extra = [
        key
        for key in instance
        if key not in named and not any(pattern.is_in(key) for pattern in patterns)
    ]
    if schema is False and extra:
        shown = ", ".join(map(repr, extra))
        yield _fault(clipped(f"Additional properties are not allowed ({shown})"))
    elif schema is not False:
        for key in extra:
            yield from validator.descend(instance[key], schema, path=key)


def _multiple_of(validator: Any, step: float, value: Any, _node: Any) -> Iterator[Any]:
    """Validates `multipleOf` in decimal numbers, so that 19.99 is a multiple of 0.01."""
    if not validator.is_type(value, "number") or not math.isfinite(value):
        return
    if (_exact(value) / _exact(step)).denominator != 1:
        yield _fault(f"{value!r} is not a multiple of {step!r}")


def _exact(number: float) -> Fraction:
    """The exact value of a number's decimal notation."""
    return Fraction(number if isinstance(number, int) else repr(number))


def _fault(message: str) -> Any:
    from jsonschema import ValidationError

    return ValidationError(message)


_BEYOND = frozenset(
    {"if", "then", "else", "not", "anyOf", "oneOf", "allOf", "contains", "propertyNames"}
    | {"dependentRequired", "dependentSchemas", "dependencies", "minProperties", "maxProperties"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)


class Checks:
    """Validates instances of the class of a document.

    says_more: whether an instance may be at fault although each field is valid as declared.

    Raises SchemaError for a document that violates the standard, and for references that are
    cyclic, dangling, or lead to too many parts.
    """

    def __init__(self, document: SchemaDocument) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema.validators import validator_for
        from referencing import Registry

        kind = validator_for(document.root, default=Draft202012Validator)
        _check_standard(kind, document)
        nodes = list(_schemas_in(document.root))
        self.says_more = any(map(_says_more, nodes))
        if self.says_more:
            # Only an engine without bounds validates both.
            if {"patternProperties", "unevaluatedProperties"} <= set().union(*nodes):
                reason = "unevaluatedProperties in a document with patternProperties"
                raise document.error((), f"{reason} is not supported; use additionalProperties")
            _check_references(document)
        self._validator = _bounded_validator(kind)(
            document.root,
            registry=Registry().with_resource(document.uri, document.resource),
            format_checker=kind.FORMAT_CHECKER,
        )

    def _errors(self, value: Any) -> list[Any]:
        """jsonschema's errors. Raises TooMuch; ValueError for an unusable pattern."""
        _effort.ends, _effort.depth = time.thread_time() + MOST_SECONDS, 0
        return list(self._validator.iter_errors(value))

    def forbidden(self, value: Any) -> str | None:
        """The first fault of a JSON value, or None. Formats are skipped: they only describe."""
        try:
            for error in self._errors(value):
                is_skipped = error.validator == "required" and not _is_asked(error)
                if error.validator != "format" and not is_skipped:
                    return clipped(f"{error.json_path}: {error.message}")
        except (TooMuch, ValueError) as reason:
            return str(reason) if self.says_more else None
        return None

    def problems(self, instance: BaseModel) -> Iterator[Problem]:
        """Yields the faults that the declaration allows and the document forbids."""
        if not self.says_more:
            return
        try:
            as_json = instance.model_dump(mode="json", by_alias=False, warnings=False)
            shown = _stated_json(instance, as_json)
        except Exception:  # the base class's serializer fails: the writer of rows reports it
            return
        try:
            errors = list(self._errors(shown))
        except (TooMuch, ValueError) as reason:
            yield (), str(reason)
            return
        for error in errors:
            if error.validator != "format" and _BEYOND.isdisjoint(error.absolute_schema_path):
                continue
            for missing in _missing_paths(error):
                path = [*error.absolute_path, *missing]
                yield _names(instance, path), clipped(error.message)


def _check_standard(kind: Any, document: SchemaDocument) -> None:
    """Raises SchemaError for a document that violates a draft of the standard."""
    from jsonschema import SchemaError as Broken

    late = TooMuch(f"holding it against the standard takes more than {MOST_CHECKING:g} seconds")
    try:
        with at_most(MOST_CHECKING, late):
            kind.check_schema(document.root)
    except Broken as error:
        place = "/".join(map(str, error.absolute_path))
        raise document.error((), clipped(f"{place}: {error.message}")) from error
    except RecursionError:
        raise document.error((), "the document is nested too deeply; flatten it") from None
    except TooMuch as reason:
        raise document.error((), f"{reason}; shorten it") from None


def _schemas_in(node: Any, is_schema: bool = True) -> Iterator[Node]:
    """Yields a schema and the schemas in it. is_schema: False for a map of names to schemas."""
    for part in node if isinstance(node, list) else ():
        yield from _schemas_in(part)
    if isinstance(node, Mapping):
        if is_schema:
            yield node
        for key, part in node.items():
            if not (is_schema and key in DATA):
                is_map = is_schema and key in ("properties", "$defs", "definitions")
                yield from _schemas_in(part, not is_map)


def _says_more(node: Node) -> bool:
    """True if a schema has keywords that no declaration holds."""
    form = node.get("format")
    # An object's format is the model's output format.
    is_format = form is not None and form not in DECLARED_FORMATS and "properties" not in node
    return is_format or not (_BEYOND.isdisjoint(node) or _is_optional(node))


def _is_optional(node: Node) -> bool:
    """True if the alternatives are a value and null, as Pydantic writes optional values."""
    words = _BEYOND.intersection(node)
    if words == {"anyOf"} and isinstance(node["anyOf"], list):
        return {"type": "null"} in node["anyOf"]
    return words == {"allOf"} and isinstance(node["allOf"], list) and len(node["allOf"]) == 1


def _check_references(document: SchemaDocument) -> None:
    """Raises SchemaError for too many parts, references followed, or for endless recursion."""
    sizes: dict[str, int | None] = {}  # None while the target is measured

    def size_of(node: Any, is_bound: bool, levels: int) -> int:
        if isinstance(node, list):
            return sum(size_of(part, is_bound, levels) for part in node)
        if not isinstance(node, Mapping):
            return 0
        is_bound = is_bound or "max_depth" in node  # an instance ends there
        parts = (part for key, part in node.items() if key not in DATA)
        size = 1 + sum(size_of(part, is_bound, levels) for part in parts)
        if isinstance(ref := node.get("$ref"), str):
            if ref not in sizes:
                if levels == _MOST_FOLLOWED:
                    reason = f"{clipped(repr(ref))} is behind more than {levels} references"
                    raise document.error((), reason)
                sizes[ref] = None
                sizes[ref] = size_of(document.target(ref, ()), is_bound, levels + 1)
            behind = sizes[ref]
            if behind is None and not is_bound:
                reason = (
                    f"{ref} refers to itself; a recursive schema has no fixed set of attributes"
                )
                raise document.error((), reason)
            size += behind or 0
        if size > MOST_PARTS:
            reason = f"the document has more than {MOST_PARTS:,} parts, references followed"
            raise document.error((), reason)
        return size

    size_of(document.root, False, 0)


def _stated_json(value: Any, shown: Any) -> Any:
    """A value as JSON without nulls of absent properties."""
    if isinstance(value, RootModel):
        return _stated_json(value.root, shown)
    if isinstance(value, (list, tuple)) and isinstance(shown, list) and len(value) == len(shown):
        return [_stated_json(*pair) for pair in zip(value, shown, strict=True)]
    if isinstance(value, dict) and isinstance(shown, dict) and len(value) == len(shown):
        pairs = zip(value.values(), shown.items(), strict=True)
        return {key: _stated_json(item, plain) for item, (key, plain) in pairs}
    if not isinstance(value, BaseModel) or not isinstance(shown, dict):
        return shown
    return {
        key: _stated_json(getattr(value, name), shown[name])
        for name, (key, required) in json_properties(type(value)).items()
        if name in shown and (required or shown[name] is not None)
    }


def json_properties(schema: type[BaseModel]) -> Mapping[str, tuple[str, bool]]:
    """Field names -> the property in the document, and whether it is required."""
    properties: Mapping[str, tuple[str, bool]] = getattr(schema, "__json_properties__", {})
    return properties


def _is_asked(error: Any) -> bool:
    """False if all missing properties of an error are skipped, and so never read."""
    properties = error.schema.get("properties", {})
    missing = (key for (key,) in filter(None, _missing_paths(error)))
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


def _missing_paths(error: Any) -> list[tuple[str, ...]]:
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
