"""transformers' Trainer with our batches and our loss (paper, section 4.4).

Trainer and accelerate keep the loop, devices, precision, accumulation, checkpoints and early
stopping; this module has batches and their loss.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from operator import itemgetter
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import SequentialSampler
from transformers import PrinterCallback, Trainer, TrainerCallback

from schemax.base.messages import track
from schemax.config import DecodingConfig
from schemax.evaluation.examples import Example
from schemax.evaluation.scores import extractions_of, scores_of
from schemax.extraction.extractor import Extractor
from schemax.training.models import TrainableModel
from schemax.training.schedule import TrainingBatch
from schemax.training.sequences import IGNORE
from schemax.training.training_examples import TrainingExample

Tell = Callable[[str], None]


MOST_SCORED = 200
"""The largest number of documents that a check reads."""


class ParallelTrainer(Trainer):
    """A Trainer with the positions and the mask of decoding.

    reader: runs the forward pass; config: determines visibility; options: the Trainer's, whose
        datasets are `BatchDataset`s.
    The loss is the mean over all labels of an optimizer step, across devices and accumulated
    batches, so that it does not depend on how rows are packed and batches are cut.
    f1: measures F1 of held-out documents at every check, on the first process; None: not measured.
    """

    def __init__(
        self,
        *,
        reader: TrainableModel,
        config: DecodingConfig,
        tell: Tell,
        **options: Any,
    ) -> None:
        super().__init__(data_collator=itemgetter(0), **options)  # an item is a batch
        self._reader = reader
        self._config = config
        self.f1: Callable[[], float] | None = None
        self._tokens, self._since = 0, time.perf_counter()  # since the last log entry
        # `compute_loss` divides the loss by the labels of a whole step.
        self.model_accepts_loss_kwargs = True
        self.remove_callback(PrinterCallback)
        self.add_callback(ProgressCallback(tell))

    def _get_train_sampler(self, train_dataset: Any = None) -> Any:
        # The schedule has been shuffled already.
        dataset: Any = self.train_dataset if train_dataset is None else train_dataset
        return SequentialSampler(dataset)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        """Loads optimizer and scheduler, then sets the learning rates of this run's schedule.

        Saved rates may belong to a shorter run; at the end of a run they are 0.
        """
        super()._load_optimizer_and_scheduler(checkpoint)
        scheduler = self.lr_scheduler
        if checkpoint is None or not isinstance(scheduler, LambdaLR):  # DeepSpeed has its own
            return
        pairs = zip(scheduler.base_lrs, scheduler.lr_lambdas, strict=True)
        rates = [peak * share(scheduler.last_epoch) for peak, share in pairs]
        for group, rate in zip(scheduler.optimizer.param_groups, rates, strict=True):
            group["lr"] = rate
        scheduler._last_lr = rates

    def get_batch_samples(
        self, epoch_iterator: Iterator[Any], num_batches: int, device: torch.device
    ) -> tuple[list[Any], Tensor]:
        """Returns the batches of a step, and the number of their labels over all devices."""
        batches = list(islice(epoch_iterator, num_batches))
        counts = [(batch["labels"] != IGNORE).sum() for batch in batches]
        count = torch.stack(counts).sum().to(device)
        self._tokens += sum(int(batch["real"].sum()) for batch in batches) * self.args.world_size
        if self.args.world_size > 1:
            count = self.accelerator.gather(count).sum()
        return batches, count

    def compute_loss(
        self,
        model: Any,
        inputs: TrainingBatch,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """Returns a batch's summed loss, divided by the labels of the whole step.

        Gradients are averaged over devices afterwards, hence the factor `world_size`.
        """
        summed, count = self._reader.loss(model, inputs, self._config)
        if num_items_in_batch is None:
            loss = summed / count.clamp(min=1)
        else:
            loss = summed * self.args.world_size / num_items_in_batch.clamp(min=1)
        return (loss, {}) if return_outputs else loss

    def evaluate(
        self,
        eval_dataset: Any = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """Returns the mean loss over labels; a mean over batches would overweight short batches."""
        started = time.perf_counter()
        model = self.model_wrapped
        model.eval()
        totals = torch.zeros(2, dtype=torch.float64)
        for inputs in self.get_eval_dataloader(eval_dataset):
            batch: Any = self._prepare_inputs(inputs)
            with torch.no_grad(), self.compute_loss_context_manager():
                summed, count = self._reader.loss(model, batch, self._config)
            # Devices without further batches repeat some; `gather_for_metrics` drops repeats.
            pair = torch.stack([summed.float(), count.float()])[None]
            gathered = self.accelerator.gather_for_metrics(pair)
            totals += gathered.cpu().double().sum(dim=0)
        metrics = {f"{metric_key_prefix}_loss": float(totals[0] / totals[1].clamp(min=1))}
        if self.f1 is not None:
            f1 = self.f1() if self.is_world_process_zero() else -1.0
            everywhere = self.accelerator.gather(torch.tensor([f1], device=self.args.device))
            metrics[f"{metric_key_prefix}_f1"] = float(everywhere.max())
        self.log(dict(metrics))
        self.control = self.callback_handler.on_evaluate(
            self.args, self.state, self.control, metrics
        )
        self._since += time.perf_counter() - started  # a check is no training
        return metrics

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Adds the tokens per second since the last entry, over all devices."""
        if "loss" in logs:
            now = time.perf_counter()
            rate = self._tokens / max(1e-9, now - self._since)
            logs = logs | {"tokens_per_second": round(rate, 1)}
            self._tokens, self._since = 0, now
        super().log(logs, start_time)


_CURVES = {
    "loss": "loss {:.4f}",
    "learning_rate": "learning rate {:.2g}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "eval_loss": "held-out loss {:.4f}",
    "eval_f1": "held-out F1 {:.3f}",
}
"""The entries of the Trainer's log that are shown, and their formats."""


class ProgressCallback(TrainerCallback):
    """A callback that shows steps with the latest curves, and checks, on the first process only."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._steps: Iterator[int] = iter(())
        self._notes: dict[str, str] = {}

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.is_world_process_zero:
            left = state.max_steps - state.global_step
            notes = self._notes
            self._steps = track(
                range(left), total=left, unit="steps", note=lambda: ", ".join(notes.values())
            )

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        next(self._steps, None)

    def on_log(
        self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **_: Any
    ) -> None:
        if not state.is_world_process_zero or not logs:
            return
        shown = {name: text.format(logs[name]) for name, text in _CURVES.items() if name in logs}
        self._notes |= shown
        if "eval_loss" in logs:
            self._tell(f"step {state.global_step}: {', '.join(shown.values())}")

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        close = getattr(self._steps, "close", None)
        if close is not None:
            close()


@contextmanager
def _own_forward(model: Any) -> Iterator[None]:
    """Removes, for the context, accelerate's wrapper around a model that is trained in bfloat16.

    Its autocast would round attention scores, which masks of decoding do not allow.
    """
    around = vars(model).pop("forward", None)
    try:
        yield
    finally:
        if around is not None:
            model.forward = around


def scorer(
    extractor: Extractor,
    examples: Sequence[TrainingExample],
    schemas: Mapping[str, type[BaseModel]],
    decoding: DecodingConfig,
    /,
    **settings: Any,
) -> Callable[[], float]:
    """Returns a function that measures the current weights' F1 on the first `MOST_SCORED` examples.

    Improbable values count, too.

    extractor: has the model that is trained.
    settings: further arguments of `Extractor.stream`.
    """
    chosen = [
        Example(example.category, example.text, example.labels)
        for example in examples[:MOST_SCORED]
    ]
    # Without `examples`, prompts show none, as in training.
    options = {"examples": (), **settings, "decoding": replace(decoding, min_probability=0.0)}

    def f1() -> float:
        model = extractor.model.model
        # Layers compiled for training do not suit other passes.
        with _own_forward(model), torch.compiler.set_stance("force_eager"):
            # Made anew, since the trainer may have moved the weights to another device.
            reader = Extractor(model, extractor.tokenizer, eos_ids=extractor.eos_ids)
            reader.defaults = replace(reader.defaults, is_trained=True)
            items = extractions_of(reader, chosen, schemas, **options)
        return scores_of(chosen, items, schemas).protocol.f1

    return f1
