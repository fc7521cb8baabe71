"""Stop rules over whole tokens.

A tokenizer merges delimiters with value text (`.",` or `",\\n`), splits them (`<` `/`) and cuts
characters in two. So a rule is a small automaton over bytes, and every token is run through it
once, ahead of time: the runtime then looks up one number per slot and step.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from schemax.compiler.tokenizer import TextCodec
from schemax.errors import ModelError
from schemax.formats import StopRule, split_at_stop
from schemax.formats.base import transitions
from schemax.tokens import DONE, StopTable

_MAX_STATES = 120  # int8, with room for DONE


@lru_cache(maxsize=64)
def compile_stop(
    rule: StopRule, codec: TextCodec, eos_ids: tuple[int, ...], vocab_size: int
) -> StopTable:
    """Compiles the rule into a table over the codec's tokens, widened to the model's `vocab_size`.

    Raises ValueError if the rule has more states than fit the table.
    """
    by_byte = _byte_table(rule)
    num_states = len(by_byte)
    lengths = np.zeros(vocab_size, np.int64)
    tokens = codec.token_bytes[:vocab_size]
    lengths[: len(tokens)] = [len(token) for token in tokens]
    # Tokens without bytes (special ones, unused ids) leave the state as it is.
    states = np.repeat(np.arange(num_states, dtype=np.int8)[:, None], vocab_size, axis=1)
    longest_first = np.argsort(-lengths, kind="stable")
    ordered = [tokens[i] for i in longest_first if i < len(tokens)]
    for place in range(int(lengths.max(initial=0))):
        count = int((lengths > place).sum())
        ids = longest_first[:count]
        column = np.fromiter((token[place] for token in ordered[:count]), np.uint8, count)
        before = states[:, ids]
        after = by_byte[before, column[None, :]]
        states[:, ids] = np.where(before == DONE, np.int8(DONE), after)
    table = np.ascontiguousarray(states)
    table.setflags(write=False)
    return StopTable(next_state=table, eos_ids=eos_ids)


@lru_cache(maxsize=65_536)
def text_before_stop(rule: StopRule, codec: TextCodec, ids: tuple[int, ...]) -> tuple[str, bool]:
    """The text of a slot without its delimiter, and whether the rule was met."""
    # Kept, since "null" and the usual values are written again and again.
    data, complete = split_at_stop(rule, codec.decode_bytes(ids))
    return data.decode("utf-8", "replace"), complete


def checked_eos_ids(ids: Iterable[Any], vocab_size: int) -> tuple[int, ...]:
    """The ids that end an output, in order.

    Files of a model name them, which anyone may have written. Raises ModelError for an id that the
    vocabulary lacks.
    """
    found = list(ids)
    for number in found:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < vocab_size:
            raise ModelError(
                f"eos_token_id is {number!r}, which is no id of the vocabulary, 0 to "
                f"{vocab_size - 1:,}; correct generation_config.json, config.json or the "
                "tokenizer's files"
            )
    return tuple(sorted(set(found)))


def _byte_table(rule: StopRule) -> npt.NDArray[np.int8]:
    """(num_states, 256) int8: the next state by byte, over states reachable from state 0."""
    rows = transitions(rule)
    if max(rows) >= _MAX_STATES:
        raise ValueError(f"stop rule {rule!r} has state {max(rows)}; at most {_MAX_STATES} fit")
    table = np.full((max(rows) + 1, 256), DONE, np.int8)
    for state, row in rows.items():
        table[state] = [max(target, DONE) for target in row]
    return table
