"""Trains the adapter; resumes a stopped run."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM

from recipes.embedded.data import Data
from recipes.embedded.mixture import Reader, Templates, Variety
from recipes.embedded.timed import STATE, TimedRun, show_losses
from recipes.embedded.watch import losses, watched
from recipes.small.adapter import adapt, come_near, save_adapters
from recipes.small.pages import Asker, Asking, batches
from schemax.compiler import load_codec
from schemax.compiler.prompt import load_template
from schemax.config import DecodingConfig
from schemax.runtime.models.pointwise import compile_layers
from schemax.training.models import TrainableModel
from schemax.training.schedule import padded_length
from schemax.training.sequences import TrainingSequence, collate

ADAPTER = "adapter"
BASE = "HuggingFaceTB/SmolLM2-135M-Instruct"


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hyperparameters.

    minutes: of processor time. cooldown: the last share of the minutes, over which the rate decays
    to nearly 0. rank: of the adapters, whose file has 0.61 MB per rank.
    """

    minutes: float = 80
    learning_rate: float = 4e-4
    cooldown: float = 0.4
    rank: int = 40
    tokens_per_batch: int = 1500
    check_minutes: float = 10
    watched_pages: int = 24
    seed: int = 0
    asking: Asking = field(default_factory=Asking)
    variety: Variety = field(default_factory=lambda: Variety(bpe_dropout=0.0, nulls=0.6))


def train(data: Data, base: Path, out: Path, recipe: Recipe, start: Path | None = None) -> None:
    """Trains for a fixed time, and writes an adapter of `base` in peft's format.

    An unfinished run in the folder is resumed. start: the folder of a fully trained model of the
    same shape; a new run begins with adapters that approximate its weights.
    """
    out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(recipe.seed)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16)
    codec = load_codec(base)
    run = Run(model, recipe)
    if (out / STATE).is_file():
        run.load(out / STATE)
    elif start is not None:
        print(
            f"adapters hold {come_near(run.adapters, start):.1%} of what {start} learnt", flush=True
        )
    compile_layers(model)
    reader = Reader(data.collection, recipe.variety)
    rng = random.Random(f"{recipe.seed} {run.step}")
    stream = batches(Asker(reader, codec, recipe.asking), recipe.tokens_per_batch, rng)
    verbatim = load_template("verbatim")
    asked = Templates(verbatim, {"verbatim": verbatim}, {"verbatim": 1.0})
    kinds = watched(data, codec, asked, recipe.tokens_per_batch, recipe.watched_pages)
    pad_id = codec.eos_ids[0]

    def check() -> None:
        run.save(out / STATE)
        save_adapters(run.adapters, BASE, out / ADAPTER)
        model.train(False)
        with torch.compiler.set_stance("force_eager"):
            show_losses(run.minutes, losses(run.reader, kinds, pad_id, True))

    def take_step() -> None:
        config, sequences = next(stream)
        run.train_on(sequences, config, pad_id)

    if not run.step:
        check()
    run.train(take_step, check, every=25)


class Run(TimedRun):
    """The state of a run: adapters, their optimizer, and its progress."""

    def __init__(self, model: Any, recipe: Recipe) -> None:
        super().__init__(recipe)
        self._model = model
        self.adapters = adapt(model, recipe.rank)
        self.reader = TrainableModel(model)
        self._weights = [weight for weight in model.parameters() if weight.requires_grad]
        self._optimizer = torch.optim.AdamW(
            self._weights, lr=recipe.learning_rate, weight_decay=0.0, fused=True
        )

    def train_on(
        self, sequences: Sequence[TrainingSequence], config: DecodingConfig, pad_id: int
    ) -> None:
        """Takes an optimizer step."""
        for group in self._optimizer.param_groups:
            group["lr"] = self.rate_now()
        self._model.train()
        # Few different lengths, since oneDNN keeps kernels for each length.
        longest = padded_length(max(map(len, sequences)))
        input_ids, tokens, labels = collate(sequences, pad_id, longest)
        info = {
            name: getattr(tokens, name) for name in ("position_ids", "document", "slot", "step")
        }
        batch = {"input_ids": input_ids, **info, "real": tokens.real, "labels": labels}
        with torch.autocast("cpu", torch.bfloat16):
            summed, count = self.reader.loss(self._model, batch, config)
        loss = summed / count
        self._optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(self._weights, 1.0)
        self._optimizer.step()
        self.count(sequences, loss.item())

    def save(self, path: Path) -> None:
        """Saves all that resuming requires; replaces an existing file atomically."""
        self.save_state(path, weights=self._weights, optimizer=self._optimizer.state_dict())

    @torch.no_grad()
    def load(self, path: Path) -> None:
        state = self.load_state(path)
        for weight, saved in zip(self._weights, state["weights"], strict=True):
            weight.copy_(saved)
        self._optimizer.load_state_dict(state["optimizer"])
