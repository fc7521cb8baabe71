"""The cost of a run over tables without the model: time per row, and memory by number of rows.

All of `schemax extract` is run, from files to a file with parts and manifest, except for the model:
a fixed extraction replaces its output for every row. The model's time is measured separately, on
similar rows.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from schemax.attributes import compile_attributes
from schemax.base.resources import resource_dir
from schemax.commands import options
from schemax.extraction.declarations import load_schema
from schemax.extraction.defaults import Defaults
from schemax.extraction.documents import RecordFields, read_documents
from schemax.extraction.extractor import Extractor
from schemax.formats import get_format
from schemax.io.job import Job, source_of
from schemax.io.storage import optional
from schemax.io.task import Task
from schemax.results import Extraction, SlotText, build

_SCHEMA = "shoes"
FEW = 10_000
# Formats of files read and written; the first is also measured with the largest number of rows.
FORMATS = (".parquet", ".jsonl", ".csv")
# The parts of titles of shoes; a title has one of each.
_PARTS = (
    ("Northfell", "Calder & Sons", "Brightwater", "Larkspur", "Solmara"),
    ("Women's", "Men's", "Kids'", "Unisex"),
    ("Tamarack", "Jayna", "Exposure", "Milano", "Trailhead 2"),
    ("Waterproof Hiking Boot", "Leather Slip-On Loafer", "Ballet Flat", "High-Top Sneaker"),
    ("Dark Olive", "Brown", "Navy", "Black/White", "Burgundy"),
    ("8.5 M US", "Size 11", "4 M US", "10 D US"),
)
BATCH = 10_000
_STATUS = Path("/proc/self/status")


def measure_tables(
    rows: int,
    documents: int,
    model: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[str]:
    """Yields lines of figures, of runs over generated files of every format, each in a new process.

    rows: of the largest run. documents: rows that the model reads, to measure its time.
    Raises InputError without pyarrow, ModelError for a model that cannot be loaded.
    """
    optional("pyarrow.parquet", "bench --tables")
    tell(f"the model: {documents:,} rows")
    seconds = _model_seconds(options.load_extractor(model, device, dtype), documents)
    yield f"model: {1e3 * seconds:.2f} ms per row ({documents:,} rows)"
    sizes = [(format, min(rows, FEW)) for format in FORMATS]
    if rows > FEW:
        sizes.append((FORMATS[0], rows))
    for format, size in sizes:
        name = f"{format[1:]} to {format[1:]}"
        tell(f"{name}: {size:,} rows")
        took, peak = run_apart(format, size)
        memory = "" if peak is None else f", {peak / (1 << 20):,.0f} MiB at most"
        yield (
            f"{name}, {size:,} rows: {1e3 * took / size:.3f} ms per row beside it, "
            f"{took / size / seconds:.2%} of its time{memory}"
        )


def run_apart(format: str, rows: int) -> tuple[float, int | None]:
    """Runs `run_without_model` over a generated file, in a new process."""
    with tempfile.TemporaryDirectory() as folder:
        write_rows(Path(folder) / f"in{format}", rows)
        # Not a fork, which would begin with the model in memory.
        with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
            return pool.submit(run_without_model, folder, format, rows).result()


def write_rows(path: Path, rows: int) -> None:
    """Writes a file of ids and titles, with at most `BATCH` rows in memory."""
    batches = (titles(first, min(BATCH, rows - first)) for first in range(0, rows, BATCH))
    if path.suffix == ".jsonl":
        with open(path, "w", encoding="utf-8") as handle:
            for batch in batches:
                handle.writelines(json.dumps(record) + "\n" for record in batch)
        return
    pyarrow = optional("pyarrow", path.name)
    schema = pyarrow.schema([("id", pyarrow.string()), ("title", pyarrow.string())])
    is_csv = path.suffix == ".csv"
    module = optional("pyarrow.csv" if is_csv else "pyarrow.parquet", path.name)
    with (module.CSVWriter if is_csv else module.ParquetWriter)(path, schema) as writer:
        for batch in batches:
            writer.write(pyarrow.Table.from_pylist(batch, schema=schema))


def titles(first: int, count: int) -> list[dict[str, str]]:
    """Returns records with ids and titles like a shop's."""
    chance = random.Random(first)
    return [
        {"id": f"row-{number}", "title": ", ".join(map(chance.choice, _PARTS))}
        for number in range(first, first + count)
    ]


def run_without_model(folder: str, format: str, rows: int) -> tuple[float, int | None]:
    """Runs all rows; returns (seconds, bytes): from opening the input to the complete output, and
    the peak resident memory, None if unknown."""
    os.chdir(folder)
    schema = load_schema(_SCHEMA)
    made = _ReadyMade(schema)
    task = Task(schema, {"text": "title"}, lambda: cast(Extractor, made), resource_dir("embedded"))
    source = source_of([f"in{format}"], task.options)
    started = time.perf_counter()
    summary = Job(task, source, f"out{format}").run()
    seconds = time.perf_counter() - started
    assert (summary.rows, summary.failed) == (rows, 0)
    return seconds, _peak()


class _ReadyMade:
    """A stand-in for an extractor that returns the same extraction for every document."""

    def __init__(self, schema: Any) -> None:
        self.defaults, self.further = Defaults(is_trained=True), None
        self.model = SimpleNamespace(model=None, dtype="float32")
        attributes, format = compile_attributes(schema), get_format("json")
        values = (_PARTS[n % len(_PARTS)][0] for n in range(len(attributes)))
        slots = [SlotText(format.escape(x), "stop", 4, complete=True) for x in values]
        self._made: Extraction[Any] = build(
            schema, attributes, slots, format, index=0, document_id=None, steps=8, texts={}
        )

    def stream(
        self, records: Iterable[Any], schema: Any, *, text: Any
    ) -> Iterator[Extraction[Any]]:
        for document in read_documents(records, RecordFields.of(text, "id", None)):
            yield replace(self._made, index=document.index, document_id=document.id)


def _model_seconds(extractor: Extractor, documents: int) -> float:
    """Returns the model's seconds per row, after compilation and shared reading."""
    schema = load_schema(_SCHEMA)

    def read(records: Sequence[Any]) -> float:
        started = time.perf_counter()
        for _ in extractor.stream(records, schema, text="title"):
            pass
        return time.perf_counter() - started

    read(titles(0, 8))
    return read(titles(1, documents)) / documents


def _peak() -> int | None:
    status = _STATUS.read_text() if _STATUS.exists() else ""
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) * 1024 if found else None
