"""Classes made of JSON Schema documents, which are pickled as the documents.

No module holds such a class, so pickle cannot look it up by name. Unpickling makes the class again,
unless the process has it already: within one process, a pickled class stays the same class.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, TypeVar
from uuid import uuid4
from weakref import WeakValueDictionary

from pydantic import BaseModel

from schemax.attributes.attributes import compile_attributes, refusals_of
from schemax.attributes.json_checks import Checks, Problem
from schemax.attributes.json_document import (
    MOST_LEVELS,
    SchemaDocument,
    class_name,
    parse,
    with_absolute_references,
)
from schemax.attributes.json_schema import Builder
from schemax.errors import SchemaError

ModelT = TypeVar("ModelT", bound=BaseModel)


def build_model(
    document: Mapping[str, Any] | str,
    *,
    base: type[ModelT],
    nested_base: type[BaseModel],
    name: str | None = None,
) -> type[ModelT]:
    """Builds a subclass of `base` with one field per property of a JSON Schema document.

    nested_base: the base of the classes of nested objects.
    Raises SchemaError, naming the property, for a schema that cannot be declared.
    """
    made: type[ModelT] = _make(_origin_of(document, base, nested_base, name))[-1]  # type: ignore[assignment]  # of `base`
    return made


def refusals_of_document(document: str, base: type[BaseModel]) -> list[SchemaError]:
    """The faults for which `build_model` refuses a document, of over a hundred the first."""
    refused: list[SchemaError] = []
    try:
        _make(_origin_of(document, base, base, None), refused)
    except SchemaError as error:
        refused.append(error)
    return refused


def _origin_of(
    document: Mapping[str, Any] | str,
    base: type[BaseModel],
    nested_base: type[BaseModel],
    name: str | None,
) -> _Origin:
    root = parse(document, name)
    try:
        # A copy, since the classes may be made again later.
        kept = with_absolute_references(root)
    except RecursionError:
        reason = f"the document is nested more than {MOST_LEVELS} levels deep; flatten it"
        raise SchemaError(name or "JSON Schema", None, reason) from None
    return _Origin(uuid4().hex, kept, base, nested_base, name)


class MadeClass(type(BaseModel)):  # type: ignore[misc]  # Pydantic's metaclass has no public name
    """The metaclass of classes made of documents, by which pickle knows them."""


class _Origin(NamedTuple):
    """The document that classes are made of. token: identifies the document across processes."""

    token: str
    document: Mapping[str, Any]
    base: type[BaseModel]
    nested_base: type[BaseModel]
    name: str | None


class _Classes(list[type[BaseModel]]):
    """All classes of a document, its own last. Every class keeps the list alive."""


_made: WeakValueDictionary[str, _Classes] = WeakValueDictionary()


def _make(origin: _Origin, refused: list[SchemaError] | None = None) -> _Classes:
    """Builds the classes. refused: collects faults; None: the first fault is raised."""
    root, name = origin.document, origin.name
    title = name or (root["title"] if isinstance(root.get("title"), str) else "") or "Schema"
    document = SchemaDocument(root, class_name(title))
    builder = Builder(document, origin.nested_base, MadeClass, refused)
    own = builder.root(origin.base)
    if refused is None:
        compile_attributes(own)
    else:
        refused += refusals_of(own)
    own.__json_checks__ = Checks(document)  # type: ignore[attr-defined]
    found = _made[origin.token] = _Classes(builder.classes)
    for number, made in enumerate(found):
        made.__schema_origin__ = origin, number, found  # type: ignore[attr-defined]
    return found


def problems_of(instance: BaseModel) -> Iterator[Problem]:
    """Yields the faults of an instance by its class's document; nothing without a document."""
    checks: Checks | None = getattr(type(instance), "__json_checks__", None)
    if checks is not None:
        yield from checks.problems(instance)


def forbidden_by_document(schema: type[BaseModel], value: Any) -> str | None:
    """The reason why a class's document forbids a JSON value; None if allowed or no document."""
    checks: Checks | None = getattr(schema, "__json_checks__", None)
    return None if checks is None else checks.forbidden(value)


def is_judged_whole(schema: type[BaseModel]) -> bool:
    """True if a class's document constrains instances beyond their single fields."""
    checks: Checks | None = getattr(schema, "__json_checks__", None)
    return checks is not None and checks.says_more


def _reduce(made: type[BaseModel]) -> str | tuple[Any, ...]:
    found = vars(made).get("__schema_origin__")
    if found is None:  # a subclass, which a module holds
        return made.__qualname__
    origin, number, _ = found
    return _recall, (number, *origin)


def _recall(number: int, *origin: Any) -> type[BaseModel]:
    made = _Origin(*origin)
    found = _made.get(made.token)
    return (_make(made) if found is None else found)[number]


copyreg.pickle(MadeClass, _reduce)
