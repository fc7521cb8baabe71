"""Makes transformers' `generate` write given answers, at the cost of writing its own."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import LogitsProcessor, StoppingCriteria

from schemax.benchmark.workload import Ids


class Replay(LogitsProcessor):
    """Raises the score of the answer's token, per row and step, above all others.

    The library itself still computes scores, copies them and searches their maximum.

    prompts: (B, L) padded ids; rows: (B,) answers; filler: the token of a finished row while others
        go on.
    """

    def __init__(self, prompts: Tensor, rows: Sequence[Ids], filler: int) -> None:
        self.prompt_length = prompts.shape[1]
        self.longest = max(map(len, rows))
        padded = [[*row, *[filler] * (self.longest + 1 - len(row))] for row in rows]
        self.answers = torch.tensor(padded, device=prompts.device)
        self.lengths = torch.tensor([len(row) for row in rows], device=prompts.device)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """(B, T) ids so far, (B, V) scores -> (B, V) scores."""
        wanted = self.answers[:, self.step(input_ids)]
        # Finite, since softmax of an infinite score is NaN.
        return scores.scatter_(1, wanted[:, None], torch.finfo(scores.dtype).max)

    def step(self, input_ids: Tensor) -> int:
        """Counts the tokens behind the prompt, up to those of the longest answer."""
        return min(input_ids.shape[1] - self.prompt_length, self.longest)


class ReplayStop(StoppingCriteria):
    """Ends every row with its answer."""

    def __init__(self, replay: Replay) -> None:
        self.replay = replay

    def __call__(self, input_ids: Tensor, scores: Tensor, **_: object) -> Tensor:
        """(B, T) ids so far -> (B,) whether a row is done."""
        return self.replay.lengths <= input_ids.shape[1] - self.replay.prompt_length
