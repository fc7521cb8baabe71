"""Reads completions of servers as token ids: dialects name tokens by id, by bytes or by text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from schemax.base.messages import clipped
from schemax.compiler.tokenizer import TextCodec
from schemax.errors import ServerError

_BY_ID = re.compile(r"token_id:(\d+)")
_BY_BYTES = re.compile(r"bytes:((?:\\x[0-9a-f]{2})+)")
_UNREADABLE = "\ufffd"


@dataclass(frozen=True, slots=True)
class Step:
    """A token that a server wrote.

    logprob: its log-probability, if the server tells it. top: the most probable tokens in its place
    -> log-probability.
    """

    token: int
    logprob: float | None = None
    top: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """The tokens of a completion. ended: False if the token budget cut the completion off."""

    steps: tuple[Step, ...]
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
            read = self._codec.decode_bytes(step.token for step in known)
            rest = text.encode("utf-8", "replace")[len(read) :].decode("utf-8", "replace")
            known += [Step(token) for token in self._codec.encode(rest)]
        return Answer(tuple(known), reason != "length")

    def _steps(self, told: Mapping[str, Any], ids: Sequence[int] | None) -> list[Step | None]:
        """The tokens, None if unidentified. ids: of all tokens, if the server tells ids apart."""
        if "content" in told:  # the form of chats, and of llama.cpp's completions
            return [self._step(item, item.get("top_logprobs") or ()) for item in told["content"]]
        tokens: Sequence[str] = told.get("tokens") or ()
        logprobs = told.get("token_logprobs") or [None] * len(tokens)
        tops = told.get("top_logprobs") or [None] * len(tokens)
        numbers = ids if ids and len(ids) == len(tokens) else [None] * len(tokens)
        return [
            self._step(
                {"token": token, "logprob": logprob, "id": number},
                [{"token": name, "logprob": value} for name, value in (top or {}).items()],
            )
            for token, logprob, top, number in zip(tokens, logprobs, tops, numbers, strict=True)
        ]

    def _step(self, item: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> Step | None:
        token = self._id(item)
        if token is None:
            return None
        top = {
            number: _logprob(other["logprob"])
            for other in others
            if (number := self._id(other)) is not None
        }
        logprob = None if item.get("logprob") is None else _logprob(item["logprob"])
        return Step(token, logprob, top if logprob is None else top | {token: logprob})

    def _id(self, item: Mapping[str, Any]) -> int | None:
        """The id of a token; None if unknown, or beyond the codec's, as in padded vocabularies."""
        token = str(item["token"])
        number = item.get("id")
        if found := _BY_ID.fullmatch(token):
            number = int(found[1])
        if isinstance(number, int):
            return number if 0 <= number < self._codec.vocab_size else None
        if data := item.get("bytes"):
            return self._ids.get(bytes(data))
        if found := _BY_BYTES.fullmatch(token):
            return self._ids.get(bytes.fromhex(found[1].replace("\\x", "")))
        return None if _UNREADABLE in token else self._ids.get(token.encode("utf-8", "replace"))


def _logprob(value: Any) -> float:
    """Reads a log-probability, at most 0. Raises ValueError for anything else."""
    if (found := float(value)) != found:
        raise ValueError("a log-probability is no number")
    return min(0.0, found)
