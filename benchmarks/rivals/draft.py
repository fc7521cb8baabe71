"""Assisted generation, with a draft model that is right as often as is stated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from schemax.benchmark.engines.base import Emitted, EngineOptions
from schemax.benchmark.engines.generate import Replayed
from schemax.benchmark.engines.replay import Replay
from schemax.benchmark.random_models import random_model, replica, shape_config
from schemax.benchmark.workload import Ids, Workload


@dataclass(frozen=True, slots=True)
class DraftOptions(EngineOptions):
    """draft: shape of the draft model; None takes the first eighth of the model's layers.

    draft_acceptance: how often a drafted token is right.

    Raises ValueError for an unknown shape besides.
    """

    draft: str | None = None
    draft_acceptance: float = 0.8

    def __post_init__(self) -> None:
        EngineOptions.__post_init__(self)  # `super` without arguments knows no class with slots
        if self.draft is not None:
            shape_config(self.draft)


class Draft(Replayed):
    """Assisted generation: a smaller model drafts, and is right as often as is stated."""

    name, title = "draft", "transformers, draft model"

    def __init__(self, model: Any, options: EngineOptions) -> None:
        super().__init__(model, options)
        self.asked = options if isinstance(options, DraftOptions) else DraftOptions()

    def setup(self, work: Workload) -> None:
        super().setup(work)
        shape, device = self.asked.draft, self.module.device
        self.drafter = (
            shallow_replica(self.model)
            if shape is None
            else random_model(shape_config(shape), self.module.dtype, device)
        )
        self.turns: Counter[bool] = Counter()  # forward passes, of the draft and of the model

    def run(self, work: Workload) -> Emitted:
        """Measures how many drafted tokens were accepted: all that are not a verification's own."""
        self.turns.clear()
        found = super().run(work)
        tokens = sum(len(ids) for (ids,) in found)
        verified, drafted = self.turns[False], self.turns[True]
        self.note = (
            f"batch 1, its maximum; a draft of {self.drafter.num_parameters() / 1e6:,.1f} M "
            "parameters whose tokens are made to be right with probability "
            f"{self.asked.draft_acceptance:.2f}, and which stops where it is not sure; measured: "
            f"{drafted / verified:.1f} tokens a draft, {(tokens - verified) / drafted:.0%} of them "
            f"accepted, {tokens / verified:.2f} tokens a verification"
        )
        return found

    def replay(
        self, places: Sequence[int], answers: Sequence[Ids], input_ids: Tensor, work: Workload
    ) -> DraftedReplay:
        return DraftedReplay(input_ids, answers, work.eos_id, self.asked.draft_acceptance)

    def generated(
        self, input_ids: Tensor, mask: Tensor, replay: Replay, work: Workload, **more: Any
    ) -> list[Ids]:
        # Whoever ran last is the one whose scores come next.
        hooks = [
            module.register_forward_pre_hook(partial(self._turn, replay, module is self.drafter))
            for module in (self.drafter, self.module)
        ]
        try:
            return super().generated(input_ids, mask, replay, work, assistant_model=self.drafter)
        finally:
            for hook in hooks:
                hook.remove()

    def _turn(self, replay: Any, drafting: bool, *_: Any) -> None:
        replay.drafting = drafting
        self.turns[drafting] += 1

    def teardown(self) -> None:
        super().teardown()
        self.drafter = None


class DraftedReplay(Replay):
    """A replay in which the draft model is right as often as it is told to be, and knows how sure.

    Random weights would agree with nothing, so a draft's luck has to be stated. So has its
    confidence: transformers stops a draft at a token whose probability is below a threshold
    (dynamic speculation), which a draft that is always sure would never meet. Each token has a
    confidence of its own, `acceptance` on average, and is right with that probability: the draft
    is well calibrated. Both depend on the token's place alone.

    drafting: whether the scores to come are the draft's; whoever runs the models says so.
    """

    def __init__(
        self, prompts: Tensor, rows: Sequence[Ids], filler: int, acceptance: float
    ) -> None:
        super().__init__(prompts, rows, filler)
        random = np.random.default_rng(self.longest)
        shape = tuple(self.answers.shape)
        # Mostly sure, at times not at all: beta with that mean, two observations wide.
        confidences = (
            np.full(shape, acceptance)
            if acceptance in (0.0, 1.0)
            else random.beta(2 * acceptance, 2 * (1 - acceptance), shape)
        )
        right = torch.from_numpy(random.random(shape) < confidences).to(prompts.device)
        wrong = torch.where(self.answers > 0, self.answers - 1, 1)
        self.guesses = torch.where(right, self.answers, wrong)
        odds = torch.from_numpy(confidences).float().clamp(0.01, 0.99).logit()
        self.odds = odds.to(prompts.device)
        self.drafting = False

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if not self.drafting:
            return super().__call__(input_ids, scores)
        step = self.step(input_ids)
        # Above all others, so that it is chosen; else by its odds against them all.
        least = scores.amax(dim=-1) + 1
        chosen = torch.maximum(least, scores.float().logsumexp(dim=-1) + self.odds[:, step])
        guesses = self.guesses[:, step, None]
        return scores.scatter_(1, guesses, chosen[:, None].to(scores.dtype))


def shallow_replica(model: Any) -> Any:
    """A replica of the model's first eighth of layers."""
    made = replica(model)
    config, inner = made.config.get_text_config(), made.base_model
    inner.layers = inner.layers[: max(1, len(inner.layers) // 8)]
    config.num_hidden_layers = len(inner.layers)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: len(inner.layers)]
    return made
