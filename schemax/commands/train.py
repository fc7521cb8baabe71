"""`schemax train`: fine-tuning with the decoder's own positions and mask."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel

from schemax.attributes import settings_of
from schemax.commands import options
from schemax.commands import train_options as given
from schemax.commands.calibrate import calibration_line
from schemax.commands.console import UsageError, listed, plain_warnings, refused_settings, say
from schemax.commands.datasets import dataset, declared_schemas
from schemax.commands.option_groups import argument, grouped, option
from schemax.commands.server_options import by_chat, is_address
from schemax.commands.train_examples import card_of, left_to_train, shots_for
from schemax.config import PRESETS, DecodingConfig, resolve_decoding
from schemax.errors import InputError
from schemax.evaluation.examples import Example
from schemax.evaluation.plots import check_picture
from schemax.evaluation.schemas import as_declared
from schemax.extractor import Extractor
from schemax.formats import get_format
from schemax.messages import counted
from schemax.training.settings import TrainingSettings

if TYPE_CHECKING:
    from schemax.training.run import TrainingJob
    from schemax.training.training_examples import TrainingExample


@grouped
def train(
    *,
    data: Path = argument(
        'JSONL with one {"category", "text", "attributes": {name: value}} per line, and optionally '
        '"id" and "description". In a folder: train.jsonl, and test.jsonl and attributes.json if '
        "present.",
        "TRAIN.jsonl or FOLDER",
    ),
    out: Path = option(
        "Where the model goes, with its tokenizer, card and checkpoints.",
        *("--out", "-o"),
        default=MISSING,
        metavar="FOLDER",
        show_default=False,
    ),
    source: given.DataOptions,
    labelling: given.LabelOptions,
    weights: given.WeightOptions,
    loop: given.LoopOptions,
    records: given.RecordOptions,
    model: options.Model = None,
    device: Literal["auto", "cpu", "cuda", "mps"] = option(
        "CUDA_VISIBLE_DEVICES chooses among GPUs, and `accelerate launch` uses several.",
        default="auto",
    ),
    format: options.Format = None,
    template: options.Template = None,
    shown: options.Examples = None,
    shots: int | None = option(
        "The first so many of --examples, else of TRAIN, of every category stand in its prompt. "
        "Default: all of --examples.",
        min=0,
        metavar="N",
        rich_help_panel=options.MODEL_PANEL,
    ),
    resume: bool = option("Resume from the last checkpoint.", "--resume", default=False),
) -> None:
    """Fine-tunes a model for the way it will be decoded.

    Documents and their values are laid out with the positions and the mask that they have when
    they are decoded, and the loss is taken on values and what ends them. FOLDER is then a model
    like any other: `schemax evaluate TEST.jsonl --model FOLDER`. Documents that prompts show as
    examples are not trained on; FOLDER/examples.jsonl holds them.
    """
    _check_labels(labelling)
    settings = options.checked_settings(format, template, None)
    targets = weights.lora_targets
    with refused_settings():
        decoding = weights.decoding and resolve_decoding(weights.decoding)
        chosen = TrainingSettings(
            **asdict(loop)
            | asdict(weights)
            | {
                "decoding": decoding or PRESETS["isolated"],
                "lora_targets": targets if targets == "all-linear" else tuple(listed(targets)),
                "from_scratch": weights.from_scratch is not None,
                "absent": labelling.absent,
                "held_out": source.held_out,
            }
        )
        named = labelling.teacher_decoding
        teaching = None if named is None else resolve_decoding(named)
    _check_folder(out, resume)
    if records.plot is not None:
        check_picture("--plot", records.plot)
    # Imported here because it imports torch, which takes seconds.
    from schemax.training.card import trained_with
    from schemax.training.curves import plot_training
    from schemax.training.run import TrainingJob, run_training

    with plain_warnings(quiet=_rank() > 0):
        options.hush_libraries()
        from schemax.training.training_examples import read_training_examples

        found = dataset(data, "train", source.schemas)
        test = source.test or found.test
        annotated = read_training_examples(found.file, test, keep_overlap=source.keep_overlap)
        declared = declared_schemas(found.schemas, annotated)
        annotated = as_declared(annotated, declared)
        prompts = shots_for(shown, shots, annotated, declared, found, test)
        pairs = {} if prompts is None else prompts.of(declared)
        loading = "cpu" if _num_processes() > 1 else device
        extractor, name = _load(model, weights.from_scratch, chosen, loading, template)
        options.note_trained(name, extractor, settings | {"decoding": decoding}, shown or shots)
        chosen = replace(chosen, decoding=decoding or extractor.decoding)
        compiled = {
            category: extractor.compile(
                schema,
                format=format,
                template=template,
                decoding=chosen.decoding,
                examples=pairs.get(category, ()),
            )
            for category, schema in declared.items()
        }
        settings |= {"examples": pairs or None}
        examples = _training_examples(
            annotated, declared, extractor, labelling, teaching, loading, settings
        )
        if prompts is not None:
            annotated, examples = left_to_train(prompts, annotated, examples, found)
        templates = {
            category: template or settings_of(schema).template or extractor.template
            for category, schema in declared.items()
        }
        trained, source_text = trained_with(compiled, templates)
        work = TrainingJob(
            extractor=extractor,
            name=name,
            compiled=compiled,
            examples=examples,
            template=source_text,
            trained=trained,
            options={"format": format, "template": template, "examples": pairs or ()},
            card=_card(found.file, test, found.schemas, labelling, name, format)
            | card_of(prompts, shown),
        )
        is_first = _rank() == 0
        outcome = run_training(
            work,
            out,
            chosen,
            tell=say if is_first else (lambda _: None),
            device=device,
            resume=resume,
            report_to=_trackers(records.report_to, out),
            keep_checkpoints=records.keep_checkpoints,
        )
        if is_first:
            if records.plot is not None:
                plot_training(outcome.history, records.plot)
            test_data = data if data.is_dir() else Path("TEST.jsonl")
            loss = outcome.held_out_loss
            held_out = "" if loss is None else f", held-out loss {loss:.4f}"
            if outcome.held_out_f1 is not None:
                held_out += f", F1 {outcome.held_out_f1:.3f}"
            if outcome.merged_f1 is not None:
                held_out += f", {outcome.merged_f1:.3f} with the adapters merged"
            parts = counted(outcome.steps, "step"), counted(outcome.trained, "document")
            say(f"{out}: {' on '.join(parts)}{held_out}")
            behind = ""
            if prompts is not None:
                prompts.write(out / options.EXAMPLES)
                behind = f" --examples {out / options.EXAMPLES}"
            say(f"next: schemax evaluate {test_data} --model {out}{behind}")
            _calibrate(out, annotated, declared, work, chosen, labelling.labels, loading, settings)


def _check_labels(labelling: given.LabelOptions) -> None:
    labels, teacher = labelling.labels, labelling.teacher
    if (labels == "teacher") != (teacher is not None):
        raise UsageError("--labels teacher requires --teacher, and the reverse")
    by_model = labels == "self" or (teacher is not None and not teacher.endswith(".jsonl"))
    if by_model and _num_processes() > 1:
        raise UsageError(
            "with several processes, each would predict the labels again; write them with "
            "`schemax extract` first, and give the file as --teacher"
        )


def _trackers(text: str | None, out: Path) -> list[str]:
    """The trackers that were named. Raises UsageError for those that are not installed."""
    from transformers.integrations import integration_utils

    names = listed(text or "")
    there = integration_utils.get_available_reporting_integrations()  # type: ignore[no-untyped-call]
    if lacking := [name for name in names if name not in there]:
        raise UsageError(
            f"--report-to: {', '.join(lacking)} cannot be used; install the package of that name. "
            f"Installed are: {', '.join(there) or 'none'}"
        )
    # Else among the checkpoints, which are removed in the end.
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(out / "runs"))
    return names


def _check_folder(out: Path, resume: bool) -> None:
    if out.is_file():
        raise UsageError(f"{out} is a file; --out takes a folder")
    if not resume and _rank() == 0 and out.is_dir() and any(out.iterdir()):
        raise UsageError(
            f"{out} is not empty: resume its run with --resume, or name another folder"
        )


def _load(
    model: str | None,
    from_scratch: str | None,
    settings: TrainingSettings,
    device: str,
    template: str | None,
) -> tuple[Extractor, str]:
    """The model, and what it is called."""
    if from_scratch is not None:
        from schemax.training.init_model import new_model

        named = model or os.environ.get("SCHEMAX_MODEL")
        made, tokenizer = new_model(from_scratch, named, settings.seed)
        return Extractor(made, tokenizer, template=template), from_scratch
    place = options.model_place(model)
    # Weights that adapters leave alone need no more precision than the pass itself.
    dtype = "bfloat16" if settings.bf16 and settings.lora is not None else "float32"
    if settings.quantization is not None and _num_processes() > 1:
        device = (
            f"cuda:{os.environ.get('LOCAL_RANK', '0')}"  # quantized weights stay where they are
        )
    loaded = Extractor.from_pretrained(
        place, device=device, dtype=dtype, template=template, quantization=settings.quantization
    )
    return loaded, place if isinstance(place, str) else "the embedded model"


def _training_examples(
    annotated: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    extractor: Extractor,
    labelling: given.LabelOptions,
    decoding: DecodingConfig | None,
    device: str,
    settings: Mapping[str, Any],
) -> list[TrainingExample]:
    from schemax.training.distillation import examples_by_model, examples_by_predictions
    from schemax.training.training_examples import gold_examples

    output = get_format(settings["format"] or extractor.format or "json")
    teacher = labelling.teacher
    if labelling.labels == "gold":
        return gold_examples(annotated, schemas, output)
    if teacher is not None and teacher.endswith(".jsonl"):
        if not Path(teacher).is_file():
            raise UsageError(f"no such file: {teacher}")
        return examples_by_predictions(Path(teacher), annotated, schemas, output)
    reader = extractor
    if teacher is not None and is_address(teacher):
        reader = by_chat(teacher)
    elif teacher is not None:
        reader = Extractor.from_pretrained(options.model_place(teacher), device=device)
    own = None if reader is extractor else reader.trained.decoding
    return examples_by_model(
        reader,
        annotated,
        schemas,
        get_format(reader.format or "json") if reader is not extractor else output,
        decoding or own or PRESETS["autoregressive"],
        template=settings["template"] if teacher is None else None,
        examples=settings["examples"],
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
        "teacher_decoding": labelling.teacher_decoding,
        "output_format": format,
    }


def _calibrate(
    out: Path,
    annotated: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    work: TrainingJob,
    settings: TrainingSettings,
    labels: str,
    device: str,
    given: Mapping[str, Any],
) -> None:
    """Writes a calibration into the folder, fitted on the held-out products if they suffice."""
    from schemax.calibration import FILE, write_calibration
    from schemax.evaluation.calibrate import FEWEST, calibrate
    from schemax.training.held_out import split_examples

    (out / FILE).unlink(missing_ok=True)  # of a run that is taken up again
    if labels != "gold" or settings.decoding.layout == "autoregressive" or not settings.held_out:
        return
    _, kept_back = split_examples(work.examples, settings.held_out, settings.seed)
    texts = {kept.text for kept in kept_back}
    pairs = zip(annotated, work.examples, strict=True)
    held_out = [one for one, example in pairs if example.text in texts]
    labelled = sum(len(one.attributes) for one in held_out)
    if labelled < FEWEST:
        say(f"not calibrated: {labelled} held-out labels are too few; it takes {FEWEST}")
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
            shots=given["examples"],
        )
    except InputError as error:
        say(f"not calibrated: {error}")
        return
    write_calibration(fit.calibration, out)
    if fit.remark is not None:
        say(f"note: {fit.remark}")
    say(calibration_line(fit))


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _num_processes() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))
