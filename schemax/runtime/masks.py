"""What grammars allow next, as bits over the vocabulary, and logits under them.

Where a grammar leaves few tokens, which is the rule for numbers, dates and choices, nothing needs
to be done to the other logits: the few are looked up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from schemax.runtime.plan import Ints
from schemax.runtime.sampling import parts

Bits = npt.NDArray[np.int32]
# Of the words of 32 tokens, one in so many at most holds an allowed one where tokens are few.
_FEW = 16


class Masks:
    """Asks matchers (llguidance) for masks, many at a time."""

    def __init__(self) -> None:
        self._executor: Any = None

    def of(self, matchers: Sequence[Any], vocab_size: int) -> Bits:
        """(n, ceil(V / 32)) the tokens that each of n matchers allows, 32 a word.

        Of a matcher that has failed, the bits say nothing.
        """
        from llguidance import LLExecutor
        from llguidance.numpy import fill_next_token_bitmask_par

        bits = np.zeros((len(matchers), -(-vocab_size // 32)), np.int32)
        if matchers:
            if self._executor is None:
                self._executor = LLExecutor()
            pairs = [(matcher, row) for row, matcher in enumerate(matchers)]
            fill_next_token_bitmask_par(self._executor, pairs, bits)
        return bits


def are_few(bits: Bits) -> npt.NDArray[np.bool_]:
    """(n,) whether so few tokens are allowed that looking them up is cheaper than a mask."""
    few: npt.NDArray[np.bool_] = np.count_nonzero(bits, axis=1) * _FEW <= bits.shape[1]
    return few


def allowed_ids(bits: Bits) -> tuple[Ints, Ints]:
    """(n, most) allowed tokens in order, zeros behind them; (n,) how many there are."""
    row, word = np.nonzero(bits)
    words = bits[row, word].astype("<i4").view(np.uint8).reshape(-1, 4)
    place, bit = np.nonzero(np.unpackbits(words, axis=1, bitorder="little"))
    owner = row[place]
    counts = np.bincount(owner, minlength=len(bits))
    rank = np.arange(len(owner)) - np.repeat(counts.cumsum() - counts, counts)
    ids = np.zeros((len(bits), int(counts.max(initial=0))), np.int64)
    ids[owner, rank] = 32 * word[place] + bit
    return ids, counts


def rule_out(logits: Tensor, rows: Ints, bits: Bits) -> None:
    """Gives, in place, minus infinity to what is not allowed in some rows of (S, V) logits."""
    shifts = torch.arange(8, dtype=torch.uint8, device=logits.device)
    for part in parts(len(rows), logits.device):
        some = torch.from_numpy(rows[part]).to(logits.device)
        packed = torch.from_numpy(bits[part].view(np.uint8)).to(logits.device)
        unpacked = (packed[:, :, None] >> shifts) & 1
        ruled_out = unpacked.flatten(1)[:, : logits.shape[1]] == 0
        logits[some] = logits[some].masked_fill_(ruled_out, -torch.inf)
