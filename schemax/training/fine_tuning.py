"""Fine-tuning: reads annotated documents, writes a model's folder with its calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from schemax.attributes import settings_of
from schemax.base.calibration import FILE, write_calibration
from schemax.base.messages import say
from schemax.base.trained import EXAMPLES, note_trained
from schemax.config import DecodingConfig, decoding_name
from schemax.errors import InputError
from schemax.evaluation.calibrate import FEWEST, calibrate
from schemax.evaluation.datasets import Dataset, declared_schemas
from schemax.evaluation.examples import Example, read_examples
from schemax.evaluation.labelled_schemas import as_declared
from schemax.evaluation.shots import NONE, Shots, shots_for
from schemax.extraction.extractor import Extractor
from schemax.training.card import digest, trained_with
from schemax.training.distillation import Labelling
from schemax.training.run import TrainingJob, TrainingResult, run_training
from schemax.training.settings import TrainingSettings
from schemax.training.training_examples import left_to_train, read_training_examples, split_examples


@dataclass(frozen=True, slots=True)
class FineTuning:
    """Data, labels and settings of a fine-tuning.

    test: documents that are left out of training, unless keep_overlap. shots: a file of examples;
    None: the documents to train on. count: prompts show so many of them.
    decoding: the decoding that the model is trained for; None: as it was trained before.
    """

    data: Dataset
    labelling: Labelling
    settings: TrainingSettings
    decoding: DecodingConfig | None
    test: Path | None = None
    keep_overlap: bool = False
    format: str | None = None
    template: str | None = None
    shots: Path | None = None
    count: int | None = None

    def run(
        self,
        out: Path,
        load: Callable[[], tuple[Extractor, str]],
        again: Callable[[str], Extractor],
        *,
        is_first: bool,
        **running: Any,
    ) -> TrainingResult:
        """Trains into a folder, and calibrates the model there.

        load: returns the model and its name. again: loads a teacher, and the trained model.
        is_first: True in one of several processes. running: further arguments of `run_training`.
        """
        test, file = self.test or self.data.test, self.data.file
        annotated = read_training_examples(file, test, keep_overlap=self.keep_overlap)
        schemas = declared_schemas(self.data.schemas, annotated, self.data.language)
        annotated = as_declared(annotated, schemas)
        shots = self._shots(annotated, schemas, test)
        pairs: Any = {} if shots is None else shots.of(schemas)
        extractor, name = load()
        named = {"format": self.format, "template": self.template, "decoding": self.decoding}
        note_trained(name, extractor, named, self.shots or self.count)
        settings = replace(self.settings, decoding=self.decoding or extractor.defaults.decoding)
        compiled = {
            category: extractor.compile(
                schema,
                **named | {"decoding": settings.decoding, "examples": pairs.get(category, ())},
            )
            for category, schema in schemas.items()
        }
        shown = {"format": self.format, "template": self.template, "examples": pairs or None}
        examples = self.labelling.examples(annotated, schemas, extractor, again, shown)
        if shots is not None:
            annotated, examples = left_to_train(shots, annotated, examples, file)
        templates = {
            category: self.template or settings_of(schema).template or extractor.defaults.template
            for category, schema in schemas.items()
        }
        trained, source = trained_with(compiled, templates)
        work = TrainingJob(
            extractor=extractor,
            name=name,
            compiled=compiled,
            examples=examples,
            template=source,
            trained=trained,
            options=shown | {"examples": pairs or ()},
            card=self._card(name, test, shots),
        )
        outcome = run_training(work, out, settings, **running)
        if is_first:
            if shots is not None:
                shots.write(out / EXAMPLES)
            (out / FILE).unlink(missing_ok=True)  # left by a run that is resumed
            if self.labelling.labels == "gold":
                _calibrate(out, annotated, schemas, work, settings, again, shown)
        return outcome

    def _shots(
        self, annotated: Sequence[Example], schemas: Mapping[str, Any], test: Path | None
    ) -> Shots | None:
        """Returns the examples that prompts show, without documents of `test`, or None."""
        none = self.count == 0 or str(self.shots) == NONE
        if none or (self.shots is None and self.count is None):
            return None
        file = self.shots
        read = Shots.among(annotated, self.data.file) if file is None else Shots.read(file, schemas)
        hidden = () if test is None else {example.text for example in read_examples(test)}
        return shots_for(read, schemas, self.data, hidden=hidden, file=test, count=self.count)

    def _card(self, name: str, test: Path | None, shots: Shots | None) -> dict[str, Any]:
        """Returns the card's entries on data and labels."""
        labelling = self.labelling
        teacher = Path(labelling.teacher) if labelling.teacher else None
        files = {"train": self.data.file, "test": test, "teacher": teacher}
        card: dict[str, Any] = {
            "base_model": name,
            "data": {
                key: {"file": path.name, "sha256": digest(path)}
                for key, path in files.items()
                if path is not None and path.is_file()
            },
            "schemas": self.data.schemas or "made of the annotations",
            "labels": labelling.labels,
            "teacher": labelling.teacher,
            "teacher_decoding": labelling.decoding and decoding_name(labelling.decoding),
            "output_format": self.format,
        }
        if shots is not None:
            file = self.shots
            read = {} if file is None else {"file": file.name, "sha256": digest(file)}
            names = {category: [name for name, _ in rows] for category, rows in shots.rows.items()}
            card["examples"] = read | {"shown": names}
        return card


def _calibrate(
    out: Path,
    annotated: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    work: TrainingJob,
    settings: TrainingSettings,
    load: Callable[[str], Extractor],
    shown: Mapping[str, Any],
) -> None:
    """Writes a calibration on the held-out documents into a folder, if they suffice."""
    if settings.decoding.layout == "autoregressive" or not settings.held_out:
        return
    _, kept_back = split_examples(work.examples, settings.held_out, settings.seed)
    texts = {kept.text for kept in kept_back}
    pairs = zip(annotated, work.examples, strict=True)
    held_out = [document for document, example in pairs if example.text in texts]
    labelled = sum(len(document.attributes) for document in held_out)
    if labelled < FEWEST:
        say(f"not calibrated: {labelled} held-out labels are too few; {FEWEST} are needed")
        return
    try:
        fit = calibrate(
            load(str(out)),
            held_out,
            schemas,
            (shown["format"],),
            decoding=work.trained.decoding,
            template=shown["template"],
            shots=shown["examples"],
        )
    except InputError as error:
        say(f"not calibrated: {error}")
        return
    write_calibration(fit.calibration, out)
    if fit.remark is not None:
        say(f"note: {fit.remark}")
    say(str(fit))
