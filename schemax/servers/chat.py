"""Chats: one request per document, answered by all of its values as JSON.

Used for servers that offer nothing else, and for models with unknown tokens.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import nan
from typing import Any

from schemax.base.messages import clipped
from schemax.compiler.tokenizer import ByteCodec
from schemax.config import DecodingConfig
from schemax.errors import ServerError
from schemax.formats.base import answer_in
from schemax.runtime.slots.requests import Request
from schemax.servers.client import Client
from schemax.servers.dialects import NOT_TAKEN, Served
from schemax.servers.remote import RemoteModel
from schemax.tokens import FinishReason, SlotOutput

# The least token budget of an answer, whose layout the server chooses.
_FEWEST_TOKENS = 1024
# By how much a log-probability may exceed 0.
_ROUNDING = 1e-2
# The most ways to ask for an option.
_MOST_WAYS = 3


class ChatModel(RemoteModel):
    """A chat model of a server. An option that the server refuses is then omitted."""

    usual_decoding = "autoregressive"

    def __init__(self, client: Client, served: Served, codec: ByteCodec) -> None:
        super().__init__(client, served, codec)
        self._messages = codec.messages
        self.max_positions = None  # positions of tokens, which are unknown
        # Option -> the index of the way to ask for it; past the last way, it is omitted.
        self._ways = {
            "logprobs": 0 if served.tells else 1,
            "response_format": served.dialect.response_format,
        }

    def refusal(self, config: DecodingConfig) -> str | None:
        reason = super().refusal(config)
        if reason or (config.layout, config.documents) == ("autoregressive", "isolated"):
            return reason
        return (
            f"{self.client.url} is asked by chat, one document a request, whatever the decoding; "
            "leave `decoding` out, or name the model's `tokenizer` to ask for every field"
        )

    async def fill(self, request: Request) -> tuple[SlotOutput, ...]:
        messages = self._messages([*request.prefix, *request.stem.tolist()])
        schema = request.layout.specs[0].json_schema
        tokens = max(_FEWEST_TOKENS, int(request.budgets[0]))
        while True:
            ways = self._ways.copy()
            body = self._body(messages, schema, tokens, request.decoding)
            try:
                reply = await self.client.ask("/chat/completions", body)
                return (_output(reply, is_json=schema is not None),)
            except ServerError as error:
                if not self._changes_way(error, ways):
                    raise

    def _body(
        self,
        messages: Sequence[Mapping[str, str]],
        schema: Any,
        tokens: int,
        config: DecodingConfig,
    ) -> dict[str, Any]:
        named = {"name": "output", "strict": True, "schema": schema}
        sampling = {"top_p": config.top_p, "seed": config.seed} if config.temperature > 0 else {}
        optional: dict[str, list[dict[str, Any]]] = {
            "logprobs": [{"logprobs": True}],
            "max_tokens": [{"max_tokens": tokens}, {"max_completion_tokens": tokens}],
            "temperature": [{"temperature": config.temperature, **sampling}],
            "response_format": [
                {"response_format": {"type": "json_schema", "json_schema": named}},
                {"response_format": {"type": "json_object", "schema": schema}},
                {"response_format": {"type": "json_object"}},
            ],
        }
        if schema is None:  # of a format other than JSON
            del optional["response_format"]
        body: dict[str, Any] = {"model": self.served.model, "messages": messages}
        for name, ways in optional.items():
            if (index := self._ways.get(name, 0)) < len(ways):
                body |= ways[index]
        return body

    def _changes_way(self, error: ServerError, ways: Mapping[str, int]) -> bool:
        """True if the error names an option, which is then asked for in another way, or omitted.

        ways: those of the request; other requests may have changed the model's since.
        """
        names = ("response_format", "logprobs", "max_tokens", "temperature")
        name = next((name for name in names if name in str(error)), None)
        if error.status not in NOT_TAKEN or name is None or ways.get(name, 0) > _MOST_WAYS:
            return False
        self._ways[name] = max(self._ways.get(name, 0), ways.get(name, 0) + 1)
        return True


def _output(reply: dict[str, Any], *, is_json: bool) -> SlotOutput:
    """The bytes of the answer; a token's log-probability is at its first byte, NaN at others.

    Raises ServerError for a reply without an answer, or that ended before the answer.
    """
    try:
        choice = reply["choices"][0]
        content, refusal = choice["message"]["content"], choice["message"].get("refusal")
        tokens = (choice.get("logprobs") or {}).get("content") or ()
        parts = [(_bytes(token), float(token["logprob"])) for token in tokens]
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise ServerError(
            f"the server answered without a message: {clipped(str(reply))}"
        ) from error
    reason: FinishReason = "length" if choice.get("finish_reason") == "length" else "eos"
    answer = answer_in(content).lstrip() if isinstance(content, str) else ""
    is_unfinished = reason == "length" and is_json and answer[:1] not in ("{", '"')
    if not answer or is_unfinished:
        why = "its tokens ran out before it: " if reason == "length" else ""
        raise ServerError(f"the model gave no answer: {why}{clipped(str(refusal or reply))}")
    data = content.encode("utf-8", "replace")
    logprobs = [
        value for part, first in parts for value in (min(0.0, first), *[nan] * (len(part) - 1))
    ]
    # Numbers that are no log-probabilities tell nothing of the model's confidence.
    is_told = all(logprob <= _ROUNDING for _, logprob in parts)
    # vLLM tells of the end of the turn as well.
    has_logprobs = is_told and b"".join(part for part, _ in parts).startswith(data)
    told = tuple(logprobs[: len(data)]) if has_logprobs else ()
    return SlotOutput(tuple(data), reason, told, passes=1)


def _bytes(token: dict[str, Any]) -> bytes:
    data = token.get("bytes")
    return bytes(data) if data else str(token["token"]).encode("utf-8", "replace")
