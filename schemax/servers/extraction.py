"""Servers of schemax: one request per document, answered by the slots that the server decoded.

The server makes the prompt and decodes, as the same model would in this process; the texts of slots
are read here, by the class itself.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

from schemax.attributes import settings_of
from schemax.attributes.json_classes import declaration_of
from schemax.base.messages import clipped
from schemax.compiler import CompiledSchema, compile_schema
from schemax.compiler.prompt import Conversation
from schemax.compiler.tokenizer import ByteCodec
from schemax.config import DecodingConfig, resolve_decoding
from schemax.errors import ModelError, ServerError
from schemax.formats import get_format
from schemax.results import Extraction, build, failed
from schemax.results.slot_text import slots_from_json
from schemax.runtime.slots.requests import Request
from schemax.servers.client import Client
from schemax.servers.dialects import Served
from schemax.servers.remote import RemoteModel
from schemax.tokens import SlotOutput

_SAMPLING = ("temperature", "top_p", "seed")


class DeclarationCodec(ByteCodec):
    """A codec of prompts of a document alone: the declaration is sent beside the document."""


class ExtractionModel(RemoteModel):
    """A model asked for slots at `/v1/extract`; the server has its own prompts and decoding."""

    def __init__(self, client: Client, served: Served, codec: DeclarationCodec) -> None:
        super().__init__(client, served, codec)
        self._messages, self._opening = codec.messages, get_format("json").opening()

    def refusal(self, config: DecodingConfig) -> str | None:
        usual = resolve_decoding(self.usual_decoding)
        own = {name: getattr(config, name) for name in (*_SAMPLING, "batch_size")}
        if config == replace(usual, **own):
            return None
        return self._not_taken(f"of `decoding` it takes {', '.join(_SAMPLING)}")

    def _not_taken(self, taken: str) -> str:
        return (
            f"{self.client.url} is a server of schemax, which decodes as it was started; {taken}. "
            'The kind "openai" (--server-kind openai) asks it by chat'
        )

    def compile(self, schema: Any, config: DecodingConfig, **settings: Any) -> CompiledSchema:
        """Compiles a schema. Raises ModelError for settings of the prompt, the server's alone."""
        named = [name for name, value in settings.items() if value]
        if named or settings.get("examples") is not None:
            given = " and ".join(f"`{name}`" for name in named or ("examples",))
            raise ModelError(self._not_taken(f"leave {given} out"))
        if refusal := self.refusal(config):
            raise ModelError(refusal)
        return _compiled(schema, self.codec, config)

    async def fill(self, request: Request) -> tuple[SlotOutput, ...]:
        (message,) = self._messages([*request.prefix, *request.stem.tolist()])
        config = request.decoding
        sampling = {name: getattr(config, name) for name in _SAMPLING}
        body = {
            "schema": request.layout.specs[0].json_schema,
            "documents": [message["content"].removesuffix(self._opening)],
            "html": "keep",  # HTML was removed before
            "slots": True,
            **(sampling if config.temperature > 0 else {}),
        }
        reply = await self.client.ask("/extract", body)
        try:
            (row,) = reply["rows"]
            if not row["slots"]:
                raise ServerError(str(row["errors"][0]["message"]), is_gone=bool(row["is_gone"]))
            # `read_slots` checks that they are slots of this declaration.
            data = json.dumps({**row, "reading": reply["reading"]}).encode()
            return (SlotOutput(tuple(data), "eos", passes=int(row["steps"])),)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise _unreadable(reply) from error


@lru_cache(maxsize=128)
def _compiled(schema: Any, codec: Any, config: DecodingConfig) -> CompiledSchema:
    """Compiles a schema with the declaration for the server in the first slot."""
    if settings_of(schema).template:
        raise ModelError(f"{schema.__name__} names a template, and the server has its own")
    found = compile_schema(
        schema, codec, format="json", template=Conversation(), decoding=config, eos_ids=()
    )
    declared = declaration_of(schema)
    for node in (declared, *declared.get("$defs", {}).values()):
        if "properties" in node:
            node.pop("format", None)  # which gives way to the server's
    first = replace(found.slots[0], json_schema=declared)
    return replace(found, slots=(first, *found.slots[1:]), waves=None)


def read_slots(
    output: SlotOutput,
    compiled: CompiledSchema,
    *,
    index: int,
    document_id: str | None,
    texts: Mapping[str, str],
) -> Extraction[Any]:
    """Reads a server's slots by the class itself; makes a failed row of slots that differ."""
    attributes, told = compiled.attributes, json.loads(bytes(output.ids))
    try:
        reading = told["reading"]
        labels = [list(attribute.labels) for attribute in attributes]
        if told["labels"] != labels:
            raise ValueError(f"it reads {told['labels']} where {labels} are declared")
        return build(
            compiled.schema,
            attributes,
            slots_from_json(attributes, told["slots"]),
            get_format(reading["format"]),
            index=index,
            document_id=document_id,
            steps=output.passes,
            texts=texts,
            prompt=str(reading["prompt"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        return failed(index, document_id, f"{_unreadable(told)} ({error})", steps=output.passes)


def _unreadable(reply: Any) -> ServerError:
    return ServerError(f"the server answered without slots: {clipped(str(reply))}")
