"""What transformers' Trainer is told of a run."""

from __future__ import annotations

from pathlib import Path

from transformers import TrainingArguments

from schemax.runtime.loading import pick_device
from schemax.training.settings import TrainingSettings


def training_arguments(
    folder: Path, settings: TrainingSettings, device: str, peak: float, *, checked: bool
) -> TrainingArguments:
    """transformers' own settings; how many steps there are is filled in later.

    peak: the highest learning rate. Raises ModelError for a device that is not there.
    """
    strategy = "steps" if checked else "no"
    place = pick_device(device).type
    arguments = TrainingArguments(
        output_dir=str(folder),
        per_device_train_batch_size=1,  # one batch of ours
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
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        dataloader_pin_memory=place == "cuda",
        ddp_find_unused_parameters=False,
    )
    # Without a launcher, one device: DataParallel would run the model in threads of its own.
    arguments._n_gpu = min(1, arguments.n_gpu)
    return arguments
