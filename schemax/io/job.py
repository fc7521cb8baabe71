"""`extract_files`, which is `schemax extract` as a function, and its `Job`."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal, TypeAlias, TypeVar, Unpack, get_args

from schemax.attributes import settings_of
from schemax.attributes.json_classes import known_declaration
from schemax.base.messages import some_of, track
from schemax.base.resources import default_model, named_model
from schemax.errors import FULL_DISK, InputError, SchemaxError
from schemax.extraction.documents import Options, RecordFields, check_options
from schemax.extraction.extractor import Extractor, loaded
from schemax.io import fingerprint
from schemax.io.checkpoint import Checkpoint
from schemax.io.columns import Schemas, named_schemas
from schemax.io.document_files import is_document
from schemax.io.earlier import EarlierTable, Retry
from schemax.io.finished import (
    RunRecord,
    add_key,
    finished_note,
    keyed_results,
    read_run_record,
    write_keys,
)
from schemax.io.input_columns import kept_columns, tell_of_columns
from schemax.io.lake import check_lake, is_lake
from schemax.io.long_documents import TooLong
from schemax.io.partitions import Layout, check_place, kept_for, layout_of
from schemax.io.readers import InputFiles, Shard
from schemax.io.records import STANDARD
from schemax.io.resumable import (
    PART_LENGTH,
    ResumableRun,
    records_digests,
    salt_of,
)
from schemax.io.rows import Details, check_details, check_kept, in_order
from schemax.io.storage import (
    check_folder,
    is_replaceable,
    is_table_folder,
    place_of,
    refuse_inputs,
)
from schemax.io.summary import Summary, Tally
from schemax.io.table_schema import TableSchema
from schemax.io.task import Backend, Task, in_process
from schemax.io.writers import Formulas, Writer, check_target, is_typed, open_writer
from schemax.results import Extraction

T = TypeVar("T")

Place: TypeAlias = str | os.PathLike[str]
"""A path, or an address such as s3://bucket/key."""

IfComplete = Literal["skip", "error", "replace"]
"""The treatment of an output that is complete already."""

logger = logging.getLogger(__name__)

_Written: TypeAlias = Callable[..., AbstractContextManager[Writer]]  # `open_writer` of an output


def source_of(
    inputs: Iterable[Place],
    options: Options,
    limit: int | None = None,
    shard: Shard | None = None,
    keep: tuple[str, ...] = (),
    by: Sequence[str] = (),
) -> InputFiles:
    """The records of files. Raises InputError, also for columns in the options that are missing.

    options: those of `Extractor.stream`.
    keep: further columns; those that are in `by` partition the table. Every key in `text` must be
        in one of the files, and every file must have one of the keys.
    """
    if limit is not None and limit < 0:
        raise ValueError(f"limit must be a number of records, not {limit}")
    shown, category = RecordFields.of_options(options), options.get("category")
    named = [[] if shown.id == "id" else [shown.id], shown.text, [category] if category else []]
    needed = None if shown.needed is None else (*shown.needed, *keep)
    files = [os.fspath(place) for place in inputs]
    source = InputFiles.of(files, needed, limit, shard, required=[*filter(None, named)])
    check_kept([name for name in keep if name not in by], source.there, "the input")
    divided = [name for name in keep if name in by]
    check_kept(divided, source.there, "the input", "--partition-by (partition_by=)")
    shown.check(source.there, f"cannot read {some_of(source.files)}: no column is called")
    return source


def is_resumable(source: InputFiles, output: str) -> bool:
    """True if a run from the source to the output can be resumed."""
    whole = is_replaceable(output) or is_table_folder(output)
    return output != STANDARD and not source.is_stdin and whole


@dataclass(frozen=True)
class Job:
    """A call of `extract_files`, as data.

    backend: computes the rows of a resumable run; other runs compute rows in this process.
    retry: a finished table whose failed rows are computed again; None computes all rows.
    layout: the division of a folder of Parquet, or of a new Delta table; None for one file.
    if_complete, reuse: as of `extract_files`.
    command: the arguments of the command line, for the record.
    on_resume: called with the number of rows that an earlier run has finished, and their place.
    on_finished: called with a note before a run that replaces a finished table.
    """

    task: Task
    source: InputFiles
    output: str
    csv_formulas: Formulas = "keep"
    layout: Layout | None = None
    overwrite: bool = False
    backend: Callable[[Task], AbstractContextManager[Backend]] = in_process
    on_extraction: Callable[[Extraction[Any]], None] | None = None
    on_resume: Callable[[int, str], None] | None = None
    on_finished: Callable[[str], None] = logger.warning
    retry: Retry | None = None
    if_complete: IfComplete = "replace"
    reuse: str | None = None
    command: Mapping[str, Any] = field(default_factory=dict)
    show_progress: bool = False

    def run(self) -> Summary:
        """Runs the job. Raises as `extract_files` does."""
        tally = Tally()
        table = self._checked_table()
        if self.retry is not None and not self.retry.failed and self.retry.output == self.output:
            for row in keyed_results(self.output):
                tally.add_row(row)
            return tally.summary(self.source.files, self.output)
        written = partial(open_writer, self.output, table, csv_formulas=self.csv_formulas)
        if is_resumable(self.source, self.output):
            if self.retry is not None and self.reuse is not None:
                raise InputError("a retry keeps all rows that did not fail; leave reuse out")
            return self._in_parts(written, tally, table)
        if self.retry is not None or self.reuse is not None or self.if_complete != "replace":
            raise InputError("retries, reuse and if_complete take a run from files to a file")
        self._in_order(written, tally)
        return tally.summary(self.source.files, self.output)

    def _checked_table(self) -> TableSchema | None:
        """The columns of the output; None for stdout, and for JSON Lines whose rows have none in
        common.

        Raises InputError for options that do not fit the output, for an output that is an input,
        and for a folder or a table that rows with these columns do not fit.
        """
        output, layout = self.output, self.layout
        if output == STANDARD:
            if layout is not None:
                raise InputError("--partition-by writes a folder: name one with -o OUT")
            return None
        if is_lake(output) and self.reuse is not None:
            raise InputError(
                f"--reuse takes rows for a file or a folder; to {output} rows are added"
            )
        check_target(output, layout)
        folder = f"{place_of(output)}{os.sep}"
        if is_replaceable(output):
            refuse_inputs(output, self.source.files)
        inputs = [place_of(file) for file in self.source.files]
        try:
            table = TableSchema.of(
                self.task.schemas,
                details=self.task.details,
                keep=kept_columns(self.source, self.task.keep),
                located=any(map(is_document, self.source.files)),
            )
        except SchemaxError:
            if is_typed(output) or layout is not None:
                raise
            return None
        if layout is not None:
            layout.check(table.columns, table.own)
            if not is_lake(output) and any(str(place).startswith(folder) for place in inputs):
                raise InputError(f"cannot write {output}: an input is in it")
        if is_lake(output):
            check_lake(output, table.columns, () if layout is None else layout.by)
        return table

    def _in_order(self, written: _Written, tally: Tally) -> None:
        """Writes rows as soon as all rows before them are done; cannot be resumed."""
        task = self.task
        with (
            written() as writer,
            closing(in_order(task.extract(task.loaded()), task.form, self.source.rows())) as rows,
        ):
            for item, row in self._tracked(rows, tally, self.source):
                writer.write(row)
                self._add(item, tally)
                tally.add_row(row)

    def _in_parts(self, written: _Written, tally: Tally, table: TableSchema | None) -> Summary:
        """Keeps rows in parts as they finish; the parts become the output in the end."""
        source, overwrite, retry, output = self.source, self.overwrite, self.retry, self.output
        layout = {} if self.layout is None else self.layout.settings()
        if not is_lake(output):
            (check_folder if self.layout is None else check_place)(output)
        checkpoint = Checkpoint(output)
        known = {
            **self.task.fingerprint(),
            **fingerprint.of_files(source.files),
            "limit": source.limit,
            "shard": str(source.shard),
            "part rows": checkpoint.part_rows,
            "part length": PART_LENGTH,
        }
        compared = None if self.reuse is None else EarlierTable.to_reuse(self.reuse, output)
        earlier = compared
        if retry is not None:
            retry.check(known, table)
            known["retried"] = retry.digest
            earlier = EarlierTable(retry.output, "index")
            overwrite = overwrite or retry.is_over(checkpoint)
        goes_on = not overwrite and checkpoint.can_go_on(known)  # before a model is loaded
        note = None if retry or goes_on else finished_note(output, {**known, **layout})
        if note is not None and self.if_complete == "error":
            raise InputError(f"{note[0]}; --if-complete error keeps it")
        with self.backend(self.task) as engine:
            manifest = {**known, **engine.fingerprint}
            settings = {**manifest, **layout}
            if note is not None and self.if_complete == "skip":
                record = read_run_record(output)
                if self._is_same(record, settings):
                    self.on_finished(
                        f"{output} is complete and was made the same way: nothing is computed"
                    )
                    return record.summary.unchanged()
            if note is not None and not overwrite and self.reuse != output:
                self.on_finished("; ".join(note))
            seen = (manifest["decoding documents"], manifest["decoding slots"])
            independent = seen == ("isolated", "independent")
            keyed = independent and not manifest["decoding temperature"]
            salt = salt_of({**manifest, "csv formulas": self.csv_formulas}) if keyed else None
            run = ResumableRun(source, checkpoint, self.task.form, independent, salt, earlier)
            opened = checkpoint.opened(manifest, overwrite=overwrite)
            with opened as goes_on, _noting(checkpoint, output):
                finished = checkpoint.count() if goes_on else 0
                if finished and self.on_resume is not None:
                    self.on_resume(finished, checkpoint.name)
                with checkpoint.writing(), closing(engine.fill(run)) as stream:
                    for item in self._tracked(stream, tally, source, finished):
                        self._add(item, tally)
                keys, records = bytearray(), blake2b(digest_size=8)
                run_id = str((checkpoint.manifest() or {}).get("run"))
                with written(
                    scratch=checkpoint.scratch("whole"), layout=self.layout, run=run_id
                ) as writer:
                    for row, key, digest, origin in run.assemble(writer):
                        tally.add_row(row)
                        was_there = compared is not None and compared.was_there(row["id"])
                        tally.add_origin(origin, was_there=was_there)
                        add_key(keys, key)
                        records.update(digest.encode())
                    gone = None
                    if self.reuse is not None:
                        gone = 0 if compared is None else compared.gone()
                    summary = tally.summary(source.files, output, gone)
                    settings["records"] = [records.hexdigest()]
                    # Before the table, which can be made from the kept rows again.
                    self._record(summary, settings, table, checkpoint.scratch("record"))
                if not is_lake(output):
                    write_keys(output, bytes(keys), checkpoint.scratch("keys"))
                checkpoint.remove()
        return summary

    def _is_same(self, record: RunRecord, settings: Mapping[str, Any]) -> bool:
        """True if a finished table was made with the settings from the current records."""
        if fingerprint.differences(record.settings, settings):
            return False
        recorded = record.settings.get("records")
        if not isinstance(recorded, list) or not recorded:
            return False
        return recorded == records_digests(self.source, len(recorded))

    def _record(
        self, summary: Summary, settings: dict[str, Any], table: TableSchema | None, scratch: str
    ) -> None:
        if self.retry is not None:
            summary = summary.plus(self.retry.record.summary)
        model = None if self.task.place is None else str(self.task.place)
        schemas = self.task.schemas
        category = None if isinstance(schemas, Mapping) else settings_of(schemas).category
        known = {
            name or settings_of(schema).category: document
            for name, schema in named_schemas(schemas).items()
            if (document := known_declaration(schema)) is not None
        }
        RunRecord(summary, settings, model, table, category, self.command, known).write(scratch)

    def _tracked(
        self, stream: Iterable[T], tally: Tally, source: InputFiles, finished: int = 0
    ) -> Iterable[T]:
        """The stream with progress; starts the clock. finished: rows that are done already."""
        total = source.count() if self.show_progress else None
        tally.start()
        if not self.show_progress:
            return stream
        left = None if total is None else max(0, total - finished)
        return track(stream, total=left, unit="documents")

    def _add(self, item: Extraction[Any], tally: Tally) -> None:
        tally.add_cost(item)
        if self.on_extraction is not None:
            self.on_extraction(item)


@contextmanager
def _noting(checkpoint: Checkpoint, output: str) -> Generator[None, None, None]:
    """Adds a note to an error that ends the run, which says where finished rows are; names the
    output in the error of a full disk."""
    try:
        yield
    except BaseException as error:
        if isinstance(error, OSError) and error.errno in FULL_DISK and error.filename is None:
            error.filename = output
        if not isinstance(error, GeneratorExit) and checkpoint.has_rows():
            error.add_note(
                f"finished rows are kept in {checkpoint.name}: run the same again to go on"
            )
        raise


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
    model: a folder or Hub id.
    extractor: a loaded one instead. Without either, `Extractor.default()`.
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
        divided: OUTPUT/category=Shoes/part-0.parquet.
    rows_per_file: the most rows of a file.
    overwrite: whether to drop the rows of an unfinished run.
    retry_failed: whether to compute only the failed rows of OUTPUT, which an earlier call or
        command has finished; all others stay. Model and options may differ.
    if_complete: the treatment of an OUTPUT that an earlier call or command has finished: "skip"
        keeps it if records, schema, model and settings are the same, and else replaces it; "error"
        raises InputError; "replace" computes all rows again.
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
    part = None if shard is None else Shard.parse(shard)
    source = source_of(names, options, limit, part, kept, by)
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
