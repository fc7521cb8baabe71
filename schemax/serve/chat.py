"""`POST /v1/chat/completions`: structured outputs and calls of one function, slots in parallel."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import AsyncIterator, Iterator
from typing import Any, Literal

from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from schemax.serve.completion import Completion, Sampling, complete
from schemax.serve.errors import ApiError
from schemax.serve.messages import Message
from schemax.serve.output import logprobs
from schemax.serve.service import Service, while_connected


class JsonSchema(BaseModel):
    """What `response_format` calls json_schema."""

    name: str = "schema"
    document: dict[str, Any] | None = Field(None, alias="schema")


class ResponseFormat(BaseModel):
    """Only json_schema names fields that could be filled."""

    type: str
    json_schema: JsonSchema | None = None


class Function(BaseModel):
    """A function; its parameters are a JSON Schema document."""

    name: str
    parameters: dict[str, Any] | None = None


class Tool(BaseModel):
    """A tool that may be called."""

    type: str = "function"
    function: Function | None = None


class StreamOptions(BaseModel):
    """Whether the last chunk tells the usage."""

    include_usage: bool = False


class ChatRequest(Sampling):
    """A request of OpenAI's chat completions. What is not named here is ignored."""

    model: str | None = None
    messages: list[Message] = Field(min_length=1)
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: Any = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    n: Literal[1] | None = None
    logprobs: bool | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    def schema_asked(self) -> tuple[dict[str, Any] | None, str, str | None]:
        """The schema, the parameter that it came with, and the function that is called.

        Raises ApiError (400) where there is none, or several.
        """
        wanted = self.response_format
        if self.tools and self.tool_choice != "none":
            if len(self.tools) > 1 or self.tools[0].function is None:
                raise ApiError(
                    400, "tools must be one function: its arguments are filled in", param="tools"
                )
            function = self.tools[0].function
            return function.parameters, "tools[0].function.parameters", function.name
        if wanted is not None and wanted.type == "json_schema" and wanted.json_schema is not None:
            return wanted.json_schema.document, "response_format.json_schema.schema", None
        raise ApiError(
            400,
            "a schema is missing: send response_format of type json_schema, or tools with one "
            "function; this server fills in declared fields and writes no other text",
            param="response_format",
        )


def chat_routes(service: Service) -> APIRouter:
    """The route, for a service."""
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/chat/completions", response_model=None)
    async def chat_completions(body: ChatRequest, request: Request) -> Any:
        """Structured outputs: the messages are the prompt, the schema's fields are filled in."""
        document, param, function = body.schema_asked()
        schema = await service.schema(document, param)
        most = body.max_completion_tokens or body.max_tokens
        done = await while_connected(request, complete(service, body.messages, schema, body, most))
        answer = _Answer(service.name, done, function, bool(body.logprobs))
        if not body.stream:
            return answer.whole()
        usage = body.stream_options is not None and body.stream_options.include_usage
        return StreamingResponse(_events(answer.chunks(usage)), media_type="text/event-stream")

    return router


class _Answer:
    """A completion in OpenAI's form. function: the one that is called, if any."""

    def __init__(self, model: str, done: Completion, function: str | None, logprobs: bool) -> None:
        self._done, self._function = done, function
        self._logprobs = logprobs and done.refusal is None
        self._head = {
            "id": f"chatcmpl-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": model,
        }

    def whole(self) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
        if self._done.refusal is not None:
            message["refusal"] = self._done.refusal
        elif self._function is not None:
            call = {"name": self._function, "arguments": self._done.text}
            message["tool_calls"] = [{"id": self._call_id, "type": "function", "function": call}]
        else:
            message["content"] = self._done.text
        choice = {
            "index": 0,
            "message": message,
            "finish_reason": self._finish_reason,
            "logprobs": self._tokens(self._done.pieces) if self._logprobs else None,
        }
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [choice],
            "usage": self._done.usage,
        }

    def chunks(self, with_usage: bool) -> Iterator[dict[str, Any]]:
        """The same as a stream: a chunk for every key, and one for every value."""
        if self._done.refusal is not None:
            yield self._chunk({"role": "assistant", "refusal": self._done.refusal})
        elif self._function is not None:
            call: dict[str, Any] = {"name": self._function, "arguments": ""}
            first = {"index": 0, "id": self._call_id, "type": "function", "function": call}
            yield self._chunk({"role": "assistant", "content": None, "tool_calls": [first]})
            for text, _ in self._done.pieces:
                more = {"index": 0, "function": {"arguments": text}}
                yield self._chunk({"tool_calls": [more]})
        else:
            yield self._chunk({"role": "assistant", "content": ""})
            for piece in self._done.pieces:
                yield self._chunk({"content": piece[0]}, [piece])
        yield self._chunk({}, finish_reason=self._finish_reason)
        if with_usage:
            yield {**self._chunk({}), "choices": [], "usage": self._done.usage}

    @property
    def _call_id(self) -> str:
        return f"call_{self._head['id'][-24:]}"  # type: ignore[index]

    @property
    def _finish_reason(self) -> str:
        if self._done.is_cut:
            return "length"
        return "tool_calls" if self._function is not None and not self._done.refusal else "stop"

    def _tokens(self, pieces: Any) -> dict[str, Any]:
        return {"content": logprobs(pieces, self._done.item), "refusal": None}

    def _chunk(
        self, delta: dict[str, Any], pieces: Any = (), finish_reason: str | None = None
    ) -> dict[str, Any]:
        shown = self._tokens(pieces) if self._logprobs and pieces else None
        choice = {"index": 0, "delta": delta, "finish_reason": finish_reason, "logprobs": shown}
        return {**self._head, "object": "chat.completion.chunk", "choices": [choice]}


async def _events(chunks: Iterator[dict[str, Any]]) -> AsyncIterator[str]:
    for chunk in chunks:
        yield f"data: {json.dumps(chunk, ensure_ascii=False)}\n\n"
    yield "data: [DONE]\n\n"
