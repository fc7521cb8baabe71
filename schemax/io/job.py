"""`Job`: a run of `schemax extract`, from files to a file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from schemax.attributes import settings_of
from schemax.attributes.json_classes import known_declaration
from schemax.base.messages import some_of, track
from schemax.errors import FULL_DISK, InputError, SchemaxError
from schemax.extraction.calls import Options
from schemax.extraction.documents import RecordFields
from schemax.io import fingerprint, resumable
from schemax.io.checkpoint import Checkpoint, digest_of_all
from schemax.io.columns import named_schemas
from schemax.io.document_files import is_document
from schemax.io.finished import (
    Retry,
    RunRecord,
    add_key,
    finished_note,
    read_run_record,
    write_keys,
)
from schemax.io.input_columns import kept_columns
from schemax.io.known import Known, check_earlier, salt_of
from schemax.io.lake import check_lake, is_lake
from schemax.io.partitions import Layout, check_place
from schemax.io.readers import InputFiles, Shard
from schemax.io.records import STANDARD
from schemax.io.resumable import ResumableRun
from schemax.io.rows import check_kept
from schemax.io.storage import (
    check_folder,
    is_replaceable,
    is_table_folder,
    place_of,
    refuse_inputs,
)
from schemax.io.stream import in_order
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
) -> InputFiles:
    """The records of files. Raises InputError, also for columns in the options that are missing.

    options: those of `Extractor.stream`; keep: further columns. Every key in `text` must be in one
    of the files, and every file must have one of the keys.
    """
    if limit is not None and limit < 0:
        raise ValueError(f"limit must be a number of records, not {limit}")
    shown, category = RecordFields.of_options(options), options.get("category")
    named = [[] if shown.id == "id" else [shown.id], shown.text, [category] if category else []]
    needed = None if shown.needed is None else (*shown.needed, *keep)
    files = [os.fspath(place) for place in inputs]
    source = InputFiles.of(files, needed, limit, shard, required=[*filter(None, named)])
    check_kept(keep, source.there, "the input")
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
            for row in self.retry.others():
                tally.add_row(row)
            return tally.summary(self.source.files, self.output)
        written = partial(open_writer, self.output, table, csv_formulas=self.csv_formulas)
        if is_resumable(self.source, self.output):
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
            if not is_lake(output) and any(str(one).startswith(folder) for one in inputs):
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
            "part rows": resumable.PART_ROWS,
            "part length": resumable.PART_LENGTH,
            "repeats": "once",
        }
        earlier = None if self.reuse is None else check_earlier(self.reuse, output)
        if retry is not None:
            retry.check(known, table)
            known["retried"] = retry.digest
            source = replace(source, only=retry.failed)
            overwrite = overwrite or retry.is_over(checkpoint)
        goes_on = not overwrite and checkpoint.can_go_on(known)  # before a model is loaded
        note = None
        if retry is None and not goes_on:
            note = finished_note(output, {**known, **layout})
        if note is not None and self.if_complete == "error":
            raise InputError(f"{note.partition('; this run')[0]}; --if-complete error keeps it")
        with self.backend(self.task) as engine:
            manifest = {**known, **engine.fingerprint}
            seen = (manifest["decoding documents"], manifest["decoding slots"])
            independent = seen == ("isolated", "independent")
            keyed = independent and not manifest["decoding temperature"]
            salt = salt_of({**manifest, "csv formulas": self.csv_formulas}) if keyed else None
            form = self.task.form
            rows = Known(salt, form, earlier)
            run = ResumableRun(source, checkpoint, form, independent, resumable.PART_ROWS, rows)
            settings = {**manifest, **layout}
            if note is not None and self.if_complete == "skip":
                record = read_run_record(output)
                is_same = not fingerprint.differences(record.settings, settings)
                if is_same and run.has_records(record.settings.get("records")):
                    self.on_finished(
                        f"{output} is complete and was made the same way: nothing is computed"
                    )
                    return record.summary.unchanged()
            if note is not None and not overwrite and earlier != output:
                self.on_finished(note)
            opened = checkpoint.opened(manifest, overwrite=overwrite)
            with opened as goes_on, _noting(checkpoint, output):
                finished = checkpoint.finished_rows() if goes_on else 0
                if finished and self.on_resume is not None:
                    self.on_resume(finished, checkpoint.name)
                with closing(engine.fill(run)) as stream:
                    for item in self._tracked(stream, tally, source, finished):
                        self._add(item, tally)
                keys = bytearray()
                run_id = str((checkpoint.manifest() or {}).get("run"))
                with written(
                    scratch=checkpoint.scratch("whole"), layout=self.layout, run=run_id
                ) as writer:
                    others = () if retry is None else retry.others()
                    for row, key, origin in run.assemble(writer, others):
                        tally.add_row(row)
                        tally.add_origin(origin, was_there=rows.was_there(row["id"]))
                        add_key(keys, key)
                    gone = None if self.reuse is None else rows.gone()
                    summary = tally.summary(source.files, output, gone)
                    parts = sorted(checkpoint.finished().items())
                    settings["records"] = digest_of_all(part for _, part in parts)
                    # Before the table, which can be made from the kept rows again.
                    self._record(summary, settings, table, checkpoint.scratch("record"))
                if not is_lake(output):
                    write_keys(output, bytes(keys), checkpoint.scratch("keys"))
                checkpoint.remove()
        return summary

    def _record(
        self, summary: Summary, settings: dict[str, Any], table: TableSchema | None, scratch: str
    ) -> None:
        if self.retry is not None:
            settings["records"] = self.retry.record.settings.get("records")
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
