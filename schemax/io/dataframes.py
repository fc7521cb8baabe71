"""Extracts from frames: pandas, polars, Arrow, DuckDB, and data sets of Hugging Face."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Unpack

from schemax.base.messages import track
from schemax.errors import InputError
from schemax.extraction.documents import Options, RecordFields
from schemax.extraction.extractor import Extractor, loaded
from schemax.io.arrow import (
    as_record,
    batch_records,
    holds_times,
    plain_schema,
    projected,
    read_cells,
    record_batch,
    rows_at_once,
)
from schemax.io.checkpoint import PART_ROWS
from schemax.io.columns import Schemas
from schemax.io.input_columns import checked_frame
from schemax.io.records import Record, check_names, plain
from schemax.io.rows import Details, RowForm, in_order
from schemax.io.storage import optional

_BATCH = 1024
_KINDS = (
    ("pandas", "DataFrame"),
    ("polars", "DataFrame"),
    ("datasets", "Dataset"),
    ("pyarrow", "Table"),
    ("pyarrow", "RecordBatch"),
    ("pyarrow", "RecordBatchReader"),
    ("duckdb", "DuckDBPyRelation"),
)


def extract_frame(
    frame: Any,
    schema: Schemas,
    *,
    model: str | Path | None = None,
    extractor: Extractor | None = None,
    details: Details = False,
    keep: Sequence[str] = (),
    show_progress: bool = False,
    **options: Unpack[Options],
) -> Any:
    """Reads the attributes of a schema from every row of a frame; returns a frame of the results.

    frame: a DataFrame of pandas or polars, a Dataset of Hugging Face's `datasets`, a Table,
        RecordBatch or RecordBatchReader of pyarrow, or a relation of DuckDB. The model is shown all
        columns but `id` and `category`, or those named by `text`.
    schema: a Pydantic model, or one per category.
    model: a folder or Hub id, which stays loaded until another one is named; extractor: a loaded
        one instead. Without either, `Extractor.default()`.
    details: True adds raw text, confidence and place of every value, "confidence" the confidences
        alone.
    keep: columns of the frame to copy before the results.
    options: those of `Extractor.stream`.

    Returns a frame of the same kind with a column per field, typed as `arrow_schema` says, `_error`
    (why a row failed, else null) and `_field_errors`. It has the input's rows, in order, and in
    pandas the input's index, so that `concat([frame, found], axis=1)` puts both side by side.
    For a relation it is a Table, which DuckDB's queries read by its name. For a RecordBatchReader
    it is another one, which computes 2,048 rows at a time while it is read, and holds no more.

    Raises InputError for anything but a frame and without pyarrow, and as `schemax.extract` does
    before it computes. Rows that fail raise nothing.
    """
    kind, name = type(frame).__module__.partition(".")[0].lstrip("_"), type(frame).__name__
    if (kind, name) not in _KINDS:
        raise InputError(
            "extract_frame takes a DataFrame of pandas or polars, a Dataset of datasets, a Table, "
            "RecordBatch or RecordBatchReader of pyarrow, or a relation of DuckDB, not "
            f"{name}; of a LazyFrame, collect() it; of a Series, to_frame() it; of a DatasetDict, "
            "choose a split; give a list, or the rows of an IterableDataset, to Extractor.stream"
        )
    if model is not None and extractor is not None:
        raise ValueError("give a model or an extractor, not both")
    pyarrow = optional("pyarrow", "extract_frame")
    shown = RecordFields.of_options(options)
    keep, table = checked_frame(_column_names(frame, kind), schema, shown, details, keep)
    form = RowForm.of(schema, shown, details, ())
    if extractor is None:
        extractor = Extractor.default() if model is None else loaded(str(model))
    if name == "RecordBatchReader":
        read = partial(
            extract_frame, schema=schema, extractor=extractor, details=details, keep=keep
        )
        return _while_read(frame, partial(read, **options), show_progress)
    if kind == "duckdb":
        frame, kind = pyarrow.table(frame), "pyarrow"
    extract = partial(extractor.stream, schema=schema, **options)
    rows: Iterator[Any] = in_order(extract, form, enumerate(records_of(frame, kind, shown.needed)))
    if show_progress:
        rows = track(rows, total=len(frame), unit="rows")
    cells = (table.cells(row) for _, row in rows)
    gathered = iter(lambda: list(islice(cells, _BATCH)), [])
    batches = [record_batch(table.results, rows_of_batch) for rows_of_batch in gathered]
    # At least one batch: `datasets` cannot cast a table without batches.
    results = pyarrow.Table.from_batches(batches or [record_batch(table.results, [])])
    return _in_kind(results, frame, kind, keep)


def _in_kind(results: Any, frame: Any, kind: str, keep: list[str]) -> Any:
    """The results as a frame of the same kind, with the kept columns in front."""
    if kind == "pyarrow":
        kept = frame.select(keep)
        schema = optional("pyarrow", "extract_frame").schema([*kept.schema, *results.schema])
        if hasattr(frame, "to_batches"):
            return results.from_arrays([*kept.columns, *results.columns], schema=schema)
        columns = [column.combine_chunks() for column in results.columns]
        return kept.from_arrays([*kept.columns, *columns], schema=schema)
    module = optional(kind, "extract_frame")
    if kind == "datasets":
        # Choices become strings, the type that `features` states for dictionaries, too.
        data = module.Dataset(results.cast(plain_schema(results.schema)))
        parts = [frame.with_format(None).select_columns(keep), data]
        return module.concatenate_datasets(parts, axis=1) if keep else data
    if kind == "polars":
        data = module.from_arrow(results)
        return frame.select(keep).hstack(data) if keep else data
    data = _to_pandas(results).set_index(frame.index)
    names = _column_names(frame, kind)  # texts, also where the frame's names are numbers
    kept = frame.iloc[:, list(map(names.index, keep))].set_axis(keep, axis=1)
    return module.concat([kept, data], axis=1) if keep else data


def _column_names(frame: Any, kind: str) -> list[str]:
    if kind == "pyarrow":
        names = list(frame.schema.names)
    else:
        names = list(map(str, frame.column_names if kind == "datasets" else frame.columns))
    check_names(names, "the frame")
    return names


def _while_read(reader: Any, read: Callable[[Any], Any], show_progress: bool) -> Any:
    """A reader that computes results; wrong arguments raise now, not when it is read."""
    pyarrow = optional("pyarrow", "extract_frame")
    schema = read(reader.schema.empty_table()).schema
    parts: Iterator[Any] = (
        batch.slice(at, PART_ROWS) for batch in reader for at in range(0, batch.num_rows, PART_ROWS)
    )
    if show_progress:
        parts = track(parts, total=None, unit="batches")
    return pyarrow.RecordBatchReader.from_batches(schema, map(read, parts))


def records_of(frame: Any, kind: str, wanted: tuple[str, ...] | None) -> Iterator[Record]:
    """Yields rows as mappings of plain values; missing values are None."""
    if kind == "pandas":
        yield from _records_of_pandas(frame)
    elif kind == "datasets" and frame.format["type"] == "custom":  # a transform, which is applied
        for row in frame:
            yield as_record(list(row), list(map(plain, row.values())))
    elif kind == "datasets":
        names = projected(wanted, frame.format["columns"])
        yield from records_of_dataset(frame, names or frame.format["columns"])
    else:
        there = _column_names(frame, kind)
        columns = frame.select(projected(wanted, there) or there)
        if kind != "polars":
            yield from batch_records(columns)
            return
        step = rows_at_once(columns.estimated_size() / max(1, len(columns)))
        for part in columns.iter_slices(step):
            for cells in zip(*map(_cells_of_polars, part.get_columns()), strict=True):
                yield as_record(part.columns, cells)


def _cells_of_polars(series: Any) -> list[Any]:
    """The cells of a series, through Arrow, unless it lacks the type: integers of 128 bits."""
    with suppress(ValueError):
        if series.dtype != optional("polars", "extract_frame").Object:  # else, addresses in memory
            return read_cells(series.to_arrow())
    return list(map(plain, series.to_list()))


def _records_of_pandas(frame: Any) -> Iterator[Record]:
    names = [str(name) for name in frame.columns]
    columns = [_with_integers(frame.iloc[:, place]) for place in range(len(names))]
    for at in range(0, len(frame), _BATCH):
        parts = [_cells_of_pandas(column.iloc[at : at + _BATCH]) for column in columns]
        for row in range(len(frame.iloc[at : at + _BATCH])):
            yield as_record(names, [cells[row] for cells in parts])


def _with_integers(series: Any) -> Any:
    """The series, with integers again if pandas made doubles of them because of missing values."""
    if series.dtype != float or not series.hasnans:
        return series
    is_whole = ((series % 1 == 0) & (series.abs() < 2**53)) | series.isna()
    return series.astype("Int64") if is_whole.all() else series


def _cells_of_pandas(series: Any) -> list[Any]:
    """The cells of a series; Arrow's dates are read by Arrow, since pandas cannot read far ones."""
    pandas = optional("pandas", "extract_frame")
    if isinstance(series.dtype, pandas.ArrowDtype) and holds_times(series.dtype.pyarrow_dtype):
        return read_cells(series.array.__arrow_array__())
    return [plain(_present(value, pandas.isna)) for value in series]


def records_of_dataset(data: Any, names: Sequence[str]) -> Iterator[Record]:
    """Yields records through Arrow, whatever the data set's format, so that no image is decoded."""
    data = data.with_format("arrow").select_columns(names)
    features = {name: _label(feature) for name, feature in data.features.items()}
    labels = {name: label for name, label in features.items() if label}
    for batch in data.iter(_BATCH):
        for record in batch_records(batch):
            if isinstance(record, dict):
                record |= {name: _named(record[name], label) for name, label in labels.items()}
            yield record


def _label(feature: Any) -> Any:
    """The ClassLabel of a feature, or of a list's items; else None."""
    feature = getattr(feature, "feature", feature)
    return feature if hasattr(feature, "int2str") else None


def _named(value: Any, label: Any) -> Any:
    """The name of a class in place of its number."""
    if label is None or value is None:
        return value
    if isinstance(value, list):
        return [_named(item, label) for item in value]
    return label.int2str(value) if isinstance(value, int) and value >= 0 else value


def _present(value: Any, isna: Any) -> Any:
    if hasattr(value, "tolist"):  # a number or an array of numpy
        value = value.tolist()
    missing = isna(value)
    return None if isinstance(missing, bool) and missing else value


def _to_pandas(table: Any) -> Any:
    """A DataFrame in which integers and booleans keep their type beside missing values."""
    pandas, pyarrow = optional("pandas", "extract_frame"), optional("pyarrow", "extract_frame")
    nullable = {pyarrow.int64(): pandas.Int64Dtype(), pyarrow.bool_(): pandas.BooleanDtype()}
    return table.to_pandas(types_mapper=nullable.get)
