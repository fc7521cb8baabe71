"""`schemax train`: fine-tunes a model with the positions and the mask of decoding."""

from __future__ import annotations

import os
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Literal

from schemax.base.messages import counted, say
from schemax.base.options import option
from schemax.base.trained import EXAMPLES
from schemax.commands import options
from schemax.commands.options import (
    UsageError,
    argument,
    listed,
    plain_warnings,
    refused_settings,
    verb,
)
from schemax.config import resolve_decoding
from schemax.evaluation.reliability import check_picture
from schemax.extraction.extractor import Extractor
from schemax.training.settings import TrainingOptions, TrainingSettings


class Args(
    TrainingOptions,
    options.Model,
    options.Prompt,
    options.Labels,
    without="dtype prompt limit schema_examples",
):
    """Options"""

    data: Path = argument("TRAIN.jsonl or FOLDER")
    """JSONL with one {"category", "text", "attributes": {name: value}} per line, and optionally
    "id" and "description". In a folder: train.jsonl, and test.jsonl and attributes.json if
    present."""
    out: Path = option("-o FOLDER", default=MISSING, show_default=False)
    """Folder for the model, with its tokenizer, card and checkpoints."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """CUDA_VISIBLE_DEVICES chooses among GPUs, and `accelerate launch` uses several."""
    shots: int | None = option("N", min=0)
    """The first so many of --examples, else of TRAIN, of every category stand in its prompt.
    Default: all of --examples."""
    resume: bool = False
    """Resume from the last checkpoint."""

    """The data"""

    test: Path | None = option("TEST.jsonl")
    """Documents for a later test of the model: dropped from training."""
    keep_overlap: bool = False
    """Train on documents of --test too."""

    """The labels"""

    labels: Literal["gold", "teacher", "self"] = "gold"
    """gold: the annotations; teacher: predictions of --teacher; self: what the model itself writes,
    autoregressively."""
    teacher: str | None = option("MODEL, URL#MODEL or PREDICTIONS.jsonl")
    """A model, a server that is asked by chat, or rows that `extract` wrote for TRAIN."""
    teacher_decoding: str | None = None
    """Decoding of the teacher, or of the model itself. Default: as the teacher was trained by this
    command, else autoregressive."""

    """The weights"""

    decoding: str | None = None
    """Decoding that the model is trained for: isolated, paper or autoregressive, and changes:
    isolated:layout=gapped:slots=causal. Default: the one that MODEL was trained for by this
    command, else isolated."""
    from_scratch: str | None = option("CONFIG")
    """Start from random weights of this config.json, folder or Hub id; --model then names only the
    tokenizer."""
    lora_targets: str = option("NAME,NAME", default="all-linear")
    """Modules that get an adapter, by the ends of their names: q_proj,v_proj. Default: all linear
    layers but the output head."""

    """Records"""

    plot: Path | None = option("FILE")
    """Draw loss, F1, learning rate and tokens per second: a .svg, .png or .pdf file. Requires
    matplotlib (the extra plots)."""
    report_to: str | None = option("NAME,NAME")
    """Trackers that transformers knows and that are installed: tensorboard,wandb,mlflow."""
    keep_checkpoints: bool = False
    """Keep the checkpoints of a finished run, so that --resume can go on with more --epochs."""

    def settings_of_run(self) -> TrainingSettings:
        """Returns the settings of the run. Raises UsageError for inconsistent settings."""
        names = [setting.name for setting in fields(TrainingOptions)]
        targets = self.lora_targets
        with refused_settings():
            return TrainingSettings(
                decoding=resolve_decoding(self.decoding),
                lora_targets=targets if targets == "all-linear" else tuple(listed(targets)),
                from_scratch=self.from_scratch is not None,
                **{name: getattr(self, name) for name in names},
            )


@verb
def train(args: Args) -> None:
    """Fine-tunes a model for the way it will be decoded.

    Documents and their values are laid out with the positions and the mask that they have when
    they are decoded, and the loss is taken on values and what ends them. FOLDER is then a model
    like any other: `schemax evaluate TEST.jsonl --model FOLDER`. Documents that prompts show as
    examples are not trained on; FOLDER/examples.jsonl holds them.
    """
    out, is_first = args.out, _rank() == 0
    if (args.labels == "teacher") != (args.teacher is not None):
        raise UsageError("--labels teacher requires --teacher, and the reverse")
    options.checked_settings(args.format, args.template, None)
    settings = args.settings_of_run()
    with refused_settings():
        named = args.teacher_decoding
        teaching = None if named is None else resolve_decoding(named)
    _check_folder(out, args.resume)
    if args.plot is not None:
        check_picture("--plot", args.plot)
    # Imported here because they import torch, which takes seconds.
    from schemax.training.card import plot_training
    from schemax.training.distillation import is_by_model
    from schemax.training.fine_tuning import fine_tune

    if is_by_model(args.labels, args.teacher) and _num_processes() > 1:
        raise UsageError(
            "with several processes, each would predict the labels again; write them with "
            "`schemax extract` first, and give the file as --teacher"
        )
    loading = "cpu" if _num_processes() > 1 else args.device

    def load_teacher(name: str) -> Extractor:
        if options.is_address(name):
            return options.by_chat(name)
        return Extractor.from_pretrained(options.model_place(name), device=loading)

    with plain_warnings(quiet=not is_first):
        options.hush_libraries()
        outcome = fine_tune(
            out,
            args.dataset(args.data, "train"),
            settings,
            lambda: _loaded_extractor(args, settings, loading),
            load_teacher,
            decoding=settings.decoding if args.decoding else None,
            labels=args.labels,
            teacher=args.teacher,
            teacher_decoding=teaching,
            test=args.test,
            keep_overlap=args.keep_overlap,
            format=args.format,
            template=args.template,
            shots=args.examples,
            count=args.shots,
            is_first=is_first,
            tell=say if is_first else (lambda _: None),
            device=args.device,
            resume=args.resume,
            report_to=_trackers(args.report_to, out),
            keep_checkpoints=args.keep_checkpoints,
        )
    if not is_first:
        return
    if args.plot is not None:
        plot_training(outcome.history, args.plot)
    loss = outcome.held_out_loss
    held_out = "" if loss is None else f", held-out loss {loss:.4f}"
    if outcome.held_out_f1 is not None:
        held_out += f", F1 {outcome.held_out_f1:.3f}"
    if outcome.merged_f1 is not None:
        held_out += f", {outcome.merged_f1:.3f} with the adapters merged"
    parts = counted(outcome.steps, "step"), counted(outcome.trained, "document")
    say(f"{out}: {' on '.join(parts)}{held_out}")
    test = args.data if args.data.is_dir() else Path("TEST.jsonl")
    shown = out / EXAMPLES
    behind = f" --examples {shown}" if shown.is_file() else ""
    say(f"next: schemax evaluate {test} --model {out}{behind}")


def _trackers(text: str | None, out: Path) -> list[str]:
    """Returns the named trackers. Raises UsageError for trackers that are not installed."""
    from transformers.integrations import integration_utils

    names = listed(text or "")
    available = integration_utils.get_available_reporting_integrations()  # type: ignore[no-untyped-call]
    if lacking := [name for name in names if name not in available]:
        raise UsageError(
            f"--report-to: {', '.join(lacking)} cannot be used; install the package of that name. "
            f"Installed are: {', '.join(available) or 'none'}"
        )
    # The default would be among the checkpoints, which are removed at the end.
    os.environ.setdefault("TENSORBOARD_LOGGING_DIR", str(out / "runs"))
    return names


def _check_folder(out: Path, resume: bool) -> None:
    if out.is_file():
        raise UsageError(f"{out} is a file; --out takes a folder")
    if not resume and _rank() == 0 and out.is_dir() and any(out.iterdir()):
        raise UsageError(
            f"{out} is not empty: resume its run with --resume, or name another folder"
        )


def _loaded_extractor(args: Args, settings: TrainingSettings, device: str) -> tuple[Extractor, str]:
    """Returns the model and its name."""
    if args.from_scratch is not None:
        from schemax.training.models import new_model

        named = args.model or os.environ.get("SCHEMAX_MODEL")
        model, tokenizer = new_model(args.from_scratch, named, settings.seed)
        return Extractor(model, tokenizer, template=args.template), args.from_scratch
    place = options.model_place(args.model)
    # Weights that are not trained need no more precision than the pass.
    dtype = "bfloat16" if settings.bf16 and settings.lora is not None else "float32"
    if settings.quantization is not None and _num_processes() > 1:
        # Quantized weights cannot be moved later.
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
    loaded = Extractor.from_pretrained(
        place,
        device=device,
        dtype=dtype,
        template=args.template,
        quantization=settings.quantization,
    )
    return loaded, place if isinstance(place, str) else "the embedded model"


def _rank() -> int:
    return int(os.environ.get("RANK", "0"))


def _num_processes() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))
