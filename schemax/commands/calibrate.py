"""`schemax calibrate`: fits a model's confidences to annotated documents."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemax.calibration import FILE, write_calibration
from schemax.commands import options
from schemax.commands.console import UsageError, listed, plain_warnings, say, show, table
from schemax.commands.datasets import as_shown, dataset, schemas_for
from schemax.commands.few_shot import Shots
from schemax.commands.option_groups import argument, grouped, option
from schemax.commands.options import LoadingOptions
from schemax.commands.prompted import prompted
from schemax.config import DecodingConfig, check_numbers
from schemax.evaluation.examples import read_examples
from schemax.evaluation.schemas import as_declared
from schemax.messages import counted

if TYPE_CHECKING:
    from schemax.evaluation.calibrate import Fit

_FEW = 300


@grouped
def calibrate(
    data: Path = argument(
        "Annotated documents, as `evaluate` reads them, that the model was not trained on. In a "
        "folder: train.jsonl, and attributes.json if present.",
        "INPUT",
    ),
    model: str | None = option(
        "The model's folder, into which calibration.json is written. Default: $SCHEMAX_MODEL.",
        *("--model", "-m"),
        metavar="FOLDER",
    ),
    spec: options.Schemas = None,
    schema_examples: options.SchemaExamples = None,
    device: options.Device = "auto",
    dtype: options.Dtype = "auto",
    *,
    loading: LoadingOptions,
    format: str | None = option(
        "json, yaml or xml, or several separated by commas, fitted together. Default: the "
        "schema's, else json."
    ),
    null_penalty: str = option(
        "Taken off the logit of null: above 0, more fields get a value. Of several separated by "
        "commas, such as 0,0.5,1,2, the one of the best F1 is kept; documents are read with each.",
        default="0",
    ),
    template: options.Template = None,
    shown: options.Examples = None,
    shots: options.Shots = None,
    decoding: options.Decoding = None,
    prompt: options.Prompt = None,
    limit: options.Limit = None,
) -> None:
    """Fits confidences to how often values are right, and finds which values to leave out.

    Writes calibration.json into the model's folder: a temperature and a bias for confidences, the
    probability below which a value is taken for null, and the penalty of null. A few hundred
    annotated values will do.
    """
    folder = _folder(model)
    formats = [None] if format is None else [name.strip() for name in format.split(",")]
    for name in formats:
        settings = options.checked_settings(name, template, decoding)
    if shots is not None and shown is None:
        raise UsageError("--shots requires --examples")
    config: DecodingConfig | None = settings["decoding"]
    penalties = _penalties(null_penalty)
    found = dataset(data, "train", spec)
    everything = read_examples(found.file)
    examples = everything[:limit]
    _refuse_training_data(folder, found.file)
    # Imported here because it imports torch, which takes seconds.
    from schemax.evaluation.calibrate import calibrate

    with plain_warnings():
        extractor = options.load_extractor(
            str(folder), device, dtype, prompt=prompt, **loading.named()
        )
        if (config or extractor.decoding).layout == "autoregressive":
            raise UsageError("values of the autoregressive layout have no confidence to calibrate")
        schemas = schemas_for(found.schemas, examples, [extractor])
        examples = as_declared(examples, schemas)
        made = found.schemas is None
        extractor = prompted(extractor, schemas, examples, found.file, made=made)
        schemas = as_shown(schemas, found.schemas, examples, extractor, schema_examples)
        options.note_trained(str(folder), extractor, settings | {"format": format}, shown)
        prompts = None
        if shown is not None:
            there = Shots.read(shown, schemas)
            there = there.without({example.text for example in everything}, found.file)
            if shots is not None:
                there.note_lacking(shots)
                there = there.first(shots)
            if made:
                there = there.asked_by(schemas)
            prompts = there.of(schemas)
        fit = calibrate(
            extractor,
            examples,
            schemas,
            formats,
            null_penalties=penalties,
            decoding=config,
            template=template,
            shots=prompts,
            show_progress=True,
        )
    write_calibration(fit.calibration, folder)
    # F1 by the probability below which values are left out.
    columns: dict[str, Callable[[Any], Any]] = {
        "min_probability": lambda point: f"{point.min_probability:.2f}",
        "F1": lambda point: point.f1,
        "strict F1": lambda point: point.strict_f1,
        "": lambda point: "as good as the best" if point.alike else "",
    }
    show(table(fit.curve, columns, left=0))
    if fit.before.values < _FEW:
        few = counted(fit.before.values, "value")
        say(f"note: a fit to {few} is noisy; use {_FEW} or more")
    if fit.remark is not None:
        say(f"note: {fit.remark}")
    say(f"{folder / FILE}: {calibration_line(fit)}")


def calibration_line(fit: Fit) -> str:
    """What was fitted, on how much, and what it does to the calibration error."""
    found = fit.calibration
    penalty = f", null_penalty {found.null_penalty:g}" if found.null_penalty else ""
    return (
        f"temperature {found.temperature:.3f}, bias {found.bias:+.3f}, min_probability "
        f"{found.min_probability:.3f}{penalty}, fitted on {counted(fit.before.values, 'value')} of "
        f"{counted(fit.products, 'document')} (ECE {fit.before.ece:.3f} -> {fit.after.ece:.3f})"
    )


def _penalties(text: str) -> list[float]:
    try:
        found = [float(one) for one in listed(text)]
        for penalty in found:
            check_numbers({"null_penalty": penalty})
    except ValueError as error:
        raise UsageError(f"--null-penalty {text}: {error}") from error
    if not found:
        raise UsageError("--null-penalty names no number; leave it out, or name one, such as 1")
    return found


def _folder(model: str | None) -> Path:
    name = model or os.environ.get("SCHEMAX_MODEL")
    if not name:
        raise UsageError("name the model's folder with --model")
    if Path(options.model_place(name)).is_file():  # a GGUF file, beside which it is found
        return Path(name).parent
    if not Path(options.model_place(name)).is_dir():
        raise UsageError(
            f"{name} is not a local folder, and {FILE} is written into the model's folder; "
            f"download the model first (hf download {name} --local-dir FOLDER) and name that folder"
        )
    return Path(name)


def _refuse_training_data(folder: Path, file: Path) -> None:
    """Raises UsageError for the model's training data: its confidences are too high there."""
    from schemax.training.card import CARD, digest

    try:
        card = json.loads((folder / CARD).read_text("utf-8"))
        trained_on = card["settings"]["data"]["train"]["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return
    if file.is_file() and trained_on == digest(file):
        raise UsageError(
            f"{folder} was trained on {file}, where its confidences are too high; calibrate it on "
            "other documents"
        )
