"""Drafts: tokens that slots will probably write, read by the model before they are chosen.

A slot that copies a text goes on as its document does, until it ends. A pass of few tokens takes
about as long as one of a few more, so it reads those of the document along. A draft counts as far
as the slot then chooses its tokens, one by one, as it would without (speculative decoding,
Leviathan et al. 2023, arXiv 2211.17192; drafts from the prompt: Saxena 2023, prompt lookup).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from schemax.runtime.sampling.sampler import Chosen, Sampler
from schemax.runtime.slots.arrays import Ints
from schemax.runtime.slots.slot_table import SlotTable
from schemax.tokens import Ids

# A pass of this share of its most tokens takes hardly longer than a smaller one.
_SHARE = 8
# The most tokens of a draft: few texts are longer.
_MOST = 7

Write = Callable[[Ints, Chosen], npt.NDArray[np.bool_]]
"""Writes chosen tokens into slots; (n,) True for slots that go on."""


class Drafts(NamedTuple):
    """The drafts of a pass.

    counts: (S,) tokens of each slot.
    ids: (E,) tokens, slot by slot.
    """

    counts: Ints
    ids: Ints

    @classmethod
    def of(cls, num_bare: int, drafts: Sequence[Ids] = ()) -> Drafts:
        """The drafts of slots behind `num_bare` slots without one."""
        counts = np.zeros(num_bare + len(drafts), np.int64)
        counts[num_bare:] = list(map(len, drafts))
        return cls(counts, np.array([token for ids in drafts for token in ids], np.int64))


def length_of_drafts(pass_tokens: int, num_tokens: int, num_slots: int) -> int:
    """The most tokens of each draft in a pass.

    pass_tokens: the most of a pass; num_tokens: those it has without drafts; num_slots: slots that
        could have one.
    """
    room = pass_tokens // _SHARE - num_tokens
    return max(0, min(_MOST, room // max(1, num_slots)))


def follow(
    drafts: Drafts,
    logits: Tensor,
    slots: Ints,
    growing: npt.NDArray[np.bool_],
    table: SlotTable,
    sampler: Sampler,
    write: Write,
) -> Ints:
    """Lets slots choose behind the tokens of their drafts, as long as they have chosen these.

    logits: (E, V) behind the drafts' tokens.
    slots: (S,), which have written the token before their drafts; growing: (S,) those that go on,
        updated in place.
    write: see `Write`.

    Returns (S,) how many tokens of each draft came true.
    """
    starts = drafts.counts.cumsum() - drafts.counts
    true = np.zeros(len(slots), np.int64)
    (rows,) = np.nonzero(growing)
    while len(rows := rows[growing[rows] & (true[rows] < drafts.counts[rows])]):
        newest = table.written[slots[rows], table.step[slots[rows]] - 1]
        rows = rows[newest == drafts.ids[starts[rows] + true[rows]]]
        at = torch.from_numpy(starts[rows] + true[rows]).to(logits.device)
        behind = logits[at]
        # The next pass reads such a token again, and tells what is wrong.
        finite = behind.isfinite().all(dim=-1).cpu().numpy()
        rows, behind = rows[finite], behind[torch.from_numpy(finite).to(logits.device)]
        if not len(rows):
            break
        true[rows] += 1
        growing[rows] = write(slots[rows], sampler.choose(behind, slots[rows]))
        table.passes[slots[rows]] -= 1  # it is still the same pass
    return true
