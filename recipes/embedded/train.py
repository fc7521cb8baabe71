"""Trains the embedded model: tokenizer, weights, model folder; resumes a stopped run."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from transformers import Qwen3ForCausalLM

from recipes.embedded.data import Data
from recipes.embedded.invented import draw_title
from recipes.embedded.kinds import read_kinds
from recipes.embedded.letters import draw_letter
from recipes.embedded.mixture import Reader, Templates, Variety, batches
from recipes.embedded.network import (
    Shape,
    add_dropout,
    new_model,
    new_optimizers,
    take_up,
    use_rounded_attention,
)
from recipes.embedded.shelves import Shelf
from recipes.embedded.timed import STATE, TimedRun, show_losses
from recipes.embedded.tokenizer import TOKENIZER_FILES, train_tokenizer
from recipes.embedded.watch import forward, losses, watched
from schemax.compiler import load_codec
from schemax.compiler.prompt import load_template, template_source
from schemax.evaluation.examples import Example
from schemax.runtime.models.model import DecoderModel

# The model's own template; a copy is saved beside its weights.
PROMPT = Path(__file__).with_name("prompt.jinja")
# Templates of users, with their shares.
_USERS = {"verbatim": 0.5, "generic": 0.3, "standard": 0.2}


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hyperparameters, chosen on held-out data.

    minutes: of processor time, so that other load on the machine changes nothing.
    cooldown: the last share of the minutes, over which the learning rate decays to nearly 0.
    check_minutes: of processor time, between two checkpoints.
    watched_pages: pages of each kind whose loss a checkpoint measures.
    """

    minutes: float = 80
    learning_rate: float = 1.2e-3
    cooldown: float = 0.4
    weight_decay: float = 0.1
    dropout: float = 0.0
    ema_decay: float = 0.998
    tokens_per_batch: int = 3600
    check_minutes: float = 4
    watched_pages: int = 24
    bf16: bool = False
    seed: int = 0
    shape: Shape = field(default_factory=Shape)
    variety: Variety = field(default_factory=Variety)


def train(data: Data, out: Path, recipe: Recipe, start: Path | None = None) -> None:
    """Trains for a fixed time and writes a model folder that `Extractor` can load.

    An unfinished run in the folder is resumed. start: a model folder of the same shape, with whose
    tokenizer and weights a new run begins.
    """
    out.mkdir(parents=True, exist_ok=True)
    begun = (out / STATE).is_file()
    torch.manual_seed(recipe.seed)
    if recipe.bf16:
        use_rounded_attention()
    if not begun:
        shutil.copy(PROMPT, out / PROMPT.name)
        if start is not None:
            for name in TOKENIZER_FILES:
                shutil.copy(start / name, out / name)
        else:
            shelves = [shelf for group in data.collection.shelves.values() for shelf in group]
            train_tokenizer(tokenizer_texts(shelves), recipe.shape.vocab_size, 8, out)
    codec = load_codec(out)
    model = new_model(recipe.shape, codec, out)
    if start is not None and not begun:
        take_up(model, start)
    run = Run(model, recipe)
    if begun:
        run.load(out / STATE)
    templates = Templates(
        load_template(out / PROMPT.name),
        {name: load_template(name) for name in _USERS},
        _USERS,
    )
    reader = Reader(data.collection, recipe.variety)
    stream = batches(
        reader,
        codec,
        templates,
        recipe.tokens_per_batch,
        recipe.variety,
        random.Random(f"{recipe.seed} {run.step}"),
    )
    kinds = watched(data, codec, templates, recipe.tokens_per_batch, recipe.watched_pages)
    decoder, eos = DecoderModel(model), codec.eos_ids[0]

    def check() -> None:
        run.save(out / STATE)
        run.write_model(out)
        with run.averaged():
            show_losses(run.minutes, losses(decoder, kinds, eos, recipe.bf16))

    def take_step() -> None:
        config, sequences = next(stream)
        run.train_on(decoder, sequences, config, eos)

    check()
    run.train(take_step, check, every=50)


class Run(TimedRun):
    """The state of a run: weights, their average, the optimizers, and its progress."""

    def __init__(self, model: Qwen3ForCausalLM, recipe: Recipe) -> None:
        super().__init__(recipe)
        self._model, self._recipe = model, recipe
        self._dropout = add_dropout(model)
        self._dropout.p = recipe.dropout
        self._optimizers = new_optimizers(model, recipe.learning_rate, recipe.weight_decay)
        self._average = {name: p.detach().clone() for name, p in model.named_parameters()}

    def train_on(
        self, decoder: DecoderModel, sequences: Sequence[Any], config: Any, pad_id: int
    ) -> None:
        """Takes an optimizer step."""
        recipe, model = self._recipe, self._model
        rate = self.rate_now()
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
        model.train()
        with torch.autocast("cpu", torch.bfloat16, enabled=recipe.bf16):
            logits, labels = forward(decoder, sequences, config, pad_id)
        loss = functional.cross_entropy(logits.float(), labels)
        model.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in self._optimizers:
            optimizer.step()
        self.count(sequences, loss.item())
        decay = min(recipe.ema_decay, (1 + self.step) / (10 + self.step))
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                self._average[name].lerp_(parameter, 1 - decay)

    @contextmanager
    def averaged(self) -> Iterator[None]:
        """Gives the model its averaged weights, for the context."""
        own = {name: p.detach().clone() for name, p in self._model.named_parameters()}
        self._model.train(False)
        self._model.load_state_dict(self._average, strict=False)
        try:
            yield
        finally:
            self._model.load_state_dict(own, strict=False)

    def write_model(self, out: Path) -> None:
        """Writes the averaged weights as bfloat16 in safetensors."""
        model: Any = Qwen3ForCausalLM(self._model.config)
        model.to(torch.bfloat16)
        model.load_state_dict(self._average, strict=False)
        model.save_pretrained(out)

    def save(self, path: Path) -> None:
        self.save_state(
            path,
            weights=dict(self._model.named_parameters()),
            average=self._average,
            optimizers=[optimizer.state_dict() for optimizer in self._optimizers],
        )

    def load(self, path: Path) -> None:
        state = self.load_state(path)
        self._model.load_state_dict(state["weights"], strict=False)
        self._average = state["average"]
        for optimizer, saved in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(saved)


def tokenizer_texts(shelves: Iterable[Shelf]) -> list[Example]:
    """Returns the tokenizer's training data: texts with values, invented texts, and templates."""
    rng = random.Random(0)
    texts = [
        Example(
            shelf.name,
            document.text,
            {
                name: value if isinstance(value, str) else " ".join(value)
                for name, value in document.values.items()
                if isinstance(value, str | tuple)
            },
        )
        for shelf in shelves
        for document in shelf.documents
    ]
    kinds = [*read_kinds().values()]
    goods = [draw_title(rng.choice(kinds), rng) for _ in range(4000)]
    texts += [Example("invented", title.text, {}) for title in goods]
    texts += [Example("letters", draw_letter(rng).text, {}) for _ in range(2000)]
    named = [
        f"{name}: {text}"
        for s in shelves
        for name, about in s.about.items()
        for text in about.descriptions
    ]
    texts += [Example("descriptions", text, {}) for text in named]
    return [
        *texts,
        *(Example("template", template_source(name), {}) for name in _USERS for _ in range(20)),
    ]
