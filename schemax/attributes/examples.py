"""Examples of a schema: documents with their right values, for prompts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from enum import Enum
from typing import Any, TypeAlias

from pydantic import BaseModel, RootModel, ValidationError
from pydantic_core import to_jsonable_python

from schemax.attributes.attribute import Attribute
from schemax.attributes.classes import is_instance, is_typed_dict, validated, value_in
from schemax.attributes.discriminator import MemberName, choice_of
from schemax.attributes.field_type import FieldPath
from schemax.attributes.settings import settings_of
from schemax.base.messages import clipped, misfit_of, one_line
from schemax.errors import InputError


@dataclass(frozen=True, slots=True)
class SomeValues:
    """Values of some attributes, by dotted names; the keys of other attributes are not shown."""

    values: Mapping[str, Any]


FewShotExample: TypeAlias = tuple[str | Mapping[str, Any], Any]
"""A document, and an instance of the schema; or a mapping that becomes one, or `SomeValues`."""


FewShotExamples: TypeAlias = Sequence[FewShotExample] | Mapping[str, Sequence[FewShotExample]]
"""The examples of one schema, or of several schemas by category."""


def read_few_shot_examples(
    examples: FewShotExamples | None,
    schemas: Mapping[str, type[Any]],
    mixed: bool,
    read: Callable[[Any], str],
) -> dict[str, list[FewShotExample]]:
    """Reads examples, with the texts of their documents, by the names of their schemas.

    mixed: whether there may be several schemas.
    read: returns a document's text, or raises ValueError.

    Raises InputError, which names the example.
    """
    if examples is None or examples == ():
        return {}
    if isinstance(examples, Mapping) is not mixed:
        wanted = "lists by category, as schemas are" if mixed else "a list for a single schema"
        raise InputError(f"examples must be {wanted}, not {type(examples).__name__}")
    by_name = examples if isinstance(examples, Mapping) else dict.fromkeys(schemas, examples)
    if strange := [name for name in by_name if name not in schemas]:
        known = ", ".join(map(repr, schemas))
        raise InputError(f"examples of the unknown category {strange[0]!r}; known are {known}")
    read_examples: dict[str, list[FewShotExample]] = {}
    for name, pairs in by_name.items():
        read_examples[name] = []
        for place, (document, values) in enumerate(_pairs(pairs, schemas[name])):
            try:
                read_examples[name].append((read(document), values))
            except ValueError as error:
                raise _misfit(schemas[name], pairs, place, str(error)) from None
    return read_examples


def example_values(
    examples: Sequence[FewShotExample], schema: type[Any], attributes: Sequence[Attribute]
) -> list[tuple[str, dict[FieldPath, Any]]]:
    """The documents of examples, each with the plain values of its leaves, by path.

    attributes: of the schema.

    Raises InputError, naming the example, for a document that is not text, and for values that are
    not of the schema.
    """
    plain = []
    for place, (text, values) in enumerate(_pairs(examples, schema)):
        if not isinstance(text, str):
            reason = f"its document must be text, not {type(text).__name__}"
            raise _misfit(schema, examples, place, reason)
        try:
            by_path = _values_by_path(values, schema, attributes)
            _check_plain(list(by_path.values()))
        except (TypeError, ValueError) as error:  # Pydantic's are ValueErrors, too
            reason = misfit_of(error) if isinstance(error, ValidationError) else one_line(error)
            raise _misfit(schema, examples, place, reason) from error
        plain.append((text, by_path))
    return plain


def _values_by_path(
    values: Any, schema: type[Any], attributes: Sequence[Attribute]
) -> dict[FieldPath, Any]:
    if isinstance(values, SomeValues):
        shown = values.values
        return {a.path: plain_value(a, shown[a.name]) for a in attributes if a.name in shown}
    instance = _instance_of(values, schema)
    return {attribute.path: leaf_value(attribute, instance) for attribute in attributes}


def _check_plain(value: Any) -> None:
    if isinstance(value, list):
        for item in value:
            _check_plain(item)
    elif value is not None and not isinstance(value, (str, int, float, Decimal, date, time)):
        raise TypeError(f"a slot takes text, numbers, dates and lists of these, not {value!r}")


_SEVERAL = (list, tuple, set, frozenset, deque)


def _pairs(examples: Any, schema: type[Any]) -> Sequence[tuple[Any, Any]]:
    if not isinstance(examples, Sequence) or isinstance(examples, (str, bytes)):
        raise InputError(
            f"{schema.__name__}: examples must be a list of (document, instance), "
            f"not {type(examples).__name__}"
        )
    for place, pair in enumerate(examples):
        if not isinstance(pair, tuple) or len(pair) != 2:
            form = f"a tuple of {len(pair)}" if isinstance(pair, tuple) else type(pair).__name__
            reason = f"must be a tuple (document, instance), not {form}"
            raise _misfit(schema, examples, place, reason)
    return examples


def _misfit(schema: type[Any], examples: Sequence[Any], place: int, reason: str) -> InputError:
    """The error of an example, or of a demonstration that the class declares."""
    declared = settings_of(schema).demonstrations or ()
    is_declared = any(examples[place] is demonstration for demonstration in declared)
    name = "demonstrations" if is_declared else "examples"
    return InputError(f"{schema.__name__}: {name}[{place}]: {reason}")


def too_long(
    schema: type[Any], examples: Sequence[FewShotExample], place: int, problem: str | None
) -> InputError:
    """The error for the first example with which a prompt, without a document, is too long."""
    text = clipped(repr(examples[place][0]))
    reason = f"from this example on, {text}, the prompt {problem}; give fewer or shorter examples"
    return _misfit(schema, examples, place, reason)


def _instance_of(values: Any, schema: type[Any]) -> Any:
    if not is_typed_dict(schema) and isinstance(values, schema):
        return values
    if not isinstance(values, Mapping):
        raise TypeError(f"expected {schema.__name__}, got {type(values).__name__}")
    # Extra keys are errors: a misspelt name would otherwise be an example of null.
    return validated(schema, dict(values), extra="forbid", by_alias=True, by_name=True)


def leaf_value(attribute: Attribute, instance: Any) -> Any:
    """The value of a leaf of an instance as formats write it; see `plain_value`."""
    value = _value_at(instance, attribute.path[: len(attribute.path) - attribute.is_discriminator])
    if attribute.is_discriminator:
        choice = None if value is None else choice_of(value, attribute)
        return _scalar(attribute, choice)
    return plain_value(attribute, value)


def plain_value(attribute: Attribute, value: Any) -> Any:
    """A leaf's value as formats write it: text, a number, a date, null, or a list of these.

    Nested models become rows of their leaves' values.
    """
    if attribute.is_one_or_several and value is not None and not isinstance(value, _SEVERAL):
        value = [value]
    if attribute.is_mapping and value is not None:
        value = [{"key": key, "value": item} for key, item in value.items()]
    if attribute.fields:
        rows = [
            [leaf_value(leaf, _bare(item)) for leaf in attribute.fields] for item in value or ()
        ]
        return rows or None
    if value is None or not attribute.is_list:
        return _scalar(attribute, value)
    items = [_scalar(attribute, item) for item in value]
    if isinstance(value, (set, frozenset)):
        items.sort(key=str)  # the order of a set differs between processes
    return items or None  # no items are null: the document states none


def _value_at(instance: Any, path: Sequence[str]) -> Any:
    """The value at a path; None for a field left to its default, since null stands for defaults."""
    node: Any = instance
    for name in path:
        node = _bare(node)
        if isinstance(name, MemberName):
            if not is_instance(node, name.model):
                return None
        elif isinstance(node, BaseModel) and name not in node.model_fields_set:
            return None
        else:
            node = value_in(node, name)
    return _bare(node)


def _bare(value: Any) -> Any:
    while isinstance(value, RootModel):
        value = value.root
    return value


def _scalar(attribute: Attribute, value: Any) -> Any:
    value = _bare(value)
    is_float = any(part.is_number and part.kind != "integer" for part in attribute.variants)
    if isinstance(value, float) and is_float and value.is_integer():
        # The text's 55 is 55.0 in a float field. Beyond 2 ** 53 not every digit is known.
        return int(value) if abs(value) <= 2**53 else value
    if value is None or isinstance(value, (str, int, float, Decimal, date, time)):
        return value
    if isinstance(value, Enum):
        return _scalar(attribute, value.value)
    return to_jsonable_python(value)  # such as a UUID, a URL or a duration
