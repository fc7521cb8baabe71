"""Fine-tuning: reads annotated documents, writes a model's folder with its calibration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from schemax.attributes import settings_of
from schemax.base.calibration import FILE, write_calibration
from schemax.base.messages import counted, say
from schemax.base.trained import EXAMPLES, note_trained
from schemax.config import DecodingConfig, decoding_name
from schemax.errors import InputError
from schemax.evaluation.calibrate import FEWEST, calibrate
from schemax.evaluation.datasets import Dataset, sha256_of
from schemax.evaluation.examples import Example, read_examples
from schemax.evaluation.labelled_schemas import note_misfits
from schemax.evaluation.seen import add_seen, read_seen
from schemax.evaluation.shots import NONE, Shots, shots_for
from schemax.extraction.extractor import Extractor
from schemax.training.card import trained_with
from schemax.training.distillation import LabelSource, labelled_examples
from schemax.training.run import ADAPTER, TrainingJob, TrainingResult, run_training
from schemax.training.settings import TrainingSettings
from schemax.training.training_examples import left_to_train, read_training_examples, split_examples


def fine_tune(
    out: Path,
    data: Dataset,
    settings: TrainingSettings,
    load: Callable[[], tuple[Extractor, str]],
    again: Callable[[str], Extractor],
    *,
    decoding: DecodingConfig | None = None,
    labels: LabelSource = "gold",
    teacher: str | None = None,
    teacher_decoding: DecodingConfig | None = None,
    test: Path | None = None,
    keep_overlap: bool = False,
    format: str | None = None,
    template: str | None = None,
    shots: Path | None = None,
    count: int | None = None,
    is_first: bool = True,
    **running: Any,
) -> TrainingResult:
    """Trains a model on annotated documents into a folder, and calibrates it there.

    load: returns the model and its name.
    again: loads a teacher, and the trained model.
    decoding: the decoding that the model is trained for; None: as it was trained before.
    labels, teacher, teacher_decoding: see `labelled_examples`.
    test: documents that are left out of training, unless keep_overlap.
    shots: a file of examples; None: the documents to train on.
    count: prompts show so many of them.
    is_first: True in one of several processes.
    running: further arguments of `run_training`.
    """
    test = test or data.test
    annotated = read_training_examples(data.file, test, keep_overlap=keep_overlap)
    schemas = data.declared_schemas(annotated)
    annotated = data.declared(annotated, schemas)
    if labels == "gold":
        note_misfits(annotated, schemas)
    shown = None
    if not (count == 0 or str(shots) == NONE or (shots is None and count is None)):
        read = Shots.among(annotated, data.file) if shots is None else Shots.read(shots, schemas)
        hidden = () if test is None else {example.text for example in read_examples(test)}
        shown = shots_for(read, schemas, data, hidden=hidden, file=test, count=count)
    pairs: Any = {} if shown is None else shown.of(schemas)
    extractor, name = load()
    named: dict[str, Any] = {"format": format, "template": template, "decoding": decoding}
    note_trained(name, extractor, named, shots or count)
    settings = replace(settings, decoding=decoding or extractor.defaults.decoding)
    named["decoding"] = settings.decoding
    compiled = {
        category: extractor.compile(schema, **named, examples=pairs.get(category, ()))
        for category, schema in schemas.items()
    }
    options = {"format": format, "template": template, "examples": pairs or None}
    source = labels, teacher, teacher_decoding
    examples = labelled_examples(annotated, schemas, extractor, options, again, *source)
    seen = [*annotated, *(shown.examples if shown else ())]
    if shown is not None:
        annotated, examples = left_to_train(shown, annotated, examples, data.file)
    templates = {
        category: template or settings_of(schema).template or extractor.defaults.template
        for category, schema in schemas.items()
    }
    trained, text = trained_with(compiled, templates)
    files = {"train": data.file, "test": test, "teacher": Path(teacher) if teacher else None}
    card: dict[str, Any] = {
        "base_model": name,
        "data": {
            key: {"file": path.name, "sha256": sha256_of(path)}
            for key, path in files.items()
            if path is not None and path.is_file()
        },
        "schemas": data.schemas or "made of the annotations",
        "labels": labels,
        "teacher": teacher,
        "teacher_decoding": teacher_decoding and decoding_name(teacher_decoding),
        "output_format": format,
    }
    if shown is not None:
        of_file = {} if shots is None else {"file": shots.name, "sha256": sha256_of(shots)}
        names = {category: [name for name, _ in rows] for category, rows in shown.rows.items()}
        card["examples"] = of_file | {"shown": names}
    job = TrainingJob(
        extractor=extractor,
        name=name,
        compiled=compiled,
        examples=examples,
        template=text,
        trained=trained,
        options=options | {"examples": pairs or ()},
        card=card,
    )
    outcome = run_training(job, out, settings, **running)
    if is_first:
        if shown is not None:
            shown.write(out / EXAMPLES)
        (out / FILE).unlink(missing_ok=True)  # left by a run that is resumed
        known = read_seen(extractor.trained.seen)
        for folder in filter(Path.is_dir, (out, out / ADAPTER)):
            add_seen(folder, known, trained=seen)
        if labels == "gold":
            _calibrate(out, annotated, schemas, job, settings, again, options)
    return outcome


def _calibrate(
    out: Path,
    annotated: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    job: TrainingJob,
    settings: TrainingSettings,
    load: Callable[[str], Extractor],
    shown: Mapping[str, Any],
) -> None:
    """Writes a calibration on the held-out documents into a folder, if they suffice."""
    if settings.decoding.layout == "autoregressive" or not settings.held_out:
        return
    _, kept_back = split_examples(job.examples, settings.held_out, settings.seed)
    texts = {kept.text for kept in kept_back}
    pairs = zip(annotated, job.examples, strict=True)
    held_out = [document for document, example in pairs if example.text in texts]
    labelled = sum(len(document.attributes) for document in held_out)
    if labelled < FEWEST:
        few = counted(labelled, "held-out label is", "held-out labels are")
        say(f"not calibrated: {few} too few; {FEWEST} are needed")
        return
    try:
        fit = calibrate(
            load(str(out)),
            held_out,
            schemas,
            (shown["format"],),
            decoding=job.trained.decoding,
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
