"""Automata of grammars: trees of written tokens that keep the tokens allowed next.

Typed slots of many documents write the same beginnings: "tru", "20", "null". The tokens that a
grammar (llguidance) allows depend on the beginning alone, so a node keeps them, and a slot moves
from node to node by a look-up. One call explores all new nodes of a pass.

`GrammarState` is the state of one slot. `slot_grammars.py` moves many states at once,
`servers/completions.py: SlotWriter` moves one.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from schemax.runtime.slots.arrays import Ints
from schemax.tokens import DONE, Grammar, Ids, StopTable

logger = logging.getLogger(__name__)

Bits = npt.NDArray[np.int32]
# Tokens are few if at most 1 in 16 of a mask's words, of 32 tokens each, is nonzero.
_FEW = 16
# The most nodes of one grammar's tree. Slots in flight keep their nodes when a tree begins anew.
_MOST_NODES = 16_384


class Node:
    """A state of a grammar: what a slot has written, and what it may write next.

    ids: the allowed tokens, in order, if they are few.
    bits: (ceil(V / 32),) the allowed tokens as a mask, if they are many.

    Both are None until explored, or if nothing is allowed, or if the grammar's matcher has failed.
    """

    __slots__ = (
        *("_children", "_continuation", "_runs", "automaton", "bits", "ids", "is_choice", "known"),
        "path",
    )

    def __init__(self, automaton: Automaton, path: Ids) -> None:
        self.automaton = automaton
        self.path = path
        self.known = self.is_choice = False
        self.ids: Ints | None = None
        self.bits: Bits | None = None
        self._continuation = b""
        self._children: dict[int, Node] = {}
        self._runs: dict[int, Ids] = {}

    def after(self, token: int) -> Node:
        """The node of one more token, which must be an allowed one."""
        child = self._children.get(token)
        if child is None:
            child = Node(self.automaton, (*self.path, token))
            if self.automaton.grow():
                self._children[token] = child
        return child

    def walk(self, ids: Iterable[int]) -> Node:
        node = self
        for token in ids:
            node = node.after(token)
        return node

    def forced(self, state: int, stop: StopTable) -> Ids:
        """The forced tokens, up to the token that completes the stop rule.

        state: of the stop rule.
        """
        if not self._continuation:
            return ()
        forced = self._runs.get(state)
        if forced is None:
            ids = self.automaton.grammar.encode(self._continuation)
            self._runs[state] = forced = _run(ids, state, stop)
        return forced

    def learn(self, bits: Bits, continuation: bytes) -> None:
        self.known = True
        if are_few(bits) or self.automaton.grammar.choices:
            self.ids = allowed_ids(bits)
            self.is_choice = len(self.ids) > 1 and self.automaton.grammar.choices
        else:
            self.bits = bits
        self._continuation = continuation


class Automaton:
    """The tree of one grammar, and the matchers that explore it."""

    def __init__(self, grammar: Grammar) -> None:
        self.grammar = grammar
        self.root = Node(self, ())
        self._idle: list[Any] = []
        self._num_nodes = 0
        self._has_failed = False
        self._not_first: Ids | None = None

    @property
    def not_first(self) -> Ids:
        """Tokens that no slot begins with; most grammars have none."""
        if self._not_first is None:
            self._not_first = self.grammar.not_first()
        return self._not_first

    def bound_first(self, bits: Bits) -> None:
        """Removes the tokens that no slot begins with from a mask, (ceil(V / 32),), in place."""
        words = bits.view(np.uint32)
        for token in self.not_first:
            words[token >> 5] &= np.uint32(0xFFFF_FFFF ^ (1 << (token & 31)))

    def grow(self) -> bool:
        """True if one more node may stay; a tree that is too large begins anew."""
        self._num_nodes += 1
        if self._num_nodes > _MOST_NODES:
            self.root, self._num_nodes = Node(self, ()), 0
        return self._num_nodes > 0

    def take(self, path: Ids) -> Any:
        """A matcher that has read these tokens; None if it refuses them."""
        matcher = self._idle.pop() if self._idle else self.grammar.new_matcher()
        if path and matcher.try_consume_tokens(list(path)) != len(path):
            self.give(matcher)
            return None
        return matcher

    def give(self, matcher: Any) -> None:
        if matcher.reset():
            self._idle.append(matcher)

    def fail(self, reason: str) -> None:
        """Warns, once, that slots go on without this grammar."""
        if not self._has_failed:
            self._has_failed = True
            logger.warning("slots go on without their grammar: %s", reason or "nothing is allowed")


class Automata:
    """The trees of all grammars in use, and the executor that computes masks."""

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._by_grammar: dict[Grammar, Automaton] = {}
        self._executor: Any = None
        self._buffer = np.zeros((0, -(-vocab_size // 32)), np.int32)

    def of(self, grammar: Grammar) -> Automaton:
        automaton = self._by_grammar.get(grammar)
        if automaton is None:
            automaton = self._by_grammar[grammar] = Automaton(grammar)
        return automaton

    def explore(self, nodes: Iterable[Node]) -> None:
        """Explores the nodes not explored yet, in one call."""
        unknown = list(dict.fromkeys(node for node in nodes if not node.known))
        if not unknown:
            return
        matchers = [node.automaton.take(node.path) for node in unknown]
        bits = self.masks([matcher for matcher in matchers if matcher is not None])
        rows = iter(bits)
        for node, matcher in zip(unknown, matchers, strict=True):
            if matcher is None:
                node.known = True
                node.automaton.fail("its matcher refuses what it allowed")
                continue
            row = next(rows)
            if not node.path:
                node.automaton.bound_first(row)
            if matcher.is_error() or not row.any():
                node.known = True
                node.automaton.fail(matcher.get_error().strip().partition("\n")[0])
            else:
                node.learn(row.copy(), bytes(matcher.compute_ff_bytes()))
            node.automaton.give(matcher)

    def masks(self, matchers: Sequence[Any]) -> Bits:
        """(n, ceil(V / 32)) the tokens that each of n matchers allows, 32 a word.

        A view of a buffer that the next call overwrites. The bits of a failed matcher mean nothing.
        """
        from llguidance import LLExecutor
        from llguidance.numpy import fill_next_token_bitmask_par

        if len(matchers) > len(self._buffer):
            rows = max(len(matchers), 2 * len(self._buffer))
            self._buffer = np.zeros((rows, self._buffer.shape[1]), np.int32)
        bits = self._buffer[: len(matchers)]
        if matchers:
            if self._executor is None:
                self._executor = LLExecutor()
            pairs = [(matcher, row) for row, matcher in enumerate(matchers)]
            fill_next_token_bitmask_par(self._executor, pairs, bits)
        return bits


def are_few(bits: Bits) -> bool:
    """True if so few tokens are allowed that looking them up is cheaper than a mask."""
    return bool(np.count_nonzero(bits) * _FEW <= len(bits))


def allowed_ids(bits: Bits) -> Ints:
    """(ceil(V / 32),) -> the allowed tokens, in order."""
    (words,) = np.nonzero(bits)
    data = bits[words].astype("<i4").view(np.uint8).reshape(-1, 4)
    place, bit = np.nonzero(np.unpackbits(data, axis=1, bitorder="little"))
    ids: Ints = 32 * words[place] + bit
    return ids


def packed_bits(allowed: npt.NDArray[np.bool_]) -> Bits:
    """(n, V) -> (n, ceil(V / 32)) the same, 32 a word."""
    width = -(-allowed.shape[1] // 32)
    data = np.zeros((len(allowed), 4 * width), np.uint8)
    bits = np.packbits(allowed, axis=1, bitorder="little")
    data[:, : bits.shape[1]] = bits
    words: Bits = data.view("<i4").astype(np.int32, copy=False)
    return words


def _run(ids: Ids, state: int, stop: StopTable) -> Ids:
    for place, token in enumerate(ids):
        state = int(stop.next_state[state, token])
        if state == DONE:
            return ids[: place + 1]
    # The last token might merge with the text that follows.
    return ids[:-1]


class Allowance(Set[int]):
    """The allowed next tokens: (ceil(V / 32),) bits and, if they are few, their ids."""

    def __init__(self, bits: Bits) -> None:
        self.bits = bits
        self.ids: Ints = allowed_ids(bits) if are_few(bits) else bits[:0].astype(np.int64)

    @property
    def is_few(self) -> bool:
        return len(self.ids) > 0

    def __contains__(self, token: Any) -> bool:
        return bool(self.bits[token >> 5] >> (token & 31) & 1)

    def __iter__(self) -> Iterator[int]:
        return iter(allowed_ids(self.bits).tolist())

    def __len__(self) -> int:
        return len(allowed_ids(self.bits))

    def __bool__(self) -> bool:
        return bool(self.bits.any())


@dataclass(slots=True, eq=False)
class GrammarState:
    """The state of a slot: a node of a strict grammar's tree, else a matcher of the slot's own.

    node: None for a matcher.
    is_first: whether nothing is written.
    """

    automaton: Automaton
    node: Node | None
    matcher: Any
    is_first: bool

    @classmethod
    def begin(
        cls, automata: Automata, grammar: Grammar | None, begun: Ids = ()
    ) -> GrammarState | None:
        """The state behind written tokens; None without a grammar, or if the grammar failed."""
        if grammar is None:
            return None
        automaton = automata.of(grammar)
        if grammar.strict:
            return cls(automaton, automaton.root.walk(begun), None, not begun)
        matcher = automaton.take(begun)
        if matcher is None:
            automaton.fail("its matcher refuses what is written")
            return None
        return cls(automaton, None, matcher, not begun)

    def accepts(self, token: int) -> bool:
        """Moves behind a token; False if the matcher refuses it. A node must allow the token."""
        if self.node is not None:
            self.node = self.node.after(token)
            return True
        if self.is_first and token in self.automaton.not_first:
            return False
        is_accepted = self.matcher.try_consume_tokens([token]) == 1
        self.is_first = self.is_first and not is_accepted
        return bool(is_accepted)

    def allowed(self, automata: Automata) -> Set[int]:
        """The tokens that may follow; none if the grammar failed."""
        if self.node is None:
            (allowance,) = ask_matchers(automata, [self])
            return allowance or frozenset()
        automata.explore([self.node])
        if self.node.ids is not None:
            return frozenset(self.node.ids.tolist())
        return frozenset() if self.node.bits is None else Allowance(self.node.bits)

    def force(self, state: int, stop: StopTable) -> Ids:
        """Moves the state behind the forced tokens, and returns them.

        state: of the stop rule. Nodes have to be explored.
        """
        if self.node is None:
            return ()
        forced = self.node.forced(state, stop)
        self.node = self.node.walk(forced)
        return forced

    def end(self) -> None:
        """Gives the matcher back."""
        if self.matcher is not None:
            self.automaton.give(self.matcher)

    def give_up(self) -> None:
        """Warns that the slot goes on without its grammar, which has failed."""
        reason = "" if self.matcher is None else self.matcher.get_error()
        self.automaton.fail(reason.strip().partition("\n")[0])


def explore_nodes(automata: Automata, states: Iterable[GrammarState]) -> list[Node]:
    """(n,) the explored nodes of n slots with strict grammars."""
    nodes = [state.node for state in states if state.node is not None]
    automata.explore(nodes)
    return nodes


def ask_matchers(automata: Automata, states: Sequence[GrammarState]) -> Iterator[Allowance | None]:
    """(n,) the tokens that the matchers of n slots allow next; None for a failed matcher."""
    masks = automata.masks([state.matcher for state in states])
    for state, bits in zip(states, masks, strict=True):
        if state.is_first:
            state.automaton.bound_first(bits)
        failed = state.matcher.is_error() or not bits.any()
        yield None if failed else _allowance(bits.tobytes())


@lru_cache(maxsize=256)
def _allowance(bits: bytes) -> Allowance:
    # Cached, since most numbers and dates allow the same few next tokens.
    return Allowance(np.frombuffer(bits, np.int32))
