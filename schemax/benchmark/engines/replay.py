"""Makes transformers' `generate` write given answers, at the cost of writing its own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria

from schemax.benchmark.workload import Ids


class Replay(LogitsProcessor):
    """Raises one token's score per row and step above all others, and ends rows where they end.

    Scores are still computed, copied and searched for their maximum by the library itself.

    prompt_length: columns of the padded prompt; rows: (B,) answers; filler: what a finished row is
        given while others go on.
    """

    def __init__(
        self, prompt_length: int, rows: Sequence[Ids], filler: int, device: torch.device
    ) -> None:
        self.prompt_length = prompt_length
        longest = max(map(len, rows))
        padded = [[*row, *[filler] * (longest + 1 - len(row))] for row in rows]
        self.answers = torch.tensor(padded, device=device)
        self.lengths = torch.tensor([len(row) for row in rows], device=device)
        self.longest = longest

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """As a logits processor: (B, T) ids so far, (B, V) scores -> (B, V) scores."""
        step = min(input_ids.shape[1] - self.prompt_length, self.longest)
        return _raise(scores, self.wanted(step))

    def wanted(self, step: int) -> Tensor:
        """(B,) tokens of that step."""
        return self.answers[:, step]


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
    is well calibrated. Both depend on the token's place alone. Batch 1, since assisted generation
    takes no more.

    drafting: whether the scores to come are the draft's; whoever runs the models says so.
    """

    def __init__(
        self, prompt_length: int, row: Ids, filler: int, device: torch.device, acceptance: float
    ) -> None:
        super().__init__(prompt_length, [row], filler, device)
        random = np.random.default_rng(len(row))
        confidences = _confidences(acceptance, self.answers.shape, random)
        right = torch.from_numpy(random.random(self.answers.shape) < confidences)
        wrong = torch.where(self.answers > 0, self.answers - 1, 1)
        self.guesses = torch.where(right.to(device), self.answers, wrong)
        odds = torch.from_numpy(confidences).float().clamp(0.01, 0.99).logit()
        self.odds = odds.to(device)
        self.drafting = False

    def wanted(self, step: int) -> Tensor:
        return (self.guesses if self.drafting else self.answers)[:, step]

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        if not self.drafting:
            return super().__call__(input_ids, scores)
        step = min(input_ids.shape[1] - self.prompt_length, self.longest)
        # Above all others, so that it is chosen; else by its odds against them all.
        least = scores.amax(dim=-1) + 1
        chosen = torch.maximum(least, scores.float().logsumexp(dim=-1) + self.odds[:, step])
        return scores.scatter_(1, self.wanted(step)[:, None], chosen[:, None].to(scores.dtype))


def _confidences(
    acceptance: float, shape: Sequence[int], random: np.random.Generator
) -> npt.NDArray[np.float64]:
    """Mostly sure, at times not at all: beta with that mean, two observations wide."""
    if acceptance in (0.0, 1.0):
        return np.full(shape, acceptance)
    return random.beta(2 * acceptance, 2 * (1 - acceptance), tuple(shape))


def _raise(scores: Tensor, ids: Tensor) -> Tensor:
    # Finite, since an infinite score has no probability.
    return scores.scatter_(1, ids[:, None], torch.finfo(scores.dtype).max)
