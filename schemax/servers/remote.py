"""A model that a server runs: requests in, filled slots out, as of a model in this process."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from concurrent.futures import Future
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar

from schemax.config import DecodingConfig
from schemax.errors import ServerError
from schemax.runtime.outputs import DocumentOutput, exceeds
from schemax.runtime.requests import Request
from schemax.tokens import SlotOutput

if TYPE_CHECKING:
    from schemax.compiler.tokenizer import TextCodec
    from schemax.runtime.language_model import PromptSize
    from schemax.runtime.stream import Filled, Refused
    from schemax.servers.client import Client
    from schemax.servers.dialects import Served


class RemoteModel(ABC):
    """What both ways to ask a server have in common.

    codec: of the prompts. max_positions: the context that the server states; None for no word.
    usual_decoding: where nothing else is asked for.
    """

    usual_decoding: ClassVar[str] = "isolated"

    def __init__(self, client: Client, served: Served, codec: TextCodec) -> None:
        self.client, self.served, self.codec = client, served, codec
        self.name = served.model
        self.vocab_size = codec.vocab_size
        self.max_positions = served.context

    @abstractmethod
    def refusal(self, config: DecodingConfig) -> str | None:
        """Why the server cannot decode with these settings; None if it can."""

    @abstractmethod
    async def fill(self, request: Request, config: DecodingConfig) -> tuple[SlotOutput, ...]:
        """The slots of a request, in the client's thread. Raises ServerError."""

    def misfit(self, size: PromptSize) -> str | None:
        """Why a prompt exceeds the context that the server states; None if it fits."""
        return exceeds(size.max_position + 1, self.max_positions)

    def uses_long_rope(self, size: PromptSize) -> bool:
        return False

    def bound(self, size: PromptSize) -> int | None:
        return self.max_positions

    def fingerprint(self) -> dict[str, Any]:
        """What rows depend on, as far as a server tells: not where it stands, nor any key."""
        return {
            "model": self.served.model,
            "server": self.served.kind,
            "asked": type(self).__name__,
        }

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
                    elif isinstance(item, Request):
                        future = self.client.start(self._filled(item, config))
                        under_way.add(future)
                        future.add_done_callback(done.put)
                    else:
                        yield item
                must_wait = not is_open or len(under_way) == most
                while under_way and (must_wait or not done.empty()):
                    must_wait = False
                    under_way.discard(future := done.get())
                    yield from future.result()
        finally:
            for future in under_way:
                future.cancel()

    async def _filled(self, request: Request, config: DecodingConfig) -> list[Filled | Refused]:
        # Here and not above, since commands that load no model must not import torch.
        from schemax.runtime.stream import Refused

        try:
            return [(request, await self.fill(request, config))]
        except ServerError as error:
            output = DocumentOutput((), 0, str(error), is_gone=error.is_gone)
            places = (first + j for first in request.places for j in range(request.num_documents))
            return [Refused(place, output) for place in places]
