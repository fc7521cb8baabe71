"""Columns of a schema: the table's type of every field, without any table package.

A column has the name and the shape of the field in a row's `attributes`, so that values are
converted without the declaration.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from decimal import Decimal, InvalidOperation, localcontext
from enum import Enum
from typing import Any, Literal, TypeAlias, get_args

from pydantic import BaseModel, RootModel

from schemax.attributes import fields_of
from schemax.attributes.annotations import annotation_of, field_type_of, is_bare, root_type
from schemax.attributes.field_type import FieldType, UnsupportedType
from schemax.attributes.settings import require_model
from schemax.errors import SchemaError
from schemax.reading.kinds.base import ColumnType

Model: TypeAlias = type[Any]
Schemas: TypeAlias = Model | Mapping[str, Model]


def named_schemas(schemas: Schemas) -> Mapping[str, Model]:
    """The schemas by category; a single schema under ""."""
    return schemas if isinstance(schemas, Mapping) else {"": schemas}


Type = ColumnType | Literal["decimal", "instant", "struct", "json", "native"]

# (digits, places) of a decimal whose field declares none.
_DIGITS = (38, 9)
_MOST_DIGITS = 38


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a table.

    type: the type of a value, or of a list's items. "instant" is a datetime with a time zone;
        "json" a value that no other type holds, written as JSON; "native" a value of an input
        column that no other type keeps exactly, in its JSON form.
    choices: the texts of a "choice"; choices among numbers have the numbers' type.
    is_one_or_several: whether a value of a list may be a single item, stored as a list of one.
    children: the fields of a "struct".
    digits: the digits of a "decimal": in all, and after the point.
    native: the pyarrow type of a "native" column, as `arrow.py` writes it.
    """

    name: str
    type: Type
    is_list: bool = False
    choices: tuple[Any, ...] = ()
    children: tuple[Column, ...] = ()
    digits: tuple[int, int] = _DIGITS
    is_one_or_several: bool = False
    native: str = ""

    def cell(self, value: Any) -> Any:
        """Converts a value of a JSON row to the column's type.

        Raises ValueError for a value that does not fit.
        """
        if value is None:
            return None
        if not self.is_list:
            return _CELLS[self.type](self, value)
        if self.is_one_or_several and not isinstance(value, list):
            value = [value]
        if not isinstance(value, list):
            raise ValueError(f"expected a list, got {type(value).__name__}")
        return [_CELLS[self.type](self, item) if item is not None else None for item in value]


def columns_of(schemas: Schemas) -> tuple[Column, ...]:
    """The columns of a schema, or of several in one table: all fields of all schemas.

    Raises SchemaError for a schema that cannot be declared, and for schemas that differ in a
    field's type.
    """
    by_name: dict[str, tuple[Model, Column]] = {}
    for schema in named_schemas(schemas).values():
        for column in _columns(schema, ()):
            first_schema, known = by_name.setdefault(column.name, (schema, column))
            try:
                by_name[column.name] = first_schema, _merged(known, column)
            except ValueError as error:
                raise SchemaError(
                    schema.__name__,
                    column.name,
                    f"cannot share a column with {first_schema.__name__}.{column.name}: {error}; "
                    "write JSON Lines, or one table per category",
                ) from None
    return tuple(column for _, column in by_name.values())


def _columns(model: Model, around: tuple[Model, ...]) -> tuple[Column, ...]:
    require_model(model)
    if issubclass(model, RootModel):
        return _columns_of_kinds(root_type(model).models, around)
    is_model = issubclass(model, BaseModel)
    by_alias = is_model and bool(model.model_config.get("serialize_by_alias"))
    columns = []
    for name, field in fields_of(model).items():
        if field.exclude is not True:
            shown = (field.serialization_alias or name) if by_alias else name
            columns.append(_column(shown, annotation_of(field), (*around, model)))
    for name, computed in (model.model_computed_fields if is_model else {}).items():
        shown = (computed.alias or name) if by_alias else name
        columns.append(_column(shown, computed.return_type, (*around, model)))
    return tuple(columns)


def _columns_of_kinds(models: Sequence[Model], around: tuple[Model, ...]) -> tuple[Column, ...]:
    """The columns of a union: the fields of all models, as JSON if models differ in the type."""
    by_name: dict[str, Column] = {}
    for column in (column for model in models for column in _columns(model, around)):
        try:
            by_name[column.name] = _merged(by_name.get(column.name, column), column)
        except ValueError:
            by_name[column.name] = Column(column.name, "json")
    return tuple(by_name.values())


def _column(name: str, annotation: Any, around: tuple[Model, ...]) -> Column:
    try:
        shape = field_type_of(annotation)
    except UnsupportedType:  # not a type that is read from text, as of a computed field
        return Column(name, "json")
    if shape.is_mapping or any(model in around for model in shape.models):
        return Column(name, "json")
    return replace(
        _column_of(name, annotation, shape, around), is_one_or_several=shape.is_one_or_several
    )


def _column_of(name: str, annotation: Any, shape: FieldType, around: tuple[Model, ...]) -> Column:
    bare = [annotation_of(fields_of(model)["root"]) for model in shape.models if is_bare(model)]
    if shape.models and not bare:
        return Column(
            name, "struct", shape.is_list, children=_columns_of_kinds(shape.models, around)
        )
    if shape.kind == "union" or bare:
        members = [shape, *shape.members, *map(field_type_of, bare)]
        members += (inner for member in members for inner in member.members)
        is_text = any(member.is_text and not member.is_list for member in members)
        return Column(name, "string" if is_text else "json", shape.is_list)
    if shape.kind == "enum":
        return _choice(name, shape)
    if shape.kind == "number" and _mentions(annotation, Decimal):
        return Column(name, "decimal", shape.is_list, digits=_digits(shape))
    if shape.kind == "datetime" and dict(shape.constraints).get("tz_constraint") == "aware":
        return Column(name, "instant", shape.is_list)
    return Column(name, shape.scalar.column if shape.scalar else "json", shape.is_list)


def _choice(name: str, shape: FieldType) -> Column:
    values = [item.value if isinstance(item, Enum) else item for _, item in shape.choices]
    kinds = {type(value) for value in values}
    kind = float if kinds == {int, float} else kinds.pop() if len(kinds) == 1 else None
    plain: dict[Any, Type] = {str: "choice", bool: "boolean", int: "integer", float: "number"}
    column_type = plain.get(kind, "json")
    choices = tuple(dict.fromkeys(values)) if column_type == "choice" else ()
    return Column(name, column_type, shape.is_list, choices=choices)


def _digits(shape: FieldType) -> tuple[int, int]:
    declared = dict(shape.constraints)
    digits, places = declared.get("max_digits"), declared.get("decimal_places")
    if places is None:
        return _DIGITS
    return min(digits or _MOST_DIGITS, _MOST_DIGITS), min(places, _MOST_DIGITS)


def _mentions(annotation: Any, wanted: type) -> bool:
    """True if an annotation contains a type, also in aliases and NewTypes."""
    inner = getattr(annotation, "__value__", getattr(annotation, "__supertype__", None))
    parts = (inner,) if inner is not None else get_args(annotation)
    return annotation is wanted or any(_mentions(part, wanted) for part in parts)


def _merged(first: Column, second: Column) -> Column:
    """A column for the values of both. Raises ValueError if none holds them."""
    if (first.type, first.is_list, first.digits) != (second.type, second.is_list, second.digits):
        descriptions = (f"{'list of ' * column.is_list}{column.type}" for column in (first, second))
        raise ValueError(f"one is {', the other '.join(descriptions)}")
    children = {child.name: child for child in first.children}
    for child in second.children:
        children[child.name] = _merged(children.get(child.name, child), child)
    choices = tuple(dict.fromkeys((*first.choices, *second.choices)))
    return replace(first, choices=choices, children=tuple(children.values()))


def leaves(columns: Iterable[Column], path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The paths of all columns that hold values; structs are flattened."""
    paths = []
    for column in columns:
        here = (*path, column.name)
        is_struct = column.type == "struct" and not column.is_list
        paths += leaves(column.children, here) if is_struct else [here]
    return paths


def at(value: Any, path: Sequence[str]) -> Any:
    """The value of a row at a path; None if a struct around it is None."""
    for name in path:
        value = None if value is None else value.get(name)
    return value


# Functions from JSON to a cell, one per type. All raise ValueError for a value that does not fit.


def printable(value: str) -> str:
    """Text that UTF-8 can hold: lone surrogates become question marks."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return value.encode("utf-8", "replace").decode()
    return value


def as_json(value: Any) -> str:
    return printable(json.dumps(value, ensure_ascii=False))


def cell_text(value: Any) -> str:
    """A value as text; lists as JSON, null as an empty text."""
    if value is None or value == []:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, dict)):
        return printable(json.dumps(value, ensure_ascii=False, default=cell_text))
    if isinstance(value, Decimal):  # without zeros that only fill the column's places
        text = format(value, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def _integer(column: Column, value: Any) -> int:
    if type(value) is not int and not (isinstance(value, float) and value.is_integer()):
        raise ValueError(f"{value!r} is no whole number")
    number = int(value)
    if not -(2**63) <= number < 2**63:
        raise ValueError("outside the range of 64 bits")
    return number


def _number(column: Column, value: Any) -> float:
    number = float(value)
    if type(value) is int and number != value:
        raise ValueError("a whole number of more digits than a double keeps")
    return number


def _decimal(column: Column, value: Any) -> Decimal:
    digits, places = column.digits
    with localcontext(prec=2 * _MOST_DIGITS) as context:
        try:
            number = Decimal(str(value))
            rounded = number.quantize(Decimal(1).scaleb(-places), context=context)
        except InvalidOperation:
            raise ValueError(f"not a number of at most {digits} digits") from None
    if rounded != number or rounded.adjusted() >= digits - places:
        raise ValueError(f"more than {digits} digits, {places} of them after the point")
    return rounded


def _boolean(column: Column, value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _datetime(column: Column, value: Any) -> datetime:
    """A datetime without a time zone, converted to UTC if it had one."""
    moment = datetime.fromisoformat(value)
    return moment if moment.tzinfo is None else moment.astimezone(UTC).replace(tzinfo=None)


def _one_of(column: Column, value: Any) -> Any:
    if value not in column.choices:
        raise ValueError(f"{value!r} is not one of the choices")
    return value


def _struct(column: Column, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"expected an object, got {type(value).__name__}")
    return {child.name: child.cell(value.get(child.name)) for child in column.children}


_CELLS: Mapping[str, Callable[[Column, Any], Any]] = {
    "string": lambda column, value: printable(value) if isinstance(value, str) else as_json(value),
    "integer": _integer,
    "number": _number,
    "decimal": _decimal,
    "boolean": _boolean,
    "date": lambda column, value: date.fromisoformat(value),
    "datetime": _datetime,
    "instant": lambda column, value: datetime.fromisoformat(value).astimezone(UTC),
    "choice": _one_of,
    "struct": _struct,
    "json": lambda column, value: as_json(value),
    "native": lambda column, value: value,
}
