"""`schemax calibrate`: fits a model's confidences to annotated documents."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from operator import itemgetter
from pathlib import Path
from typing import Any

from schemax.base.calibration import FILE, PROMISE_COLUMNS, read_calibration, write_calibration
from schemax.base.messages import counted, say
from schemax.base.options import option
from schemax.base.resources import OURS, resource_dir
from schemax.base.terminal import show, table
from schemax.base.trained import SEEN, note_trained
from schemax.commands import options
from schemax.commands.options import UsageError, argument, plain_warnings, verb
from schemax.extraction.extractor import Extractor

_FEW = 300

# F1 by the least probability of values.
_COLUMNS: dict[str, Callable[[Any], Any]] = {
    "min_probability": lambda point: f"{point.min_probability:.2f}",
    "F1": lambda point: point.f1,
    "strict F1": lambda point: point.strict_f1,
    "": lambda point: "as good as the best" if point.alike else "",
}
_PROMISED: dict[str, Callable[[Any], Any]] = {
    name: itemgetter(place) for place, name in enumerate((*PROMISE_COLUMNS, ""))
}


class Args(options.Loading, options.Prompt, options.Labels):
    """Options"""

    data: Path = argument("INPUT")
    """Annotated documents, as `evaluate` reads them, that the model was not trained on. In a
    folder: train.jsonl, and attributes.json if present."""
    model: str | None = option("-m FOLDER")
    """The model's folder, into which calibration.json is written. Default: $SCHEMAX_MODEL."""
    format: str | None = None
    """json, yaml or xml, or several separated by commas, fitted together. Default: the schema's,
    else json."""
    shots: int | None = option("N", min=0)
    """The first so many of --examples of every category. Default: all."""
    precision: float | None = option("P", min=0.0, max=1.0)
    """Promise that this share of the values kept is right, such as 0.95: values whose confidence is
    below a threshold become null. At least 60 values of a field give it a threshold of its own."""


@verb
def calibrate(args: Args) -> None:
    """Fits confidences to how often values are right, and finds which values to leave out.

    Writes calibration.json into the model's folder: a temperature and a bias for confidences, and
    the probability below which a value is taken for null. A few hundred annotated values will do.
    Leaves out documents that the model was trained on, and keeps an earlier calibration that is
    better. With --precision, the threshold is on confidence instead, and proven.
    """
    folder = _folder(args.model)
    formats = [None] if args.format is None else [name.strip() for name in args.format.split(",")]
    for name in formats:
        settings = replace(args, format=name).settings()
    if args.shots is not None and args.examples is None:
        raise UsageError("--shots requires --examples")
    if args.precision in (0, 1):
        raise UsageError("--precision takes a number above 0 and below 1")
    labelled = args.dataset(args.data, "train")
    # Imported here because they import torch, which takes seconds.
    from schemax.evaluation.calibrate import calibrate_on
    from schemax.evaluation.seen import add_seen, read_seen

    file, seen = folder / FILE, folder / SEEN
    earlier = read_calibration(file) if file.is_file() else None

    def load() -> Extractor:
        extractor = replace(args, model=str(folder)).extractor(args.prompt)
        note_trained(str(folder), extractor, settings | {"format": args.format}, args.examples)
        return extractor

    with plain_warnings():
        fit = calibrate_on(
            labelled,
            load,
            formats,
            limit=args.limit,
            schema_examples=args.schema_examples,
            shots=args.examples,
            count=args.shots,
            earlier=earlier,
            precision=args.precision,
            decoding=settings["decoding"],
            template=args.template,
        )
    if args.precision is None:
        show(table(fit.curve, _COLUMNS, left=0))
        if earlier is not None and earlier.promise is not None and not fit.is_earlier:
            say("note: the new calibration promises no precision; --precision does")
    elif (promise := fit.calibration.promise) is not None:
        show(table(promise.rows(), _PROMISED, left=1))
    if fit.before.values < _FEW:
        few = counted(fit.before.values, "value")
        say(f"note: a fit to {few} is noisy; use {_FEW} or more")
    if fit.remark is not None:
        say(f"note: {fit.remark}")
    if fit.losses is not None:
        before, after = fit.losses
        kept = "kept, since" if fit.is_earlier else "replaced, since"
        say(
            f"note: the earlier calibration is {kept} on these documents its log loss is "
            f"{before:.4f} and that of a new one {after:.4f}, fitted on other documents"
            + (f"; delete {file} to replace it" if fit.is_earlier else "")
        )
    if args.precision is not None or not fit.is_earlier:
        write_calibration(fit.calibration, folder)
        add_seen(folder, read_seen(seen if seen.is_file() else None), calibrated=fit.examples)
    say(f"{file}: {fit}")


def _folder(model: str | None) -> Path:
    name = model or os.environ.get("SCHEMAX_MODEL")
    if not name:
        raise UsageError("name the model's folder with --model")
    place = Path(options.model_place(name))
    if place.is_file():  # a GGUF file, which has its calibration beside it
        return Path(name).parent
    if place in map(resource_dir, OURS):
        raise UsageError(
            f"{name} belongs to schemax, and {FILE} is written into the model's folder; copy "
            f"{place} and name the copy"
        )
    if not place.is_dir():
        raise UsageError(
            f"{name} is not a local folder, and {FILE} is written into the model's folder; "
            f"download the model first (hf download {name} --local-dir FOLDER) and name that folder"
        )
    return Path(name)
