"""Reports of finished tables: rows, read back, with the texts that they were read from."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
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
    page: Report,
    output: str,
    record: RunRecord,
    declare: Declare,
    done: Container[int] = (),
    add: Callable[[Extraction[Any]], None] | None = None,
) -> None:
    """Adds all rows of a table, except the rows in `done`, to a page.

    add: takes a row in the place of the page. Rows have texts if the input is unchanged.

    Raises InputError for a table that cannot be read.
    """
    models: dict[str, type[BaseModel]] = {}
    rows = read_results(output, record.table)
    for row, texts in _with_texts(rows, record, page):
        if row["index"] not in done:
            category = row.get("schema") or record.category or "rows"
            if category not in models:
                models[category] = _model(category, record, declare)
            (add or page.add)(_extraction(row, texts, models[category], _paths(row, record)))


def _model(category: str, record: RunRecord, declare: Declare) -> type[BaseModel]:
    """Returns the class of rows; an empty class if the record does not hold it."""
    document = record.schemas.get(category)
    with suppress(SchemaError):
        if document is not None:
            return declare({**document, "category": category})
    empty = create_model(category)
    empty.__schema_settings__ = {"category": category}  # type: ignore[attr-defined]
    return empty


def _with_texts(
    rows: Iterable[Mapping[str, Any]], record: RunRecord, page: Report
) -> Iterator[tuple[Mapping[str, Any], Mapping[str, str]]]:
    """Yields rows with the texts they were read from; the page tells why there are no texts."""
    settings, files = record.settings, record.summary.inputs
    shown = RecordFields.of_options(settings)
    records: Iterator[tuple[int, Any]] = iter(())
    problem = None
    try:
        if fingerprint.differences(settings, fingerprint.of_files(files)):
            problem = "the input has changed"
        else:
            shard = Shard.parse(settings["shard"])
            records = InputFiles(files, shown.needed, settings["limit"], shard).rows()
    except InputError as error:
        problem = str(error)
    there = next(records, None)
    for row in rows:
        texts: Mapping[str, str] = {}
        while there is not None and there[0] < row["index"]:
            there = next(records, None)
        if there is not None and there[0] == row["index"]:
            with suppress(ValueError):
                texts = shown_text(there[1], shown)[1]
        yield row, texts
    if problem is not None:
        page.facts.append(("Texts", f"not shown: {problem}"))


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
