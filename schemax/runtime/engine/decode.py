"""Fills prompts: lays them out as requests and has the model's way of decoding run them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, Protocol

from schemax.config import DecodingConfig
from schemax.errors import ModelError
from schemax.runtime.engine.fork import ForkModel, fork_stream
from schemax.runtime.engine.stream import stream
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.outputs import DocumentOutput, exceeds, passes_of, too_long
from schemax.runtime.slots.requests import Filled, Request, new_request, with_retries
from schemax.tokens import PromptIds, SlotOutput, StopTable


class ForeignModel(Protocol):
    """A model that runs requests in a way of its own, as `servers.remote.RemoteModel` does."""

    max_positions: int | None

    @property
    def vocab_size(self) -> int: ...
    def refusal(self, config: DecodingConfig) -> str | None: ...
    def passes(
        self,
        requests: Iterator[Request],
        config: DecodingConfig,
        cancelled: deque[Request],
    ) -> Iterator[list[Filled]]: ...


Model = DecoderModel | ForkModel
AnyModel = Model | ForeignModel
Placed = tuple[int, DocumentOutput]
"""A document's output, with the document's place in the input."""

# Prompts taken from the input at a time, to be sorted by length: few at first, so that the model
# has something to do while others are laid out.
_FIRST_WINDOW, _WINDOW = 64, 1024


class PausableRequests(Iterator[Request]):
    """The requests of `take`; pauses while it returns None, and goes on later."""

    def __init__(self, take: Callable[[], Request | None]) -> None:
        self._take = take

    def __next__(self) -> Request:
        request = self._take()
        if request is None:
            raise StopIteration
        return request


def passes(
    model: AnyModel,
    requests: Iterator[Request],
    config: DecodingConfig,
    cancelled: deque[Request] | None = None,
) -> Iterator[list[Filled]]:
    """Yields what every pass finishes, in the way that the model decodes; see `stream.stream`."""
    cancelled = deque() if cancelled is None else cancelled
    if isinstance(model, DecoderModel):
        return stream(model, requests, config, cancelled)
    if isinstance(model, ForkModel):
        return fork_stream(model, requests, config, cancelled)
    return model.passes(requests, config, cancelled)


class Windows:
    """Lays out prompts, a window at a time: like lengths together, equal documents once.

    size: of the next window, in prompts: small at first, so that the model has something to do
    while others are laid out.
    """

    def __init__(self, model: AnyModel, config: DecodingConfig) -> None:
        self._model, self._config = model, config
        self._place, self._descending = 0, False
        self.size = _FIRST_WINDOW

    def requests(
        self, window: Iterable[tuple[PromptIds, StopTable]]
    ) -> tuple[list[Request], list[Placed]]:
        """(the requests of a window's prompts, the refusals of documents that do not fit).

        Places count documents through all windows.
        """
        requests: list[Request] = []
        refused: list[Placed] = []
        known: dict[Any, Request] = {}
        for prompt, stop in window:
            place, self._place = self._place, self._place + len(prompt.documents)
            # Documents of a category share these objects, so their ids are compared.
            shared = id(prompt.instruction), id(prompt.keys[0]), id(prompt.slots), id(stop)
            key = prompt.documents, prompt.demonstrations, prompt.answers, shared
            if (equal := known.get(key)) is not None:
                equal.places.append(place)
                continue
            new = new_request(prompt, stop, self._config, place)
            request = checked_request(self._model, new, self._config)
            if isinstance(request, Request):
                known[key] = request
                requests.append(request)
            else:
                refused += request
        # Up and down in turn, so that neighbours are alike from one window to the next as well.
        requests.sort(key=_alike, reverse=self._descending)
        self._descending, self.size = not self._descending, min(2 * self.size, _WINDOW)
        return requests, refused


def checked_request(
    model: AnyModel, request: Request, config: DecodingConfig
) -> Request | list[Placed]:
    """The request with retry budgets, or one refusal per document."""
    if problem := exceeds(request.max_position, model.max_positions):
        tokens = enumerate(request.num_document_tokens, request.places[0])
        return [(place, too_long(problem, count)) for place, count in tokens]
    request.retries, request.bound = config.max_retries, model.max_positions
    last = request.layout.last_position + request.first_position
    request.budgets = with_retries(request.budgets, last, request.retries, request.bound)
    return request


def outputs(done: Iterable[Filled]) -> Iterator[Placed]:
    """(place, output) of every document."""
    for request, slots in done:
        for j in range(request.num_documents):
            if isinstance(slots, DocumentOutput):
                output = slots
            else:
                own = _slots_of(request, slots, j)
                output = DocumentOutput(own, passes_of(own), document=j)
            for first in request.places:
                yield first + j, output


def decode(
    model: AnyModel, prompts: Iterable[PromptIds], stop: StopTable, config: DecodingConfig
) -> list[tuple[SlotOutput, ...]]:
    """The (J * N,) slot outputs of every prompt, in order, for proofs.

    Prompts are not sorted, and equal prompts are not merged. Raises ModelError for a prompt that
    fails, and ValueError for one that exceeds the model's context.
    """
    requests: list[Request] = []
    for place, prompt in enumerate(prompts):
        request = checked_request(model, new_request(prompt, stop, config, place), config)
        if not isinstance(request, Request):
            raise ValueError(request[0][1].problem)
        requests.append(request)
    filled: dict[int, tuple[SlotOutput, ...]] = {}
    for request, slots in chain.from_iterable(passes(model, iter(requests), config)):
        if isinstance(slots, DocumentOutput):
            raise ModelError(str(slots.problem))
        filled[request.places[0]] = slots
    return [filled[place] for place in range(len(requests))]


def _alike(request: Request) -> tuple[int, tuple[int, ...], int]:
    """Sorts like lengths together and, among these, documents with the same prefix."""
    length = len(request.stem)
    return length.bit_length(), request.prefix, length


def _slots_of(request: Request, slots: tuple[SlotOutput, ...], j: int) -> tuple[SlotOutput, ...]:
    """A document's slot outputs; all outputs if the model writes one for all documents."""
    width = len(slots) // request.num_documents
    return slots[j * width : (j + 1) * width] if width else slots
