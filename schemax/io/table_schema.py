"""Converts rows of results to rows of a table, and back.

A table has `id` and `index`, the kept columns of the input, `_schema` if there are several, the
columns of the schema, `_error` (why a row failed, else null) and `_field_errors` (errors of single
fields). With details it has `_least_confidence`, and every field has `NAME__confidence`; with all
details also `NAME__raw`, `NAME__legal_probability`, `NAME__span` and `NAME__note`, and for PDF,
DOCX, HTML and text files `NAME__location`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from schemax.attributes import compile_attributes
from schemax.errors import InputError
from schemax.io.columns import Column, Schemas, at, columns_of, leaves, named_schemas
from schemax.io.rows import Details
from schemax.io.summary import reasons

SEPARATOR = "__"
"""The separator of the parts of a column's name; dots have a meaning in databases."""

_FAULT = tuple(Column(name, "string") for name in ("field", "message", "raw"))
_ERROR = Column("_error", "string")
_FIELD_ERRORS = Column("_field_errors", "struct", is_list=True, children=_FAULT)
_SCHEMA = Column("_schema", "string")
_LEAST = Column("_least_confidence", "number")
_SPAN = (Column("start", "integer"), Column("end", "integer"), Column("field", "string"))
_BOX = tuple(Column(name, "number") for name in ("left", "top", "right", "bottom"))
_LOCATION = (
    Column("page", "integer"),
    Column("boxes", "struct", is_list=True, children=_BOX),
    Column("paragraph", "integer"),
)


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table of results.

    fields: columns of the schema; read: fields with columns of their results, as `details` says.
    kept: columns of the input. is_mixed: whether rows name their schema. located: whether results
        have the locations of their spans in a file.
    """

    fields: tuple[Column, ...]
    read: tuple[str, ...] = ()
    details: Details = False
    kept: tuple[Column, ...] = ()
    is_mixed: bool = False
    located: bool = False

    @classmethod
    def of(
        cls,
        schemas: Schemas,
        *,
        details: Details = False,
        keep: Sequence[Column] = (),
        located: bool = False,
    ) -> TableSchema:
        """The table of schemas.

        Raises SchemaError for schemas that cannot be compiled, or cannot share a table; InputError
        for columns of the same name.
        """
        models = named_schemas(schemas).values()
        names = [attribute.name for model in models for attribute in compile_attributes(model)]
        read = tuple(dict.fromkeys(names)) if details else ()
        is_mixed = isinstance(schemas, Mapping)
        made = cls(columns_of(schemas), read, details, tuple(keep), is_mixed, located)
        called = Counter(column.name for column in made.columns)
        if twice := [name for name, number in called.items() if number > 1]:
            raise InputError(
                f"two columns would be called {twice[0]!r}: rename the field, or the column of the "
                "input, or do not keep that"
            )
        return made

    @cached_property
    def own(self) -> tuple[Column, Column]:
        """Id and index, renamed if the schema declares fields with these names."""
        taken = {column.name for column in self.fields}
        id, index = ("_id" if "id" in taken else "id", "_index" if "index" in taken else "index")
        return Column(id, "string"), Column(index, "integer")

    @cached_property
    def results(self) -> tuple[Column, ...]:
        """The columns of results: all but id, index and columns of the input."""
        least = (_LEAST,) if self.details else ()
        schema = (_SCHEMA,) if self.is_mixed else ()
        details = (column for _, _, column in self._read_columns())
        return (*schema, *self.fields, _ERROR, _FIELD_ERRORS, *least, *details)

    def check_beside(self, kept: Sequence[str], what: str) -> None:
        """Raises InputError for a column of the input with the name of a column of the results."""
        taken = {column.name for column in self.results}
        if twice := [name for name in kept if name in taken]:
            rest = [name for name in kept if name not in taken]
            raise InputError(
                f"{what} and the results both have a column {twice[0]!r}; rename it, or say "
                f"which columns to keep beside the results: keep={rest!r}"
            )

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return (*self.own, *self.kept, *self.results)

    @cached_property
    def _leaves(self) -> list[tuple[str, ...]]:
        return leaves(self.columns)

    @property
    def flat_names(self) -> list[str]:
        """The names of the columns with structs flattened, as in CSV and Excel."""
        return [SEPARATOR.join(path) for path in self._leaves]

    def flat_cells(self, row: Mapping[str, Any]) -> list[Any]:
        """The cells of a row, in the order of `flat_names`."""
        cells = self.cells(row)
        return [at(cells, path) for path in self._leaves]

    def _read_columns(self) -> Iterator[tuple[str, str, Column]]:
        """Yields (field, key of its result, column)."""
        for field in self.read:
            name = field.replace(".", SEPARATOR)
            yield field, "confidence", Column(f"{name}__confidence", "number")
            if self.details is True:
                yield field, "raw", Column(f"{name}__raw", "string")
                yield field, "legal_probability", Column(f"{name}__legal_probability", "number")
                yield field, "span", Column(f"{name}__span", "struct", children=_SPAN)
                yield field, "note", Column(f"{name}__note", "string")
                if self.located:
                    name = f"{name}__location"
                    yield field, "location", Column(name, "struct", children=_LOCATION)

    def cells(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The cells of a row of `RowForm.row`, by column.

        A value that its column cannot hold is null, and gets an entry in `_field_errors`.
        """
        id, index = self.own
        failed = row["attributes"] is None
        faults = [] if failed else [dict(error) for error in row["errors"]]
        cells: dict[str, Any] = {id.name: id.cell(row["id"]), index.name: row["index"]}
        kept, attributes = row.get("kept") or {}, row["attributes"] or {}
        held = [(column, kept) for column in self.kept]
        held += [(column, attributes) for column in self.fields]
        for column, values in held:
            value = values.get(column.name)
            try:
                cells[column.name] = column.cell(value)
            except (ValueError, TypeError, OverflowError) as error:
                cells[column.name] = None
                reason = f"does not fit its column: {error}"
                faults.append({"field": column.name, "message": reason, "raw": str(value)})
        if self.is_mixed:
            cells[_SCHEMA.name] = row.get("schema")
        cells[_ERROR.name] = _ERROR.cell(reasons(row["errors"])) if failed else None
        cells[_FIELD_ERRORS.name] = _FIELD_ERRORS.cell(faults)
        if self.details:
            cells[_LEAST.name] = row.get("least_confidence")
        read = row.get("fields") or {
            field: {"confidence": known} for field, known in row.get("confidences", {}).items()
        }
        for field, key, column in self._read_columns():
            cells[column.name] = column.cell(read.get(field, {}).get(key))
        return cells

    def row(self, cells: Mapping[str, Any]) -> dict[str, Any]:
        """The row of cells in JSON form, the inverse of `cells`."""
        id, index = self.own
        error, faults = cells[_ERROR.name], cells[_FIELD_ERRORS.name] or []
        failed = error is not None
        row: dict[str, Any] = {"id": cells[id.name], "index": cells[index.name]}
        if self.kept:
            row["kept"] = {column.name: cells[column.name] for column in self.kept}
        if self.is_mixed:
            row["schema"] = cells[_SCHEMA.name]
        values = {column.name: cells[column.name] for column in self.fields}
        row["attributes"] = None if failed else values
        row["errors"] = [{"field": None, "message": error, "raw": None}] if failed else faults
        if self.details:
            row["least_confidence"] = cells[_LEAST.name]
        fields: dict[str, dict[str, Any]] = {}
        for field, key, column in self._read_columns():
            fields.setdefault(field, {})[key] = cells[column.name]
        if self.details == "confidence":
            row["confidences"] = {field: found["confidence"] for field, found in fields.items()}
        elif self.details:
            row["fields"] = fields
        return row
