"""`POST /v1/chat/completions`: structured outputs, and calls of a single function."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from schemax.serve.answers import event_stream, while_connected
from schemax.serve.completion import (
    CompletionRequest,
    Form,
    Message,
    Part,
    Sampling,
    SchemaSource,
    schema_source,
)
from schemax.serve.output import Piece, logprobs
from schemax.serve.service import Service


class NestedForm(BaseModel):
    """The form of the answer, as `json_schema`, or a tool, as `function`; see its type."""

    type: str = "function"
    json_schema: Form | None = None
    function: Form | None = None


class ChatRequest(Sampling):
    """A request of OpenAI's chat completions. Other keys are ignored."""

    model: str | None = None
    messages: list[Message] = Field(min_length=1)
    response_format: NestedForm | None = None
    tools: list[NestedForm] | None = None
    tool_choice: Any = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    n: Literal[1] | None = None
    logprobs: bool | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None

    def schema_source(self) -> SchemaSource:
        """Finds the schema. Raises ApiError (400) if there is no schema, or several."""
        form = self.response_format
        declared = form.json_schema if form is not None and form.type == "json_schema" else None
        functions = [tool.function or Form() for tool in self.tools or ()]
        key = "response_format"
        params = key, f"{key}.json_schema.schema", "tools[0].function.parameters"
        return schema_source(declared, functions, self.tool_choice, params)


def chat_routes(service: Service) -> APIRouter:
    """Makes the route of a service."""
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/chat/completions", response_model=None)
    async def chat_completions(body: ChatRequest, request: Request) -> Any:
        """Fills in the fields of a schema; the messages are the prompt."""
        document, param, function = body.schema_source()
        schema = await service.schemas.of(document, param)
        most = body.max_completion_tokens or body.max_tokens
        completion = await CompletionRequest.of(
            service, body.messages, schema, body, most, ("messages", param)
        )
        answer = _Answer(service.name, function, bool(body.logprobs))
        if not body.stream:
            return answer.whole(await while_connected(request, completion.whole()))
        usage = bool((body.stream_options or {}).get("include_usage"))
        return await event_stream(request, answer.chunks(completion.parts(), usage), end="[DONE]")

    return router


class _Answer:
    """The answer in OpenAI's form. function: the called function; None for structured outputs."""

    def __init__(self, model: str, function: str | None, logprobs: bool) -> None:
        self._function, self._logprobs = function, logprobs
        self._call_id = f"call_{uuid.uuid4().hex[-24:]}"
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self, done: Part) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": done.refusal}
        if done.refusal is None and self._function is not None:
            call = {"name": self._function, "arguments": done.text}
            message["tool_calls"] = [{"id": self._call_id, "type": "function", "function": call}]
        elif done.refusal is None:
            message["content"] = done.text
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": self._finish_reason(done),
            "logprobs": self._tokens(done, done.pieces) if done.refusal is None else None,
        }
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": done.usage,
        }

    async def chunks(
        self, parts: AsyncGenerator[Part], with_usage: bool
    ) -> AsyncGenerator[dict[str, Any]]:
        """Streams a completion: a chunk for every key, and one for every value."""
        is_begun = False
        async with aclosing(parts):
            async for part in parts:
                if not is_begun:
                    is_begun = True
                    yield self._chunk(self._opening(part))
                for piece in part.pieces:
                    yield self._chunk(self._delta(piece[0]), self._tokens(part, [piece]))
                if part.usage is not None:
                    if part.refusal is not None:
                        yield self._chunk({"refusal": part.refusal})
                    yield self._chunk({}, finish_reason=self._finish_reason(part))
                    if with_usage:
                        yield {**self._chunk({}), "choices": [], "usage": part.usage}

    def _opening(self, part: Part) -> dict[str, Any]:
        opening: dict[str, Any] = {"role": "assistant"}
        if part.refusal is not None:
            return opening
        if self._function is None:
            return opening | {"content": ""}
        call = {"name": self._function, "arguments": ""}
        first = {"index": 0, "id": self._call_id, "type": "function", "function": call}
        return opening | {"content": None, "tool_calls": [first]}

    def _delta(self, text: str) -> dict[str, Any]:
        if self._function is None:
            return {"content": text}
        return {"tool_calls": [{"index": 0, "function": {"arguments": text}}]}

    def _finish_reason(self, done: Part) -> str:
        if done.is_cut:
            return "length"
        return "tool_calls" if self._function is not None and done.refusal is None else "stop"

    def _tokens(self, part: Part, pieces: Sequence[Piece]) -> dict[str, Any] | None:
        if not self._logprobs:
            return None
        return {"content": logprobs(pieces, part.item), "refusal": None}

    def _chunk(
        self,
        delta: dict[str, Any],
        tokens: dict[str, Any] | None = None,
        finish_reason: str | None = None,
    ) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": tokens}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}
