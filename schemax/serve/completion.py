"""Completions for OpenAI's two endpoints: turns messages and a schema into an instance's text."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, Field

from schemax.attributes import asked_fields
from schemax.attributes.json_classes import forbidden_by_document, is_judged_whole
from schemax.base.messages import clipped
from schemax.compiler import CompiledSchema
from schemax.compiler.prompt import Conversation
from schemax.extraction.documents import RecordFields, read_documents
from schemax.extraction.readout import read_part
from schemax.results import Extraction
from schemax.serve.answers import ApiError
from schemax.serve.output import Piece, behind, inner, pieces, refusal, text_of, written
from schemax.serve.request_schemas import ClientSchema
from schemax.serve.service import Service
from schemax.tokens import SlotOutput

# A client's limit below this many tokens bounds every value; no value is longer.
_SHORT = 64


class Sampling(BaseModel):
    """Settings of sampling. Unlike OpenAI's, the default is greedy."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None

    @property
    def settings(self) -> dict[str, Any]:
        """The settings by their names in `DecodingConfig`; None for the server's own setting."""
        return {name: getattr(self, name) for name in Sampling.model_fields}


class Form(BaseModel):
    """A declaration: the form of the answer by its schema, or a function by its parameters."""

    type: str = "function"
    name: str | None = None
    document: dict[str, Any] | None = Field(default=None, alias="schema")
    parameters: dict[str, Any] | None = None


SchemaSource = tuple[dict[str, Any] | None, str, str | None]
"""(a JSON Schema document, its parameter in the request, the name of the called function)."""


def schema_source(
    form: Form | None, functions: Sequence[Form], choice: Any, params: tuple[str, str, str]
) -> SchemaSource:
    """The schema of the answer, or of the only function, unless the choice of tools is none.

    functions: without a name for tools that are something else. params: of the form, its schema and
    the function's parameters. Raises ApiError (400) if there is no schema, or several.
    """
    if functions and choice != "none":
        function = functions[0]
        if len(functions) > 1 or function.name is None:
            reason = "tools must be one function: its arguments are filled in"
            raise ApiError(400, reason, param="tools")
        named = choice.get("function", choice) if isinstance(choice, dict) else None
        name = named.get("name") if isinstance(named, dict) else None
        if name not in (None, function.name):
            reason = f"tool_choice names the function {clipped(str(name))!r}; tools has "
            raise ApiError(400, f"{reason}{function.name!r}", param="tool_choice")
        return function.parameters, params[2], function.name
    if form is None:
        raise ApiError(
            400,
            f"a schema is missing: send {params[0]} of type json_schema, or tools with one "
            "function and another tool_choice than none; this server fills in declared fields and "
            "writes no other text",
            param=params[0],
        )
    return form.document, params[1], None


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """Final JSON text, and the extraction of its fields.

    The last part has the pieces behind all other parts, () for a refusal. is_cut: whether the
    client's own limit of tokens cut a value. usage: of the completion; None before the last part.
    """

    pieces: Sequence[Piece]
    item: Extraction[Any]
    refusal: str | None = None
    is_cut: bool = False
    usage: dict[str, Any] | None = None

    @property
    def text(self) -> str:
        return text_of(self.pieces)


@dataclass(frozen=True, slots=True, eq=False)
class CompletionRequest:
    """A request of either endpoint: the last message is the document, earlier ones the prompt.

    A model with a prompt of its own, which it was trained on, reads the last message as a document
    in that prompt.

    param: the messages' key. is_short: True if the client's limit of tokens bounds every value.
    """

    service: Service
    text: str
    schema: ClientSchema
    options: dict[str, Any]
    compiled: CompiledSchema
    is_short: bool
    param: str

    @classmethod
    async def of(
        cls,
        service: Service,
        messages: Sequence[Message],
        schema: ClientSchema,
        sampling: Sampling,
        most_tokens: int | None,
        params: tuple[str, str],
    ) -> CompletionRequest:
        """Compiles a request. Raises ApiError.

        params: the request's parameters of messages and schema, which errors name.
        """
        param, schema_param = params
        conversation, text = as_prompt(messages, param)
        is_short = most_tokens is not None and most_tokens < _SHORT
        options: dict[str, Any] = {
            # Each model of a cascade has its own prompt, so that of the first is not named here.
            "template": None if service.extractor.defaults.template else conversation,
            "decoding": service.decoding(
                **sampling.settings,
                k_max=most_tokens if is_short else None,
                max_retries=0 if is_short else None,
            ),
        }
        compiled = await service.compiled(schema, options, schema_param)
        return cls(service, text, schema, options, compiled, is_short, param)

    async def whole(self) -> Part:
        """Extracts an instance."""
        items = self.service.stream([self.text], self.schema, **self.options)
        async with aclosing(items):
            return await self._last(await anext(items), "")

    async def parts(self) -> AsyncGenerator[Part]:
        """Yields the text as it becomes final: every field once it and all before it are done.

        If a required value is missing, a refusal follows the parts before the value.
        """
        calibration = self.service.extractor.defaults.calibration
        (document,) = read_documents([self.text], RecordFields())
        fields, done, sent = self._final_fields(), dict[int, SlotOutput](), ""
        events = self.service.watch(self.text, self.schema, **self.options)
        async with aclosing(events):
            async for event in events:
                if isinstance(event, Extraction):
                    yield await self._last(event, sent)
                    continue
                done.update(event.done)
                while fields:
                    item = read_part(fields[0], document, done, self.compiled, calibration)
                    if item is None:
                        break
                    if item.value is None:  # only the whole instance has the reason
                        fields.clear()
                        break
                    del fields[0]
                    if field_pieces := inner(pieces(item.value), is_first=not sent):
                        sent += text_of(field_pieces)
                        yield Part(field_pieces, item)

    def _final_fields(self) -> list[str]:
        """The fields that are final before the instance is; [] if conditions on the whole instance
        may still drop a value, or if the model writes the whole output itself."""
        model = self.schema.model
        is_whole = self.compiled.decoding.layout == "autoregressive" or is_judged_whole(model)
        if is_whole or asked_fields(model).keys() != model.model_fields.keys():
            return []
        return list(model.model_fields)

    async def _last(self, item: Extraction[Any], sent: str) -> Part:
        """The last part of a completion. sent: the text of the parts so far.

        Raises ApiError if the document was not read at all.
        """
        if not item.slots:
            raise _unread(item, self.param)
        is_cut = self.is_short and any(s.finish_reason == "length" for s in item.slots if s)
        usage = usage_of(self.compiled, self.text, item)
        if item.value is None:
            return Part((), item, refusal(item), is_cut, usage)
        parts = pieces(item.value)
        # A client's document may have conditions on the whole instance. Their cost depends on the
        # document, hence the thread.
        output = json.loads(text_of(parts))
        forbidden = await asyncio.to_thread(forbidden_by_document, self.schema.model, output)
        if forbidden is not None:
            reason = f"the output is not what the schema allows: {forbidden}"
            return Part((), item, reason, is_cut, usage)
        return Part(behind(sent, parts), item, None, is_cut, usage)


def _unread(item: Extraction[Any], param: str) -> ApiError:
    """The error of an unread document; 503, after which clients try again, if the server fails."""
    message = refusal(item)
    if item.is_gone:
        return ApiError(503, message, headers={"Retry-After": "1"})
    code = "context_length_exceeded" if item.cause == "length" else None
    return ApiError(400, message, param=param, code=code)


def usage_of(compiled: CompiledSchema, text: str, item: Extraction[Any]) -> dict[str, Any]:
    """The usage in OpenAI's form. Keys are read, not written, so they count as prompt tokens."""
    shared = len(compiled.instruction)
    if compiled.nearest is not None:
        shared += sum(map(len, compiled.nearest.of(text)))
    read = shared + len(compiled.opening) + len(compiled.codec.encode(text))
    if compiled.decoding.is_branched:
        slots = [slot for slot in item.slots if slot is not None]  # branches have no None
        read += sum(len(slot.key) for slot in compiled.known(slots))
    else:
        read += sum(map(len, compiled.keys[0]))
    num_written = written(item.slots)
    return {
        "prompt_tokens": read,
        "completion_tokens": num_written,
        "total_tokens": read + num_written,
        "prompt_tokens_details": {"cached_tokens": shared},
    }


Role = Literal["system", "developer", "user", "assistant", "tool", "function"]
_ROLES = {"developer": "system", "tool": "user", "function": "user"}


class Content(BaseModel):
    """A part of a message's content."""

    type: str
    text: str | None = None


class Message(BaseModel):
    """A message; the content of a tool call is its arguments."""

    role: Role
    content: str | list[Content] | None = None
    tool_calls: list[dict[str, Any]] | None = None

    def text(self, place: str) -> str:
        """The text of the message. place: the message's in its request.

        Raises ApiError (400) for content that is no text.
        """
        if isinstance(self.content, str):
            return self.content
        if self.content is None:
            calls = [call.get("function") for call in self.tool_calls or ()]
            return "\n".join(str(c.get("arguments", "")) for c in calls if isinstance(c, dict))
        for part in self.content:
            if part.text is None:
                raise ApiError(
                    400,
                    f"{place} has a part of type {part.type!r}; only text is read",
                    param=f"{place}.content",
                )
        return "\n".join(part.text or "" for part in self.content)


def as_prompt(messages: Sequence[Message], param: str) -> tuple[Conversation, str]:
    """The messages before the last, and the text of the last message, which is the document.

    param: the key of the messages in the request.

    Raises ApiError (400) if the last message is not the user's, or is empty.
    """
    *earlier, (role, text) = [
        (_ROLES.get(message.role, message.role), message.text(f"{param}[{place}]"))
        for place, message in enumerate(messages)
    ] or [("", "")]
    if role != "user":
        raise ApiError(
            400, f"{param} must end with a message of the user's, the text to read", param=param
        )
    if not text.strip():
        raise ApiError(400, f"{param} must end with a text to read, which is empty", param=param)
    return Conversation(tuple(earlier)), text
