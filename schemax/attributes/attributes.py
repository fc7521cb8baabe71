"""Attributes: what a declaration asks for, one per leaf of a Pydantic model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import RootModel
from pydantic.fields import FieldInfo

from schemax.attributes.annotations import (
    FieldType,
    Kind,
    UnsupportedType,
    text_of,
)
from schemax.attributes.classes import BROKEN, asked_fields, complete, fields_of, own_settings
from schemax.attributes.constraints import Constraints
from schemax.attributes.defaults import check_default
from schemax.attributes.field_settings import (
    is_two_phase,
    k_max_of,
    label_of,
    max_depth_of,
    unit_of,
)
from schemax.attributes.kinds import KindName, Kinds, kinds_of
from schemax.attributes.recursion import asked_type
from schemax.attributes.settings import require_model
from schemax.errors import SchemaError

MOST_REFUSALS = 100
_NOTHING = "asks for nothing; declare at least one field that is no model within the model"
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
    members: of a "union", the scalars that a value may be; positions: of a tuple of different
        types, what stands at each place.
    is_mapping: whether the list is the pairs of a dict, whose `fields` are "key" and "value".
    is_kind: whether it asks which model of a union is meant.
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
    members: tuple[FieldType, ...] = ()
    positions: tuple[FieldType, ...] = ()
    is_mapping: bool = False
    is_kind: bool = False

    @property
    def variants(self) -> tuple[Attribute, ...]:
        """Of a union, each scalar that a value or item may be as an attribute; else itself."""
        return tuple(map(self._as, self.members)) or (self,)

    @property
    def places(self) -> tuple[Attribute, ...]:
        """Of a tuple of different types, what stands at each place as an attribute; else ()."""
        return tuple(map(self._as, self.positions))

    def _as(self, one: FieldType) -> Attribute:
        return replace(
            self,
            kind=one.kind or self.kind,
            choices=tuple(text for text, _ in one.choices),
            choice_values=tuple(value for _, value in one.choices),
            constraints=one.constraints,
            members=one.members,
            positions=(),
        )

    @property
    def name(self) -> str:
        """The dotted path, "dimensions.width"."""
        return self.path[0] if len(self.path) == 1 else ".".join(self.path)

    @property
    def label(self) -> str:
        """What the model is shown for the leaf itself."""
        return self.labels[-1]


def compile_attributes(model: type[Any]) -> tuple[Attribute, ...]:
    """The leaves of a class in declaration order, nested ones flattened.

    Raises SchemaError, with class and dotted field, for what cannot be compiled.
    """
    require_model(model)
    if issubclass(model, RootModel):
        raise SchemaError(
            model.__name__, None, "a RootModel has no named fields; declare a BaseModel with fields"
        )
    attributes = tuple(_leaves(model, _Outer(model.__name__, itertools.count(1))))
    if not attributes:
        raise SchemaError(model.__name__, None, _NOTHING)
    try:
        complete(model)
    except BROKEN as error:
        raise SchemaError(model.__name__, None, f"Pydantic cannot build it: {error}") from error
    return attributes


def refusals_of(model: type[Any]) -> list[SchemaError]:
    """All that `compile_attributes` refuses in a class; of more than a hundred faults the first."""
    refused: list[SchemaError] = []
    try:
        for _ in _leaves(model, _Outer(model.__name__, itertools.count(1), refused)):
            pass
        if not refused:
            compile_attributes(model)
    except SchemaError as error:
        refused.append(error)
    return refused


@dataclass(frozen=True, slots=True)
class _Outer:
    """The way from the root to a nested model, and what its leaves take over from it.

    count: of the leaves of the whole declaration, and of the nested models.
    refused: where faults are collected; None has the first one raised.
    models: those around it, itself the last.
    """

    root: str
    count: Iterator[int]
    refused: list[SchemaError] | None = None
    path: tuple[str, ...] = ()
    labels: tuple[str, ...] = ()
    models: tuple[type[Any], ...] = ()
    description: str | None = None
    k_max: int | None = None
    max_depth: int | None = None
    nullable: bool = False
    omittable: bool = False
    strict: bool = False


def _leaves(model: type[Any], outer: _Outer) -> Iterator[Attribute]:
    shown: dict[str, str] = {}
    around = replace(outer, models=(*outer.models, model))
    for name, field in _fields_of(model, outer).items():
        path = (*outer.path, name)
        try:
            label = label_of(name, field)
            if (twin := shown.setdefault(_folded(label), name)) != name:
                raise UnsupportedType(
                    f"shows the model the same name as {twin!r} ({label!r}); "
                    "give one of them another title"
                )
            max_depth = max_depth_of(field) or outer.max_depth
            field_type = asked_type(field, around.models, max_depth)
            if field_type is None:
                continue
            two_phase = is_two_phase(field, field_type)
            inner = replace(
                around,
                path=path,
                labels=(*outer.labels, label),
                description=(field.description or "").strip() or outer.description,
                k_max=k_max_of(field) or outer.k_max,
                max_depth=max_depth,
                nullable=outer.nullable or field_type.nullable,
                omittable=outer.omittable or field_type.nullable or not field.is_required(),
                strict=outer.strict or own_settings(field).get("strict") is True,
            )
            if not field_type.models:
                yield _leaf(field, field_type, inner, two_phase)
                continue
            _count(outer)
            if field_type.is_list:
                # Each item is there, whatever may stand in the place of the list.
                item = replace(inner, nullable=False, omittable=False)
                below = tuple(_below(field_type, item))
                if not below and not outer.refused:
                    raise UnsupportedType(_NOTHING)
                yield _leaf(field, field_type, inner, two_phase, below)
                continue
            kinds = _below(field_type, inner)
        except (UnsupportedType, *BROKEN) as error:
            _refuse(SchemaError(outer.root, ".".join(path), str(error)), outer)
            continue
        yield from kinds


def _refuse(error: SchemaError, place: _Outer) -> None:
    if place.refused is None or len(place.refused) == MOST_REFUSALS:
        raise error from None
    place.refused.append(error)


def _below(field_type: FieldType, place: _Outer) -> Iterator[Attribute]:
    """The leaves of a nested class; of a union of such, with the slot that asks for its kind."""
    if len(field_type.models) == 1:
        return _leaves(field_type.models[0], place)
    return _leaves_of_kinds(kinds_of(field_type.models), place)


def _leaves_of_kinds(kinds: Kinds, place: _Outer) -> Iterator[Attribute]:
    """The kind, what several models or one alone have, and last what they have in several forms."""
    yield Attribute(
        path=(*place.path, kinds.name),
        labels=(*place.labels, kinds.label),
        description=kinds.description or place.description,
        examples=(),
        kind="enum",
        choices=kinds.choices,
        choice_values=kinds.values,
        is_list=False,
        nullable=place.nullable,
        required=True,
        k_max=None,
        omittable=place.omittable,
        is_kind=True,
    )
    depth = len(place.path)
    found: dict[str, dict[type[Any], list[Attribute]]] = {}
    for model in kinds.distinct:
        for leaf in _leaves(model, place):
            if leaf.path[depth] != kinds.name or not kinds.is_field:
                found.setdefault(leaf.path[depth], {}).setdefault(model, []).append(leaf)
    shown = {_folded(kinds.label): kinds.name}
    apart: dict[type[Any], list[Attribute]] = {model: [] for model in kinds.distinct}
    for name, forms in found.items():
        first, *others = forms.values()
        twin = shown.setdefault(_folded(first[0].labels[depth]), name)
        if twin == name and all(form == first for form in others):
            is_common = len(forms) == len(apart)
            yield from first if is_common else (_only(leaf, kinds, [*forms]) for leaf in first)
        else:
            for model, leaves in forms.items():
                apart[model] += leaves
    for model, leaves in apart.items():
        tag = KindName(kinds.text_of(model))
        tag.model = model
        for leaf in leaves:
            yield replace(
                _only(leaf, kinds, [model]),
                path=(*place.path, tag, *leaf.path[depth:]),
                labels=(*place.labels, str(tag), *leaf.labels[depth:]),
            )


def _only(leaf: Attribute, kinds: Kinds, models: Sequence[type[Any]]) -> Attribute:
    """A leaf of some kinds; of any other it is null, also where it is required."""
    texts = (
        text for text, model in zip(kinds.choices, kinds.models, strict=True) if model in models
    )
    only = f"only of {kinds.label} {' or '.join(texts)}"
    description = f"{leaf.description} ({only})" if leaf.description else only
    return replace(leaf, description=description, omittable=True)


def _folded(label: str) -> str:
    return " ".join(label.split()).casefold()


def _count(place: _Outer) -> None:
    if next(place.count) > MOST_ATTRIBUTES:
        raise UnsupportedType(
            f"is one attribute too many: a schema has at most {MOST_ATTRIBUTES:,}, nested models "
            "and what is in them included; divide it"
        )


def _leaf(
    field: FieldInfo,
    field_type: FieldType,
    place: _Outer,
    two_phase: bool,
    fields: tuple[Attribute, ...] = (),
) -> Attribute:
    if field_type.kind is None and not field_type.models:
        raise UnsupportedType(
            "allows nothing but None; name the type of its value, such as str | None"
        )
    _count(place)
    check_default(field)
    depth, unit = len(place.path), unit_of(field, field_type)
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
            replace(leaf, path=leaf.path[depth:], labels=leaf.labels[depth:]) for leaf in fields
        ),
        unit=unit,
        strict=place.strict or field_type.kind == "union",
        members=field_type.members,
        positions=field_type.positions,
        is_mapping=field_type.is_mapping,
    )


def _fields_of(model: type[Any], outer: _Outer) -> dict[str, FieldInfo]:
    dotted = ".".join(outer.path) or None
    try:
        fields = asked_fields(model)
        hidden = {name: field for name, field in fields_of(model).items() if name not in fields}
    except BROKEN as error:
        _refuse(SchemaError(outer.root, dotted, f"Pydantic cannot build it: {error}"), outer)
        return {}
    for name, field in hidden.items():
        if field.is_required():
            place = ".".join((*outer.path, name))
            reason = "is not asked for and required; give it a default"
            _refuse(SchemaError(outer.root, place, reason), outer)
    if not fields:
        reason = f"{model.__name__} has no fields; declare at least one attribute"
        _refuse(SchemaError(outer.root, dotted, reason), outer)
    return fields
