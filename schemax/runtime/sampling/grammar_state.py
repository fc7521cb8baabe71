"""The state of one slot in its grammar: slots of the engine and of servers follow theirs alike.

`slot_grammars.py` moves many states at once, `servers/slot_writer.py` moves one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from schemax.runtime.sampling.grammar import Automata, Automaton, Bits, Node, allowed_ids, are_few
from schemax.runtime.slots.arrays import Ids, Ints
from schemax.tokens import Grammar, StopTable


class Allowance(Set[int]):
    """Tokens that a slot may go on with: (ceil(V / 32),) bits and, if they are few, their ids."""

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

    node: None for a matcher. is_first: whether nothing is written.
    """

    automaton: Automaton
    node: Node | None
    matcher: Any
    is_first: bool

    @classmethod
    def begin(
        cls, automata: Automata, grammar: Grammar | None, begun: Ids = ()
    ) -> GrammarState | None:
        """The state behind written tokens; None without a grammar, or where that has failed."""
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
        """Goes on behind a token; False where a matcher refuses it. A node has to allow it."""
        if self.node is not None:
            self.node = self.node.after(token)
            return True
        if self.is_first and token in self.automaton.not_first:
            return False
        is_taken = self.matcher.try_consume_tokens([token]) == 1
        self.is_first = self.is_first and not is_taken
        return bool(is_taken)

    def allowed(self, automata: Automata) -> Set[int]:
        """The tokens that may follow; none where the grammar has failed."""
        if self.node is None:
            (found,) = ask_matchers(automata, [self])
            return found or frozenset()
        automata.explore([self.node])
        if self.node.ids is not None:
            return frozenset(self.node.ids.tolist())
        return frozenset() if self.node.bits is None else Allowance(self.node.bits)

    def force(self, state: int, stop: StopTable) -> Ids:
        """Goes on behind the tokens that nothing else can stand in the place of.

        state: of the stop rule. Nodes have to be explored.
        """
        if self.node is None:
            return ()
        forced = self.node.forced(state, stop)
        self.node = self.node.walk(forced)
        return forced

    def end(self) -> None:
        """Lets go of the grammar: nothing more is asked of it."""
        if self.matcher is not None:
            self.automaton.give(self.matcher)

    def give_up(self) -> None:
        """Says that the slot goes on without its grammar, which has failed."""
        reason = "" if self.matcher is None else self.matcher.get_error()
        self.automaton.fail(reason.strip().partition("\n")[0])


def explore_nodes(automata: Automata, states: Iterable[GrammarState]) -> list[Node]:
    """(n,) the nodes of n slots with strict grammars, which say what may follow."""
    nodes = [state.node for state in states if state.node is not None]
    automata.explore(nodes)
    return nodes


def ask_matchers(automata: Automata, states: Sequence[GrammarState]) -> Iterator[Allowance | None]:
    """(n,) what the matchers of n slots allow next; None for a matcher that has failed."""
    masks = automata.masks([state.matcher for state in states])
    for state, bits in zip(states, masks, strict=True):
        if state.is_first:
            state.automaton.bound_first(bits)
        failed = state.matcher.is_error() or not bits.any()
        yield None if failed else _allowance(bits.tobytes())


@lru_cache(maxsize=256)
def _allowance(bits: bytes) -> Allowance:
    # Kept, since most numbers and dates that are begun may go on in the same few ways.
    return Allowance(np.frombuffer(bits, np.int32))
