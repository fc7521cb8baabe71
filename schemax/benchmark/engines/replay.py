"""Makes transformers' `generate` write given answers, at the cost of writing its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria

from schemax.benchmark.workload import Ids


class Replay(LogitsProcessor):
    """Raises one token's score per row and step above all others, and ends rows where they end.

    Scores are still computed, copied and searched for their maximum by the library itself.

    prompts: (B, L) padded ids; rows: (B,) answers; filler: what a finished row is given while
        others go on.
    """

    def __init__(self, prompts: Tensor, rows: Sequence[Ids], filler: int) -> None:
        self.prompt_length = prompts.shape[1]
        self.longest = max(map(len, rows))
        padded = [[*row, *[filler] * (self.longest + 1 - len(row))] for row in rows]
        self.answers = torch.tensor(padded, device=prompts.device)
        self.lengths = torch.tensor([len(row) for row in rows], device=prompts.device)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """As a logits processor: (B, T) ids so far, (B, V) scores -> (B, V) scores."""
        wanted = self.answers[:, self.step(input_ids)]
        # Finite, since an infinite score has no probability.
        return scores.scatter_(1, wanted[:, None], torch.finfo(scores.dtype).max)

    def step(self, input_ids: Tensor) -> int:
        """How many tokens stand behind the prompt, or as many as the longest answer has."""
        return min(input_ids.shape[1] - self.prompt_length, self.longest)


class ReplayStop(StoppingCriteria):
    """Ends every row with its answer."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: object) -> Tensor:
        """(B, T) ids so far -> (B,) whether a row is done."""
        return self.replay.lengths <= input_ids.shape[1] - self.replay.prompt_length


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
