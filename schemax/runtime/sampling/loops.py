"""Finds loops: values that end in the same few tokens over and over.

More budget only brings more of these tokens, so such a value ends as soon as the loop is plain. A
run that stands in the document is no loop: codes, rows of dashes, lists of equal items.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

LONGEST_PERIOD = 16
FEWEST_TIMES = 5
FEWEST_TOKENS = 24
"""The most tokens of a loop's period, its fewest repetitions, and the fewest tokens in all."""

# So many tokens of the last period are compared before all of them are.
_GLIMPSE = 8


def run_at_end(ids: Sequence[int]) -> tuple[int, int] | None:
    """Counts the last tokens that repeat themselves, with their period; None if none do."""
    for period in range(1, LONGEST_PERIOD + 1):
        least = max(FEWEST_TOKENS, FEWEST_TIMES * period)
        if len(ids) < least or ids[-1] != ids[-1 - period]:
            continue
        run = period
        while run < len(ids) and ids[-1 - run] == ids[-1 - run + period]:
            run += 1
        if run >= least:
            return run, period
    return None


def is_loop(ids: Sequence[int], read: Sequence[int]) -> bool:
    """True if a value's tokens end in a repeated run that the document does not hold.

    read: tokens of the document. The run's first period may be cut otherwise there.
    """
    match = run_at_end(ids)
    if match is None:
        return False
    run, period = match
    return not _holds(np.asarray(read, np.int64), np.asarray(ids[period - run :], np.int64))


def may_be_loops(written: Ints, counts: Ints) -> npt.NDArray[np.bool_]:
    """(S,) True for values that are worth checking by `is_loop`; a fast check of all at once.

    written: (S, n) tokens of each value.
    counts: (S,) their numbers.
    """
    is_suspect = np.zeros(len(counts), bool)
    (rows,) = np.nonzero(counts >= FEWEST_TOKENS)
    if len(rows):
        width = LONGEST_PERIOD + _GLIMPSE
        tails = written[rows[:, None], counts[rows, None] + np.arange(-width, 0)]
        windows = np.lib.stride_tricks.sliding_window_view(tails, _GLIMPSE, axis=1)
        is_suspect[rows] = (windows[:, :-1] == windows[:, -1:]).all(axis=2).any(axis=1)
    return is_suspect


def _holds(ids: Ints, run: Ints) -> bool:
    if len(run) > len(ids):
        return False
    windows = np.lib.stride_tricks.sliding_window_view(ids, len(run))
    return bool((windows == run).all(axis=1).any())
