"""`SlotWriter`: writes a slot with a server, and enforces the slot's grammar token by token.

A server decodes without constraint; every token is checked by the slot's grammar, as in speculative
decoding. The first token that is not allowed is replaced by the most probable allowed one, and the
server continues behind it. So values equal those of the engine in this process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from math import exp, log

from schemax.runtime.sampling.grammar import Automata, GrammarState, explore_nodes
from schemax.runtime.sampling.loops import is_loop
from schemax.runtime.slots.arrays import Ids
from schemax.servers.answers import Answer, Step
from schemax.tokens import DONE, Alternatives, FinishReason, SlotOutput, SlotSpec, StopTable

# The most allowed tokens that are preferred at once; with more, refused tokens are excluded
# instead. Servers take this many biases.
_MOST_BIASED = 300
_FOR_SURE = 100.0
# The number of tokens to ask for behind a stop string, which may be a part of the delimiter.
_FEW = 4
_LEAST_MASS = 1e-38


@dataclass(frozen=True, slots=True)
class Ask:
    """A request to the server: up to `max_tokens` tokens behind the tokens written.

    stops: True if a stop string may end the answer. bias: token -> addend to its logit.
    """

    written: Ids
    max_tokens: int
    stops: bool
    bias: Mapping[int, float]


class SlotWriter:
    """A slot that is being written.

    budget: of tokens, retries included. automata: of the grammars of all slots.
    ends_at_stops: True if a stop string ends the slot for good, as it ends a whole output.
    read: the document's tokens, if a value that repeats itself is to end early; see `loops`.
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
        self._is_strict = spec.grammar is not None and spec.grammar.strict
        self._read = None if self._is_strict else read
        self._stop, self._budget, self._null_id = stop, budget, spec.null_id
        self._automata, self._state = automata, 0
        self._grammar = GrammarState.begin(automata, spec.grammar)
        self._ids: list[int] = []
        self._logprobs: list[float | None] = []
        self._null: float | None = None
        self._legal: list[float] = []
        self._alternatives: list[Alternatives] = []
        self._passes = 0
        self._reason: FinishReason | None = None
        self._stops = True
        self._bias: Mapping[int, float] = {}
        self._forced: deque[int] = deque()  # written here, and perhaps by the server as well

    @property
    def ask(self) -> Ask | None:
        """The next request; None once the slot is done."""
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
        """Writes the tokens of an answer up to the first that is not allowed."""
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
            self._end("eos")
        elif answer.ended or not answer.steps:
            # Ended by a stop string, which may be a part of the delimiter, or by the model.
            self._stops = False
            if not answer.steps and (asked_plainly or biased):
                self._refuse_end(biased)

    def _write(self, step: Step, biased: Mapping[int, float]) -> bool:
        """Writes the token, or the most probable allowed one, and the tokens that it forces.

        Returns True if the server's tokens behind this one may be of use.
        """
        grammar = self._grammar
        if grammar is None or (not self._is_strict and grammar.accepts(step.token)):
            self._add(step.token, step.logprob, step.top, 0.0)
            return True
        allowed = grammar.allowed(self._automata)
        if not allowed:
            grammar.give_up()
            self._grammar = None
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
            if grammar.automaton.grammar.choices and len(allowed) > 1:
                kept = tuple(exp(value - mass) for value in legal.values())
                self._alternatives.append(Alternatives(len(self._ids), tuple(legal), kept))
        # In a strict grammar, probabilities are relative to the allowed tokens.
        share, told = (mass, legal) if self._is_strict else (0.0, step.top)
        self._add(token, legal[token] - share if token in legal else None, told, share)
        if self._reason is None:
            grammar.accepts(token)
            explore_nodes(self._automata, [grammar])
            for one in grammar.force(self._state, self._stop):
                if self._reason is None:
                    self._add(one, 0.0, {}, 0.0)
                    self._forced.append(one)
        return token == step.token

    def _ask_again(self, step: Step, allowed: Set[int], biased: Mapping[int, float]) -> bool:
        """Biases the next request, since the server told no token that is allowed."""
        others = 1 - sum(map(exp, step.top.values()))
        self._note_legal(log(max(_LEAST_MASS, others)), biased)
        if len(allowed) <= _MOST_BIASED and not biased:
            self._bias = dict.fromkeys(allowed, _FOR_SURE)
        elif len(biased) <= _MOST_BIASED and step.token not in biased:
            self._bias = {**biased, **dict.fromkeys({step.token, *step.top}, -_FOR_SURE)}
        else:  # a server that takes no biases
            self._let_go()
            return self._write(step, {})
        return False

    def _note_legal(self, mass: float, biased: Mapping[int, float]) -> None:
        """Records the log-probability of all allowed tokens, for biased answers the least."""
        known = self._legal.pop() if biased and self._legal else 0.0
        self._legal.append(min(known, mass))

    def _refuse_end(self, biased: Mapping[int, float]) -> None:
        """Excludes the end of the text where the server ends and the grammar does not."""
        if self._grammar is None or biased or not self._stop.eos_ids:
            self._end("eos")
        else:
            self._bias = dict.fromkeys(self._stop.eos_ids, -_FOR_SURE)

    def _add(
        self, token: int, logprob: float | None, others: Mapping[int, float], mass: float
    ) -> None:
        """Adds a token. others: log-probabilities told in its place, relative to mass."""
        if not self._ids and self._null_id in others:
            self._null = others[self._null_id] - mass
        self._ids.append(token)
        self._logprobs.append(logprob)
        self._state = int(self._stop.next_state[self._state, token])
        if token in self._stop.eos_ids:
            self._end("eos")
        elif self._state == DONE:
            self._end("stop")
        elif len(self._ids) >= self._budget or self._is_loop():
            self._end("length")

    def _is_loop(self) -> bool:
        return self._read is not None and is_loop(self._ids, self._read)

    def _end(self, reason: FinishReason) -> None:
        self._reason = reason
        self._let_go()

    def _let_go(self) -> None:
        """Drops the grammar; the slot ends, or goes on without it."""
        if self._grammar is not None:
            self._grammar.end()
            self._grammar = None


def _best(logprobs: Mapping[int, float]) -> int:
    """The most probable token; among equals the one with the lowest id."""
    return max(logprobs, key=lambda token: (logprobs[token], -token))


def _log_mass(logprobs: Mapping[int, float]) -> float:
    """The log-probability of several tokens in total."""
    return log(max(_LEAST_MASS, sum(map(exp, logprobs.values()))))
