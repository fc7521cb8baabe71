"""Checks of instances against the keywords of a JSON Schema document that no declaration holds.

A declaration holds types, bounds, patterns and choices, and Pydantic enforces them. Conditions,
`not`, `contains`, dependencies between properties and formats such as `email` have no place in it:
`jsonschema` validates them, on the whole instance, as JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from pydantic import BaseModel, RootModel

from schemax.attributes.json_document import DATA, MOST_PARTS, Node, SchemaDocument
from schemax.attributes.json_effort import Effort, TooMuch, bounded, check_standard
from schemax.attributes.json_values import DECLARED_FORMATS
from schemax.base.messages import clipped

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
    """Validates instances of the class that was made of a document.

    says_more: whether an instance may be at fault though each field is valid as declared.

    Raises SchemaError for a document that the standard does not allow, or with references that are
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
        """The first fault of a JSON value, or None. Formats, which only describe, are skipped."""
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
        except Exception:  # of the base class's serializer: the writer of rows reports it
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
    """True if a part has keywords that no declaration holds. is_schema: False for maps of names."""
    if isinstance(node, list):
        return any(_says_more(part, True) for part in node)
    if not isinstance(node, Mapping):
        return False
    if is_schema:
        form = node.get("format")
        # The format of an object is the output format of the model.
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
    """True if alternatives are a value or null, as Pydantic writes optional values."""
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
    """Raises SchemaError for keywords that require an engine without bounds."""
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
    """A value as JSON, without the nulls that stand for absent properties."""
    if isinstance(value, RootModel):
        return _stated(value.root, shown)
    if isinstance(value, (list, tuple)) and isinstance(shown, list) and len(value) == len(shown):
        return [_stated(*pair) for pair in zip(value, shown, strict=True)]
    if isinstance(value, dict) and isinstance(shown, dict) and len(value) == len(shown):
        both = zip(value.values(), shown.items(), strict=True)
        return {key: _stated(one, plain) for one, (key, plain) in both}
    if not isinstance(value, BaseModel) or not isinstance(shown, dict):
        return shown
    return {
        key: _stated(getattr(value, name), shown[name])
        for name, (key, required) in json_properties(type(value)).items()
        if name in shown and (required or shown[name] is not None)
    }


def json_properties(schema: type[BaseModel]) -> Mapping[str, tuple[str, bool]]:
    """Field names -> the property in the document, and whether it is required."""
    found: Mapping[str, tuple[str, bool]] = getattr(schema, "__json_properties__", {})
    return found


def _asked(error: Any) -> bool:
    """True unless all missing properties of an error are skipped, and so never read."""
    properties = error.schema.get("properties", {})
    missing = (key for (key,) in filter(None, _missing(error)))
    return not all(
        isinstance(properties.get(key), Mapping) and properties[key].get("skip") is True
        for key in missing
    )


def _names(instance: Any, path: Iterable[str | int]) -> tuple[str | int, ...]:
    """A path in JSON with field names in the place of properties."""
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
    """The paths to the missing properties of an error; for another error one (), its own place."""
    there, wanted = error.instance, error.validator_value
    if error.validator == "required":
        return [(key,) for key in wanted if key not in there and repr(key) in error.message]
    if error.validator == "dependentRequired":
        lacking = {one for key in wanted if key in there for one in wanted[key] if one not in there}
        return [(key,) for key in sorted(lacking) if error.message.startswith(repr(key))]
    return [()]
