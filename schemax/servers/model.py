"""A model that a server runs: requests in, filled slots out, as of a model in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace
from queue import SimpleQueue
from typing import Any

from schemax.compiler.choices import Branches
from schemax.compiler.tokenizer import TextCodec
from schemax.config import DecodingConfig
from schemax.errors import ServerError
from schemax.runtime.children import called_for
from schemax.runtime.fork import Branch, branches_of, child_of
from schemax.runtime.grammar import Automata
from schemax.runtime.language_model import PromptSize, exceeds
from schemax.runtime.outputs import DocumentOutput
from schemax.runtime.plan import Ids
from schemax.runtime.requests import Request
from schemax.runtime.stream import Filled, Refused
from schemax.servers.answers import Vocabulary
from schemax.servers.client import Client
from schemax.servers.dialects import Served, completion, find_completions
from schemax.servers.grammars import gbnf
from schemax.servers.slot_writer import Ask, SlotWriter
from schemax.tokens import SlotOutput

# Most formats write a value on a line. What else is cut off by it is asked for.
_STOPS = ["\n"]


class ServerModel:
    """A server's completions: a request per slot. What the slots of a document have in common comes
    first, so that the server's prefix cache reads it once.

    client: asked from the first call on. codec: of the model's own tokenizer.

    Raises ServerError for a server without completions.
    """

    def __init__(self, client: Client, served: Served, codec: TextCodec) -> None:
        self.client, self.served, self.codec = client, served, codec
        self.vocab_size = codec.vocab_size
        self.max_positions = served.context
        self._vocabulary = Vocabulary(codec)
        self._way = find_completions(client, served, codec.encode("a"), "a")
        self._automata = Automata(codec.vocab_size)

    # --- what the engine asks of every model -----------------------------------------------------

    def refusal(self, config: DecodingConfig) -> str | None:
        """Why the server cannot decode with these settings; None if it can."""
        if config.layout != "gapped":
            return None
        return (
            f"{self.client.url} reads plain texts, and the layout 'gapped' has position ids of its "
            "own; use the layouts 'branched' (the preset 'isolated') or 'autoregressive'"
        )

    def misfit(self, size: PromptSize) -> str | None:
        """Why a prompt exceeds the context that the server states; None if it fits."""
        return exceeds(size.max_position + 1, self.max_positions)

    def uses_long_rope(self, size: PromptSize) -> bool:
        return False

    def bound(self, size: PromptSize) -> int | None:
        return self.max_positions

    def run(
        self, requests: Iterator[Request | Refused], config: DecodingConfig
    ) -> Iterator[Filled | Refused]:
        """Requests as they are done. One that the server fails at is refused, and says why."""
        most = self.client.concurrency if config.batch_size == "auto" else config.batch_size
        done: SimpleQueue[Future[list[Filled | Refused]]] = SimpleQueue()
        under_way: set[Future[list[Filled | Refused]]] = set()
        is_open = True
        try:
            while is_open or under_way:
                if is_open and len(under_way) < most:
                    if (item := next(requests, None)) is None:
                        is_open = False
                    elif isinstance(item, Refused):
                        yield item
                    else:
                        future = self.client.start(self._fill(item, config))
                        under_way.add(future)
                        future.add_done_callback(done.put)
                must_wait = under_way and (not is_open or len(under_way) == most)
                while under_way and (must_wait or not done.empty()):
                    must_wait = False
                    under_way.discard(future := done.get())
                    yield from future.result()
        finally:
            for future in under_way:
                future.cancel()

    # --- in the client's thread ------------------------------------------------------------------

    async def _fill(self, request: Request, config: DecodingConfig) -> list[Filled | Refused]:
        try:
            slots = await self._slots(request, list(branches_of(0, request)), config)
        except ServerError as error:
            output = DocumentOutput((), 0, str(error), is_gone=error.is_gone)
            places = (first + j for first in request.places for j in range(request.num_documents))
            return [Refused(place, output) for place in places]
        return [(request, tuple(slots))]

    async def _slots(
        self, request: Request, branches: Sequence[Branch], config: DecodingConfig
    ) -> list[SlotOutput]:
        """The first one goes ahead, so that the others find in the cache what it has read."""
        tasks: list[asyncio.Task[SlotOutput]] = []
        try:
            for branch in branches:
                tasks.append(asyncio.create_task(self._slot(request, branch, config)))
                if len(tasks) == 1:
                    await tasks[0]
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()

    async def _slot(self, request: Request, branch: Branch, config: DecodingConfig) -> SlotOutput:
        """A slot, and those that its value calls for."""
        head = (*request.prefix, *request.stem.tolist(), *branch.key)
        writer = SlotWriter(branch.spec, request.stop, branch.budget, self._automata)
        choices = branch.spec.branching
        grammar = gbnf(choices.choices) if isinstance(choices, Branches) else None
        while (ask := writer.ask) is not None:
            body = self._body(head, ask, grammar, branch, config)
            writer.take(self._vocabulary.answer(await self.client.ask("/completions", body)))
            grammar = None  # of a whole value
        output = writer.output
        whole = output.finish_reason != "length"
        children = called_for(branch.spec, output, 0)[0] if whole else ()
        called = [child_of(branch, place, child, request) for place, child in enumerate(children)]
        found = await self._slots(request, called, config)
        return replace(output, children=tuple(found)) if found else output

    def _body(
        self, head: Ids, ask: Ask, grammar: str | None, branch: Branch, config: DecodingConfig
    ) -> dict[str, Any]:
        ids = [*head, *ask.written]
        prompt = ids if self._way.takes_ids else self.codec.text_of(ids)
        body = completion(self.served, self._way, prompt, ask.max_tokens)
        if ask.stops and config.layout != "autoregressive":
            body["stop"] = _STOPS
        if ask.bias:
            body["logit_bias"] = {str(token): value for token, value in ask.bias.items()}
        elif grammar is not None and self.served.dialect.grammar is not None:
            body |= self.served.dialect.grammar(grammar)
        if config.temperature > 0:
            seed = (config.seed + branch.digest + branch.number + len(ask.written)) % 2**31
            body |= {"temperature": config.temperature, "top_p": config.top_p, "seed": seed}
        return body
