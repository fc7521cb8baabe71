"""`POST /v1/responses`: structured outputs, and calls of a single function."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from schemax.base.messages import clipped
from schemax.serve.answers import ApiError, event_stream, while_connected
from schemax.serve.completion import (
    CompletionRequest,
    Content,
    Form,
    Message,
    Part,
    Role,
    Sampling,
    SchemaSource,
    schema_source,
)
from schemax.serve.service import Service


class Text(BaseModel):
    """Settings of the answer's text; only the type json_schema declares fields."""

    format: Form | None = None


class InputItem(BaseModel):
    """A message, a function call, its output, or a model's reasoning."""

    type: str = "message"
    role: Role | None = None
    content: str | list[Content] | None = None
    arguments: str | None = None
    output: str | list[Content] | None = None

    def message(self, place: int) -> Message | None:
        """The item as a message of a chat; None for items that prompts do not show.

        Raises ApiError (400).
        """
        param = f"input[{place}]"
        match self.type:
            case "message" if self.role is not None:
                return Message(role=self.role, content=self.content)
            case "message":
                raise ApiError(400, f"{param} is a message without a role", param=f"{param}.role")
            case "function_call":
                return Message(role="assistant", content=self.arguments or "")
            case "function_call_output":
                return Message(role="tool", content=self.output or "")
            case "reasoning":
                return None
        reason = "this server keeps no items; send the item itself"
        if self.type != "item_reference":
            reason = "messages, function_call, function_call_output and reasoning are read"
        raise ApiError(
            400, f"{param} is of type {clipped(repr(self.type))}: {reason}", param=f"{param}.type"
        )


class ResponsesRequest(Sampling):
    """A request of OpenAI's responses. Other keys are ignored."""

    model: str | None = None
    input: str | list[InputItem]
    instructions: str | None = None
    text: Text = Text()
    tools: list[Form] | None = None
    tool_choice: Any = None
    max_output_tokens: int | None = Field(None, ge=1)
    stream: bool | None = None
    previous_response_id: str | None = None
    conversation: Any = None

    def messages(self) -> list[Message]:
        """The messages, the instructions first. Raises ApiError (400)."""
        for param in ("previous_response_id", "conversation"):
            if getattr(self, param) is not None:
                reason = f"{param} needs earlier answers, and none is kept; send all of input"
                raise ApiError(400, reason, param=param)
        messages: list[Message | None] = []
        if self.instructions is not None:
            messages.append(Message(role="system", content=self.instructions))
        if isinstance(self.input, str):
            messages.append(Message(role="user", content=self.input))
        else:
            messages += [item.message(place) for place, item in enumerate(self.input)]
        return [message for message in messages if message is not None]

    def schema_source(self) -> SchemaSource:
        """Finds the schema. Raises ApiError (400) if there is no schema, or several."""
        form = self.text.format
        declared = form if form is not None and form.type == "json_schema" else None
        functions = [tool if tool.type == "function" else Form() for tool in self.tools or ()]
        params = "text.format", "text.format.schema", "tools[0].parameters"
        return schema_source(declared, functions, self.tool_choice, params)


def responses_routes(service: Service) -> APIRouter:
    """Makes the route of a service."""
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/responses", response_model=None)
    async def responses(body: ResponsesRequest, request: Request) -> Any:
        """Fills in the schema of `text.format`, or the arguments of the function in `tools`."""
        document, param, function = body.schema_source()
        schema = await service.schemas.of(document, param)
        messages, most = body.messages(), body.max_output_tokens
        completion = await CompletionRequest.of(
            service, messages, schema, body, most, ("input", param)
        )
        answer = _Answer(service.name, body, function)
        if body.stream:
            return await event_stream(request, answer.events(completion.parts()))
        done = await while_connected(request, completion.whole())
        return answer.whole(done, done.text)

    return router


class _Answer:
    """The answer in the form of this endpoint: a message, or a call of a function.

    A refusal is a part of the message, or a message behind the call.
    """

    def __init__(self, model: str, body: ResponsesRequest, function: str | None) -> None:
        self._function = function
        self._id = f"msg_{uuid.uuid4().hex}"
        self._head = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "error": None,
            "instructions": body.instructions,
            "metadata": {},
            "parallel_tool_calls": False,
            "tool_choice": "none",
            "tools": [],
            "temperature": body.temperature,
            "top_p": body.top_p,
        }

    def whole(self, done: Part, text: str) -> dict[str, Any]:
        """The whole answer. text: the whole text; the completion may have its end alone."""
        usage = done.usage or {}
        return {
            **self._head,
            "status": "incomplete" if done.is_cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if done.is_cut else None,
            "output": self._output(done, text),
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": usage["prompt_tokens_details"],
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
        }

    def _output(self, done: Part, text: str) -> list[dict[str, Any]]:
        refused = []
        if done.refusal is not None:
            refused.append(self._message("completed", _refusal(done.refusal)))
        if self._function is None:
            return refused or [self._message("completed", _text(text))]
        if refused and not text:
            return refused
        status = "incomplete" if done.is_cut or refused else "completed"
        return [self._call(status, text), *refused]

    async def events(self, parts: AsyncGenerator[Part]) -> AsyncGenerator[dict[str, Any]]:
        """Streams the answer: text, and a refusal, if any, as the second part of the content."""
        text, number = "", 0
        async with aclosing(parts):
            async for part in parts:
                events = [] if number else self._opening()
                for piece, _ in part.pieces:
                    events += self._delta(piece, is_first=not text)
                    text += piece
                if part.usage is not None:
                    whole = self.whole(part, text)
                    events += self._end(part, text, whole["output"])
                    events.append({"type": f"response.{whole['status']}", "response": whole})
                for event in events:
                    yield {"type": event["type"], "sequence_number": number, **event}
                    number += 1

    def _opening(self) -> list[dict[str, Any]]:
        begun = {**self._head, "status": "in_progress", "output": []}
        return [
            {"type": "response.created", "response": begun},
            {"type": "response.in_progress", "response": begun},
            _event("output_item.added", item=self._begun_item()),
        ]

    def _begun_item(self) -> dict[str, Any]:
        return self._message("in_progress") if self._function is None else self._call("in_progress")

    def _delta(self, piece: str, *, is_first: bool) -> Iterator[dict[str, Any]]:
        if self._function is not None:
            yield self._argument_event("delta", delta=piece)
            return
        if is_first:
            yield self._content_event("content_part.added", part=_text(""))
        yield self._content_event("output_text.delta", delta=piece, logprobs=[])

    def _end(self, done: Part, text: str, output: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        if self._function is not None:
            yield self._argument_event("done", arguments=text, name=self._function)
            called = output[0]
            if called["type"] != "function_call":  # refused before its first letter
                called = self._call("incomplete", text)
            yield _event("output_item.done", item=called)
            for item in output:
                if item["type"] == "message":
                    yield _event("output_item.added", output_index=1, item=item)
                    yield _event("output_item.done", output_index=1, item=item)
            return
        if text:
            yield self._content_event("output_text.done", text=text, logprobs=[])
            yield self._content_event("content_part.done", part=_text(text))
        if done.refusal is not None:
            place = 1 if text else 0
            yield self._content_event("content_part.added", place, part=_refusal(""))
            yield self._content_event("refusal.delta", place, delta=done.refusal)
            yield self._content_event("refusal.done", place, refusal=done.refusal)
            yield self._content_event("content_part.done", place, part=_refusal(done.refusal))
        yield _event("output_item.done", item=output[0])

    def _message(self, status: str, *content: dict[str, Any]) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "status": status,
            "content": list(content),
        }

    def _content_event(self, name: str, place: int = 0, /, **data: Any) -> dict[str, Any]:
        return _event(name, item_id=self._id, content_index=place, **data)

    def _argument_event(self, kind: str, /, **data: str | None) -> dict[str, Any]:
        return _event(f"function_call_arguments.{kind}", item_id=self._call_id("fc"), **data)

    def _call(self, status: str, arguments: str = "") -> dict[str, Any]:
        return {
            "id": self._call_id("fc"),
            "call_id": self._call_id("call"),
            "type": "function_call",
            "name": self._function,
            "arguments": arguments,
            "status": status,
        }

    def _call_id(self, kind: str) -> str:
        return self._id.replace("msg", kind, 1)


def _event(name: str, /, **data: Any) -> dict[str, Any]:
    return {"type": f"response.{name}", "output_index": 0, **data}


def _text(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": []}


def _refusal(reason: str) -> dict[str, Any]:
    return {"type": "refusal", "refusal": reason}
