"""What the compiler, the runtime and the results exchange: token ids in plain frozen data.

The runtime imports nothing but this module and `config`, so it never sees text, types or schemas;
the compiler imports nothing of the runtime, so it never imports torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

DONE = -1
"""State of a stop table that has met its stop rule."""

FinishReason = Literal["stop", "eos", "length"]


@dataclass(frozen=True, slots=True, eq=False)
class StopTable:
    """A stop rule driven by whole tokens.

    next_state: (num_states, vocab_size) int8; the state after a token's bytes, or `DONE` if they
        complete the stop rule. State 0 is the start.
    eos_ids: ids that end a slot in any state.
    """

    next_state: npt.NDArray[np.int8]
    eos_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PromptIds:
    """The token ids of one prompt of J documents and N slots each, cut where visibility changes.

    instruction: I, the same for all documents of a category.
    documents: D, one run of ids per document.
    opening: S, what opens the output; follows every document if these are isolated, else the last.
    keys: (J, N) key segments. For the autoregressive layout one empty segment per document.
    k_max: (N,) token budget per slot, delimiter included.
    sampling_keys: (J,) 64-bit digests of the documents, to key random numbers by content.
    answers: (J, N) tokens that slots write whatever the model says, stop included: benchmarks give
        every engine the same work to do. None lets the model choose.
    """

    instruction: tuple[int, ...]
    documents: tuple[tuple[int, ...], ...]
    opening: tuple[int, ...]
    keys: tuple[tuple[tuple[int, ...], ...], ...]
    k_max: tuple[int, ...]
    sampling_keys: tuple[int, ...]
    answers: tuple[tuple[tuple[int, ...], ...], ...] | None = None


@dataclass(frozen=True, slots=True)
class SlotOutput:
    """What the decoder wrote into one slot, delimiter included. Its length is the steps it took."""

    ids: tuple[int, ...]
    finish_reason: FinishReason
