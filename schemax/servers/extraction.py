"""Servers of schemax: one request per document, answered by the slots that the server decoded.

The server makes the prompt and decodes, as the same model would in this process. The texts of slots
are read here, by the class itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from schemax.attributes import settings_of
from schemax.attributes.json_classes import declaration_of
from schemax.base.messages import clipped
from schemax.compiler import CompiledSchema, compile_schema
from schemax.compiler.prompt import Conversation
from schemax.compiler.tokenizer import ByteCodec
from schemax.config import DecodingConfig, resolve_decoding
from schemax.errors import ModelError, ServerError
from schemax.formats import OutputFormat, get_format
from schemax.results.slot_text import Slots, slots_from_json
from schemax.runtime.slots.requests import Request
from schemax.servers.client import Client
from schemax.servers.dialects import Served
from schemax.servers.remote import RemoteModel
from schemax.tokens import SlotOutput

_SAMPLING = ("temperature", "top_p", "seed")


@dataclass(frozen=True, slots=True, eq=False)
class ServedSlots(SlotOutput):
    """All slots of a document, decoded by a server. reply: the server's answer, as parsed JSON."""

    reply: Mapping[str, Any] = field(default_factory=dict)


class ExtractionModel(RemoteModel):
    """A model asked for slots at `/v1/extract`; the server has its own prompts and decoding.

    A prompt holds the document alone: the declaration is sent beside it.
    """

    def __init__(self, client: Client, served: Served, codec: ByteCodec) -> None:
        super().__init__(client, served, codec)
        self._messages = codec.messages

    def refusal(self, config: DecodingConfig) -> str | None:
        usual = resolve_decoding(self.usual_decoding)
        own = {name: getattr(config, name) for name in (*_SAMPLING, "batch_size")}
        if config == replace(usual, **own):
            return None
        return self._with_remedy(f"of `decoding` it takes {', '.join(_SAMPLING)}")

    def _with_remedy(self, reason: str) -> str:
        return (
            f"{self.client.url} is a server of schemax, which decodes as it was started; {reason}. "
            'The kind "openai" (--server-kind openai) asks it by chat'
        )

    def compile(self, schema: Any, config: DecodingConfig, **settings: Any) -> CompiledSchema:
        """Compiles a schema with its declaration in the first slot.

        Raises ModelError for settings of the prompt, which are the server's alone.
        """
        named = [name for name, value in settings.items() if value]
        if named or settings.get("examples") is not None:
            names = " and ".join(f"`{name}`" for name in named or ("examples",))
            raise ModelError(self._with_remedy(f"leave {names} out"))
        if refusal := self.refusal(config):
            raise ModelError(refusal)
        if settings_of(schema).template:
            raise ModelError(f"{schema.__name__} names a template, and the server has its own")
        compiled = compile_schema(
            schema, self.codec, format="json", template=Conversation(), decoding=config, eos_ids=()
        )
        declaration = declaration_of(schema)
        for node in (declaration, *declaration.get("$defs", {}).values()):
            if "properties" in node:
                node.pop("format", None)  # the server's format replaces it
        first = replace(compiled.slots[0], json_schema=declaration)
        return replace(compiled, slots=(first, *compiled.slots[1:]), waves=None)

    async def fill(self, request: Request) -> tuple[SlotOutput, ...]:
        (message,) = self._messages([*request.prefix, *request.stem.tolist()])
        config = request.decoding
        sampling = {name: getattr(config, name) for name in _SAMPLING}
        body = {
            "schema": request.layout.specs[0].json_schema,
            "documents": [message["content"]],
            "html": "keep",  # HTML was removed before
            "slots": True,
            **(sampling if config.temperature > 0 else {}),
        }
        reply = await self.client.ask("/extract", body)
        try:
            (row,) = reply["rows"]
            if not row["slots"]:
                raise ServerError(str(row["errors"][0]["message"]), cause=row["cause"])
            return (ServedSlots((), "eos", passes=int(row["steps"]), reply=reply),)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise _unreadable(reply) from error


def read_slots(output: ServedSlots, compiled: CompiledSchema) -> tuple[Slots, OutputFormat, str]:
    """A server's (N,) slots, their format, and what its model reads before a document.

    Raises ServerError for slots that differ from the schema's.
    """
    attributes = compiled.attributes
    try:
        (row,), reading = output.reply["rows"], output.reply["reading"]
        labels = [list(attribute.labels) for attribute in attributes]
        if row["labels"] != labels:
            raise ValueError(f"it reads {row['labels']} where {labels} are declared")
        slots = slots_from_json(attributes, row["slots"])
        return slots, get_format(reading["format"]), str(reading["prompt"])
    except (KeyError, TypeError, ValueError) as error:
        raise ServerError(f"{_unreadable(output.reply)} ({error})") from error


def _unreadable(reply: Any) -> ServerError:
    return ServerError(f"the server answered without slots: {clipped(str(reply))}")
