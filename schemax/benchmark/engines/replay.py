"""Makes transformers' `generate` write given answers, at the cost of writing its own."""

from __future__ import annotations

from collections.abc import Sequence

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
    """A replay in which the draft model is right as often as it is told to be.

    Random weights would agree with nothing, so a draft's luck has to be stated. Which tokens it
    gets wrong depends on their places alone. Batch 1, since assisted generation takes no more.

    drafting: whether the scores to come are the draft's; whoever runs the models says so.
    """

    def __init__(
        self, prompt_length: int, row: Ids, filler: int, device: torch.device, acceptance: float
    ) -> None:
        super().__init__(prompt_length, [row], filler, device)
        random = torch.Generator().manual_seed(len(row))
        right = torch.rand(self.answers.shape, generator=random) < acceptance
        wrong = torch.where(self.answers > 0, self.answers - 1, 1)
        self.guesses = torch.where(right.to(device), self.answers, wrong)
        self.drafting = False

    def wanted(self, step: int) -> Tensor:
        return (self.guesses if self.drafting else self.answers)[:, step]


def _raise(scores: Tensor, ids: Tensor) -> Tensor:
    # Finite, since an infinite score has no probability, which drafts are judged by.
    return scores.scatter_(1, ids[:, None], torch.finfo(scores.dtype).max)
