"""The work of `schemax extract`: from a source to rows, in a pipe or in parts that survive."""

from __future__ import annotations

import json
import platform
import signal
import sys
import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from schemax.commands import options
from schemax.commands.messages import UsageError, refused_settings, say
from schemax.commands.pools import PoolOptions, connected, shippable
from schemax.documents import Shown
from schemax.errors import ModelError
from schemax.extractor import Extractor
from schemax.io import fingerprint
from schemax.io.checkpoint import Parts
from schemax.io.columns import Schemas
from schemax.io.estimate import estimate
from schemax.io.long_documents import TooLong, compiled_schemas, fits_model, fitted
from schemax.io.readers import Source
from schemax.io.records import STANDARD, Record, open_sink
from schemax.io.resumable import Extract, Job, as_row, in_order, refuse_changes
from schemax.io.storage import check_folder, is_remote, local_path
from schemax.io.summary import Duplicates, Tally, reasons
from schemax.io.table_schema import Layout
from schemax.io.writers import Writer, check_target, is_typed, open_table
from schemax.progress import track
from schemax.ray import parts as on_ray
from schemax.report import Report, open_report
from schemax.results import Extraction
from schemax.schema import settings_of

_MOST_REPORTS = 20
_TERMINATED = 143


@dataclass(frozen=True, slots=True)
class Work:
    """What to extract, and with what. `settings` are those of `Extractor.stream`."""

    source: Source
    schemas: Schemas
    settings: Mapping[str, Any]
    shown: Shown
    category: str | None
    details: bool
    examples: Path | None
    model: str | None
    device: str
    dtype: str
    quiet: bool
    too_long: TooLong = "error"
    pool: PoolOptions | None = None

    def estimate(self, price_per_hour: float | None) -> None:
        """Prints what the run would take."""
        extractor = options.load_extractor(self.model, self.device, self.dtype)
        with refused_settings():
            found = estimate(
                self.source,
                extractor,
                self.schemas,
                self.shown,
                self.settings,
                mixed_by=self.category,
            )
        for line in found.lines(price_per_hour):
            print(line)

    def run(
        self,
        output: str | None,
        report: str | None,
        report_rows: int,
        part_rows: int,
        *,
        overwrite: bool,
    ) -> Tally:
        """Writes all rows and says how it went."""
        name = None if output == STANDARD else output
        layout = None
        if name is not None:
            check_target(name)
            if is_typed(name):
                layout = Layout.of(self.schemas, details=self.details)
        tally = _Account(self.quiet)
        with self._page(report, report_rows) as page, _terminable():
            tally.page = page
            if name is not None and not self.source.standard and _is_file(name):
                self._in_parts(name, layout, part_rows, overwrite, tally)
            elif self.pool is not None:
                raise UsageError("--ray reads files and writes a file: name one with -o OUT")
            else:
                self._pipe(name, layout, tally)
        tally.close()
        return tally

    def _pipe(self, output: str | None, layout: Layout | None, tally: _Account) -> None:
        """Rows as soon as all before them are there; nothing to go on with."""
        sink: AbstractContextManager[Writer] = (
            open_sink(output)
            if layout is None and not _is_packed(output)
            else open_table(output or "", layout)
        )
        with sink as writer:
            extractor = self._load()
            records = (record for _, record in self.source.rows())
            stream = self._extract(extractor)(records)
            tally.start()
            with closing(in_order(self._tracked(stream, output, 0))) as items:
                for found in items:
                    item = replace(found, index=self.source.index(found.index))
                    item, row = as_row(item, details=self.details)
                    writer.write(row)
                    tally.add(item)
                    tally.add_row(row)

    def _in_parts(
        self, output: str, layout: Layout | None, part_rows: int, overwrite: bool, tally: _Account
    ) -> None:
        check_folder(output)
        parts = Parts(output)
        known = self._known(part_rows)
        if not overwrite:
            refuse_changes(parts, known)
        with self._engine() as engine:
            manifest = {**known, **engine.known}
            going_on = not overwrite and refuse_changes(parts, manifest)
            separable = not self.details and engine.separable
            job = Job(self.source, parts, part_rows, self.details, separable)
            with parts.opened(manifest, overwrite=overwrite):
                finished = job.finished_rows() if going_on else 0
                if finished and not self.quiet:
                    say(f"note: going on after {finished:,} finished rows, in {parts.name}")
                    if tally.page is not None:
                        say("note: the report shows the rows of this run only")
                tally.start()
                with _kept(parts), closing(engine.fill(job)) as stream:
                    for item in self._tracked(stream, output, finished):
                        tally.add(item)
                with _kept(parts), open_table(output, layout, scratch=parts.scratch) as writer:
                    for row in job.assemble(writer):
                        tally.add_row(row)
                parts.remove()

    @contextmanager
    def _engine(self) -> Iterator[_Engine]:
        """A model that is loaded: here, or by actors."""
        if self.pool is None:
            extractor = self._load()
            extract = self._extract(extractor)
            yield _Engine(*self.loaded(extractor), lambda job: job.fill(extract))
            return
        with connected(self.pool) as pool:
            work = shippable(self, pool)
            known, separable = on_ray.ask(work.facts, self.schemas, pool)
            load = partial(work.computing, known)
            yield _Engine(known, separable, lambda job: on_ray.fill(job, load, self.schemas, pool))

    def facts(self) -> tuple[dict[str, Any], bool]:
        """Of the model as it is loaded by the process that calls this: see `loaded`."""
        return self.loaded(self._load())

    def computing(self, known: Mapping[str, Any]) -> Extract:
        """What computes rows in the process that calls this.

        Raises ModelError if that has loaded something else than what is known.
        """
        extractor = self._load()
        written = json.loads(json.dumps(known))
        if found := fingerprint.differences(written, self.loaded(extractor)[0]):
            raise ModelError(
                f"{platform.node()} has loaded another model than the others: {'; '.join(found)}"
            )
        return self._extract(extractor)

    def _load(self) -> Extractor:
        extractor = options.load_extractor(self.model, self.device, self.dtype)
        self._stream(extractor, ())  # so that schemas and settings are refused before all else
        return extractor

    def _extract(self, extractor: Extractor) -> Extract:
        def extract(records: Iterable[Record]) -> Iterator[Extraction[Any]]:
            return self._stream(extractor, records)

        if self.too_long == "error":
            return extract
        compiled = compiled_schemas(extractor, self.schemas, self.shown, self.settings)
        return fitted(
            extract,
            compiled,
            fits_model(extractor.model, compiled),
            self.shown,
            mixed=isinstance(self.schemas, Mapping),
            mode=self.too_long,
        )

    def _stream(self, extractor: Extractor, records: Iterable[Record]) -> Iterator[Extraction[Any]]:
        shown = self.shown
        with refused_settings():
            return extractor.stream(
                records,
                self.schemas,
                text=shown.text,
                id=shown.id,
                category=self.category,
                **self.settings,
            )

    def _tracked(self, stream: Any, output: str | None, finished: int) -> Any:
        """With progress, but not on a terminal that the rows themselves are going to."""
        if self.quiet or (output is None and sys.stdout.isatty()):
            return stream
        total = self.source.count()
        return track(stream, total=None if total is None else max(0, total - finished))

    def _page(self, name: str | None, most_rows: int) -> AbstractContextManager[Report | None]:
        title = "stdin" if self.source.standard else Path(self.source.files[0]).name
        return nullcontext() if name is None else open_report(name, title, most_rows)

    def _known(self, part_rows: int) -> dict[str, Any]:
        """What rows depend on, as far as it is known before a model is loaded."""
        return {
            "version": fingerprint.version(),
            **fingerprint.of_files(self.source.files),
            **fingerprint.of_schemas(self.schemas),
            "examples": fingerprint.of_file(self.examples),
            "text": None if self.shown.text is None else list(self.shown.text),
            "id": self.shown.id,
            "category": self.category,
            "limit": self.source.limit,
            "shard": str(self.source.shard),
            "part rows": part_rows,
            "details": self.details,
            "on too long": self.too_long,
        }

    def loaded(self, extractor: Extractor) -> tuple[dict[str, Any], bool]:
        """The rest, and whether a row is the same whichever others it is computed with."""
        first = self.schemas
        named = first if isinstance(first, Mapping) else {"": first}
        config = self.settings["decoding"] or extractor.decoding
        found = fingerprint.of_decoding(config)
        for name, schema in named.items():
            own = settings_of(schema)
            format = self.settings["format"] or own.format or extractor.format or "json"
            template = self.settings["template"] or own.template or extractor.template
            found[f"format {name}".strip()] = fingerprint.of_format(format)
            found[f"template {name}".strip()] = fingerprint.of_template(template or "verbatim")
        place = options.model_place(self.model)
        known = {
            **found,
            **fingerprint.of_calibration(extractor.calibration),
            "model": fingerprint.of_model(place, extractor.model.model),
            "dtype": str(extractor.model.dtype).removeprefix("torch."),
        }
        return known, (config.documents, config.slots) == ("isolated", "independent")


@dataclass(frozen=True, slots=True)
class _Engine:
    """What computes the rows of a job. known, separable: see `Work.loaded`."""

    known: Mapping[str, Any]
    separable: bool
    fill: Callable[[Job], Generator[Extraction[Any], None, None]]


class _Account(Tally):
    """Counts, and says on stderr what there is to say of rows."""

    def __init__(self, quiet: bool) -> None:
        super().__init__()
        self.page: Report | None = None
        self._quiet = quiet
        self._told = 0
        self._ids = Duplicates()

    def add(self, item: Extraction[Any]) -> None:
        self.add_cost(item)
        if self.page is not None:
            self.page.add(item)
        if item.value is None:
            self._told += 1
            if self._told <= _MOST_REPORTS:
                name = "" if item.document_id is None else f" ({item.document_id})"
                say(f"failed: record {item.index}{name}: {reasons(item.errors)}")
            elif self._told == _MOST_REPORTS + 1:
                say("failed: more records, whose rows say why")

    def add_row(self, row: Mapping[str, Any]) -> None:
        super().add_row(row)
        self._ids.add(row["id"])

    def close(self) -> None:
        if self._quiet:
            return
        if warning := self._ids.warning():
            say(f"note: {warning}")
        for line in self.kinds():
            say(line)
        say(self.summary())


def _is_file(name: str) -> bool:
    """Whether it can be put in place of what is there; a device or a pipe cannot."""
    return is_remote(name) or local_path(name).is_file() or not local_path(name).exists()


def _is_packed(name: str | None) -> bool:
    return name is not None and (is_remote(name) or name.endswith((".gz", ".zst")))


@contextmanager
def _kept(parts: Parts) -> Iterator[None]:
    """Says of what ends a run where its rows are."""
    try:
        yield
    except BaseException as error:
        if not isinstance(error, GeneratorExit) and parts.hold_rows():
            error.add_note(
                f"finished rows are kept in {parts.name}: the same command goes on from there"
            )
        raise


@contextmanager
def _terminable() -> Iterator[None]:
    """SIGTERM ends the run as an interrupt does: by an exception that cleans up behind it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(*_: object) -> None:
        raise SystemExit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except SystemExit as error:
        say("terminated")
        for note in getattr(error, "__notes__", ()):
            say(note)
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
