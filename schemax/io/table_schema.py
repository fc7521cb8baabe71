"""Converts rows of results to rows of a table, and back.

A table has `id` and `index`, the kept columns of the input, `_schema` if there are several, the
columns of the schema, `_error` (why a row failed, else null) and `_field_errors` (errors of single
fields). With details it has `_least_confidence`, and every field has `NAME__confidence`; with all
details also `NAME__raw`, `NAME__legal_probability`, `NAME__span` and `NAME__note`, and for PDF,
DOCX, HTML and text files `NAME__location`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
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


# The columns of a field's result, by the key of the result that they hold; the last is of files.
_DETAILS = (
    Column("confidence", "number"),
    Column("raw", "string"),
    Column("legal_probability", "number"),
    Column("span", "struct", children=_SPAN),
    Column("note", "string"),
    Column("location", "struct", children=_LOCATION),
)


@dataclass(frozen=True)
class TableSchema:
    """The columns of a table of results.

    fields: columns of the schema.
    read: fields with columns of their results, as `details` says.
    kept: columns of the input.
    is_mixed: whether rows name their schema.
    located: whether results have the locations of their spans in a file.
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
        table = cls(columns_of(schemas), read, details, tuple(keep), is_mixed, located)
        called = Counter(column.name for column in table.columns)
        if twice := [name for name, number in called.items() if number > 1]:
            raise InputError(
                f"two columns would be called {twice[0]!r}: rename the field, or the column of the "
                "input, or do not keep that"
            )
        return table

    @property
    def own(self) -> tuple[Column, Column]:
        """Id and index, renamed if the schema declares fields with these names."""
        names = {column.name for column in self.fields}
        id, index = ("_id" if "id" in names else "id", "_index" if "index" in names else "index")
        return Column(id, "string"), Column(index, "integer")

    @cached_property
    def _places(self) -> tuple[tuple[Column, tuple[str, ...]], ...]:
        """(column, path of its values in a row) of all columns, in order.

        In the place of a row's `errors`, "error" says why it failed, and "faults" are those of
        single fields.
        """
        id, index = self.own
        places: list[tuple[Column, tuple[str, ...]]] = [(id, ("id",)), (index, ("index",))]
        places += ((column, ("kept", column.name)) for column in self.kept)
        places += [(_SCHEMA, ("schema",))] if self.is_mixed else []
        places += ((column, ("attributes", column.name)) for column in self.fields)
        places += [(_ERROR, ("error",)), (_FIELD_ERRORS, ("faults",))]
        places += [(_LEAST, ("least_confidence",))] if self.details else []
        alone = self.details == "confidence"
        kinds = _DETAILS[:1] if alone else _DETAILS if self.located else _DETAILS[:-1]
        for field, kind in product(self.read, kinds):
            name = f"{field.replace('.', SEPARATOR)}__{kind.name}"
            path = ("confidences", field) if alone else ("fields", field, kind.name)
            places.append((replace(kind, name=name), path))
        return tuple(places)

    @property
    def results(self) -> tuple[Column, ...]:
        """The columns of results: all but id, index and columns of the input."""
        return self.columns[len(self.own) + len(self.kept) :]

    def check_beside(self, kept: Sequence[str], source: str) -> None:
        """Raises InputError for a column of the input with the name of a column of the results."""
        names = {column.name for column in self.results}
        if twice := [name for name in kept if name in names]:
            remaining = [name for name in kept if name not in names]
            raise InputError(
                f"{source} and the results both have a column {twice[0]!r}; rename it, or say "
                f"which columns to keep beside the results: keep={remaining!r}"
            )

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(column for column, _ in self._places)

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

    def cells(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """The cells of a row of `RowForm.row`, by column.

        A value that its column cannot hold is null, and gets an entry in `_field_errors`.
        """
        failed = row["attributes"] is None
        error = reasons(row["errors"]) if failed else None
        faults = [] if failed else [dict(error) for error in row["errors"]]
        cells_by_source = {**row, "error": error, "faults": faults}
        cells: dict[str, Any] = {}
        for column, path in self._places:  # `_field_errors` comes after all that may add to them
            value = at(cells_by_source, path)
            try:
                cells[column.name] = column.cell(value)
            except (ValueError, TypeError, OverflowError) as problem:
                cells[column.name] = None
                reason = f"does not fit its column: {problem}"
                faults.append({"field": column.name, "message": reason, "raw": str(value)})
        return cells

    def row(self, cells: Mapping[str, Any]) -> dict[str, Any]:
        """The row of cells in JSON form, the inverse of `cells`."""
        row: dict[str, Any] = {"attributes": {}}
        for column, (*around, name) in self._places:
            inner = row
            for key in around:
                inner = inner.setdefault(key, {})
            inner[name] = cells[column.name]
        error, row["errors"] = row.pop("error"), row.pop("faults") or []
        if error is not None:
            row["attributes"] = None
            row["errors"] = [{"field": None, "message": error, "raw": None}]
        return row
