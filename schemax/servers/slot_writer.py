"""Writes a slot of a server: its grammar is enforced here, token by token.

A server writes on as it likes; every token is held against the slot's grammar, as a draft would be.
The first one that is not allowed is replaced by the most probable one that is, and the server is
asked to go on behind that. So values are those of the engine in this process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from math import exp, log
from typing import Any

from schemax.loops import is_loop
from schemax.runtime.grammar import Automata, Bits, Node, allowed_ids
from schemax.runtime.plan import Ids
from schemax.servers.answers import Answer, Step
from schemax.tokens import DONE, Alternatives, FinishReason, SlotOutput, SlotSpec, StopTable

# Allowed tokens that are preferred at once; where there are more, those that were refused are
# ruled out. Servers take so many biases.
_MOST_BIASED = 300
_FOR_SURE = 100.0
# Tokens that are asked for behind a stop string, which may be part of the delimiter.
_FEW = 4
_LEAST_MASS = 1e-38


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to the server: so many tokens behind those that are written.

    stops: whether a stop string may end it. bias: what is added to the logits of tokens.
    """

    written: Ids
    max_tokens: int
    stops: bool
    bias: Mapping[int, float]


class SlotWriter:
    """A slot that is being written.

    budget: tokens, retries included. automata: of the grammars of all slots.
    ends_at_stops: whether a stop string ends it for good, as it does a whole output.
    read: of the document, where a value that goes round in circles ends early; see `loops`.
    """

    def __init__(
        self,
        spec: SlotSpec,
        stop: StopTable,
        budget: int,
        automata: Automata,
        *,
        ends_at_stops: bool = False,
        read: Sequence[int] | None = None,
    ) -> None:
        self._ends_at_stops = ends_at_stops
        self._read = None if spec.grammar is not None and spec.grammar.strict else read
        self._stop, self._budget, self._null_id = stop, budget, spec.null_id
        self._automata, self._grammar = automata, spec.grammar
        self._state = 0
        self._ids: list[int] = []
        self._logprobs: list[float | None] = []
        self._null: float | None = None
        self._legal: list[float] = []
        self._alternatives: list[Alternatives] = []
        self._passes = 0
        self._reason: FinishReason | None = None
        self._stops = True
        self._bias: Mapping[int, float] = {}
        self._forced: deque[int] = deque()  # written, and perhaps by the server as well
        self._node: Node | None = None
        self._matcher: Any = None
        if spec.grammar is not None:
            self._automaton = automata.of(spec.grammar)
            if spec.grammar.strict:
                self._node = self._automaton.root
            else:
                self._matcher = self._automaton.take(())

    @property
    def ask(self) -> Ask | None:
        """The next question; None once the slot is done."""
        if self._reason is not None:
            return None
        left = self._budget - len(self._ids)
        plainly = bool(self._bias) or not self._stops
        most = 1 if self._bias else min(left, _FEW) if plainly else left
        return Ask(tuple(self._ids), most, not plainly, self._bias)

    @property
    def output(self) -> SlotOutput:
        assert self._reason is not None
        logprobs = tuple(value for value in self._logprobs if value is not None)
        return SlotOutput(
            tuple(self._ids),
            self._reason,
            logprobs if len(logprobs) == len(self._ids) else (),
            self._null,
            (self._legal[0], sum(self._legal)) if self._legal else (0.0, 0.0),
            tuple(self._alternatives),
            self._passes,
        )

    def take(self, answer: Answer) -> None:
        """Writes what the server wrote, as far as it holds."""
        biased, asked_plainly = self._bias, not self._stops
        self._bias, self._stops = {}, True
        self._forced.clear()
        for step in answer.steps:
            self._passes += 1
            if self._forced:
                if self._forced.popleft() != step.token:
                    return
                continue
            if not self._write(step, biased) or self._reason is not None:
                return
            biased = {}
        if answer.ended and self._ends_at_stops:
            self._reason = "eos"
        elif answer.ended or not answer.steps:
            # By a stop string, which may be part of the delimiter, or by the model.
            self._stops = False
            if not answer.steps and (asked_plainly or biased):
                self._refuse_end(biased)

    def _write(self, step: Step, biased: Mapping[int, float]) -> bool:
        """True if what the server wrote behind the token may be of use."""
        if self._node is not None:
            return self._write_typed(step, biased, self._node)
        if self._matcher is not None and not self._accepts(step.token):
            return self._replace(step, biased)
        self._add(step.token, step.logprob, step.top, 0.0)
        return True

    def _accepts(self, token: int) -> bool:
        """True if a free text may go on with the token, as its matcher then has."""
        if not self._ids and token in self._automaton.not_first:
            return False
        return bool(self._matcher.try_consume_tokens([token]) == 1)

    def _write_typed(self, step: Step, biased: Mapping[int, float], node: Node) -> bool:
        """Writes one of the allowed tokens, probable among these, and what it forces."""
        allowed = self._allowed(node)
        if allowed is None:  # the grammar has failed, as it may in this process
            self._node = None
            return self._write(step, biased)
        legal = {token: value for token, value in step.top.items() if token in allowed}
        token = step.token
        if token not in allowed:
            if not legal:
                return self._ask_again(step, allowed, biased)
            token = _best(legal)
        mass = _log_mass(legal)
        if legal:
            self._note_legal(mass, biased)
        if legal and node.automaton.grammar.choices and len(allowed) > 1:
            kept = tuple(exp(value - mass) for value in legal.values())
            self._alternatives.append(Alternatives(len(self._ids), tuple(legal), kept))
        logprob = legal[token] - mass if token in legal else None
        self._add(token, logprob, legal, mass)
        self._node = node.after(token)
        if self._reason is None and self._allowed(self._node) is not None:
            forced = self._node.forced(self._state, self._stop)
            self._node = self._node.walk(forced)
            for one in forced:
                if self._reason is None:
                    self._add(one, 0.0, {}, 0.0)
                    self._forced.append(one)
        return token == step.token

    def _replace(self, step: Step, biased: Mapping[int, float]) -> bool:
        """The most probable token that a free text allows, in the place of one that it does not."""
        (bits,) = self._automata.masks([self._matcher])
        if not self._ids:
            self._automaton.bound_first(bits)
        allowed = _Bits(bits)
        legal = {token: value for token, value in step.top.items() if token in allowed}
        if not allowed:
            self._matcher = None
            return self._write(step, biased)
        if not legal:
            return self._ask_again(step, allowed, biased)
        token = _best(legal)
        self._matcher.try_consume_tokens([token])
        self._note_legal(_log_mass(legal), biased)
        self._add(token, legal[token], step.top, 0.0)
        return False

    def _ask_again(self, step: Step, allowed: Set[int], biased: Mapping[int, float]) -> bool:
        """Has the server choose once more, since it has told of no token that is allowed."""
        others = 1 - sum(map(exp, step.top.values()))
        self._note_legal(log(max(_LEAST_MASS, others)), biased)
        if len(allowed) <= _MOST_BIASED and not biased:
            self._bias = dict.fromkeys(allowed, _FOR_SURE)
        elif len(biased) <= _MOST_BIASED and step.token not in biased:
            self._bias = {**biased, **dict.fromkeys({step.token, *step.top}, -_FOR_SURE)}
        else:  # a server that takes no biases
            return self._give_up(step)
        return False

    def _note_legal(self, mass: float, biased: Mapping[int, float]) -> None:
        """Notes how much of the probability was allowed; of a biased answer the least."""
        known = self._legal.pop() if biased and self._legal else 0.0
        self._legal.append(min(known, mass))

    def _give_up(self, step: Step) -> bool:
        self._node = self._matcher = None
        return self._write(step, {})

    def _refuse_end(self, biased: Mapping[int, float]) -> None:
        """Has the server go on where it would end, and the grammar would not."""
        if self._node is self._matcher is None or biased or not self._stop.eos_ids:
            self._reason = "eos"
        else:
            self._bias = dict.fromkeys(self._stop.eos_ids, -_FOR_SURE)

    def _add(
        self, token: int, logprob: float | None, others: Mapping[int, float], mass: float
    ) -> None:
        """others, mass: what the server told of this place, and of how much probability."""
        if not self._ids and self._null_id in others:
            self._null = others[self._null_id] - mass
        self._ids.append(token)
        self._logprobs.append(logprob)
        self._state = int(self._stop.next_state[self._state, token])
        if token in self._stop.eos_ids:
            self._reason = "eos"
        elif self._state == DONE:
            self._reason = "stop"
        elif len(self._ids) >= self._budget or self._is_loop():
            self._reason = "length"

    def _is_loop(self) -> bool:
        return self._read is not None and is_loop(self._ids, self._read)

    def _allowed(self, node: Node) -> Set[int] | None:
        """None where the grammar has failed."""
        self._automata.explore([node])
        if node.ids is not None:
            return frozenset(node.ids.tolist())
        return None if node.bits is None else _Bits(node.bits)


class _Bits(Set[int]):
    """A set of tokens, of which there may be as many as a vocabulary has: 32 a word."""

    def __init__(self, bits: Bits) -> None:
        self._bits = bits

    def __contains__(self, token: object) -> bool:
        assert isinstance(token, int)
        return bool(self._bits[token >> 5] >> (token & 31) & 1)

    def __iter__(self) -> Iterator[int]:
        return iter(allowed_ids(self._bits).tolist())

    def __len__(self) -> int:
        return len(allowed_ids(self._bits))


def _best(logprobs: Mapping[int, float]) -> int:
    """The most probable token, the first of equal ones."""
    return max(logprobs, key=lambda token: (logprobs[token], -token))


def _log_mass(logprobs: Mapping[int, float]) -> float:
    """The log-probability of several tokens together."""
    return log(max(_LEAST_MASS, sum(map(exp, logprobs.values()))))
