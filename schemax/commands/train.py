"""`schemax train`: fine-tuning with the decoder's own positions and mask."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from schemax.commands import options
from schemax.commands import train_options as given
from schemax.commands.calibrate import calibration_line
from schemax.commands.datasets import dataset, declared_schemas
from schemax.commands.messages import UsageError, plain_warnings, refused_settings, say
from schemax.commands.option_groups import grouped
from schemax.compiler.prompt import template_source
from schemax.config import DecodingConfig, resolve_decoding
from schemax.errors import InputError, ModelError
from schemax.evaluation.examples import Example
from schemax.extractor import Extractor
from schemax.formats import get_format
from schemax.resources import resource_dir
from schemax.training.settings import TrainingSettings

if TYPE_CHECKING:
    from schemax.training.lessons import Lesson
    from schemax.training.run import Outcome, Work


@grouped
def train(
    data: given.Train,
    out: given.Out,
    source: given.DataOptions,
    labelling: given.LabelOptions,
    weights: given.WeightOptions,
    loop: given.LoopOptions,
    model: options.Model = None,
    device: given.Device = "auto",
    format: options.Format = None,
    template: options.Template = None,
    resume: given.Resume = False,
) -> None:
    """Fine-tunes a model for the way it will be decoded.

    Documents and their values are laid out with the positions and the mask that they have when
    they are decoded, and the loss is taken on values and what ends them. FOLDER is then a model
    like any other: `schemax evaluate TEST.jsonl --model FOLDER`.
    """
    _check_choices(labelling, device)
    settings = options.checked_settings(format, template, None)
    with refused_settings():
        chosen = TrainingSettings(
            decoding=resolve_decoding(weights.decoding),
            lora=weights.lora,
            keep_adapter=weights.keep_adapter,
            from_scratch=weights.from_scratch is not None,
            absent=labelling.absent,
            held_out=source.held_out,
            **asdict(loop),
        )
        teaching = resolve_decoding(labelling.teacher_decoding)
    _check_folder(out, resume)
    # Here and not above: it imports torch, which other commands need not wait for.
    from schemax.training.run import Work

    with plain_warnings(quiet=_rank() > 0):
        options.hush_libraries()
        from schemax.training.data import read_training_examples

        found = dataset(data, "train", source.schemas)
        test = source.test or found.test
        examples = read_training_examples(found.file, test, keep_overlap=source.keep_overlap)
        declared = declared_schemas(found.schemas, examples)
        loading = "cpu" if _num_processes() > 1 else device
        extractor, name = _load(model, weights.from_scratch, chosen, loading, template)
        compiled = {
            category: extractor.compile(
                schema, format=format, template=template, decoding=chosen.decoding
            )
            for category, schema in declared.items()
        }
        lessons = _lessons(examples, declared, extractor, labelling, teaching, loading, settings)
        prompt = extractor.template
        work = Work(
            extractor=extractor,
            name=name,
            compiled=compiled,
            lessons=lessons,
            template=None if prompt is None else template_source(str(prompt)),
            card=_card(found.file, test, found.schemas, labelling, name, format),
        )
        outcome = _run(work, out, chosen, device, resume)
        if _rank() == 0:
            test_data = data if data.is_dir() else Path("TEST.jsonl")
            _report(outcome, out, test_data, weights.decoding)
            _calibrate(out, examples, declared, work, chosen, labelling.labels, loading, settings)


def _check_choices(labelling: given.LabelOptions, device: str) -> None:
    labels, teacher = labelling.labels, labelling.teacher
    if labels not in ("gold", "teacher", "self"):
        raise UsageError(f"--labels takes gold, teacher or self, not {labels!r}")
    if (labels == "teacher") != (teacher is not None):
        raise UsageError("--labels teacher and --teacher go together")
    if device not in ("auto", "cpu", "cuda", "mps"):
        raise UsageError(
            f"--device takes auto, cpu, cuda or mps, not {device!r}; CUDA_VISIBLE_DEVICES chooses "
            "among GPUs, and `accelerate launch` uses several"
        )
    by_model = labels == "self" or (teacher is not None and not teacher.endswith(".jsonl"))
    if by_model and _num_processes() > 1:
        raise UsageError(
            "with several processes, each would predict the labels anew; write them with "
            "`schemax extract` first, and give the file as --teacher"
        )


def _check_folder(out: Path, resume: bool) -> None:
    if out.is_file():
        raise UsageError(f"{out} is a file; --out takes a folder")
    if not resume and _rank() == 0 and out.is_dir() and any(out.iterdir()):
        raise UsageError(
            f"{out} holds something already: --resume goes on with a run, or name another folder"
        )


def _load(
    model: str | None,
    from_scratch: str | None,
    settings: TrainingSettings,
    device: str,
    template: str | None,
) -> tuple[Extractor, str]:
    """The model, and what it is called."""
    named = model or os.environ.get("SCHEMAX_MODEL")
    if from_scratch is not None:
        from schemax.training.scratch import new_model

        made, tokenizer = new_model(from_scratch, named, settings.seed)
        return Extractor(made, tokenizer, template=template), from_scratch
    if named:
        options.check_folder(named)
    # Weights that adapters leave alone need no more precision than the pass itself.
    dtype = "bfloat16" if settings.bf16 and settings.lora is not None else "float32"
    name = named or str(resource_dir("embedded"))
    loaded = Extractor.from_pretrained(name, device=device, dtype=dtype, template=template)
    return loaded, named or "the embedded model"


def _lessons(
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    extractor: Extractor,
    labelling: given.LabelOptions,
    decoding: DecodingConfig,
    device: str,
    settings: Mapping[str, Any],
) -> list[Lesson]:
    from schemax.training.lessons import gold_lessons
    from schemax.training.teachers import lessons_by_model, lessons_by_predictions

    output = get_format(settings["format"] or "json")
    teacher = labelling.teacher
    if labelling.labels == "gold":
        return gold_lessons(examples, schemas, output)
    if teacher is not None and teacher.endswith(".jsonl"):
        if not Path(teacher).is_file():
            raise UsageError(f"no such file: {teacher}")
        return lessons_by_predictions(Path(teacher), examples, schemas, output)
    reader = extractor
    if teacher is not None:
        options.check_folder(teacher)
        reader = Extractor.from_pretrained(teacher, device=device)
    return lessons_by_model(
        reader,
        examples,
        schemas,
        output,
        decoding,
        template=settings["template"] if teacher is None else None,
        show_progress=True,
    )


def _card(
    data: Path,
    test: Path | None,
    schemas: str | None,
    labelling: given.LabelOptions,
    name: str,
    format: str | None,
) -> dict[str, Any]:
    from schemax.training.card import digest

    labels, teacher = labelling.labels, labelling.teacher
    files = {"train": data, "test": test, "teacher": Path(teacher) if teacher else None}
    return {
        "base_model": name,
        "data": {
            key: {"file": path.name, "sha256": digest(path)}
            for key, path in files.items()
            if path is not None and path.is_file()
        },
        "schemas": schemas or "made of the annotations",
        "labels": labels,
        "teacher": teacher,
        "teacher_decoding": None if labels == "gold" else labelling.teacher_decoding,
        "output_format": format,
    }


def _run(work: Work, out: Path, settings: TrainingSettings, device: str, resume: bool) -> Outcome:
    from schemax.training.run import run_training

    def tell(text: str) -> None:
        if _rank() == 0:
            say(text)

    try:
        return run_training(work, out, settings, tell=tell, device=device, resume=resume)
    except RuntimeError as error:
        # By name, since its class is torch's.
        if type(error).__name__ != "OutOfMemoryError":
            raise
        raise ModelError(
            "out of memory; a smaller --batch-tokens needs less, with a larger "
            "--gradient-accumulation for the same steps"
        ) from error


def _report(outcome: Outcome, out: Path, data: Path, decoding: str) -> None:
    loss = "" if outcome.held_out_loss is None else f", held-out loss {outcome.held_out_loss:.4f}"
    say(f"{out}: {outcome.steps:,} steps on {outcome.trained:,} products{loss}")
    say(f"next: schemax evaluate {data} --model {out} --decoding {decoding}")


def _calibrate(
    out: Path,
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    work: Work,
    settings: TrainingSettings,
    labels: str,
    device: str,
    given: Mapping[str, Any],
) -> None:
    """Leaves a calibration in the folder, fitted on the held-out products, where these can tell."""
    from schemax.calibration import FILE, write_calibration
    from schemax.training.calibrating import FEWEST, calibrate
    from schemax.training.run import split_lessons

    (out / FILE).unlink(missing_ok=True)  # of a run that is taken up again
    if labels != "gold" or settings.decoding.layout == "autoregressive" or not settings.held_out:
        return
    _, kept_back = split_lessons(work.lessons, settings.held_out, settings.seed)
    texts = {lesson.text for lesson in kept_back}
    lessons = zip(examples, work.lessons, strict=True)
    held_out = [example for example, lesson in lessons if lesson.text in texts]
    pairs = sum(len(example.attributes) for example in held_out)
    if pairs < FEWEST or not (out / "config.json").is_file():
        say(f"not calibrated: {pairs} held-out labels, and it takes {FEWEST}")
        return
    extractor = Extractor.from_pretrained(out, device=device)
    try:
        fit = calibrate(
            extractor,
            held_out,
            schemas,
            (given["format"],),
            decoding=settings.decoding,
            template=given["template"],
        )
    except InputError as error:
        say(f"not calibrated: {error}")
        return
    write_calibration(fit.calibration, out)
    say(calibration_line(fit))


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _num_processes() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))
