"""Tables of free text, in the place of a parser, for texts without conditions.

Between the quotes of a text without conditions the grammar is always in the same state, and nearly
every token leaves it there. So a table tells once what each token does, and slots of free text ask
their grammar only about tokens that the table leaves open, such as one that ends within an escape
sequence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from schemax.compiler.tokenizer import TextCodec
from schemax.tokens import DONE, TEXT_ENDS, TEXT_REFUSED, TEXT_UNKNOWN, StopTable


@dataclass(frozen=True, slots=True)
class TextForm:
    """The form in which every text of a slot is written.

    head: the bytes before the characters, the leading space included.
    special: characters that are escaped.
    """

    head: bytes
    special: frozenset[str]


def text_table(
    form: TextForm,
    matcher: Any,
    stop: StopTable,
    codec: TextCodec,
    vocab_size: int,
    not_first: Sequence[int] = (),
) -> npt.NDArray[np.int8] | None:
    """The (states, V) table of free text: a token's next state, or one of `tokens.TEXT_*`.

    A state is the number of bytes of the head that are written; the last state is the text itself.
    matcher: an `llguidance.LLMatcher` at the slot's beginning. Returns None if the matcher fails.
    not_first: tokens that no slot begins with.
    """
    steps = _steps(form, codec, vocab_size)
    table = np.full(steps.shape, TEXT_REFUSED, np.int8)
    paths: dict[int, tuple[int, ...]] = {0: ()}
    waiting = [0]
    while waiting:
        state = waiting.pop()
        path = paths[state]
        if not matcher.reset() or matcher.try_consume_tokens(list(path)) != len(path):
            return None
        mask = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        allowed = np.unpackbits(mask, bitorder="little")[:vocab_size].astype(bool)
        if not path:
            allowed[[*not_first]] = False
        if matcher.is_error() or not allowed.any():
            return None
        ends = stop.next_state[_state_after(stop, path)] == DONE
        table[state] = np.where(ends, TEXT_ENDS, steps[state])
        table[state, ~allowed] = TEXT_REFUSED
        row = table[state]
        for reached in np.unique(row[row >= 0]).tolist():
            if reached not in paths:
                paths[reached] = (*path, int(np.flatnonzero(row == reached)[0]))
                waiting.append(reached)
    return table


@lru_cache(maxsize=8)
def _steps(form: TextForm, codec: TextCodec, vocab_size: int) -> npt.NDArray[np.int8]:
    """(states, V) the next state as far as a token's bytes tell it, else TEXT_UNKNOWN."""
    head, inside = form.head, len(form.head)
    steps = np.full((inside + 1, vocab_size), TEXT_UNKNOWN, np.int8)
    for token, data in enumerate(codec.token_bytes[:vocab_size]):
        if not data:
            continue
        if _is_plain(data, form.special):
            steps[inside, token] = inside
        for state in range(inside):
            rest = head[state:]
            if len(data) < len(rest) and rest.startswith(data):
                steps[state, token] = state + len(data)
            elif data == rest or (
                data.startswith(rest) and _is_plain(data[len(rest) :], form.special)
            ):
                steps[state, token] = inside
    return steps


def _is_plain(data: bytes, special: frozenset[str]) -> bool:
    try:
        return special.isdisjoint(data.decode("utf-8"))
    except UnicodeDecodeError:
        return False


def _state_after(stop: StopTable, ids: Sequence[int]) -> int:
    state = 0
    for token in ids:
        state = int(stop.next_state[state, token])
    return state
