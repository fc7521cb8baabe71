"""A training run: takes examples, writes a folder that `Extractor.from_pretrained` loads."""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import torch
from transformers import (
    EarlyStoppingCallback,
    TrainerCallback,
    TrainerState,
    TrainingArguments,
)

from schemax.base.messages import counted
from schemax.base.trained import TrainedWith, write_trained
from schemax.compiler import CompiledSchema
from schemax.errors import InputError
from schemax.extraction.extractor import Extractor
from schemax.runtime.models.loading import pick_device
from schemax.runtime.models.loading.refusals import need
from schemax.runtime.models.loading.rounding import round_weights
from schemax.runtime.models.pointwise import compile_layers
from schemax.training.card import History, history_of, versions, write_card
from schemax.training.checkpoints import (
    CHECKPOINTS,
    OneOptimizer,
    begin_run,
    last_checkpoint,
)
from schemax.training.features import make_features
from schemax.training.models import EXTRA, TrainableModel, add_lora, merge_lora, trainable
from schemax.training.schedule import (
    BatchDataset,
    PackedRow,
    RowLimits,
    batches_of,
    padding_share,
    plan_schedule,
)
from schemax.training.settings import TrainingSettings
from schemax.training.trainer import ParallelTrainer, Tell, scorer
from schemax.training.training_examples import TrainingExample, split_examples

ADAPTER = "adapter"

Batches = list[list[PackedRow]]


@dataclass(frozen=True, slots=True)
class TrainingResult:
    """The outcome of a run.

    steps: the number of optimizer steps.
    trained, held_out: numbers of products.
    padding: the share of padding among the tokens.
    held_out_loss, held_out_f1: of the best weights; None without held-out documents.
    history: curves by step.
    merged_f1: of the saved weights, if adapters were merged.
    """

    steps: int
    trained: int
    held_out: int
    held_out_loss: float | None
    held_out_f1: float | None
    padding: float
    history: History
    merged_f1: float | None = None


@dataclass(frozen=True, slots=True)
class TrainingJob:
    """A model to be trained, the examples to train it on, and the settings to save with it.

    name: the model's, in cards and adapters.
    compiled: by category.
    template: the prompt's source, written beside the weights; None if categories have different
        templates.
    trained: further settings written beside the weights.
    card: further entries of the card, such as digests of data.
    options: format, template and examples of `Extractor.stream`.
    """

    extractor: Extractor
    name: str
    compiled: Mapping[str, CompiledSchema]
    examples: Sequence[TrainingExample]
    template: str | None
    trained: TrainedWith
    card: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)


def run_training(
    job: TrainingJob,
    out: Path,
    settings: TrainingSettings,
    *,
    tell: Tell,
    device: str = "auto",
    resume: bool = False,
    report_to: Sequence[str] = (),
    keep_checkpoints: bool = False,
    callbacks: Sequence[TrainerCallback] = (),
) -> TrainingResult:
    """Trains a model, and writes it with its tokenizer, prompt and card.

    Checkpoints go to a folder in `out`, which is removed at the end unless keep_checkpoints; resume
    continues from the last checkpoint.
    report_to: trackers of transformers, such as "tensorboard".

    Raises ModelError for a model that cannot be trained; InputError if no document is left to
    train on, a run cannot be resumed, or the disk has too little room.
    """
    need("accelerate", job.name, "training", EXTRA)
    model = trainable(job.extractor, job.name, settings)
    parts = split_examples(job.examples, settings.held_out, settings.seed)
    train, held_out = (
        make_features(part, job.compiled, model, settings.absent) if part else {} for part in parts
    )
    peak = settings.peak(model.model.num_parameters())
    arguments = training_arguments(out, settings, device, peak, report_to, checked=bool(held_out))
    checkpoints = out / CHECKPOINTS
    described = asdict(settings) | {"learning_rate": peak, "devices": arguments.world_size}
    described |= job.card
    if arguments.process_index == 0 or resume:
        begin_run(checkpoints, described, resume=resume)
    limits = RowLimits(
        batch_tokens=settings.batch_tokens,
        documents=settings.documents,
        extent=model.max_positions,
        stacked=settings.decoding.documents == "stacked",
    )
    batches, steps, steps_per_epoch = plan_schedule(
        train,
        job.compiled,
        limits,
        batches_per_step=settings.gradient_accumulation * arguments.world_size,
        num_steps=settings.num_steps,
        seed=settings.seed,
    )
    order = random.Random(f"{settings.seed}, held-out batches")
    checks = batches_of(held_out, job.compiled, limits, order)
    arguments.max_steps = steps
    arguments.warmup_steps = steps * 3 // 100
    every = min(settings.check_every or steps_per_epoch, steps)
    arguments.eval_steps = arguments.save_steps = every
    arguments.logging_steps = max(1, min(every, steps // 20))
    config = model.model.config
    use_cache = getattr(config, "use_cache", True)  # the trainer changes it
    trainer = _trainer(job, settings, model, arguments, batches, checks, tell, callbacks)
    if held_out and not _is_sharded(trainer):
        schemas = {name: item.schema for name, item in job.compiled.items()}
        trainer.f1 = scorer(job.extractor, parts[1], schemas, settings.decoding, **job.options)
    num_trained, num_held_out = (sum(map(len, part.values())) for part in (train, held_out))
    padding = padding_share(batches)
    tell(
        f"training on {counted(num_trained, 'document')} of "
        f"{counted(len(train), 'category', 'categories')}, {num_held_out:,} held out; "
        f"{counted(steps, 'step')}, {steps_per_epoch:,} an epoch; "
        f"{padding:.1%} of the tokens are padding"
    )
    tuned, started = trainer.model, time.monotonic()
    checkpoint = last_checkpoint(checkpoints) if resume else None
    try:
        trainer.train(resume_from_checkpoint=checkpoint)
    except UnpicklingError as error:
        raise InputError(
            f"{checkpoint} holds data that could run code, so it was not loaded; "
            "delete this checkpoint and resume from an earlier one, or train into another folder"
        ) from error
    config.use_cache = use_cache
    outcome = _result(trainer.state, num_trained, num_held_out, padding)
    _save(trainer, tuned, job, out, settings)
    if trainer.is_world_process_zero():
        if settings.merges and trainer.f1 is not None:
            outcome = replace(outcome, merged_f1=trainer.f1())
        write_card(out, _card(job, described, outcome, round(time.monotonic() - started, 1)))
        if not keep_checkpoints:
            shutil.rmtree(checkpoints, ignore_errors=True)
    trainer.accelerator.wait_for_everyone()
    return outcome


def _trainer(
    job: TrainingJob,
    settings: TrainingSettings,
    model: TrainableModel,
    arguments: TrainingArguments,
    batches: Batches,
    checks: Batches,
    tell: Tell,
    callbacks: Sequence[TrainerCallback],
) -> ParallelTrainer:
    """Returns the trainer of a run.

    Raises InputError if the disk has too little room, and for F1 of sharded weights.
    """
    torch.manual_seed(settings.seed)
    if settings.lora is None:
        tuned: Any = model.model.requires_grad_(True)
    else:
        tuned = add_lora(model.model, settings, job.name)
    if settings.compile:
        compile_layers(tuned)
    patience = settings.patience
    stopping = [] if patience is None else [EarlyStoppingCallback(early_stopping_patience=patience)]
    trainer = ParallelTrainer(
        model=tuned,
        args=arguments,
        reader=model,
        config=settings.decoding,
        train_dataset=BatchDataset(batches, job.compiled, settings.seed),
        eval_dataset=BatchDataset(checks, job.compiled, None) if checks else None,
        tell=tell,
        callbacks=[OneOptimizer(), *stopping, *callbacks],
    )
    if _is_sharded(trainer) and settings.best_by == "f1":
        raise InputError("F1 is not measured where weights are sharded: choose them by their loss")
    return trainer


def _is_sharded(trainer: ParallelTrainer) -> bool:
    """Returns True if no process holds all weights."""
    return bool(trainer.is_deepspeed_enabled or trainer.is_fsdp_enabled)


def _result(state: TrainerState, trained: int, held_out: int, padding: float) -> TrainingResult:
    history = history_of(state.log_history)
    best: dict[str, float] = {}
    for row in history:
        if row["step"] == state.best_global_step:
            best = {**row, **best}
    loss, f1 = best.get("held_out_loss"), best.get("held_out_f1")
    return TrainingResult(state.global_step, trained, held_out, loss, f1, padding, history)


def _save(
    trainer: ParallelTrainer, tuned: Any, job: TrainingJob, out: Path, settings: TrainingSettings
) -> None:
    """Saves the model, its tokenizer and its prompt; adapters are merged if possible."""
    if _is_sharded(trainer):
        # `save_model` gathers sharded weights; they cannot be merged here.
        trainer.save_model(str(out / ADAPTER if settings.lora is not None else out))
    elif trainer.is_world_process_zero():
        model = tuned
        if settings.merges:
            model = merge_lora(tuned, out / ADAPTER if settings.keep_adapter else None)
        if settings.bf16 and settings.quantization is None:
            round_weights(model, torch.bfloat16)
        model.save_pretrained(out)  # the adapter alone, if the base weights have 4 bits
    if trainer.is_world_process_zero():
        job.extractor.tokenizer.save_pretrained(out)
        for folder in (out, out / ADAPTER):
            if folder.is_dir():
                write_trained(job.trained, folder)
                if job.template is not None:
                    (folder / "prompt.jinja").write_text(job.template, "utf-8")


def _card(
    job: TrainingJob, described: Mapping[str, Any], outcome: TrainingResult, seconds: float
) -> dict[str, Any]:
    return {
        "model": job.name,
        "settings": dict(described),
        "categories": {
            name: [attribute.label for attribute in item.attributes]
            for name, item in job.compiled.items()
        },
        "format": sorted({item.format.name for item in job.compiled.values()}),
        "products": {"trained": outcome.trained, "held_out": outcome.held_out},
        "steps": outcome.steps,
        "held_out_loss": outcome.held_out_loss,
        "held_out_f1": outcome.held_out_f1,
        "merged_f1": outcome.merged_f1,
        "padding": round(outcome.padding, 4),
        "seconds": seconds,
        "history": list(outcome.history),
        "versions": versions(),
    }


def training_arguments(
    out: Path,
    settings: TrainingSettings,
    device: str,
    peak: float,
    report_to: Sequence[str],
    *,
    checked: bool,
) -> TrainingArguments:
    """Returns transformers' settings, without the numbers of steps.

    peak: the highest learning rate. Raises ModelError for a device that is not available.
    """
    strategy = "steps" if checked else "no"
    place = pick_device(device).type
    arguments = TrainingArguments(
        output_dir=str(out / CHECKPOINTS),
        run_name=out.name,
        per_device_train_batch_size=1,  # an item is a batch
        per_device_eval_batch_size=1,
        gradient_accumulation_steps=settings.gradient_accumulation,
        max_steps=1,
        learning_rate=peak,
        lr_scheduler_type="cosine",
        weight_decay=0.01,
        max_grad_norm=1.0,
        bf16=settings.bf16,
        use_cpu=place == "cpu",
        seed=settings.seed,
        data_seed=settings.seed,
        eval_strategy=strategy,
        eval_steps=1,
        save_strategy="steps",
        save_steps=1,
        save_total_limit=2,
        load_best_model_at_end=checked,
        metric_for_best_model=f"eval_{settings.best_by}" if checked else None,
        greater_is_better=settings.best_by == "f1" if checked else None,
        restore_callback_states_from_checkpoint=True,
        remove_unused_columns=False,
        label_names=["labels"],
        report_to=list(report_to),
        disable_tqdm=True,
        log_level="error",
        dataloader_pin_memory=place == "cuda",
        ddp_find_unused_parameters=False,
    )
    # One device without a launcher: DataParallel would run the model in several threads.
    arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments
