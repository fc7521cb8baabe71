"""What a JSON Schema document says beyond its declaration, held against instances.

A declaration holds types, bounds, patterns and choices, and Pydantic enforces them. Conditions,
`not`, `contains`, dependencies between properties and formats such as `email` have no place in it:
`jsonschema` judges them, on the whole instance, as JSON.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from functools import cache, lru_cache
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, RootModel, TypeAdapter, ValidationError

from schemax.attributes.json_document import DATA, MOST_PARTS, Node, SchemaDocument
from schemax.attributes.patterns import Pattern
from schemax.messages import clipped

_BEYOND = frozenset(
    {"if", "then", "else", "not", "anyOf", "oneOf", "allOf", "contains", "propertyNames"}
    | {"dependentRequired", "dependentSchemas", "dependencies", "minProperties", "maxProperties"}
    | {"unevaluatedItems", "unevaluatedProperties"}
)
_DEEPEST = 32
_DECLARED_FORMATS = ("date", "date-time")


class Problem(NamedTuple):
    """place: the field names on the way to what is at fault, and the numbers of items."""

    place: tuple[str | int, ...]
    message: str


class Checks:
    """Judges instances of the class that was made of a document.

    Raises SchemaError for a document that the standard does not allow, or whose references lead in
    a circle, nowhere, or to too much.
    """

    def __init__(self, document: SchemaDocument) -> None:
        from jsonschema import SchemaError as Broken
        from jsonschema.validators import extend, validator_for
        from referencing import Registry

        kind = validator_for(document.root, default=_newest())
        try:
            kind.check_schema(document.root)
        except Broken as error:
            place = tuple(str(part) for part in error.absolute_path)
            raise document.error((), f"{'/'.join(place)}: {error.message}") from error
        except RecursionError:
            raise document.error((), "the document is nested too deeply; flatten it") from None
        self._validator = None
        if _says_more(document.root, True):
            _Measure(document).of(document.root)
            self._followed = _Followed()
            references = {
                word: self._followed.bounded(kind.VALIDATORS[word])
                for word in ("$ref", "$dynamicRef", "$recursiveRef")
                if word in kind.VALIDATORS
            }
            bounded = extend(kind, {"pattern": _search, **references})
            self._validator = bounded(
                document.root,
                registry=Registry().with_resource(document.uri, document.resource),
                format_checker=kind.FORMAT_CHECKER,
            )

    @property
    def says_more(self) -> bool:
        """Whether an instance may be at fault though each of its fields is as declared."""
        return self._validator is not None

    def problems(self, instance: BaseModel) -> Iterator[Problem]:
        """What the declaration allows, and the document does not."""
        if self._validator is None:
            return
        try:
            as_json = instance.model_dump(mode="json", by_alias=False, warnings=False)
            shown = _stated(instance, as_json)
        except Exception:  # a serializer's of the base class: what writes the row says so
            return
        self._followed.begin()
        try:
            errors = list(self._validator.iter_errors(shown))
        except _Endless:
            yield Problem((), "the document's conditions refer to themselves too often")
            return
        for error in errors:
            if error.validator != "format" and _BEYOND.isdisjoint(error.absolute_schema_path):
                continue
            for missing in _missing(error):
                path = [*error.absolute_path, *missing]
                yield Problem(_names(instance, path), clipped(error.message))


class _Endless(Exception):
    """References that judging an instance follows too deep, or too often."""


class _Followed(threading.local):
    """References that one thread follows to judge an instance, which may lead in circles.

    Nothing else ends them: where Python runs out of stack, extension modules panic.
    """

    def begin(self) -> None:
        self._count = self._depth = 0

    def bounded(self, follow: Any) -> Any:
        """The keyword of a reference, in bounded time."""

        def counted(*arguments: Any) -> Iterator[Any]:
            self._count += 1
            if self._count > MOST_PARTS or self._depth == _DEEPEST:
                raise _Endless
            self._depth += 1
            try:
                yield from follow(*arguments) or ()
            finally:
                self._depth -= 1

        return counted


@cache
def _newest() -> Any:
    from jsonschema import Draft202012Validator

    return Draft202012Validator


def _says_more(node: Any, is_schema: bool) -> bool:
    """Whether some part says what a declaration does not hold. is_schema: no map of names."""
    if isinstance(node, list):
        return any(_says_more(part, True) for part in node)
    if not isinstance(node, Mapping):
        return False
    if is_schema:
        form = node.get("format")
        # Of an object, the format is the one that the model writes in.
        if form is not None and form not in _DECLARED_FORMATS and "properties" not in node:
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
    """Whether alternatives are a value or null, which is all that Pydantic writes."""
    words = _BEYOND.intersection(node)
    if words == {"anyOf"} and isinstance(node["anyOf"], list):
        return {"type": "null"} in node["anyOf"]
    return words == {"allOf"} and isinstance(node["allOf"], list) and len(node["allOf"]) == 1


class _Measure:
    """Counts the parts of a document that judging an instance may come by."""

    def __init__(self, document: SchemaDocument) -> None:
        self._document = document
        self._sizes: dict[str, int | None] = {}
        self._bounds = 0  # of those around, properties that say how deep they are read

    def of(self, node: Any) -> int:
        """Raises SchemaError where there are too many, or no end of them."""
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
            self._sizes[ref] = None
            self._sizes[ref] = self.of(self._document.target(ref, ()))
        size = self._sizes[ref]
        if size is None and self._bounds:
            return 0  # an instance ends there
        if size is None:
            reason = f"{ref} refers to itself; a recursive schema has no fixed set of attributes"
            raise self._document.error((), reason)
        return size


def _search(_validator: Any, pattern: str, text: Any, _node: Any) -> Iterator[Any]:
    """The keyword `pattern`, in bounded time."""
    from jsonschema import ValidationError as Mismatch

    if not isinstance(text, str):
        return
    try:
        _reader(pattern).validate_python(text)
    except ValidationError as error:
        yield Mismatch(error.errors()[0]["msg"])
    except ValueError as error:  # a pattern that no engine takes, or that is too long
        yield Mismatch(f"its pattern cannot be used: {error}")


@lru_cache(maxsize=256)
def _reader(pattern: str) -> TypeAdapter[Any]:
    kind: Any = Annotated[str, Pattern(pattern)]
    return TypeAdapter(kind)


def _stated(value: Any, shown: Any) -> Any:
    """A value as JSON, without nulls that stand for a property that is not there."""
    if isinstance(value, RootModel):
        return _stated(value.root, shown)
    if isinstance(value, list) and isinstance(shown, list) and len(value) == len(shown):
        return [_stated(*pair) for pair in zip(value, shown, strict=True)]
    if not isinstance(value, BaseModel) or not isinstance(shown, dict):
        return shown
    return {
        key: _stated(getattr(value, name), shown[name])
        for name, (key, required) in _keys_of(value).items()
        if name in shown and (required or shown[name] is not None)
    }


def _keys_of(value: BaseModel) -> Mapping[str, tuple[str, bool]]:
    """Of every field that a document declares, its property, and whether that is required."""
    return getattr(type(value), "__json_properties__", {})


def _names(instance: Any, path: Iterable[str | int]) -> tuple[str | int, ...]:
    """Properties on a path of JSON as fields."""
    place: list[str | int] = []
    for step in path:
        instance = instance.root if isinstance(instance, RootModel) else instance
        if isinstance(instance, BaseModel):
            fields = {key: name for name, (key, _) in _keys_of(instance).items()}
            step = fields.get(str(step), str(step))
            instance = getattr(instance, step, None)
        elif isinstance(instance, list) and isinstance(step, int):
            instance = instance[step]
        place.append(step)
    return tuple(place)


def _missing(error: Any) -> list[tuple[str, ...]]:
    """The properties that an error says are missing; else (), for the place of the error."""
    there, wanted = error.instance, error.validator_value
    if error.validator == "required":
        return [(key,) for key in wanted if key not in there and repr(key) in error.message]
    if error.validator == "dependentRequired":
        lacking = {one for key in wanted if key in there for one in wanted[key] if one not in there}
        return [(key,) for key in sorted(lacking) if error.message.startswith(repr(key))]
    return [()]
