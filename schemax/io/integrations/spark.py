"""Extracts from DataFrames of Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack

from schemax.errors import InputError
from schemax.extraction.documents import Options, RecordFields, check_options
from schemax.io.arrow import plain_schema, schema_of
from schemax.io.columns import Schemas
from schemax.io.dataframes import extract_frame
from schemax.io.input_columns import checked_frame
from schemax.io.rows import Details
from schemax.io.storage import optional


def extract(
    frame: Any,
    schema: Schemas,
    *,
    model: str | Path | None = None,
    details: Details = False,
    keep: Sequence[str] = (),
    **options: Unpack[Options],
) -> Any:
    """Reads the attributes of a schema from every row of a Spark DataFrame: a lazy DataFrame.

    frame: the model is shown all columns but `id` and `category`, or those named by `text`.
    schema: a Pydantic model, or one per category. Classes of scripts and notebooks travel with
        their code; those of modules are imported by the workers.
    model: a folder that all machines have, or a Hub id. Each Python worker loads the model once,
        and keeps it for all its tasks while Spark reuses workers. None: the workers'
        `Extractor.default()`.
    details: True adds raw text, confidence and place of every value, "confidence" the confidences
        alone.
    keep: columns of the frame to copy before the results, such as a key, since rows have no number.
    options: those of `Extractor.stream`.

    Returns the kept columns and those of `extract_frame`; choices are strings. Up to
    `spark.sql.execution.arrow.maxRecordsPerBatch` rows are computed at a time.

    Raises InputError without pyspark and for missing columns. Wrong settings stop the job that
    computes the rows.
    """
    types = optional("pyspark.sql.types", "schemax.io.integrations.spark", "spark")
    arrow = optional("pyspark.sql.pandas.types", "schemax.io.integrations.spark", "spark")
    if not hasattr(frame, "mapInArrow"):
        raise InputError(f"spark.extract takes a DataFrame of Spark, not {type(frame).__name__}")
    check_options(extract, options)
    shown = RecordFields.of_options(options)
    keep, table = checked_frame(frame.columns, schema, shown, details, keep)
    results = arrow.from_arrow_schema(plain_schema(schema_of(table.results)), True)
    result_type = types.StructType([*(frame.schema[name] for name in keep), *results])
    read = partial(extract_frame, schema=schema, details=details, keep=keep, **options)
    return frame.mapInArrow(partial(_read, partial(read, model=model)), result_type)


def _read(read: Any, batches: Iterator[Any]) -> Iterator[Any]:
    """Yields the results of batches, with choices as strings: Spark has no dictionaries."""
    for batch in batches:
        results = read(batch)
        yield results.cast(plain_schema(results.schema))
