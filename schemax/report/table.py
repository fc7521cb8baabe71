"""Reports of finished tables: rows, read back, with the texts that they were read from."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, create_model

from schemax.errors import InputError, SchemaError
from schemax.extraction.documents import RecordFields, shown_text
from schemax.io import fingerprint
from schemax.io.columns import at, leaves
from schemax.io.finished import RunRecord, read_results
from schemax.io.readers import InputFiles, Shard
from schemax.report.page import Report
from schemax.results import Extraction, FieldError, FieldResult, SlotText, Span
from schemax.results.spans import SpanFinder

Declare = Callable[[Mapping[str, Any]], type[BaseModel]]
"""A function: JSON Schema document -> the class that it declares. May raise SchemaError."""


def add_table(
    page: Report, output: str, record: RunRecord, declare: Declare, done: Container[int] = ()
) -> None:
    """Adds all rows of a table, except the rows in `done`, to a page.

    Rows have texts if the input is unchanged. Raises InputError for a table that cannot be read.
    """
    models: dict[str, type[BaseModel]] = {}
    texts = _Texts(record)
    for row in read_results(output, record.table):
        index = row["index"]
        row_texts = texts.of(index)
        if index not in done:
            category = row.get("schema") or record.category or "rows"
            if category not in models:
                models[category] = _model(category, record, declare)
            page.add(_extraction(row, row_texts, models[category], _paths(row, record)))
    if texts.problem is not None:
        page.overview.facts.append(("Texts", texts.problem))


def _model(category: str, record: RunRecord, declare: Declare) -> type[BaseModel]:
    """Returns the class of rows; an empty class if the record does not hold it."""
    document = record.schemas.get(category)
    with suppress(SchemaError):
        if document is not None:
            return declare({**document, "category": category})
    empty = create_model(category)
    empty.__schema_settings__ = {"category": category}  # type: ignore[attr-defined]
    return empty


class _Texts:
    """The texts of rows, read in order. problem: why there are no texts, or None."""

    def __init__(self, record: RunRecord) -> None:
        settings, files = record.settings, record.summary.inputs
        self.problem: str | None = None
        self._shown = RecordFields.of(
            settings["text"], settings["id"], settings["category"], settings["html"]
        )
        self._rows: Iterator[tuple[int, Any]] = iter(())
        try:
            if fingerprint.differences(settings, fingerprint.of_files(files)):
                self.problem = "not shown: the input has changed"
            else:
                shard = Shard.parse(settings["shard"])
                self._rows = InputFiles(files, self._shown.needed, settings["limit"], shard).rows()
        except InputError as error:
            self.problem = f"not shown: {error}"
        self._next = next(self._rows, None)

    def of(self, index: int) -> Mapping[str, str]:
        while self._next is not None and self._next[0] < index:
            self._next = next(self._rows, None)
        if self._next is None or self._next[0] != index:
            return {}
        try:
            return shown_text(self._next[1], self._shown)[1]
        except ValueError:
            return {}


def _paths(row: Mapping[str, Any], record: RunRecord) -> list[tuple[str, ...]]:
    """Returns the paths of a row's fields, including fields of nested models."""
    there = row["attributes"] or {}
    if record.table is None:
        return [(name,) for name in there]
    return [path for path in leaves(record.table.fields) if path[0] in there]


def _extraction(
    row: Mapping[str, Any],
    texts: Mapping[str, str],
    model: type[BaseModel],
    paths: Sequence[tuple[str, ...]],
) -> Extraction[Any]:
    finder = SpanFinder(texts)
    confidences, details = row.get("confidences") or {}, row.get("fields") or {}
    fields = {}
    for path in paths:
        name = ".".join(path)
        value = at(row["attributes"], path)
        read = details.get(name) or {}
        slot = SlotText(
            read.get("raw") or "",
            "stop",
            0,
            complete=True,
            confidence=read.get("confidence", confidences.get(name)),
            legal_probability=read.get("legal_probability"),
        )
        spans = _spans(value, read.get("span"), finder, texts)
        fields[name] = FieldResult(slot, value, spans, note=read.get("note"))
    return Extraction(
        None if row["attributes"] is None else model.model_construct(),
        row["index"],
        row["id"],
        tuple(FieldError(**error) for error in row["errors"]),
        fields,
        texts=texts,
    )


def _spans(
    value: Any, known: Mapping[str, Any] | None, finder: SpanFinder, texts: Mapping[str, str]
) -> tuple[Span | None, ...]:
    """Returns the place in the table, else the place of the value in the texts."""
    if not texts:
        return ()
    if known is not None and known["field"] in texts:
        return (Span(**known),)
    items = value if isinstance(value, list) else [value]
    if not all(type(item) in (str, int, float) for item in items):
        return ()
    shown = (f"{item:g}" if isinstance(item, float) else str(item) for item in items)
    return tuple(finder.locate(text) for text in shown)
