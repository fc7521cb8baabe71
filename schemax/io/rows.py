"""Rows of results: the values of a record, and the cells beside them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Literal, TypeAlias, get_args

from pydantic_core import to_jsonable_python

from schemax.base.messages import perhaps, reason_of, some_of
from schemax.errors import InputError
from schemax.extraction.documents import RecordFields, category_of
from schemax.io.columns import Schemas
from schemax.io.records import Record, cells_of
from schemax.results import Extraction, failed
from schemax.results.extraction import json_ready
from schemax.results.list_results import without_items

Row: TypeAlias = dict[str, Any]
"""A row of results, of JSON types only."""

Details: TypeAlias = bool | Literal["confidence"]
"""The details of a row's fields: none (False), all (True), or confidences alone."""


def check_details(details: Any) -> None:
    """Raises ValueError for anything but details."""
    if details not in (True, False, *get_args(get_args(Details)[1])):
        raise ValueError(f'details must be True, False or "confidence", not {details!r}')


@dataclass(frozen=True, slots=True)
class RowForm:
    """The form of a row, beyond id, index, attributes and errors.

    keep: keys of the record that are copied to it. shown: the roles of its keys.
    categories: the categories with a schema, none if one schema serves all.
    """

    details: Details = False
    keep: tuple[str, ...] = ()
    shown: RecordFields = field(default_factory=RecordFields)
    categories: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, schemas: Schemas, shown: RecordFields, details: Details, keep: Sequence[str]
    ) -> RowForm:
        categories = tuple(schemas) if isinstance(schemas, Mapping) else ()
        return cls(details, tuple(keep), shown, categories)

    def beside(self, record: Record) -> Row:
        """The part of a row that is copied from its record."""
        there = record if isinstance(record, Mapping) else cells_of(record)
        found: dict[str, Any] = {}
        if self.keep:
            kept = {key: there.get(key) for key in self.keep}
            found["kept"] = _kept(kept)
        if self.categories:
            name = category_of(there, self.shown)
            found["schema"] = name if name in self.categories else None
        return found

    def row(self, item: Extraction[Any], beside: Mapping[str, Any]) -> tuple[Extraction[Any], Row]:
        """(the extraction, its row); the extraction fails if serializers of its schema raise."""
        try:
            row = item.to_row(details=self.details is True)
        except Exception as error:  # an error in the user's serializer costs this row only
            reason = f"cannot be written: {reason_of(error)}"
            item = failed(item.index, item.document_id, reason, steps=item.steps)
            row = item.to_row(details=self.details is True)
        if self.details:
            read = without_items(item.fields)
            known = {name: json_ready(result.confidence) for name, result in read.items()}
            if self.details == "confidence":
                row["confidences"] = known
            stated = [number for number in known.values() if number is not None]
            row["least_confidence"] = min(stated, default=None)
        first = {key: row.pop(key) for key in ("id", "index")}
        return item, {**first, **beside, **row}


def _kept(value: Any) -> Any:
    """The JSON value of a kept cell, with words for numbers that JSON lacks."""
    if isinstance(value, float):
        return value if isfinite(value) else _NOT_FINITE[str(value)]
    if isinstance(value, bytes):
        return {"base64": b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {str(key): _kept(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_kept(item) for item in value]
    return json_ready(to_jsonable_python(value, fallback=str))


_NOT_FINITE = {"inf": "Infinity", "-inf": "-Infinity", "nan": "NaN"}


def check_kept(keep: Sequence[str], there: Sequence[str], what: str) -> None:
    """Raises InputError for a column to keep that the input, if it is known, lacks."""
    for name in keep:
        if not isinstance(name, str):
            raise InputError(f"keep names {name!r}, which is no text; write {str(name)!r}")
        if there and name not in there:
            near = perhaps(name, there)
            raise InputError(f"keep names {name!r}{near}, but {what} has {some_of(there)}")
