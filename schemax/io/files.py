"""`extract_files`: `schemax extract` as a function."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Unpack, get_args

from schemax.base.resources import default_model, named_model
from schemax.extraction.documents import Options, check_options
from schemax.extraction.extractor import Extractor, loaded
from schemax.io.columns import Schemas
from schemax.io.finished import Retry
from schemax.io.input_columns import tell_of_columns
from schemax.io.job import IfComplete, Job, Place, source_of
from schemax.io.long_documents import TooLong
from schemax.io.partitions import kept_for, layout_of
from schemax.io.readers import Shard
from schemax.io.rows import Details, check_details
from schemax.io.summary import Summary
from schemax.io.task import Task
from schemax.io.writers import Formulas
from schemax.results import Extraction


def extract_files(
    schema: Schemas,
    inputs: Place | Iterable[Place],
    output: Place,
    *,
    model: str | Path | None = None,
    extractor: Extractor | None = None,
    details: Details = False,
    keep: Sequence[str] = (),
    limit: int | None = None,
    shard: str | None = None,
    on_too_long: TooLong = "error",
    csv_formulas: Formulas = "keep",
    partition_by: Sequence[str] = (),
    rows_per_file: int | None = None,
    overwrite: bool = False,
    retry_failed: bool = False,
    if_complete: IfComplete = "replace",
    reuse: Place | None = None,
    on_extraction: Callable[[Extraction[Any]], None] | None = None,
    show_progress: bool = False,
    **options: Unpack[Options],
) -> Summary:
    """Reads the attributes of a schema from every record of some files, and writes them to a file.

    Runs in bounded memory, as `schemax extract` does. Finished rows are kept beside the output, in
    _OUTPUT.parts: if anything stops the run, the same call (or command) resumes it. OUTPUT gets its
    name when all rows are done. A record that fails stops nothing: its row says why.

    schema: a Pydantic model, or one per category.
    inputs, output: paths, addresses (s3://...) and, of inputs, patterns ("*.parquet") and folders:
        JSON Lines (also .gz, .zst), CSV, Parquet or Arrow, by their suffix; of inputs also PDF,
        DOCX, HTML and text files, each one record, whose id is its path. "-" is stdin or stdout,
        which hold JSON Lines; a run that reads stdin or writes to stdout cannot be resumed.
    model: a folder or Hub id; extractor: a loaded one instead. Without either,
        `Extractor.default()`.
    details: True adds raw text, confidence and place of every value, "confidence" the confidences
        alone.
    keep: keys of the records that are copied to their rows, in a table as columns.
    limit: the number of records to read, from the first on; None for all.
    shard: "I/N" reads every N-th record only, from the I-th on.
    on_too_long: the treatment of documents that exceed the model's context: "error" gives a failed
        row, "truncate" reads their beginning, "chunk" all of them in overlapping pieces.
    csv_formulas: "escape" puts an apostrophe before texts of CSV that a spreadsheet would take for
        formulas, such as =1+1; "keep" writes texts unchanged.
    partition_by: columns (fields, or keys of the records) by whose values a folder of Parquet is
        divided: OUTPUT/category=Shoes/part-0.parquet; rows_per_file: the most rows of a file.
    overwrite: whether to drop the rows of an unfinished run.
    retry_failed: whether to compute only the failed rows of OUTPUT, which an earlier call or
        command has finished; all others stay. Model and options may differ.
    if_complete: the treatment of an OUTPUT that an earlier call or command has finished: "skip"
        keeps it if records, schema, model and settings are the same, and else replaces it;
        "error" raises InputError; "replace" computes all rows again.
    reuse: an earlier table, which may be OUTPUT itself: rows for which the model would see the
        same, with the same schema, model and settings, are taken from it.
    on_extraction: called with every extraction that this run computes, as it finishes.
    show_progress: whether to show progress on stderr.
    options: text, id, category, format, template, decoding and examples, as `Extractor.stream`
        takes them.

    Raises InputError for files that cannot be read or written, and for an unfinished run with other
    settings or another input (the message names the difference); SchemaError, TemplateError,
    ModelError, TypeError and ValueError for wrong schemas, models and options. A note on an error
    that ends the run says where finished rows are.
    """
    if model is not None and extractor is not None:
        raise ValueError("give a model or an extractor, not both")
    check_options(extract_files, options)
    check_details(details)
    if on_too_long not in ("error", "truncate", "chunk"):
        raise ValueError(f'on_too_long must be "error", "truncate" or "chunk", not {on_too_long!r}')
    if csv_formulas not in ("keep", "escape"):
        raise ValueError(f'csv_formulas must be "keep" or "escape", not {csv_formulas!r}')
    if if_complete not in get_args(IfComplete):
        raise ValueError(f'if_complete must be "skip", "error" or "replace", not {if_complete!r}')
    load: Callable[[], Extractor]
    place: str | Path | None
    if extractor is not None:
        load, place = lambda: extractor, None
    elif model is not None:
        load, place = partial(loaded, str(model)), named_model(model)
    else:
        load = Extractor.default
        place = default_model()
    names = [inputs] if isinstance(inputs, (str, os.PathLike)) else inputs
    kept = (keep,) if isinstance(keep, str) else tuple(keep)
    by = (partition_by,) if isinstance(partition_by, str) else tuple(partition_by)
    kept = kept_for(by, kept, schema)
    source = source_of(names, options, limit, None if shard is None else Shard.parse(shard), kept)
    task = Task(schema, options, load, place, details, on_too_long, kept)
    tell_of_columns(source.there, task.shown, schema)
    return Job(
        task,
        source,
        os.fspath(output),
        csv_formulas=csv_formulas,
        layout=layout_of(by, rows_per_file),
        overwrite=overwrite,
        retry=Retry.of(os.fspath(output)) if retry_failed else None,
        if_complete=if_complete,
        reuse=None if reuse is None else os.fspath(reuse),
        on_extraction=on_extraction,
        show_progress=show_progress,
    ).run()
