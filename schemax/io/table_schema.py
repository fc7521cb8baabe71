"""Rows of results as rows of a table: flat columns beside the fields, and what does not fit.

A table has `id` and `index`, the columns of the schema, `_error` (why a row failed, else null) and
`_field_errors` (what could not be used of a row that did not). With details, every field has
`NAME.raw`, `NAME.confidence`, `NAME.legal_probability`, `NAME.span` and `NAME.note` as well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from schemax.attributes import compile_attributes
from schemax.io.columns import Column, Schemas, columns_of, named_schemas
from schemax.io.summary import reasons

_FAULT = tuple(Column(name, "string") for name in ("field", "message", "raw"))
_ERROR = Column("_error", "string")
_FIELD_ERRORS = Column("_field_errors", "struct", is_list=True, children=_FAULT)
_SPAN = (Column("start", "integer"), Column("end", "integer"), Column("field", "string"))


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table of results.

    fields: those of the schema; details: the fields whose results stand beside them.
    """

    fields: tuple[Column, ...]
    details: tuple[str, ...] = ()

    @classmethod
    def of(cls, schemas: Schemas, *, details: bool = False) -> TableSchema:
        """Raises SchemaError for schemas that cannot be compiled, or not share a table."""
        models = named_schemas(schemas).values()
        names = [attribute.name for model in models for attribute in compile_attributes(model)]
        return cls(columns_of(schemas), tuple(dict.fromkeys(names)) if details else ())

    @cached_property
    def own(self) -> tuple[Column, Column]:
        """Id and index. A schema may declare fields of these names, and then they give way."""
        taken = {column.name for column in self.fields}
        id, index = ("_id" if "id" in taken else "id", "_index" if "index" in taken else "index")
        return Column(id, "string"), Column(index, "integer")

    @cached_property
    def results(self) -> tuple[Column, ...]:
        """What was read and how it went: all columns but id and index."""
        details = [
            column
            for name in self.details
            for column in (
                Column(f"{name}.raw", "string"),
                Column(f"{name}.confidence", "number"),
                Column(f"{name}.legal_probability", "number"),
                Column(f"{name}.span", "struct", children=_SPAN),
                Column(f"{name}.note", "string"),
            )
        ]
        return (*self.fields, _ERROR, _FIELD_ERRORS, *details)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return (*self.own, *self.results)

    def cells(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row of `Extraction.to_row`, by column.

        A value that its column cannot hold is null, and `_field_errors` says so.
        """
        id, index = self.own
        failed = row["attributes"] is None
        attributes = row["attributes"] or {}
        faults = [] if failed else [dict(error) for error in row["errors"]]
        cells: dict[str, Any] = {id.name: id.cell(row["id"]), index.name: row["index"]}
        for column in self.fields:
            value = attributes.get(column.name)
            try:
                cells[column.name] = column.cell(value)
            except (ValueError, TypeError, OverflowError) as error:
                cells[column.name] = None
                reason = f"does not fit its column: {error}"
                faults.append({"field": column.name, "message": reason, "raw": str(value)})
        cells["_error"] = _ERROR.cell(reasons(row["errors"])) if failed else None
        cells["_field_errors"] = _FIELD_ERRORS.cell(faults)
        read = row.get("fields") or {}
        for column in self.results[len(self.fields) + 2 :]:
            name, _, key = column.name.rpartition(".")
            cells[column.name] = column.cell(read.get(name, {}).get(key))
        return cells
