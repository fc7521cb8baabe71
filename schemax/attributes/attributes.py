"""Attributes: what a declaration asks for, one per leaf of a Pydantic model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, RootModel
from pydantic.errors import PydanticUndefinedAnnotation, PydanticUserError
from pydantic.fields import FieldInfo
from pydantic.json_schema import SkipJsonSchema

from schemax.attributes.after import Misplaced, Path, resolved
from schemax.attributes.annotations import (
    FieldType,
    Kind,
    UnsupportedType,
    annotation_of,
    check_default,
    field_type_of,
    text_of,
)
from schemax.attributes.constraints import Constraints
from schemax.attributes.settings import is_unprintable, require_model, spaced
from schemax.config import BOUNDS
from schemax.errors import SchemaError
from schemax.reading.units import check_unit

MOST_ATTRIBUTES = 2_000
"""Leaves of a declaration. Models within models can have far more than their text shows."""


@dataclass(frozen=True, slots=True)
class Attribute:
    """One leaf of a declaration: what is asked for, and in which form.

    path: Python field names from the root, ("dimensions", "width").
    labels: what the model is shown at each level: the title, else the name with spaces.
    description: of the field, else of the closest nested model's field around it.
    examples: as text.
    kind: of the value; for lists, of an item. "model" only for lists.
    choices: texts of the members of a Literal or Enum, else ().
    choice_values: the Python values behind `choices`: a Literal's values, an Enum's members.
    is_list: whether the value is a list, set or tuple of such items.
    two_phase: whether such a list is read in two phases: how many items, then all of them at once.
    fields: the leaves of an item that is a nested model, with paths and labels from the item on.
    nullable: whether None is allowed for this leaf or for a nested model around it.
    required: whether the leaf has no default; says nothing of the nested models around it.
    k_max: token budget named by the field, else by the closest nested model's field around it.
    omittable: whether the leaf, or a nested model around it, is nullable or has a default.
    constraints: (keyword, value) pairs, most of them JSON Schema's: see `attributes.constraints`.
    unit: of a number, of which the description tells.
    strict: whether the leaf, or a nested model around it, takes literals alone.
    after: paths of the leaves whose values stand before this one's key, in order.
    """

    path: tuple[str, ...]
    labels: tuple[str, ...]
    description: str | None
    examples: tuple[str, ...]
    kind: Kind
    choices: tuple[str, ...]
    choice_values: tuple[Any, ...]
    is_list: bool
    nullable: bool
    required: bool
    k_max: int | None
    omittable: bool = False
    constraints: Constraints = ()
    two_phase: bool = False
    fields: tuple[Attribute, ...] = ()
    unit: str | None = None
    strict: bool = False
    after: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """The dotted path, "dimensions.width"."""
        return self.path[0] if len(self.path) == 1 else ".".join(self.path)

    @property
    def label(self) -> str:
        """What the model is shown for the leaf itself."""
        return self.labels[-1]


def compile_attributes(model: type[BaseModel]) -> tuple[Attribute, ...]:
    """The leaves of a Pydantic model in declaration order, nested models flattened.

    Raises SchemaError, with class and dotted field, for what cannot be compiled.
    """
    require_model(model)
    if issubclass(model, RootModel):
        raise SchemaError(
            model.__name__, None, "a RootModel has no named fields; declare a BaseModel with fields"
        )
    outer = _Outer(model.__name__, itertools.count(1))
    attributes = _with_after(tuple(_leaves(model, outer)), outer)
    try:
        model.model_rebuild(_types_namespace={})
    except (PydanticUndefinedAnnotation, PydanticUserError) as error:
        raise SchemaError(model.__name__, None, f"Pydantic cannot build it: {error}") from error
    return attributes


@dataclass(frozen=True, slots=True)
class _Outer:
    """The way from the root to a nested model, and what its leaves take over from it.

    count: of the leaves of the whole declaration.
    """

    root: str
    count: Iterator[int]
    path: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    models: tuple[type[BaseModel], ...] = ()
    description: str | None = None
    k_max: int | None = None
    nullable: bool = False
    omittable: bool = False
    strict: bool = False
    after: tuple[Path, ...] = ()


def _leaves(model: type[BaseModel], outer: _Outer) -> Iterator[Attribute]:
    fields = _fields_of(model, outer)
    shown: dict[str, str] = {}
    for name, field in fields.items():
        path = (*outer.path, name)
        try:
            label = _label_of(name, field)
            twin = shown.setdefault(" ".join(label.split()).casefold(), name)
            if twin != name:
                raise UnsupportedType(
                    f"shows the model the same name as {twin!r} ({label!r}); "
                    "give one of them another title"
                )
            field_type = field_type_of(annotation_of(field))
            two_phase = _is_two_phase(field, field_type)
            inner = replace(
                outer,
                path=path,
                labels=(*outer.labels, label),
                models=(*outer.models, model),
                description=(field.description or "").strip() or outer.description,
                k_max=_k_max_of(field) or outer.k_max,
                nullable=outer.nullable or field_type.nullable,
                omittable=outer.omittable or field_type.nullable or not field.is_required(),
                strict=outer.strict or _own(field).get("strict") is True,
                after=(*outer.after, *_after_of(field, fields, outer.path)),
            )
            if field_type.model is None:
                yield _leaf(field, field_type, inner, two_phase)
                continue
            if field_type.model in inner.models:
                raise UnsupportedType(
                    f"{field_type.model.__name__} contains itself; a recursive model has no fixed "
                    "set of attributes: declare the levels that you need as classes of their own"
                )
            if field_type.is_list:
                # Each item is there, whatever may stand in the place of the list.
                item = replace(inner, nullable=False, omittable=False, after=())
                leaves = _with_after(tuple(_leaves(field_type.model, item)), item)
                yield _leaf(field, field_type, inner, two_phase, leaves)
                continue
        except UnsupportedType as error:
            raise SchemaError(outer.root, ".".join(path), str(error)) from None
        yield from _leaves(field_type.model, inner)


def _leaf(
    field: FieldInfo,
    field_type: FieldType,
    place: _Outer,
    two_phase: bool,
    fields: tuple[Attribute, ...] = (),
) -> Attribute:
    if field_type.kind is None and not fields:
        raise UnsupportedType(
            "allows nothing but None; name the type of its value, such as str | None"
        )
    if next(place.count) > MOST_ATTRIBUTES:
        raise UnsupportedType(
            f"is one attribute too many: a schema has at most {MOST_ATTRIBUTES:,}, those of nested "
            "models included; divide it"
        )
    check_default(field)
    depth, unit = len(place.path), _unit_of(field, field_type)
    in_unit = f"in {unit}" if unit else None
    if place.description and in_unit:
        in_unit = f"{place.description} ({in_unit})"
    return Attribute(
        path=place.path,
        labels=place.labels,
        description=in_unit or place.description,
        examples=tuple(text_of(x) for x in field.examples or () if x is not None),
        kind=field_type.kind or "model",
        choices=tuple(text for text, _ in field_type.choices),
        choice_values=tuple(value for _, value in field_type.choices),
        is_list=field_type.is_list,
        nullable=place.nullable,
        required=field.is_required(),
        k_max=place.k_max,
        omittable=place.omittable,
        constraints=field_type.constraints,
        two_phase=two_phase,
        fields=tuple(
            replace(
                leaf,
                path=leaf.path[depth:],
                labels=leaf.labels[depth:],
                after=tuple(path[depth:] for path in leaf.after),
            )
            for leaf in fields
        ),
        unit=unit,
        strict=place.strict,
        after=place.after,
    )


def _with_after(leaves: tuple[Attribute, ...], outer: _Outer) -> tuple[Attribute, ...]:
    """The leaves of a root or of an item, which look at none outside it."""
    if not any(leaf.after for leaf in leaves):
        return leaves
    try:
        after = resolved([leaf.path for leaf in leaves], [leaf.after for leaf in leaves])
    except Misplaced as error:
        raise SchemaError(outer.root, ".".join(error.path), str(error)) from None
    return tuple(replace(leaf, after=some) for leaf, some in zip(leaves, after, strict=True))


def _after_of(field: FieldInfo, fields: dict[str, FieldInfo], around: Path) -> Iterator[Path]:
    """Paths from the root of what a field names, by fields' names or aliases."""
    named = _own(field).get("after", ())
    aliases = {other.alias: name for name, other in fields.items() if other.alias}
    for dotted in named if isinstance(named, (list, tuple)) else (named,):
        if not isinstance(dotted, str):
            raise UnsupportedType(f"after takes names of fields, not {dotted!r}")
        if dotted in aliases:
            yield (*around, aliases[dotted])
        else:
            yield (*around, *dotted.split("."))


def _fields_of(model: type[BaseModel], outer: _Outer) -> dict[str, FieldInfo]:
    dotted = ".".join(outer.path) or None
    if not model.__pydantic_complete__:
        try:
            model.model_rebuild(raise_errors=False, _types_namespace={})
        except (PydanticUndefinedAnnotation, PydanticUserError) as error:
            raise SchemaError(outer.root, dotted, f"Pydantic cannot build it: {error}") from error
    fields = asked_fields(model)
    for name in model.model_fields.keys() - fields.keys():
        if model.model_fields[name].is_required():
            place = ".".join((*outer.path, name))
            raise SchemaError(outer.root, place, "is not asked for and required; give it a default")
    if not fields:
        raise SchemaError(
            outer.root, dotted, f"{model.__name__} has no fields; declare at least one attribute"
        )
    return fields


def asked_fields(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model that are read from documents; all others keep their defaults.

    Those are left out that are excluded from dumps, set by no caller (`init=False`), hidden from
    JSON Schema, or declared with `attr(skip=True)`.
    """
    return {name: field for name, field in model.model_fields.items() if not _is_skipped(field)}


def _is_skipped(field: FieldInfo) -> bool:
    return (
        field.exclude is True
        or field.init is False
        or _own(field).get("skip") is True
        or SkipJsonSchema in map(type, field.metadata)
    )


def _label_of(name: str, field: FieldInfo) -> str:
    if field.title is None:
        return spaced(name)
    if is_unprintable(field.title):
        raise UnsupportedType(
            f"title {field.title!r} must be one line of visible text: the model is shown it"
        )
    return field.title.strip()


def _own(field: FieldInfo) -> dict[str, Any]:
    """What `attr` keeps beside Pydantic's own settings of a field."""
    extra = field.json_schema_extra
    return dict(extra) if isinstance(extra, dict) else {}


def _is_two_phase(field: FieldInfo, field_type: FieldType) -> bool:
    declared = _own(field)
    for keyword, name in (("long", "long"), ("uniqueItems", "unique"), ("strict", "strict")):
        if (value := declared.get(keyword, False)) not in (True, False):
            raise UnsupportedType(f"{name} must be True or False, not {value!r}")
        if value and not field_type.is_list and keyword != "strict":
            raise UnsupportedType(f"{name} applies to lists only; remove it")
    return field_type.model is not None or declared.get("long", False) is True


def _unit_of(field: FieldInfo, field_type: FieldType) -> str | None:
    unit = _own(field).get("unit")
    if unit is None:
        return None
    if field_type.kind not in ("integer", "number"):
        raise UnsupportedType("unit applies to numbers only; remove it, or declare a number")
    try:
        check_unit(unit)
    except ValueError as error:
        raise UnsupportedType(str(error)) from None
    return str(unit)


def _k_max_of(field: FieldInfo) -> int | None:
    k_max = _own(field).get("k_max")
    if k_max is None:
        return None
    try:
        BOUNDS["k_max"].check("k_max", k_max)
    except ValueError as error:
        raise UnsupportedType(str(error)) from None
    return int(k_max)
