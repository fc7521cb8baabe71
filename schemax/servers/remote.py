"""`RemoteModel`, a model that a server runs: fills slots as a model in this process does."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, ClassVar

from schemax.base.messages import warn
from schemax.config import DecodingConfig
from schemax.errors import ServerError
from schemax.runtime.slots.outputs import DocumentOutput
from schemax.tokens import SlotOutput

if TYPE_CHECKING:
    from schemax.compiler import CompiledSchema
    from schemax.compiler.tokenizer import TextCodec
    from schemax.runtime.slots.requests import Filled, Request
    from schemax.servers.client import Client
    from schemax.servers.dialects import Served

# The most seconds to wait for a result before new requests, and other work, get a turn.
_TURN = 0.05


class RemoteModel(ABC):
    """The base of models of servers, for all ways to ask them.

    codec: of the prompts. max_positions: the context that the server reports; None if unknown.
    at_once: the most documents in flight; each takes a slot of a server with slots.
    usual_decoding: the default preset.
    scores_choices: whether choices can be scored against documents without content.
    """

    usual_decoding: ClassVar[str] = "isolated"
    scores_choices: bool = False

    def __init__(self, client: Client, served: Served, codec: TextCodec) -> None:
        self.client, self.served, self.codec = client, served, codec
        self.name = served.model
        self.vocab_size = codec.vocab_size
        self.max_positions = served.context
        self.at_once = min(client.concurrency, served.slots or client.concurrency)

    def refusal(self, config: DecodingConfig) -> str | None:
        """The reason why the server cannot decode with these settings; None if it can."""
        chooses = "chooses tokens by itself, so that"
        name = reason = None
        if config.contextual_calibration and not self.scores_choices:
            name = "contextual_calibration"
            reason = f"{chooses} choices cannot be scored against documents without content"
        elif config.constrain == "document":
            name, reason = "constrain", f"{chooses} texts cannot be held to their document"
        elif config.nearest_examples:
            name = "nearest_examples"
            reason = "reads every prompt whole, so that examples of each document cannot be shared"
        return name and f"{self.client.url} {reason}; leave `{name}` out"

    @abstractmethod
    async def fill(self, request: Request) -> tuple[SlotOutput, ...]:
        """Fills the slots of a request, in the client's thread. Raises ServerError."""

    def fingerprint(self) -> dict[str, Any]:
        """The settings that rows depend on, as far as the server reports them."""
        return {
            "model": self.served.model,
            "server": self.served.kind,
            "asked": type(self).__name__,
        }

    def passes(
        self,
        requests: Iterator[Request],
        config: DecodingConfig,
        cancelled: deque[Request],
    ) -> Iterator[list[Filled]]:
        """Yields requests as they finish, with the errors of failed requests.

        requests: an iterator that may end for now and go on later, while requests are in flight.
        cancelled: cancelled requests.
        """
        most = self.at_once if config.batch_size == "auto" else config.batch_size
        done: SimpleQueue[Future[Filled]] = SimpleQueue()
        under_way: dict[Future[Filled], Request] = {}
        try:
            while True:
                results: list[Filled] = []
                while len(under_way) < most and (request := next(requests, None)) is not None:
                    future = self.client.start(self._filled_request(request))
                    under_way[future] = request
                    future.add_done_callback(done.put)
                gone = set(cancelled)
                cancelled.clear()
                for future in [future for future, item in under_way.items() if item in gone]:
                    del under_way[future]
                    future.cancel()
                with suppress(Empty):
                    if under_way:
                        results += _results(done.get(timeout=_TURN), under_way)
                    while True:
                        results += _results(done.get_nowait(), under_way)
                if not results and not under_way:
                    return
                yield results
        finally:
            for future in under_way:
                future.cancel()

    async def _filled_request(self, request: Request) -> Filled:
        try:
            return request, await self.fill(request)
        except ServerError as error:
            return request, DocumentOutput((), 0, str(error), cause=error.cause)


def _results(future: Future[Filled], under_way: dict[Future[Filled], Request]) -> Iterator[Filled]:
    if under_way.pop(future, None) is not None:
        yield future.result()


def warn_of_copying(compiled: CompiledSchema) -> None:
    """Warns of fields that are declared as extractive, which servers cannot enforce."""
    names = [attribute.name for attribute in compiled.attributes if attribute.extractive]
    if names:
        warn(
            f"{compiled.category}: a server chooses tokens by itself, so that `extractive` of "
            f"{', '.join(names)} has no effect there; check that their spans are not None"
        )
