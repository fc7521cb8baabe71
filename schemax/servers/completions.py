"""Completions: one request per slot, behind the prompt that all slots of a document share.

A server decodes without constraint; every token is checked by the slot's grammar, as in speculative
decoding. The first token that is not allowed is replaced by the most probable allowed one, and the
server continues behind it. So values equal those of the engine in this process.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import deque
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from math import exp, isnan, log
from typing import Any

from schemax.base.messages import clipped
from schemax.compiler.choices import Branches, ChoiceTexts
from schemax.compiler.tokenizer import TextCodec
from schemax.config import DecodingConfig
from schemax.errors import ServerError
from schemax.runtime.sampling.grammar import Automata, GrammarState, explore_nodes
from schemax.runtime.sampling.loops import is_loop
from schemax.runtime.slots.filling import AskedSlot, Filling
from schemax.runtime.slots.requests import Request
from schemax.servers.client import Client
from schemax.servers.dialects import NOT_TAKEN, Served
from schemax.servers.remote import RemoteModel
from schemax.tokens import DONE, Alternatives, FinishReason, Ids, SlotOutput, SlotSpec, StopTable

Body = dict[str, Any]
"""The JSON object of a request."""

# The prompt that finds out which options a server takes.
_PROBE = "a"
# The most choices that are sent as a grammar; `SlotWriter` enforces grammars anyway.
_MOST_TEXTS = 256
# A value of most formats ends at a line break, a JSON output at its last brace. `SlotWriter` asks
# again for a value that does not end there.
_STOPS, _STOPS_OF_OUTPUTS = ["\n"], ["\n}"]
# The most allowed tokens that are preferred at once; with more, refused tokens are excluded
# instead. Servers take this many biases.
_MOST_BIASED = 300
_FOR_SURE = 100.0
# The number of tokens to ask for behind a stop string, which may be a part of the delimiter.
_FEW = 4
_LEAST_MASS = 1e-38
_BY_ID = re.compile(r"token_id:(\d+)")
_BY_BYTES = re.compile(r"bytes:((?:\\x[0-9a-f]{2})+)")
_UNREADABLE = "\ufffd"


class CompletionsModel(RemoteModel):
    """A model whose completions a server offers; its prefix cache reads a document once.

    codec: of the model's own tokenizer. Raises ServerError for a server without completions.
    """

    def __init__(self, client: Client, served: Served, codec: TextCodec) -> None:
        super().__init__(client, served, codec)
        self._vocabulary = Vocabulary(codec)
        self._automata = Automata(codec.vocab_size)
        self.takes_ids, self._top = self._accepted_options()
        self.scores_choices = served.dialect.scores and self.takes_ids and self._top is not None

    def _accepted_options(self) -> tuple[bool, int | None]:
        """Asks for one token to find the options that the server takes. Raises ServerError.

        Returns (whether prompts are token ids rather than text, the number of log-probabilities per
        token; None for none).
        """
        refusal: ServerError | None = None
        tops = (self.served.dialect.most_top, 5, None) if self.served.tells else (None,)
        for takes_ids in (True, False):
            prompt = self.codec.encode(_PROBE) if takes_ids else _PROBE
            for top in dict.fromkeys(tops):
                try:
                    self.client.call("/completions", self._body(prompt, 1, top))
                    return takes_ids, top
                except ServerError as error:
                    if error.status in (404, 405):
                        raise ServerError(
                            f"{self.client.url} has no completions ({error}); without a tokenizer "
                            "it is asked by chat, one request per document",
                            status=error.status,
                        ) from error
                    if error.status not in NOT_TAKEN:
                        raise
                    refusal = error
        assert refusal is not None
        raise refusal

    def _body(self, prompt: Sequence[int] | str, max_tokens: int, top: int | None) -> Body:
        """The body of a request for the most probable tokens behind a prompt."""
        body = {
            "model": self.served.model,
            "prompt": prompt,
            "max_tokens": max_tokens,
            "temperature": 0,
            **self.served.dialect.always,
        }
        return body if top is None else body | {"logprobs": top}

    def refusal(self, config: DecodingConfig) -> str | None:
        reason = super().refusal(config)
        if reason or not config.has_skeleton:
            return reason
        return (
            f"{self.client.url} reads plain texts, and the layout {config.layout!r} has position "
            "ids of its own; use the layouts 'branched' (the preset 'isolated') or 'autoregressive'"
        )

    async def fill(self, request: Request) -> tuple[SlotOutput, ...]:
        filling = Filling(request, follows_branches=self.scores_choices)
        if request.answers is not None:
            scored = (self._score_slot(request, slot) for slot in filling.slots)
            return tuple(await asyncio.gather(*scored))
        await self._slots(filling, filling.slots)
        return filling.outputs

    async def _score_slot(self, request: Request, slot: AskedSlot) -> SlotOutput:
        """The given answer of a slot, with the probabilities of its tokens."""
        head = (*request.prefix, *request.stem.tolist(), *slot.key)
        bodies = [
            self._body([*head, *slot.answer[:place]], 1, self._top)
            | {"logit_bias": {str(token): _FOR_SURE}}
            for place, token in enumerate(slot.answer)
        ]
        replies = await asyncio.gather(*(self.client.ask("/completions", body) for body in bodies))
        logprobs = []
        for reply, token in zip(replies, slot.answer, strict=True):
            steps = self._vocabulary.answer(reply).steps
            if not steps or steps[0].token != token or steps[0].logprob is None:
                raise ServerError("the server does not tell the probability of a given token")
            logprobs.append(steps[0].logprob)
        return SlotOutput(slot.answer, "stop", tuple(logprobs), None, (0.0, 0.0), (), 1)

    async def _slots(self, filling: Filling, slots: Sequence[AskedSlot]) -> None:
        """Fills slots and all follow-ups.

        The first slot goes ahead, so that the others find its prompt in the cache. A server with
        slots remembers only the newest prompt of each, so it is asked for one slot at a time.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            for slot in slots:
                tasks.append(asyncio.create_task(self._slot(filling, slot)))
                if len(tasks) == 1 or self.served.slots is not None:
                    await tasks[-1]
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _slot(self, filling: Filling, slot: AskedSlot) -> None:
        """Fills a slot and its follow-ups."""
        request = filling.request
        head = (*request.prefix, *request.stem.tolist(), *slot.key)
        writer = SlotWriter(
            slot.spec,
            request.stop,
            slot.budget,
            self._automata,
            ends_at_stops=request.decoding.layout == "autoregressive",
            is_calibrated=bool(request.decoding.contextual_calibration),
            document=request.stem.tolist() if request.retries else None,
        )
        choices = slot.spec.follow_ups
        # A server that scores choices must not rule tokens out: that changes probabilities.
        grammar = None
        if isinstance(choices, Branches) and not self.scores_choices:
            grammar = gbnf(choices.choices)
        while (continuation := writer.continuation) is not None:
            body = self._slot_body(head, continuation, grammar, slot, request.decoding)
            writer.take(self._vocabulary.answer(await self.client.ask("/completions", body)))
            grammar = None  # it describes a whole value
        await self._slots(filling, filling.end(slot, writer.output))

    def _slot_body(
        self,
        head: Ids,
        continuation: Continuation,
        grammar: str | None,
        slot: AskedSlot,
        config: DecodingConfig,
    ) -> Body:
        ids = [*head, *continuation.written]
        prompt = ids if self.takes_ids else self.codec.text_of(ids)
        body = self._body(prompt, continuation.max_tokens, self._top)
        if continuation.stops:
            is_output = config.layout == "autoregressive"
            body["stop"] = _STOPS_OF_OUTPUTS if is_output else _STOPS
        if continuation.bias:
            body["logit_bias"] = {str(token): value for token, value in continuation.bias.items()}
        elif grammar is not None and self.served.dialect.grammar is not None:
            body |= self.served.dialect.grammar(grammar)
        if config.temperature > 0:
            seed = (config.seed + slot.digest + slot.number + len(continuation.written)) % 2**31
            body |= {"temperature": config.temperature, "top_p": config.top_p, "seed": seed}
        return body


def gbnf(choices: ChoiceTexts) -> str | None:
    """The grammar of all texts of a slot; None for too many to send with every request."""
    if len(choices.texts) > _MOST_TEXTS:
        return None
    texts = (json.dumps(text.decode(), ensure_ascii=False) for text in choices.texts)
    return f"root ::= {' | '.join(texts)}"


@dataclass(frozen=True, slots=True)
class Continuation:
    """A request for up to `max_tokens` tokens behind the tokens of a slot written so far.

    stops: True if a stop string may end the answer.
    bias: token -> addend to its logit.
    """

    written: Ids
    max_tokens: int
    stops: bool
    bias: Mapping[int, float]


class SlotWriter:
    """Writes a slot with a server, and enforces the slot's grammar token by token.

    budget: of tokens, retries included.
    automata: of the grammars of all slots.
    ends_at_stops: True if a stop string ends the slot for good, as it ends a whole output.
    document: the document's tokens, if a value that repeats itself is to end early; see `loops`.
    is_calibrated: whether choices are scored without their prior.
    """

    def __init__(
        self,
        spec: SlotSpec,
        stop: StopTable,
        budget: int,
        automata: Automata,
        *,
        ends_at_stops: bool = False,
        document: Sequence[int] | None = None,
        is_calibrated: bool = False,
    ) -> None:
        self._ends_at_stops = ends_at_stops
        self._begun, self._prior = spec.begun, spec.prior if is_calibrated else None
        self._is_strict = spec.grammar is not None and spec.grammar.strict
        self._document = None if self._is_strict else document
        self._stop, self._null_id = stop, spec.null_id
        self._budget = budget + len(spec.begun)
        self._automata, self._state = automata, 0
        for token in spec.begun:
            self._state = int(stop.next_state[self._state, token])
        self._grammar = GrammarState.begin(automata, spec.grammar, spec.begun)
        self._ids: list[int] = [*spec.begun]
        self._logprobs: list[float | None] = [0.0] * len(spec.begun)
        self._null: float | None = None
        self._legal: list[float] = []
        self._alternatives: list[Alternatives] = []
        self._passes = 0
        self._reason: FinishReason | None = None
        self._stops = True
        self._bias: Mapping[int, float] = {}
        self._forced: deque[int] = deque()  # written here, and perhaps by the server as well

    @property
    def continuation(self) -> Continuation | None:
        """The next request; None once the slot is done."""
        if self._reason is not None:
            return None
        left = self._budget - len(self._ids)
        stops = self._stops and not self._bias
        most = 1 if self._bias else left if stops else min(left, _FEW)
        return Continuation(tuple(self._ids[len(self._begun) :]), most, stops, self._bias)

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
        biased, had_stops = self._bias, self._stops
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
            if not answer.steps and (not had_stops or biased):
                self._refuse_end(biased)

    def _write(self, step: TokenLogprob, biased: Mapping[int, float]) -> bool:
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
        if legal:
            self._note_legal(_log_mass(legal), biased)
            if self._prior is not None:
                shares = self._prior.logprobs(tuple(self._ids), tuple(legal)).tolist()
                pairs = zip(legal.items(), shares, strict=True)
                legal = {token: value - share for (token, value), share in pairs}
                token = _best(legal)
        mass = _log_mass(legal)
        if legal and grammar.automaton.grammar.choices and len(allowed) > 1:
            kept = tuple(exp(value - mass) for value in legal.values())
            self._alternatives.append(Alternatives(len(self._ids), tuple(legal), kept))
        # In a strict grammar, probabilities are relative to the allowed tokens.
        share, top = (mass, legal) if self._is_strict else (0.0, step.top)
        self._add(token, legal[token] - share if token in legal else None, top, share)
        if self._reason is None:
            grammar.accepts(token)
            explore_nodes(self._automata, [grammar])
            for forced in grammar.force(self._state, self._stop):
                if self._reason is None:
                    self._add(forced, 0.0, {}, 0.0)
                    self._forced.append(forced)
        return token == step.token

    def _ask_again(
        self, step: TokenLogprob, allowed: Set[int], biased: Mapping[int, float]
    ) -> bool:
        """Biases the next request, since the server named no allowed token."""
        unnamed_mass = 1 - sum(map(exp, step.top.values()))
        self._note_legal(log(max(_LEAST_MASS, unnamed_mass)), biased)
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
        earlier = self._legal.pop() if biased and self._legal else 0.0
        self._legal.append(min(earlier, mass))

    def _refuse_end(self, biased: Mapping[int, float]) -> None:
        """Excludes the end of the text where the server ends and the grammar does not."""
        if self._grammar is None or biased or not self._stop.eos_ids:
            self._end("eos")
        else:
            self._bias = dict.fromkeys(self._stop.eos_ids, -_FOR_SURE)

    def _add(
        self, token: int, logprob: float | None, top: Mapping[int, float], mass: float
    ) -> None:
        """Adds a token. top: log-probabilities of tokens in its place, relative to mass."""
        if not self._ids and self._null_id in top:
            self._null = top[self._null_id] - mass
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
        return self._document is not None and is_loop(self._ids, self._document)

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


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token that a server wrote.

    logprob: its log-probability; None if the server sends none.
    top: the most probable tokens in its place -> log-probability.
    """

    token: int
    logprob: float | None = None
    top: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The tokens of a completion. ended: False if the token budget cut it off."""

    steps: tuple[TokenLogprob, ...]
    ended: bool


class Vocabulary:
    """The tokens of a codec by all names that servers give them."""

    def __init__(self, codec: TextCodec) -> None:
        self._codec = codec
        # Tokens of single bytes come first, so that a later token of the same character wins.
        self._ids = {data: number for number, data in enumerate(codec.token_bytes) if data}
        self._ids |= {text.encode(): number for number, text in codec.special_texts.items()}

    def answer(self, reply: Mapping[str, Any]) -> Answer:
        """Reads the first choice of a reply to a completion.

        Where a token cannot be identified, the codec encodes the rest of the text. Raises
        ServerError for a reply without choices.
        """
        try:
            choice = reply["choices"][0]
            text, reason = str(choice["text"] or ""), choice.get("finish_reason")
            steps = self._steps(choice.get("logprobs") or {}, choice.get("token_ids"))
        except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
            raise ServerError(
                f"the server answered without a completion: {clipped(str(reply))}"
            ) from error
        known = [step for step in steps if step is not None]
        if len(known) < len(steps) or (text and not steps):
            known = known[: steps.index(None)] if None in steps else known
            begun = self._codec.decode_bytes(step.token for step in known)
            end = text.encode("utf-8", "replace")[len(begun) :].decode("utf-8", "replace")
            known += [TokenLogprob(token) for token in self._codec.encode(end)]
        return Answer(tuple(known), reason != "length")

    def _steps(
        self, logs: Mapping[str, Any], ids: Sequence[int] | None
    ) -> list[TokenLogprob | None]:
        """The tokens, None if unidentified.

        logs: the `logprobs` of a choice.
        ids: of all tokens, if the server sends ids beside it.
        """
        if "content" in logs:  # the form of chats, and of llama.cpp's completions
            return [self._step(item, item.get("top_logprobs") or ()) for item in logs["content"]]
        tokens: Sequence[str] = logs.get("tokens") or ()
        logprobs = logs.get("token_logprobs") or [None] * len(tokens)
        tops = logs.get("top_logprobs") or [None] * len(tokens)
        numbers = ids if ids and len(ids) == len(tokens) else [None] * len(tokens)
        return [
            self._step(
                {"token": token, "logprob": logprob, "id": number},
                [{"token": name, "logprob": value} for name, value in (top or {}).items()],
            )
            for token, logprob, top, number in zip(tokens, logprobs, tops, numbers, strict=True)
        ]

    def _step(
        self, item: Mapping[str, Any], rivals: Sequence[Mapping[str, Any]]
    ) -> TokenLogprob | None:
        token = self._id(item)
        if token is None:
            return None
        top = {
            number: _logprob(rival["logprob"])
            for rival in rivals
            if (number := self._id(rival)) is not None
        }
        logprob = None if item.get("logprob") is None else _logprob(item["logprob"])
        return TokenLogprob(token, logprob, top if logprob is None else top | {token: logprob})

    def _id(self, item: Mapping[str, Any]) -> int | None:
        """The id of a token; None if unknown, or beyond the codec's, as in padded vocabularies."""
        token = str(item["token"])
        number = item.get("id")
        if match := _BY_ID.fullmatch(token):
            number = int(match[1])
        if isinstance(number, int):
            return number if 0 <= number < self._codec.vocab_size else None
        if data := item.get("bytes"):
            return self._ids.get(bytes(data))
        if match := _BY_BYTES.fullmatch(token):
            return self._ids.get(bytes.fromhex(match[1].replace("\\x", "")))
        return None if _UNREADABLE in token else self._ids.get(token.encode("utf-8", "replace"))


def _logprob(value: Any) -> float:
    """Reads a log-probability, at most 0. Raises ValueError for anything else."""
    if isnan(logprob := float(value)):
        raise ValueError("a log-probability is no number")
    return min(0.0, logprob)
