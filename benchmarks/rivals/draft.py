"""Assisted generation, with a draft model of a given acceptance rate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.random_models import random_model, shape_config
from schemax.evaluation.benchmark.engines import Emitted, EngineOptions, replica
from schemax.evaluation.benchmark.generate import Replay, Replayed
from schemax.evaluation.benchmark.workload import Workload
from schemax.tokens import Ids


@dataclass(frozen=True, slots=True)
class DraftOptions(EngineOptions):
    """Options of assisted generation.

    draft: shape of the draft model; None uses the first eighth of the model's layers.
    draft_acceptance: the probability that a drafted token is right.

    Raises ValueError also for an unknown shape.
    """

    draft: str | None = None
    draft_acceptance: float = 0.8

    def __post_init__(self) -> None:
        EngineOptions.__post_init__(self)  # `super()` fails in dataclasses with slots
        if self.draft is not None:
            shape_config(self.draft)


class Draft(Replayed):
    """The engine of assisted generation: a smaller model drafts, with a given acceptance rate."""

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
        self.turns: Counter[bool] = Counter()  # is the draft -> its forward passes

    def run(self, work: Workload) -> Emitted:
        """Runs, and measures the accepted drafted tokens: all but one per verification."""
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
        # The next scores are of the model that ran last.
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
    """A replay whose draft model has a given acceptance rate and calibrated confidence.

    Drafts of random weights would never be right, so the acceptance rate is given. So is the
    confidence: transformers ends a draft at a token whose probability is below a threshold
    (dynamic speculation), which would never happen to a draft that is always sure. Each token has
    its own confidence, `acceptance` on average, and is right with this probability: the draft is
    well calibrated. Both depend on the token's place alone.

    drafting: True if the next scores are the draft's; set by the code that runs the models.
    """

    def __init__(
        self, prompts: Tensor, rows: Sequence[Ids], filler: int, acceptance: float
    ) -> None:
        super().__init__(prompts, rows, filler)
        random = np.random.default_rng(self.longest)
        shape = tuple(self.answers.shape)
        # Mostly sure, sometimes not at all: a beta distribution with this mean, a + b = 2.
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
        # Above all other scores, so that it is chosen; higher still if its odds require it.
        least = scores.amax(dim=-1) + 1
        chosen = torch.maximum(least, scores.float().logsumexp(dim=-1) + self.odds[:, step])
        guesses = self.guesses[:, step, None]
        return scores.scatter_(1, guesses, chosen[:, None].to(scores.dtype))


def shallow_replica(model: Any) -> Any:
    """Returns a replica of the model with its first eighth of layers."""
    made = replica(model)
    config, inner = made.config.get_text_config(), made.base_model
    inner.layers = inner.layers[: max(1, len(inner.layers) // 8)]
    config.num_hidden_layers = len(inner.layers)
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[: len(inner.layers)]
    return made
