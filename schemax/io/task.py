"""`Task`: schemas, options and model of a run, for any process that computes rows."""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from schemax.base.process import frozen_heap
from schemax.base.resources import version
from schemax.compiler import CompiledSchema
from schemax.config import LEFT_TO_MODELS, resolve_decoding
from schemax.errors import ModelError
from schemax.extraction.cascade import Further
from schemax.extraction.documents import Options, RecordFields
from schemax.extraction.extractor import Extractor
from schemax.io import fingerprint
from schemax.io.columns import Schemas, named_schemas
from schemax.io.long_documents import Fitted, TooLong, fits_model
from schemax.io.records import Record
from schemax.io.resumable import ResumableRun
from schemax.io.rows import Details, Extract, RowForm
from schemax.results import Extraction
from schemax.servers.remote import RemoteModel


@dataclass(frozen=True, slots=True)
class Task:
    """The schemas, options and model of a run.

    options: those of `Extractor.stream`.
    loading: the options of loading; adapter and quantization count for the fingerprint.
    load: loads the model.
    place: its folder or Hub id, None for a model in memory alone.
    details: of every field.
    keep: keys of a record that are copied to its row, see `RowForm`.
    """

    schemas: Schemas
    options: Options
    load: Callable[[], Extractor]
    place: str | Path | None
    details: Details = False
    on_too_long: TooLong = "error"
    keep: tuple[str, ...] = ()
    loading: Mapping[str, Any] = field(default_factory=dict)

    @property
    def shown(self) -> RecordFields:
        """The roles of a record's keys."""
        return RecordFields.of_options(self.options)

    @property
    def form(self) -> RowForm:
        """The form of the rows."""
        return RowForm.of(self.schemas, self.shown, self.details, self.keep)

    def loaded(self) -> Extractor:
        """Loads the model, and checks that it takes the schemas and options.

        Raises as `Extractor.stream` does before it reads the first record.
        """
        extractor = self.load()
        self.stream(extractor, ())
        return extractor

    def compiled(self, extractor: Extractor) -> Mapping[str, CompiledSchema]:
        """The schemas as a stream compiles them, by category; a single schema under ""."""
        return extractor.extractions((), self.schemas, **self.options).compiled

    def stream(self, extractor: Extractor, records: Iterable[Record]) -> Iterator[Extraction[Any]]:
        return extractor.stream(records, self.schemas, **self.options)

    def extract(self, extractor: Extractor) -> Extract:
        """A function that extracts, also from documents that are too long."""
        extract = partial(self.stream, extractor)
        if self.on_too_long == "error":
            return extract
        compiled = self.compiled(extractor)
        fits = fits_model(extractor.model, compiled)
        return Fitted(extract, compiled, fits, self.shown, self.on_too_long)

    def fingerprint(self) -> dict[str, Any]:
        """The settings that rows depend on, as far as they are known before a model is loaded."""
        shown = self.shown
        return {
            "version": version(),
            **fingerprint.of_schemas(self.schemas),
            "examples": fingerprint.of_examples(self.options.get("examples")),
            "text": None if shown.text is None else list(shown.text),
            "id": shown.id,
            "category": self.options.get("category"),
            "html": shown.html,
            "details": self.details,
            "keep": list(self.keep),
            "on too long": self.on_too_long,
        }

    def model_fingerprint(self, extractor: Extractor) -> dict[str, Any]:
        """The settings that rows depend on and that only a model tells."""
        decoding = self.options.get("decoding")
        config = extractor.defaults.decoding if decoding is None else resolve_decoding(decoding)
        settings = fingerprint.of_settings(config, extractor.defaults.calibration)
        by_setting: dict[str, dict[str, Any]] = {name: {} for name in LEFT_TO_MODELS}
        for name, schema in named_schemas(self.schemas).items():
            format = self.options.get("format") or extractor.defaults.named_format(schema) or "json"
            template = self.options.get("template")
            decoded, template = extractor.defaults.decoding_and_template(schema, config, template)
            format_name, template_digest = fingerprint.of_prompt(format, template)
            settings[f"format {name}".strip()] = format_name
            settings[f"template {name}".strip()] = template_digest
            for setting, values in by_setting.items():
                values[name] = getattr(decoded, setting)
        for setting, values in by_setting.items():
            several = set(values.values())
            settings[f"decoding {setting}"] = several.pop() if len(several) == 1 else values
        settings["prompt"] = fingerprint.of_prompt_file(extractor.defaults.prompt)
        if extractor.further is not None:
            settings |= self._next_fingerprint(extractor.further)
        if isinstance(extractor.model, RemoteModel):
            return settings | extractor.model.fingerprint()
        model = extractor.model.model
        settings["model"] = (
            fingerprint.of_weights(model, extractor.tokenizer, extractor.eos_ids)
            if self.place is None
            else fingerprint.of_model(self.place, model)
        )
        adapter = self.loading.get("adapter")
        settings["adapter"] = None if adapter is None else fingerprint.of_model(adapter, model)
        settings["quantization"] = self.loading.get("quantization")
        return settings | {"dtype": str(extractor.model.dtype).removeprefix("torch.")}

    def _next_fingerprint(self, further: Further) -> dict[str, Any]:
        """The settings of the next model of a cascade, and when it is asked."""
        extractor, *when = further
        task = replace(self, place=extractor.place, loading=extractor.loading)
        own = {f"next {name}": value for name, value in task.model_fingerprint(extractor).items()}
        names = "escalate below", "read below", "keeps promised values"
        return own | dict(zip(names, when, strict=True))

    def facts(self) -> dict[str, Any]:
        """The `model_fingerprint` in the calling process."""
        return self.model_fingerprint(self.loaded())

    def computing(self, expected: Mapping[str, Any]) -> Extract:
        """A function that extracts in the calling process.

        Raises ModelError if the process loads another model than the expected one.
        """
        extractor = self.loaded()
        written = json.loads(json.dumps(expected))
        if changes := fingerprint.differences(written, self.model_fingerprint(extractor)):
            raise ModelError(
                f"{platform.node()} loaded a different model from the others: {'; '.join(changes)}"
            )
        return self.extract(extractor)


@dataclass(frozen=True, slots=True)
class Backend:
    """A backend that computes a run's rows: a model in this process, or actors elsewhere.

    fingerprint: see `Task.model_fingerprint`.
    fill: computes and keeps missing rows, as `ResumableRun.fill` does.
    """

    fingerprint: Mapping[str, Any]
    fill: Callable[[ResumableRun], Generator[Extraction[Any], None, None]]


@contextmanager
def in_process(task: Task) -> Iterator[Backend]:
    """Yields a backend with a model in this process."""
    extractor = task.loaded()
    extract = task.extract(extractor)
    backend = Backend(task.model_fingerprint(extractor), lambda run: run.fill(extract))
    with frozen_heap():
        yield backend
