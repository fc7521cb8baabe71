"""Compiles a declaration into attributes, one per leaf of a Pydantic model.

`after` orders the leaves in waves. Misfits are defaults and examples that do not fit their fields,
which Pydantic does not check.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from typing import Any

from pydantic import RootModel, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from schemax.attributes.annotations import annotation_of, asked_type, root_type, text_of
from schemax.attributes.attribute import Attribute
from schemax.attributes.classes import (
    BROKEN,
    asked_fields,
    broken_at,
    complete,
    fields_of,
    is_judged_by_class,
    own_settings,
)
from schemax.attributes.discriminator import discriminator_of, folded_label, with_discriminator
from schemax.attributes.field_type import FieldPath, FieldType, UnsupportedType
from schemax.attributes.settings import (
    after_of,
    is_two_phase,
    k_max_of,
    label_of,
    language_of,
    max_depth_of,
    require_model,
    settings_of,
    unit_of,
)
from schemax.base.messages import clipped, some_of
from schemax.errors import SchemaError

MOST_REFUSALS = 100
_NOTHING = "asks for nothing; declare at least one field that is no model within the model"
MOST_ATTRIBUTES = 2_000
"""The most leaves of a declaration. Nested models can have far more than their text shows."""


def compile_attributes(model: type[Any]) -> tuple[Attribute, ...]:
    """Returns the leaves of a class in declaration order, nested models flattened.

    Raises SchemaError, with class and dotted field, for a field that cannot be compiled.
    """
    require_model(model)
    outer = _Outer(model.__name__, itertools.count(1))
    attributes = _with_after(tuple(_top(model, outer)), outer)
    if not attributes:
        raise SchemaError(model.__name__, None, _NOTHING)
    try:
        complete(model)
    except BROKEN as error:
        raise _error_of_broken_class(error, outer) from error
    return attributes


def refusals_of(model: type[Any]) -> list[SchemaError]:
    """The first hundred faults for which `compile_attributes` refuses a class."""
    refused: list[SchemaError] = []
    outer = _Outer(model.__name__, itertools.count(1), refused)
    try:
        _with_after(tuple(_top(model, outer)), outer)
        if not refused:
            compile_attributes(model)
    except SchemaError as error:
        refused.append(error)
    return refused


@dataclass(frozen=True, slots=True)
class _Outer:
    """The path from the root to a nested model, and the settings that its leaves inherit.

    count: counts the leaves and nested models of the whole declaration.
    refused: collects faults; None: the first fault is raised.
    models: the enclosing models, outermost first, with the model itself.
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
    extractive: bool | None = None
    language: str | None = None
    after: tuple[FieldPath, ...] = ()


def _top(model: type[Any], outer: _Outer) -> Iterator[Attribute]:
    """Yields the leaves of a declaration: a class, or a RootModel of classes."""
    if not issubclass(model, RootModel):
        return _leaves(model, outer)
    try:
        return _below(root_type(model), replace(outer, language=settings_of(model).language))
    except UnsupportedType as error:
        raise SchemaError(outer.root, None, str(error)) from None


def _leaves(model: type[Any], outer: _Outer) -> Iterator[Attribute]:
    shown: dict[str, str] = {}
    language = settings_of(model).language or outer.language
    around = replace(outer, models=(*outer.models, model), language=language)
    fields = _fields_of(model, outer)
    for name, field in fields.items():
        path = (*outer.path, name)
        try:
            label = label_of(name, field)
            if (twin := shown.setdefault(folded_label(label), name)) != name:
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
                extractive=own_settings(field).get("extractive", outer.extractive),
                language=language_of(field) or language,
                after=(*outer.after, *after_of(field, fields, outer.path)),
            )
            unit = unit_of(field, field_type)
            if not field_type.models:
                yield _leaf(field, field_type, inner, two_phase, unit)
                continue
            _count(outer)
            if field_type.is_list:
                # Items are never null or omitted, even where the list may be.
                item = replace(inner, nullable=False, omittable=False, after=())
                below = _with_after(tuple(_below(field_type, item)), item)
                if not below and not outer.refused:
                    raise UnsupportedType(_NOTHING)
                yield _leaf(field, field_type, inner, two_phase, fields=below)
                continue
            kinds = _below(field_type, inner)
        except (ValueError, *BROKEN) as error:
            _refuse(SchemaError(outer.root, ".".join(path), str(error)), outer)
            continue
        yield from kinds


def _error_of_broken_class(error: Exception, outer: _Outer) -> SchemaError:
    fields, reason = broken_at(error)
    return SchemaError(outer.root, ".".join((*outer.path, *fields)) or None, reason)


def _refuse(error: SchemaError, outer: _Outer) -> None:
    if outer.refused is None or len(outer.refused) == MOST_REFUSALS:
        raise error from None
    outer.refused.append(error)


def _below(field_type: FieldType, outer: _Outer) -> Iterator[Attribute]:
    """Yields the leaves of a nested class, or of a union of classes with the leaf for its kind."""
    if len(field_type.models) == 1:
        return _leaves(field_type.models[0], outer)
    discriminator = discriminator_of(field_type.models)
    kind = Attribute(
        path=(*outer.path, discriminator.name),
        labels=(*outer.labels, discriminator.label),
        description=discriminator.description or outer.description,
        examples=(),
        kind="enum",
        choices=discriminator.choices,
        choice_values=discriminator.values,
        is_list=False,
        nullable=outer.nullable,
        required=True,
        k_max=None,
        omittable=outer.omittable,
        discriminated=discriminator.models,
        after=outer.after,
    )
    return with_discriminator(
        kind, discriminator, {model: [*_leaves(model, outer)] for model in discriminator.distinct}
    )


def _count(outer: _Outer) -> None:
    if next(outer.count) > MOST_ATTRIBUTES:
        raise UnsupportedType(
            f"is one attribute too many: a schema has at most {MOST_ATTRIBUTES:,}, nested models "
            "and what is in them included; divide it"
        )


def _leaf(
    field: FieldInfo,
    field_type: FieldType,
    outer: _Outer,
    two_phase: bool,
    unit: str | None = None,
    fields: tuple[Attribute, ...] = (),
) -> Attribute:
    if field_type.kind is None and not field_type.models:
        raise UnsupportedType(
            "allows nothing but None; name the type of its value, such as str | None"
        )
    _count(outer)
    misfits = misfits_of(outer.models[-1], outer.path[-1], field, field_type, unit, outer.language)
    depth = len(outer.path)
    in_unit = f"in {unit}" if unit else None
    if outer.description and in_unit:
        in_unit = f"{outer.description} ({in_unit})"
    return Attribute(
        path=outer.path,
        labels=outer.labels,
        description=in_unit or outer.description,
        examples=tuple(text_of(x) for x in field.examples or () if x is not None),
        kind=field_type.kind or "model",
        choices=tuple(text for text, _ in field_type.choices),
        choice_values=tuple(value for _, value in field_type.choices),
        is_list=field_type.is_list,
        nullable=outer.nullable,
        required=field.is_required(),
        k_max=outer.k_max,
        omittable=outer.omittable,
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
        strict=outer.strict or field_type.kind == "union",
        extractive=outer.extractive,
        language=outer.language,
        members=field_type.members,
        positions=field_type.positions,
        is_mapping=field_type.is_mapping,
        is_one_or_several=field_type.is_one_or_several,
        after=outer.after,
        misfits=tuple(misfits),
    )


def _with_after(leaves: tuple[Attribute, ...], outer: _Outer) -> tuple[Attribute, ...]:
    """The leaves of a root or an item, with `after` resolved within the root or item."""
    if not any(leaf.after for leaf in leaves):
        return leaves
    # Other fields may depend on a refused field, which is refused only once.
    named: dict[FieldPath, tuple[FieldPath, ...]] = {
        tuple(error.field.split(".")): () for error in outer.refused or () if error.field
    }
    named |= {leaf.path: leaf.after for leaf in leaves}
    while True:
        try:
            after = dict(zip(named, dependencies_of([*named], [*named.values()]), strict=True))
        except UnsupportedType as error:
            _refuse(SchemaError(outer.root, ".".join(error.path), str(error)), outer)
            named[error.path] = ()
        else:
            return tuple(replace(leaf, after=after[leaf.path]) for leaf in leaves)


def _fields_of(model: type[Any], outer: _Outer) -> dict[str, FieldInfo]:
    dotted = ".".join(outer.path) or None
    try:
        fields = asked_fields(model)
        hidden = {name: field for name, field in fields_of(model).items() if name not in fields}
    except BROKEN as error:
        _refuse(_error_of_broken_class(error, outer), outer)
        return {}
    for name, field in hidden.items():
        if field.is_required():
            hidden_path = ".".join((*outer.path, name))
            reason = "is not asked for and required; give it a default"
            _refuse(SchemaError(outer.root, hidden_path, reason), outer)
    if not fields:
        reason = f"{model.__name__} has no fields; declare at least one attribute"
        _refuse(SchemaError(outer.root, dotted, reason), outer)
    return fields


def dependencies_of(
    paths: Sequence[FieldPath], named: Sequence[Sequence[FieldPath]]
) -> list[tuple[FieldPath, ...]]:
    """(N,) the leaves that each leaf depends on, in order; leaves of its own group come last.

    named: (N,) the paths that the declaration names: leaves, and models for all leaves in them.
    Raises UnsupportedType for an unknown name, a leaf that depends on itself, and a cycle.
    """
    dependencies = []
    for path, names in zip(paths, named, strict=True):
        leaves: dict[FieldPath, None] = {}
        for name in names:
            inside = [leaf for leaf in paths if leaf[: len(name)] == name]
            if not inside:
                known = some_of(".".join(leaf) for leaf in paths if leaf != path)
                reason = f"is not asked for; there are {known or 'no others'}"
                raise UnsupportedType(f"after names {'.'.join(name)!r}, which {reason}", path)
            if path in inside:
                reason = "is the field itself; remove it"
                raise UnsupportedType(f"after names {'.'.join(name)!r}, which {reason}", path)
            leaves.update(dict.fromkeys(inside))
        # The order of the declaration, but leaves of the leaf's own group come last, so that the
        # group stays in one piece: the more groups enclose both leaves, the later.
        in_order = filter(leaves.__contains__, paths)
        dependencies.append(tuple(sorted(in_order, key=lambda leaf: _shared_groups(leaf, path))))
    waves_of(paths, dependencies)
    return dependencies


def waves_of(paths: Sequence[FieldPath], after: Sequence[Sequence[FieldPath]]) -> list[int]:
    """(N,) the wave in which each leaf is read, from 1 on. Raises UnsupportedType for a cycle."""
    sorter = TopologicalSorter(dict(zip(paths, after, strict=True)))
    try:
        sorter.prepare()
    except CycleError as error:
        circle = error.args[1][::-1]
        shown = " after ".join(".".join(path) for path in circle)
        reason = f"after goes in a circle ({shown}); remove one of them"
        raise UnsupportedType(reason, circle[0]) from None
    number, waves = 0, {}
    while sorter.is_active():
        number, ready = number + 1, sorter.get_ready()
        waves.update(dict.fromkeys(ready, number))
        sorter.done(*ready)
    return [waves[path] for path in paths]


def _shared_groups(first: FieldPath, second: FieldPath) -> int:
    """The number of groups that enclose both leaves."""
    pairs = zip(first[:-1], second[:-1], strict=False)
    return sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))


def misfits_of(
    model: type[Any],
    name: str,
    field: FieldInfo,
    field_type: FieldType,
    *unit_and_language: str | None,
) -> Iterator[str]:
    """Yields warnings about a field's default and examples: a sentence for each misfit.

    A default that violates the field's constraints may stand for "unknown". Not checked are the
    default None, since `brand: str = None` is common; factories, which may do anything; and
    examples of fields with validators.

    Raises UnsupportedType for a default of another type than the field's.
    """
    has_default = not field.is_required() and field.default_factory is None
    defaults = [field.default] if has_default and field.default is not None else []
    examples = [example for example in field.examples or () if example is not None]
    if not defaults and not examples:
        return
    try:
        reader: TypeAdapter[Any] = TypeAdapter(annotation_of(field))
    except Exception:  # of a type that needs the class around it
        return
    for default in defaults:
        faults = _faults(reader, default)
        for fault, reason in faults.items():
            if fault not in _CONSTRAINT_ERRORS:
                raise UnsupportedType(
                    f"default {default!r} does not match the field's type ({reason}); change one "
                    "of them"
                )
        for shown in faults.values():
            yield (
                f"default {clipped(repr(default))} does not fit the field ({shown}), and is what "
                "documents get that state no value; change one of them"
            )
    for example in () if is_judged_by_class(model, name) else examples:
        if (misfit := _misfit(reader, example, field_type, *unit_and_language)) is not None:
            yield (
                f"example {clipped(repr(example))} does not fit the field ({misfit}), and is shown "
                "to the model; change one of them"
            )


def named_misfits(attributes: Iterable[Attribute], around: str = "") -> Iterator[tuple[str, str]]:
    """Yields the dotted names and misfits of all leaves, those of lists' items included."""
    for attribute in attributes:
        name = f"{around}{attribute.name}"
        yield from ((name, misfit) for misfit in attribute.misfits)
        yield from named_misfits(attribute.fields, f"{name}.")


def _misfit(
    reader: Any, example: Any, field_type: FieldType, *unit_and_language: str | None
) -> str | None:
    """The reason why an example fits neither the field nor an item of a list; None if it fits."""
    is_whole = isinstance(example, dict if field_type.is_mapping else (list, tuple, set, frozenset))
    items = list(example) if is_whole and not field_type.is_mapping else [example]
    if choices := {text for text, _ in field_type.choices}:
        wrong = any(text_of(item) not in choices for item in items)
        return "it is not one of the choices" if wrong else None
    try:
        read = [_read(item, field_type, *unit_and_language) for item in items]
    except ValueError as error:
        return f"it {error}"
    is_list = field_type.is_list and not (field_type.is_mapping and is_whole)
    faults = _faults(reader, read if is_list else read[0] if not is_whole else example)
    lengths = () if is_whole else ("too_short", "too_long", "missing")
    return next((reason for kind, reason in faults.items() if kind not in lengths), None)


def _read(example: Any, field_type: FieldType, *unit_and_language: str | None) -> Any:
    """Reads an example as the text that the model is shown."""
    scalar = field_type.scalar
    if field_type.is_text and isinstance(example, (bool, int, float)):
        return text_of(example)
    return (
        scalar.read(example, *unit_and_language).value
        if scalar and isinstance(example, str)
        else example
    )


def _faults(reader: TypeAdapter[Any], value: Any) -> dict[str, str]:
    """Pydantic's messages for a value, by the types of its errors."""
    try:
        reader.validate_python(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        return {detail["type"]: detail["msg"] for detail in details}
    except Exception:  # of the user's own validators
        return {}
    return {}


_CONSTRAINT_ERRORS = frozenset(
    (
        *("greater_than", "greater_than_equal", "less_than", "less_than_equal", "multiple_of"),
        *("string_too_short", "string_too_long", "string_pattern_mismatch"),
        *("too_short", "too_long", "finite_number", "value_error", "assertion_error"),
        *("decimal_max_digits", "decimal_max_places", "decimal_whole_digits"),
    )
)
