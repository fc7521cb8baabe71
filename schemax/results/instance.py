"""Turns a row into an instance: validates, replaces faulty values, and validates again.

Also finds the values of a row's leaves in the instance.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeVar

from pydantic import RootModel, TypeAdapter, ValidationError

from schemax.attributes.annotations import annotation_of
from schemax.attributes.classes import declares_fields, dumped, fields_of, validated, value_in
from schemax.attributes.discriminator import MemberName
from schemax.attributes.json_classes import problems_of
from schemax.base.messages import joined, reason_of
from schemax.results.extraction import FieldError
from schemax.results.fields import Fallback, Group, Leaf, one_or_several
from schemax.results.row import Misfit, RowBuilder
from schemax.results.values import as_seconds

T = TypeVar("T")


def instance_of(row: RowBuilder, schema: type[T]) -> T | None:
    """Returns the instance, with all faulty values replaced; None if the row fails.

    Terminates, because every round consumes a fallback of a leaf or of a nested model.
    """
    while True:
        try:
            data = row.assembled(row.root)
            if isinstance(data, Fallback):
                return None
            # By name, since the data is keyed by field names; lax, since values are texts.
            instance = validated(schema, data, strict=False, by_name=True, by_alias=False)
        except Misfit as misfit:
            row.blamed(misfit.error, misfit.node)
            continue
        except ValidationError as error:
            if not row.blamed(error):
                return None
            continue
        except Exception as error:  # a validator's: fails this row, not the run
            row.errors.append(FieldError(None, reason_of(error)))
            return None
        if not _blamed_timestamps(row, instance) and not _blamed_by_document(row, instance):
            row.errors += row.discarded(row.root)
            return instance


def partial_of(row: RowBuilder, schema: Any) -> dict[str, Any]:
    """The values that fit their types, by field, for a row without an instance."""
    values: dict[str, Any] = {}
    model: Any = row.root.model or schema
    for name, child in row.root.children.items():
        data = _read_below(row, child)
        if isinstance(data, Fallback):
            continue
        try:
            values[name] = _adapter(model, name).validate_python(data, strict=False)
        except Exception:  # a validator's, reported among the row's errors
            continue
    return {name: _as_data(value) for name, value in values.items() if value not in (None, [])}


def _read_below(row: RowBuilder, node: Leaf | Group) -> Any:
    node = row.node(node)
    if isinstance(node, Leaf):
        return one_or_several(node.attribute, row.chosen[node.index])
    below = {name: _read_below(row, child) for name, child in node.children.items()}
    stated = {name: data for name, data in below.items() if not isinstance(data, Fallback)}
    if node.is_bare:
        return below["root"]
    if node.is_mapping:
        return {item["key"]: item["value"] for item in stated.values() if len(item) == 2}
    if not stated:
        return Fallback.OMIT
    return one_or_several(node, list(stated.values())) if node.is_list else stated


@lru_cache(maxsize=128)
def _adapter(schema: Any, name: str) -> TypeAdapter[Any]:
    return TypeAdapter(annotation_of(fields_of(schema)[name]))


def _as_data(value: Any) -> Any:
    """The value with models as dicts."""
    if declares_fields(type(value)):
        return dumped(value)
    return [_as_data(item) for item in value] if isinstance(value, list) else value


_NOT_A_DATE = "Input should be a date, not a bare number"


def _blamed_timestamps(row: RowBuilder, instance: Any) -> bool:
    """Faults dates that Pydantic read as seconds since 1970, such as the year "2024".

    Checks the outcome, because a validator may turn a year into a date.
    """
    before = len(row.errors)
    for leaf in row.dated:
        chosen = row.chosen[leaf.index]
        texts = chosen if isinstance(chosen, list) else [chosen]
        if seconds := [
            (at, reading) for at, text in enumerate(texts) for reading in as_seconds(leaf, text)
        ]:
            value = final_value(row, instance, leaf.attribute.path)
            is_list = leaf.attribute.is_list or leaf.number is not None
            values = [*value] if is_list and isinstance(value, Iterable) else [value]
            faulty = [at for at, reading in seconds if reading in values]
            if faulty and row.drops_items(leaf):
                row.fault_items(leaf, dict.fromkeys(faulty, _NOT_A_DATE))
            elif faulty:
                row.fault(leaf, _NOT_A_DATE)
    return len(row.errors) > before


def _blamed_by_document(row: RowBuilder, instance: Any) -> bool:
    """Faults values that the class's JSON Schema forbids; reports errors without a fallback."""
    blame: dict[Leaf, list[str]] = {}
    staying: list[FieldError] = []
    for place, message in problems_of(instance):
        node, below = row.located(place, row.root)
        if below and isinstance(below[0], int):
            message = f"item {below[0] + 1}: {message}"
        if isinstance(node, Group):
            staying.append(FieldError(".".join(node.path) or None, message))
        elif not isinstance(row.chosen[node.index], Fallback):
            blame.setdefault(node, []).append(message)
        elif node.index not in row.faulty:
            staying.append(FieldError(node.attribute.name, message, row.raws[node.index]))
    for leaf, messages in blame.items():
        row.fault(leaf, joined(messages))
    if not blame:
        row.errors += dict.fromkeys(staying)
    return bool(blame)


MOVED = object()


def of_other_members(row: RowBuilder, group: Group) -> Iterator[int]:
    """Yields the indices of leaves in models of unions that were not chosen."""
    node = row.branch(group)
    own = {leaf.index for leaf in node.leaves}
    yield from (leaf.index for leaf in group.leaves if leaf.index not in own)
    for child in node.children.values():
        below = child if isinstance(child, Group) else row.node(child)
        if isinstance(below, Group):
            yield from of_other_members(row, below)


def final_value(row: RowBuilder, instance: Any, path: tuple[str, ...]) -> Any:
    """The leaf's value in the instance; None where a nested model is absent.

    MOVED where the leaf's item cannot be identified, since Pydantic or the model's validators have
    removed or added items.
    """
    for depth, name in enumerate(path):
        while isinstance(instance, RootModel):
            instance = instance.root
        kept = row.kept.get(path[:depth])
        if isinstance(name, MemberName):
            continue
        if kept is None:
            instance = value_in(instance, name)
        elif name not in kept.values():
            return None
        elif None in kept:
            continue
        elif not isinstance(instance, (Sequence, Mapping)) or len(instance) != len(kept):
            return MOVED
        else:
            place = list(kept.values()).index(name)
            if isinstance(instance, Mapping):
                pair = list(instance.items())[place]
                instance = dict(zip(("key", "value"), pair, strict=True))
            else:
                instance = instance[place]
    return instance
