"""`POST /v1/responses`: structured outputs in the form of OpenAI's newer endpoint."""

from __future__ import annotations

import time
import uuid
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from schemax.serve.completion import Sampling, complete
from schemax.serve.errors import ApiError
from schemax.serve.messages import Message
from schemax.serve.service import Service, while_connected


class TextFormat(BaseModel):
    """Only json_schema names fields that could be filled."""

    type: str = "text"
    name: str = "schema"
    document: dict[str, Any] | None = Field(None, alias="schema")


class Text(BaseModel):
    """How the text is written."""

    format: TextFormat | None = None


class ResponsesRequest(Sampling):
    """A request of OpenAI's responses. What is not named here is ignored."""

    model: str | None = None
    input: str | list[Message]
    instructions: str | None = None
    text: Text = Text()
    tools: list[Any] | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    stream: bool | None = None

    def messages(self) -> list[Message]:
        """What is said, the instructions first."""
        said = self.input
        if isinstance(said, str):
            said = [Message(role="user", content=said)]
        if self.instructions is None:
            return said
        return [Message(role="system", content=self.instructions), *said]


def responses_routes(service: Service) -> APIRouter:
    """The route, for a service."""
    router = APIRouter(tags=["OpenAI"])

    @router.post("/v1/responses", response_model=None)
    async def responses(body: ResponsesRequest, request: Request) -> Any:
        """Structured outputs of `text.format`; neither tools nor streams."""
        for name in ("tools", "stream"):
            if getattr(body, name):
                raise ApiError(
                    400, f"{name} is not supported here; use /v1/chat/completions", param=name
                )
        wanted = body.text.format
        if wanted is None or wanted.type != "json_schema":
            raise ApiError(
                400,
                "a schema is missing: send text.format of type json_schema; this server fills in "
                "declared fields and writes no other text",
                param="text.format",
            )
        schema = await service.schema(wanted.document, "text.format.schema")
        done = await while_connected(
            request, complete(service, body.messages(), schema, body, body.max_output_tokens)
        )
        if done.refusal is None:
            content = {"type": "output_text", "text": done.text, "annotations": []}
        else:
            content = {"type": "refusal", "refusal": done.refusal}
        message = {
            "id": f"msg_{uuid.uuid4().hex}",
            "type": "message",
            "role": "assistant",
            "status": "completed",
            "content": [content],
        }
        usage = done.usage
        return {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "model": service.name,
            "status": "incomplete" if done.is_cut else "completed",
            "incomplete_details": {"reason": "max_output_tokens"} if done.is_cut else None,
            "error": None,
            "instructions": body.instructions,
            "metadata": {},
            "output": [message],
            "parallel_tool_calls": False,
            "tool_choice": "none",
            "tools": [],
            "temperature": body.temperature,
            "top_p": body.top_p,
            "usage": {
                "input_tokens": usage["prompt_tokens"],
                "input_tokens_details": usage["prompt_tokens_details"],
                "output_tokens": usage["completion_tokens"],
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": usage["total_tokens"],
            },
        }

    return router
