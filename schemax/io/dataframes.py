"""Frames in, frames out: pandas, polars, Arrow, DuckDB, and data sets of Hugging Face."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from importlib import import_module
from itertools import islice, repeat
from pathlib import Path
from typing import Any, Unpack

from schemax.calls import Options
from schemax.documents import Shown
from schemax.errors import InputError
from schemax.extractor import Extractor, loaded
from schemax.io.arrow import record_batch
from schemax.io.arrow_in import as_record, batch_records, holds_times, read_cells
from schemax.io.columns import Schemas
from schemax.io.input_columns import tell_of_columns
from schemax.io.records import Record
from schemax.io.resumable import PART_ROWS
from schemax.io.rows import Details, RowForm, check_details, check_kept
from schemax.io.storage import optional
from schemax.io.stream import in_order
from schemax.io.table_schema import TableSchema
from schemax.progress import track
from schemax.results import Extraction

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
    """Reads the attributes of a schema from every row of a frame: a frame with the same rows.

    frame: a DataFrame of pandas or polars, a Dataset of Hugging Face's `datasets`, a Table,
        RecordBatch or RecordBatchReader of pyarrow, or a relation of DuckDB. The model is shown all
        columns but `id` and `category`, or those named by `text`.
    schema: a Pydantic model, or one per category.
    model: a folder or Hub id, which stays loaded until another one is named; extractor: one that is
        loaded already. Without either, `Extractor.default()`.
    details: with the raw text, the confidence and the place of every value; "confidence": with the
        confidences alone.
    keep: columns of the frame that stand before the results.
    options: those of `Extractor.stream`.

    Gives a frame of the same kind with a column per field, typed as `arrow_schema` says, `_error`
    (why a row failed, else null) and `_field_errors`; its rows are those of the input, in order,
    and of pandas the index is, so that `concat([frame, found], axis=1)` puts both side by side.
    Of a relation it is a Table, which DuckDB's queries read by its name. Of a RecordBatchReader it
    is one that computes while it is read, 2,048 rows at a time, and holds no more.

    Raises InputError for anything but a frame and without pyarrow, and what `schemax.extract`
    raises before it computes. Rows that fail raise nothing.
    """
    kind, name = type(frame).__module__.partition(".")[0].lstrip("_"), type(frame).__name__
    if (kind, name) not in _KINDS:
        raise InputError(
            "extract_frame takes a DataFrame of pandas or polars, a Dataset of datasets, a Table, "
            "RecordBatch or RecordBatchReader of pyarrow, or a relation of DuckDB, not "
            f"{name}; of a LazyFrame, collect() it; of a DatasetDict, choose a split; give the "
            "rows of an IterableDataset to Extractor.stream"
        )
    if model is not None and extractor is not None:
        raise ValueError("give a model or an extractor, not both")
    check_details(details)
    pyarrow = optional("pyarrow", "extract_frame")
    shown = Shown.of_options(options)
    there = _column_names(frame, kind)
    shown.check(there, "the frame has no column")
    tell_of_columns(there, shown, schema)
    keep = [keep] if isinstance(keep, str) else list(keep)
    check_kept(keep, there, "the frame")
    form = RowForm.of(schema, shown, details, ())
    table_schema = TableSchema.of(schema, details=details)
    table_schema.check_beside(keep, "the frame")
    if extractor is None:
        extractor = Extractor.default() if model is None else loaded(str(model))
    if name == "RecordBatchReader":
        one = partial(extract_frame, schema=schema, extractor=extractor, details=details, keep=keep)
        return _while_read(frame, partial(one, **options), show_progress)
    if name != "Table" and kind in ("pyarrow", "duckdb"):
        frame = pyarrow.table(frame)
    records = _records(frame, kind, shown.needed)
    extract = partial(extractor.stream, schema=schema, **options)
    besides: deque[dict[str, Any]] = deque()  # of the rows that are under way, in order

    def numbered() -> Iterator[tuple[int, Record]]:
        for index, record in enumerate(records):
            besides.append(form.beside(record))
            yield index, record

    stream: Iterator[Extraction[Any]] = in_order(extract, numbered())
    if show_progress:
        stream = track(stream, total=len(frame), unit="rows")
    cells = (table_schema.cells(form.row(item, besides.popleft())[1]) for item in stream)
    columns = table_schema.results
    gathered = iter(lambda: list(islice(cells, _BATCH)), [])
    batches = [record_batch(columns, some) for some in gathered]
    # One batch at least: `datasets` cannot cast a table of none.
    table = pyarrow.Table.from_batches(batches or [record_batch(columns, [])])
    if kind in ("pyarrow", "duckdb"):
        kept_columns = frame.select(keep)
        fields = [*kept_columns.schema, *table.schema]
        arrays = [*kept_columns.columns, *table.columns]
        found = pyarrow.Table.from_arrays(arrays, schema=pyarrow.schema(fields))
        return _to_batch(found) if name == "RecordBatch" else found
    module = optional(kind, "extract_frame")
    if kind == "datasets":
        found = _to_dataset(table)
        parts = [frame.with_format(None).select_columns(keep), found]
        return module.concatenate_datasets(parts, axis=1) if keep else found
    if kind == "polars":
        found = module.from_arrow(table)
        return frame.select(keep).hstack(found) if keep else found
    found = _to_pandas(table).set_index(frame.index)
    return module.concat([frame[keep], found], axis=1) if keep else found


def _column_names(frame: Any, kind: str) -> list[str]:
    if kind == "pyarrow":
        return list(frame.schema.names)
    return [str(name) for name in (frame.column_names if kind == "datasets" else frame.columns)]


def _while_read(reader: Any, read: Callable[[Any], Any], show_progress: bool) -> Any:
    """A reader of the results: what is wrong with the arguments is said before it is read."""
    pyarrow = optional("pyarrow", "extract_frame")
    schema = read(reader.schema.empty_table()).schema
    parts: Iterator[Any] = (
        batch.slice(at, PART_ROWS) for batch in reader for at in range(0, batch.num_rows, PART_ROWS)
    )
    if show_progress:
        parts = track(parts, total=None, unit="batches")
    return pyarrow.RecordBatchReader.from_batches(schema, map(read, parts))


def _to_batch(table: Any) -> Any:
    pyarrow = optional("pyarrow", "extract_frame")
    arrays = [column.combine_chunks() for column in table.columns]
    return pyarrow.record_batch(arrays, schema=table.schema)


def _records(frame: Any, kind: str, wanted: tuple[str, ...] | None) -> Iterator[Record]:
    """Rows as mappings of plain values: what is missing is None."""
    if kind == "datasets":
        yield from _records_of_dataset(frame, wanted)
    elif kind in ("pyarrow", "duckdb"):
        names = [name for name in frame.column_names if wanted is None or name in wanted]
        # Without any, all stay, so that the rows can say what is there.
        yield from batch_records(frame.select(names or frame.column_names))
    elif kind == "polars":
        for some in frame.iter_slices(_BATCH):
            columns = [_cells_of_polars(series) for series in some]
            for row in range(len(some)):
                yield as_record(some.columns, [cells[row] for cells in columns])
    else:
        yield from _records_of_pandas(frame)


def _records_of_pandas(frame: Any) -> Iterator[Record]:
    names = [str(name) for name in frame.columns]
    for at in range(0, len(frame), _BATCH):
        some = frame.iloc[at : at + _BATCH]
        columns = [_cells_of_pandas(some.iloc[:, place]) for place in range(len(names))]
        for row in range(len(some)):
            yield as_record(names, [cells[row] for cells in columns])


def _cells_of_pandas(series: Any) -> list[Any]:
    """Through Arrow where dates are Arrow's, which pandas cannot read if they are too far away."""
    pandas = optional("pandas", "extract_frame")
    if isinstance(series.dtype, pandas.ArrowDtype) and holds_times(series.dtype.pyarrow_dtype):
        return read_cells(series.array.__arrow_array__())
    return [_shown(_plain(value, pandas.isna)) for value in series]


def _cells_of_polars(series: Any) -> list[Any]:
    """Through Arrow where there are dates, which polars panics at if they are too far away."""
    if series.dtype.is_temporal() or series.dtype.is_nested():
        return read_cells(series.to_arrow())
    found: list[Any] = series.to_list()
    return found


def _records_of_dataset(data: Any, wanted: tuple[str, ...] | None) -> Iterator[Record]:
    """Whatever the data set is formatted as, but for a transform of one's own, which counts.

    Columns that are not needed are not decoded: they may be pictures.
    """
    timed: dict[str, Iterator[Any]] = {}
    if data.format["type"] != "custom":
        names = [name for name in data.format["columns"] if wanted is None or name in wanted]
        # Without any, all stay, so that the rows can say what is there.
        data = data.with_format(None).select_columns(names or data.column_names)
        timed = {
            field.name: _times_of_dataset(data, field.name)
            for field in data.features.arrow_schema
            if holds_times(field.type)
        }
    labels = {name: found for name, one in data.features.items() if (found := _label(one))}
    others = data.remove_columns(list(timed)) if timed else data
    rows = others if others.column_names else repeat({})
    for _, row in zip(range(len(data)), rows, strict=False):
        found = {key: _shown(_named(value, labels.get(key))) for key, value in row.items()}
        found |= {key: next(cells) for key, cells in timed.items()}
        names = data.column_names if timed else list(found)
        yield as_record(names, [found[name] for name in names])


def _times_of_dataset(data: Any, name: str) -> Iterator[Any]:
    """A column through Arrow, since Python has no dates that are too far away."""
    for some in data.select_columns(name).with_format("arrow").iter(_BATCH):
        yield from read_cells(some[name])


def _label(feature: Any) -> Any:
    """A ClassLabel; also that of a list of them; else None."""
    feature = getattr(feature, "feature", feature)
    return feature if hasattr(feature, "int2str") else None


def _named(value: Any, label: Any) -> Any:
    """The name of a class in place of its number."""
    if label is None or value is None:
        return value
    if isinstance(value, list):
        return [_named(item, label) for item in value]
    return label.int2str(value) if isinstance(value, int) and value >= 0 else value


def _to_dataset(table: Any) -> Any:
    """Choices become strings, the type that `features` tells of dictionaries as well."""
    datasets: Any = import_module("datasets")
    features = datasets.Features.from_arrow_schema(table.schema)
    plain = datasets.table.table_cast(table, features.arrow_schema)
    return datasets.Dataset(datasets.table.InMemoryTable(plain))


def _plain(value: Any, isna: Any) -> Any:
    if hasattr(value, "tolist"):  # of numpy: a number, or an array
        value = value.tolist()
    missing = isna(value)
    return None if isinstance(missing, bool) and missing else value


def _shown(value: Any) -> Any:
    if isinstance(value, list):
        return [_shown(item) for item in value]
    return value.isoformat() if hasattr(value, "isoformat") else value


def _to_pandas(table: Any) -> Any:
    """Whole numbers and truth values stay what they are beside missing ones."""
    pandas, pyarrow = optional("pandas", "extract_frame"), optional("pyarrow", "extract_frame")
    nullable = {pyarrow.int64(): pandas.Int64Dtype(), pyarrow.bool_(): pandas.BooleanDtype()}
    return table.to_pandas(types_mapper=nullable.get)
