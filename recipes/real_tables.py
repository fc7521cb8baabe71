"""Reads other people's tables beside pandas, DuckDB and polars, and says where they differ.

python -m recipes.real_tables FOLDER [FOLDER ...]

Takes CSV, TSV, Excel and Parquet files of any depth. A file is alike if its column names and all
cells, as texts, are those that one of the others reads, however it is told to divide the cells.
Files that are not alike are listed by name, with the reason. The exit status is 1 if reading any
file ends in an exception that is no refusal, or takes more than `MOST_MEMORY`.
"""

from __future__ import annotations

import resource
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, time, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas  # type: ignore[import-untyped]
import polars
from openpyxl import load_workbook  # type: ignore[import-untyped]
from pydantic_core import to_jsonable_python

from schemax.errors import InputError
from schemax.io.readers import columns_of, read_file

SUFFIXES = (".csv", ".tsv", ".xlsx", ".parquet")
MOST_MEMORY = 2**30
"""Bytes of resident memory."""

Rows = list[tuple[str, ...]]


def cells(header: Sequence[Any], rows: Iterator[Any]) -> Rows:
    """(1 + rows,) the header and the rows, as texts, where rows and columns hold a value.

    Nulls and NaN are empty texts.
    """

    def text(value: Any) -> str:
        if isinstance(value, (dict, list)):
            return "nested"  # each library has a form of its own
        if isinstance(value, bytes):
            value = value.decode("utf-8", "replace")
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, (date, time, timedelta)):
            value = to_jsonable_python(value)
        return "" if value is None or value != value else str(value)

    texts = [tuple(map(text, row)) for row in rows]
    columns = zip(map(text, header), zip(*texts, strict=False), strict=False)
    kept = [(name, *column) for name, column in columns if any(column)]
    return [row for row in zip(*kept, strict=True) if any(row)] or [tuple(map(text, header))]


def others(path: Path) -> Iterator[tuple[str, Callable[[], Rows]]]:
    """The other readers of a file, by name."""

    def by_pandas(delimiter: str) -> Rows:
        frame = pandas.read_csv(
            path, sep=delimiter, dtype=str, keep_default_na=False, index_col=False
        )
        return cells(list(frame.columns), frame.itertuples(index=False, name=None))

    def by_polars(delimiter: str) -> Rows:
        frame = polars.read_csv(path, separator=delimiter, infer_schema=False)
        return cells(frame.columns, iter(frame.rows()))

    def by_duckdb(query: str) -> Rows:
        result = duckdb.execute(query, [str(path)])
        return cells([column[0] for column in result.description or ()], iter(result.fetchall()))

    def by_openpyxl() -> Rows:
        book = load_workbook(path, read_only=True, data_only=True)
        sheets = (sheet for sheet in book.worksheets if sheet.sheet_state == "visible")
        header, *rows = next(sheets).iter_rows(values_only=True)
        return cells(header, iter(rows))

    if path.suffix == ".xlsx":
        yield "openpyxl", by_openpyxl
    elif path.suffix == ".parquet":
        yield "DuckDB", lambda: by_duckdb("from read_parquet(?)")
        frame = polars.read_parquet
        yield "polars", lambda: cells(frame(path).columns, iter(frame(path).rows()))
    else:
        yield "DuckDB", lambda: by_duckdb("from read_csv(?, all_varchar=true, header=true)")
        for delimiter in ",;\t|":
            yield "pandas", lambda delimiter=delimiter: by_pandas(delimiter)  # type: ignore[misc]
            yield "polars", lambda delimiter=delimiter: by_polars(delimiter)  # type: ignore[misc]


def judged(path: Path) -> tuple[str, str, int]:
    """Returns the outcome of a file, the reason, and the process's peak of memory in bytes if
    reading the file raised it, else 0."""
    before = _peak()
    try:
        header = columns_of(str(path)) or []
        records = list(read_file(str(path)))
    except InputError as error:
        return "refused", str(error), 0
    except Exception as error:  # what must not happen
        return "exception", f"{type(error).__name__}: {error}", 0
    peak = _peak() if _peak() > before else 0
    failures = [record for record in records if isinstance(record, InputError)]
    rows = (record.values() for record in records if isinstance(record, Mapping))
    ours, tables = cells(header, rows), []
    for name, read in others(path):
        try:
            tables.append((name, read()))
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException:
            continue
    reason = str(failures[0]) if failures else ""
    for _, table in tables:
        if table == ours or sorted(zip(*table, strict=False)) == sorted(zip(*ours, strict=False)):
            return "alike", "", peak
        if [*map(len, table)] == [*map(len, ours)] and not failures and table[1:] == ours[1:]:
            return "alike but for names of columns", "", peak
        if failures and not Counter(ours) - Counter(table):
            return "some rows refused, the others alike", reason, peak
    if not tables:
        return "read by schemax alone", reason, peak
    return ("some rows refused, the others differ" if failures else "differs"), reason, peak


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def main(folders: Sequence[str]) -> int:
    paths = sorted(
        path
        for folder in folders
        for path in Path(folder).rglob("*")
        if path.suffix in SUFFIXES and path.is_file() and path.stat().st_size
    )
    warnings.simplefilter("ignore")
    counts: Counter[tuple[str, str]] = Counter()
    too_large = 0
    for path in paths:
        outcome, reason, peak = judged(path)
        counts[path.suffix, outcome] += 1
        too_large += peak > MOST_MEMORY
        if not outcome.startswith("alike"):
            print(f"{outcome}: {path}: {' '.join(reason.split())[:160]}", flush=True)
    print("\n| files | outcome | number |\n| --- | --- | ---: |")
    for (suffix, outcome), number in sorted(counts.items()):
        print(f"| {suffix} | {outcome} | {number} |")
    print(f"\n{too_large} of {len(paths)} files took more than {MOST_MEMORY >> 20} MiB.")
    return int(bool(too_large) or any(outcome == "exception" for _, outcome in counts))


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1:]))
