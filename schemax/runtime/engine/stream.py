"""Decoding (paper, section 4.3 and Algorithm 1): requests in, filled slots out.

One loop for all layouts. Requests enter as others leave, so that every pass is as full as it can
be; the paper's batch is the special case in which all requests enter at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np
import torch

from schemax.config import DecodingConfig
from schemax.runtime.attention.kv_pool import KVPool
from schemax.runtime.engine.limits import AdmissionControl, DecodingLimits
from schemax.runtime.engine.packing import make_batch
from schemax.runtime.engine.scheduler import Scheduler
from schemax.runtime.engine.watched_pass import watch_pass
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.sampling.sampler import Choice, Sampler
from schemax.runtime.slots.memory import is_out_of_memory, release_memory
from schemax.runtime.slots.outputs import NO_ROOM
from schemax.runtime.slots.requests import Filled, Request
from schemax.runtime.slots.slot_table import SlotTable
from schemax.tokens import Ids

# Cap on documents that wait for an equal one in flight. They take no room there, so that nothing
# else would bound them.
_MOST_REPEATED = 4096


def stream(
    model: DecoderModel,
    requests: Iterator[Request],
    config: DecodingConfig,
    cancelled: deque[Request],
) -> Iterator[list[Filled]]:
    """Yields the requests that each pass finishes, with their slot outputs; with `NO_ROOM` if a
    request exceeds the memory.

    requests: read as there is room. The iterator may end for now and go on later, as long as a
        request is in flight.
    cancelled: cancelled requests; they leave before their next pass.

    If memory runs out, all requests in flight begin again, half as many at a time
    (see `limits.AdmissionControl`).
    """
    source = _Input(requests, cancelled)
    control = AdmissionControl(DecodingLimits.of(model, config))
    while True:
        flights = [_Flight(model, source, control, place) for place in range(control.now.flights)]
        try:
            yield from _passes(flights, source)
            break
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        # Outside the handler, so that the failed pass's tensors can be freed.
        for flight in flights:
            if flight.done:  # in the very pass after which memory ran out
                yield flight.take()
        again = [request for flight in flights for request in flight.requests]
        del flights
        model.forget_prefixes()
        release_memory()
        if not again and source.waiting:
            again = [source.waiting.popleft()]  # not even taken up
        if len(again) == 1 and control.now.documents <= again[0].num_documents:
            # Too large even by itself, with nothing else in memory. The others had done no harm.
            yield [(again[0], NO_ROOM)]
            control.restore()
            continue
        source.waiting.extendleft(reversed(again))
        if again:  # else all that was in flight was cancelled
            control.halve(sum(request.num_documents for request in again))
    if source.error is not None:
        raise source.error


@torch.inference_mode()
def _passes(flights: Sequence[_Flight], source: _Input) -> Iterator[list[Filled]]:
    """Passes of flights by turns, until the input ends or memory runs out.

    While a device computes the pass of one flight, the host reads, admits and packs for the next.
    """
    is_idle = False
    while not is_idle:
        is_idle = True
        for flight in flights:
            if flight.is_under_way:
                flight.finish()
                yield flight.take()
            if cancelled := source.cancelled():
                for peer in flights:
                    peer.leaving |= cancelled
            flight.admit()
            flight.begin()
        is_idle = is_idle and not any(flight.is_under_way for flight in flights)


class _Input:
    """The input. If it raises an error, requests already taken are finished first.

    waiting: requests that were read and are not in flight.
    error: the input's error, kept apart from the errors of passes.
    """

    def __init__(self, requests: Iterator[Request], cancelled: deque[Request]) -> None:
        self._requests, self._cancelled = requests, cancelled
        self.waiting: deque[Request] = deque()
        self.error: Exception | None = None

    def head(self, *, may_take: bool) -> Request | None:
        """The next request of the input, which stays there; None if there is none."""
        if not self.waiting and may_take and self.error is None:
            try:
                # The input may compute something of its own.
                with torch.inference_mode(False):
                    self.waiting.extend(islice(self._requests, 1))
            except Exception as error:
                self.error = error
        return self.waiting[0] if self.waiting else None

    def cancelled(self) -> set[Request]:
        """Cancelled requests; drops them from `waiting`."""
        cancelled = {self._cancelled.popleft() for _ in range(len(self._cancelled))}
        if cancelled:
            self.waiting = deque(item for item in self.waiting if item not in cancelled)
        return cancelled


class _Flight:
    """Requests in flight that share passes, and one pass at most that is under way.

    leaving: cancelled requests, until the next admission.
    done: requests that the last pass finished.
    """

    def __init__(
        self, model: DecoderModel, source: _Input, control: AdmissionControl, place: int
    ) -> None:
        table = SlotTable()
        self.model, self.source, self.control = model, source, control
        self.sampler = Sampler(table, model.vocab_size)
        self.scheduler = Scheduler(table, self.sampler, control, place)
        self.cache = model.new_cache()
        self.prefixes = _Prefixes(model, self.cache)
        self.leaving: set[Request] = set()
        self.done: list[Filled] = []
        self._choice: Choice | None = None
        self._drafted: torch.Tensor | None = None  # logits behind the tokens of drafts
        self._tell_watchers: Callable[[Iterable[Filled]], None] | None = None

    @property
    def requests(self) -> list[Request]:
        return [request for request in self.scheduler.requests if request not in self.leaving]

    @property
    def is_under_way(self) -> bool:
        return self._choice is not None

    def begin(self) -> None:
        """Gives the device its next pass, and the choice behind that; neither is waited for."""
        scheduler = self.scheduler
        if not scheduler.num_running:
            return
        self.prefixes.read(scheduler)
        batch = make_batch(scheduler, scheduler.allot(), self.prefixes.lengths, self.model.windows)
        logits = self.model.run_batch(batch, self.cache)
        self._tell_watchers = watch_pass(scheduler, logits) if scheduler.num_watched else None
        count = len(scheduler.growing)
        self._drafted = logits[count:]
        self._choice = self.sampler.begin(logits[:count], scheduler.growing)

    def finish(self) -> None:
        """Waits for what was chosen, and takes up the requests that are done with that."""
        assert self._choice is not None
        chosen = self.sampler.finish(self._choice)
        self._choice = None
        advanced = self.scheduler.advance(chosen, self.model.not_finite, self._drafted)
        self.done.extend(advanced)
        self._drafted = None
        if not chosen.are_finite.all():
            self.cache.scrub()
        if self._tell_watchers is not None:
            self._tell_watchers(self.done)
        self.control.count(sum(item[0].num_documents for item in self.done))

    def take(self) -> list[Filled]:
        """Hands over what is done."""
        filled = [*self.done]
        self.done.clear()
        return filled

    def admit(self) -> None:
        """Lets go of what leaves, and takes up whole requests while a pass has room for them.

        A long one gets a pass of its own. Slots that requests in flight have called for come first:
        these are done all the sooner. While one waits for room, no request enters; but a request
        that calls for more than its share of the pass keeps no other out. A request leaves
        `waiting` when it is in flight, so that it is never in neither.
        """
        scheduler, source, limits = self.scheduler, self.source, self.control.now
        if self.leaving:
            scheduler.cancel(self.leaving)
            self.leaving.clear()
        room = limits.pass_tokens - len(scheduler.growing)
        share = scheduler.follow_ups.share(limits.pass_tokens, self._wanted_tokens())
        room -= scheduler.spawn(room, share)
        while not scheduler.follow_ups.is_held_up:
            request = source.head(may_take=scheduler.num_repeated < _MOST_REPEATED)
            if request is None:
                break
            size = request.num_tokens
            is_first = not scheduler.entering and (
                not scheduler.num_running or size > limits.pass_tokens
            )
            extent = scheduler.room_for(request) if is_first or size <= room else None
            if extent is None:
                break
            if extent != (scheduler.rows.num_rows, scheduler.rows.width):
                self._resize(*extent)
            scheduler.admit(request, self.prefixes.handles(request))
            source.waiting.popleft()
            room -= size
        if scheduler.rows.is_sparse:
            self._resize(scheduler.rows.num_rows, scheduler.rows.width)
        scheduler.begin_pass()

    def _wanted_tokens(self) -> int:
        """Tokens of the request that could enter beside what others call for; 0 for none."""
        scheduler = self.scheduler
        if scheduler.follow_ups.is_empty:
            return 0
        request = self.source.head(may_take=scheduler.num_repeated < _MOST_REPEATED)
        if request is None or scheduler.room_for(request) is None:
            return 0
        return request.num_tokens

    def _resize(self, rows: int, width: int) -> None:
        kept, used = self.scheduler.resize(rows, width)
        self.cache.resize(kept, rows, width, used)


class _Prefixes:
    """The prefixes of a run, each read once and kept with the model for later runs.

    lengths: of the prefixes in use, by handle.
    """

    def __init__(self, model: DecoderModel, cache: KVPool) -> None:
        self._model, self._cache = model, cache
        self._handles: dict[tuple[Ids, Ids], int] = {}
        self.lengths: dict[int, int] = {}

    def handles(self, request: Request) -> list[int]:
        """Handles of the prefixes before a request: its instruction, then its demonstrations."""
        behind = request.prefix
        keys = [(behind, ()), *((ids, behind) for ids in request.demonstrations)]
        return [self._handles.setdefault(key, len(self._handles)) for key in keys]

    def read(self, scheduler: Scheduler) -> None:
        """Makes sure that all prefixes in use have been read, and lets go of all others."""
        rows = scheduler.rows
        used = set(np.unique(rows.prefixes[rows.length > 0]).tolist()) - {-1}
        if used == self.lengths.keys():
            return
        for handle in self.lengths.keys() - used:
            del self.lengths[handle]
            for layer in self._cache.kv_layers:
                layer.prefixes.pop(handle, None)
        keys = list(self._handles)
        for handle in sorted(used - self.lengths.keys()):
            key = keys[handle]
            if key[0]:
                prefix = self._model.read_prefix(*key)
                for layer, pair in zip(self._cache.kv_layers, prefix, strict=True):
                    layer.prefixes[handle] = pair
            self.lengths[handle] = len(key[0])
