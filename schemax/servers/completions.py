"""Completions: one request per slot, behind the prompt that all slots of a document share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from schemax.compiler.choices import Branches, Choices
from schemax.compiler.tokenizer import TextCodec
from schemax.config import DecodingConfig
from schemax.runtime.sampling.grammar import Automata
from schemax.runtime.slots.arrays import Ids
from schemax.runtime.slots.filling import AskedSlot, Filling
from schemax.runtime.slots.requests import Request
from schemax.servers.answers import Vocabulary
from schemax.servers.client import Client
from schemax.servers.dialects import PROBE, Served, completion, find_completions
from schemax.servers.remote import RemoteModel
from schemax.servers.slot_writer import Ask, SlotWriter
from schemax.tokens import SlotOutput

# The most choices that are sent as a grammar; `slot_writer` enforces grammars here anyway.
_MOST_TEXTS = 256
# Most formats write a value on a line, and JSON ends so. Any other rest is asked for again.
_STOPS, _STOPS_OF_OUTPUTS = ["\n"], ["\n}"]


class CompletionsModel(RemoteModel):
    """A model whose completions a server offers; its prefix cache reads a document once.

    codec: of the model's own tokenizer. Raises ServerError for a server without completions.
    """

    def __init__(self, client: Client, served: Served, codec: TextCodec) -> None:
        super().__init__(client, served, codec)
        self._vocabulary = Vocabulary(codec)
        self._way = find_completions(client, served, codec.encode(PROBE))
        self._automata = Automata(codec.vocab_size)

    @property
    def takes_ids(self) -> bool:
        """True if prompts are sent as token ids; else as text, which the server tokenizes."""
        return self._way.takes_ids

    def refusal(self, config: DecodingConfig) -> str | None:
        reason = super().refusal(config)
        if reason or config.layout != "gapped":
            return reason
        return (
            f"{self.client.url} reads plain texts, and the layout 'gapped' has position ids of its "
            "own; use the layouts 'branched' (the preset 'isolated') or 'autoregressive'"
        )

    async def fill(self, request: Request) -> tuple[SlotOutput, ...]:
        filling = Filling(request, follows_branches=False)
        await self._slots(filling, filling.slots)
        return filling.outputs

    async def _slots(self, filling: Filling, slots: Sequence[AskedSlot]) -> None:
        """Fills slots and all follow-ups.

        The first slot goes ahead, so that the others find its prompt in the cache. A server with
        slots remembers only the newest prompt of each, so it is asked for one slot at a time.
        """
        tasks: list[asyncio.Task[None]] = []
        try:
            for slot in slots:
                tasks.append(asyncio.create_task(self._slot(filling, slot)))
                if len(tasks) == 1 or self.served.slots is not None:
                    await tasks[-1]
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _slot(self, filling: Filling, slot: AskedSlot) -> None:
        """Fills a slot and its follow-ups."""
        request = filling.request
        head = (*request.prefix, *request.stem.tolist(), *slot.key)
        writer = SlotWriter(
            slot.spec,
            request.stop,
            slot.budget,
            self._automata,
            ends_at_stops=request.decoding.layout == "autoregressive",
            read=request.stem.tolist() if request.retries else None,
        )
        choices = slot.spec.follow_ups
        grammar = gbnf(choices.choices) if isinstance(choices, Branches) else None
        while (ask := writer.ask) is not None:
            body = self._body(head, ask, grammar, slot, request.decoding)
            writer.take(self._vocabulary.answer(await self.client.ask("/completions", body)))
            grammar = None  # it describes a whole value
        await self._slots(filling, filling.end(slot, writer.output))

    def _body(
        self, head: Ids, ask: Ask, grammar: str | None, slot: AskedSlot, config: DecodingConfig
    ) -> dict[str, Any]:
        ids = [*head, *ask.written]
        prompt = ids if self._way.takes_ids else self.codec.text_of(ids)
        body = completion(self.served, self._way, prompt, ask.max_tokens)
        if ask.stops:
            is_output = config.layout == "autoregressive"
            body["stop"] = _STOPS_OF_OUTPUTS if is_output else _STOPS
        if ask.bias:
            body["logit_bias"] = {str(token): value for token, value in ask.bias.items()}
        elif grammar is not None and self.served.dialect.grammar is not None:
            body |= self.served.dialect.grammar(grammar)
        if config.temperature > 0:
            seed = (config.seed + slot.digest + slot.number + len(ask.written)) % 2**31
            body |= {"temperature": config.temperature, "top_p": config.top_p, "seed": seed}
        return body


def gbnf(choices: Choices) -> str | None:
    """The grammar of all texts of a slot; None for too many to send with every request."""
    if len(choices.texts) > _MOST_TEXTS:
        return None
    texts = (json.dumps(text.decode(), ensure_ascii=False) for text in choices.texts)
    return f"root ::= {' | '.join(texts)}"
