"""Automata over a model's tokens: stop rules, grammars, and tables of free text.

A tokenizer merges delimiters with value text (`.",` or `",\\n`), splits them (`<` `/`) and cuts
characters in two. So a stop rule is a small automaton over bytes, and every token is run through it
once, ahead of time: the runtime then looks up one number per slot and step.

Between the quotes of a text without conditions, a grammar is always in the same state, and nearly
every token leaves it there. So a table holds the effect of each token, and slots of free text ask
their grammar only about tokens that the table leaves open, such as one that ends within an escape
sequence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache, cached

from schemax.attributes.patterns import states_of
from schemax.compiler.grammars import TextForm, parser_limits
from schemax.compiler.tokenizer import TextCodec
from schemax.errors import ModelError
from schemax.formats import StopRule
from schemax.formats.base import split_at_stop, transitions
from schemax.tokens import DONE, TEXT_ENDS, TEXT_REFUSED, TEXT_UNKNOWN, StopTable

_MAX_STATES = 120  # int8, with room for DONE

# --- stop rules ----------------------------------------------------------------------------------


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


def _byte_table(rule: StopRule) -> npt.NDArray[np.int8]:
    """(num_states, 256) int8: the next state by byte, over states reachable from state 0."""
    rows = transitions(rule)
    if max(rows) >= _MAX_STATES:
        raise ValueError(f"stop rule {rule!r} has state {max(rows)}; at most {_MAX_STATES} fit")
    table = np.full((max(rows) + 1, 256), DONE, np.int8)
    for state, row in rows.items():
        table[state] = [max(target, DONE) for target in row]
    return table


@lru_cache(maxsize=65_536)
def text_before_stop(rule: StopRule, codec: TextCodec, ids: tuple[int, ...]) -> tuple[str, bool]:
    """The text of a slot without its delimiter, and whether the rule was met."""
    # Cached, since "null" and the usual values are written again and again.
    data, complete = split_at_stop(rule, codec.decode_bytes(ids))
    return data.decode("utf-8", "replace"), complete


def checked_eos_ids(ids: Iterable[Any], vocab_size: int) -> tuple[int, ...]:
    """The ids that end an output, in order.

    A model's files name them, and anyone may have written these files. Raises ModelError for an id
    that the vocabulary lacks.
    """
    numbers = list(ids)
    for number in numbers:
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < vocab_size:
            raise ModelError(
                f"eos_token_id is {number!r}, which is no id of the vocabulary, 0 to "
                f"{vocab_size - 1:,}; correct generation_config.json, config.json or the "
                "tokenizer's files"
            )
    return tuple(sorted(set(numbers)))


# --- grammars ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TokenGrammar:
    """A slot's grammar over the tokens of `codec`; see `tokens.Grammar`.

    form: the form of texts, for a grammar that allows every text; None for any other.
    """

    text: str
    strict: bool
    choices: bool
    codec: TextCodec
    eos_ids: tuple[int, ...]
    vocab_size: int
    form: TextForm | None = None

    def __hash__(self) -> int:
        return hash(self.text)  # a string caches its hash; the other fields are nearly always equal

    def new_matcher(self) -> Any:
        return prototype(self.text, self.codec, self.eos_ids, self.vocab_size)[0].deep_copy()

    def not_first(self) -> tuple[int, ...]:
        return _lone_spaces(self)

    def encode(self, data: bytes) -> tuple[int, ...]:
        return _encoded_bytes(self.codec, data)

    def text_table(self, stop: StopTable) -> npt.NDArray[np.int8] | None:
        return None if self.form is None else _text_table(self, self.form, stop)


# The most bytes of cached matchers.
_MOST_BYTES = 64_000_000


@cached(LRUCache(_MOST_BYTES, itemgetter(1)), lock=Lock())
def prototype(
    grammar: str, codec: TextCodec, eos_ids: tuple[int, ...], vocab_size: int
) -> tuple[Any, int]:
    """A matcher to copy, and a rough size of its automaton, from the states of its patterns."""
    from llguidance import LLMatcher

    tokenizer = _tokenizer(codec, eos_ids, vocab_size)
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=parser_limits())
    return matcher, min(_MOST_BYTES, 20_000 + 4_000 * states_of(grammar))


@lru_cache(maxsize=8)
def _tokenizer(codec: TextCodec, eos_ids: tuple[int, ...], vocab_size: int) -> Any:
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(_Tokens(codec, eos_ids, vocab_size)))


class _Tokens:
    """A codec in llguidance's interface: the bytes of every token.

    Special tokens and tokens that end a slot have no bytes: within a value, their text would end
    it.
    """

    bos_token_id = None

    def __init__(self, codec: TextCodec, eos_ids: tuple[int, ...], vocab_size: int) -> None:
        known = codec.token_bytes[:vocab_size]
        self.tokens = [*known, *[b""] * (vocab_size - len(known))]
        for number in (*eos_ids, *codec.eos_ids):
            if number < vocab_size:
                self.tokens[number] = b""
        self.special_token_ids = [number for number, data in enumerate(self.tokens) if not data]
        # Any token without text: slots end before it is ever allowed.
        self.eos_token_id = next(iter(self.special_token_ids), vocab_size)
        self._codec = codec

    def __call__(self, text: bytes) -> list[int]:
        return self._codec.encode(text.decode("utf-8", "replace"))


@lru_cache(maxsize=4096)
def _encoded_bytes(codec: TextCodec, data: bytes) -> tuple[int, ...]:
    """The tokens of bytes, without an unfinished last character; () if they begin within one."""
    ids = tuple(codec.encode(data.decode("utf-8", "ignore")))
    return ids if data.startswith(codec.decode_bytes(ids)) else ()


@lru_cache(maxsize=1024)
def _lone_spaces(grammar: TokenGrammar) -> tuple[int, ...]:
    """The tokens that are one space, if the tokenizer begins no value of the grammar with them.

    A tokenizer that cuts digits one by one writes ` 5` in two tokens, and ` "5"` with ` "` in one.
    So a model that sees digits tends to write a space first, and means a bare number. Where a text
    is required, the grammar would force a quote behind that space, a cut that the model has never
    seen, and the value becomes useless. Values without quotes may still begin with a lone space.
    Every value then begins with a token that holds more than the space, so that no value becomes
    impossible to write.
    """
    matcher, codec = grammar.new_matcher(), grammar.codec
    tokens = codec.token_bytes[: grammar.vocab_size]
    spaces = []
    for space in (number for number, data in enumerate(tokens) if data == b" "):
        if not matcher.reset() or matcher.try_consume_tokens([space]) != 1:
            continue
        mask = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        behind = np.flatnonzero(np.unpackbits(mask, bitorder="little")[: len(tokens)])
        characters = {tokens[number][:1] for number in behind.tolist()}
        if characters and all(_is_joined(space, first, matcher, codec) for first in characters):
            spaces.append(space)
    return tuple(spaces)


def _is_joined(space: int, character: bytes, matcher: Any, codec: TextCodec) -> bool:
    """True if the tokenizer writes the space and the character behind it in one token."""
    if not character.isascii():
        return False
    ids = [space, *codec.encode(character.decode())]
    if not matcher.reset() or matcher.try_consume_tokens(ids) != len(ids):
        return False
    # With all forced bytes: a tokenizer may know the word "null" and no "n".
    data = b" " + character + matcher.compute_ff_bytes()
    first = codec.encode(data.decode("utf-8", "ignore"))[:1]
    return len(codec.decode_bytes(first)) > 1


# --- free text -----------------------------------------------------------------------------------


@lru_cache(maxsize=1024)
def _text_table(
    grammar: TokenGrammar, form: TextForm, stop: StopTable
) -> npt.NDArray[np.int8] | None:
    """The (states, V) table of free text: a token's next state, or one of `tokens.TEXT_*`.

    A state is the number of bytes of the head that are written; the last state is the text itself.
    Returns None if the grammar's matcher fails.
    """
    matcher, vocab_size = grammar.new_matcher(), grammar.vocab_size
    steps = _steps(form, grammar.codec, vocab_size)
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
            allowed[[*grammar.not_first()]] = False
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
    return _shared_table(table.tobytes(), vocab_size)


@lru_cache(maxsize=64)
def _shared_table(data: bytes, width: int) -> npt.NDArray[np.int8]:
    """Returns one table for all slots whose tables are equal, as nearly all are."""
    return np.frombuffer(data, np.int8).reshape(-1, width)


@lru_cache(maxsize=8)
def _steps(form: TextForm, codec: TextCodec, vocab_size: int) -> npt.NDArray[np.int8]:
    """(states, V) the next state as far as a token's bytes tell it, else TEXT_UNKNOWN."""
    head, special = form
    inside = len(head)
    steps = np.full((inside + 1, vocab_size), TEXT_UNKNOWN, np.int8)
    for token, data in enumerate(codec.token_bytes[:vocab_size]):
        if not data:
            continue
        if _is_plain(data, special):
            steps[inside, token] = inside
        for state in range(inside):
            unwritten = head[state:]
            if len(data) < len(unwritten) and unwritten.startswith(data):
                steps[state, token] = state + len(data)
            elif data == unwritten or (
                data.startswith(unwritten) and _is_plain(data[len(unwritten) :], special)
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
