"""What both of OpenAI's endpoints do: messages and a schema become the text of one instance."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from schemax.compiler import CompiledSchema
from schemax.results import Extraction
from schemax.serve.messages import Message, as_prompt
from schemax.serve.output import Piece, pieces, refusal, written
from schemax.serve.schemas import ClientSchema
from schemax.serve.service import Service

# Fewer tokens than these bound every value; more than these no value has.
_SHORT = 64


class Sampling(BaseModel):
    """How tokens are chosen. Unlike at OpenAI, greedily where nothing is said."""

    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Completion:
    """pieces: of the JSON text; () where there is a refusal. is_cut: whether the client's own limit
    of tokens ended a value."""

    item: Extraction[Any]
    pieces: Sequence[Piece]
    refusal: str | None
    is_cut: bool
    usage: dict[str, Any]

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.pieces)


async def complete(
    service: Service,
    messages: Sequence[Message],
    schema: ClientSchema,
    sampling: Sampling,
    most_tokens: int | None,
) -> Completion:
    """One instance of what the last message says, behind the others.

    A model that comes with a prompt of its own, which it was trained on, reads the last message as
    a document in that prompt.
    """
    conversation, text = as_prompt(messages)
    is_short = most_tokens is not None and most_tokens < _SHORT
    options: dict[str, Any] = {
        "template": service.extractor.template or conversation,
        "decoding": service.decoding(
            **sampling.model_dump(include={"temperature", "top_p", "seed"}),
            k_max=most_tokens if is_short else None,
            max_retries=0 if is_short else None,
        ),
    }
    compiled = await asyncio.to_thread(service.extractor.compile, schema.model, **options)
    async with aclosing(service.stream([text], schema, **options)) as items:
        item = await anext(items)
    is_cut = is_short and any(slot.finish_reason == "length" for slot in item.slots if slot)
    value = item.value
    found = [] if value is None else pieces(value, schema)
    reason = refusal(item) if value is None else None
    return Completion(item, found, reason, is_cut, _usage(compiled, text, item))


def _usage(compiled: CompiledSchema, text: str, item: Extraction[Any]) -> dict[str, Any]:
    """Keys are read, not written, so they count as tokens of the prompt."""
    shared = len(compiled.instruction)
    read = shared + len(compiled.opening) + len(compiled.codec.encode(text))
    if compiled.decoding.is_branched:
        slots = [slot for slot in item.slots if slot is not None]  # as all are, of branches
        read += sum(len(slot.key) for slot in compiled.known(slots))
    else:
        read += sum(map(len, compiled.keys[0]))
    wrote = written(item.slots)
    return {
        "prompt_tokens": read,
        "completion_tokens": wrote,
        "total_tokens": read + wrote,
        "prompt_tokens_details": {"cached_tokens": shared},
    }
