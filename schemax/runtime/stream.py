"""Decoding as a stream: requests in, filled slots out, every pass as full as it can be.

The twin of `decoder.decode` for isolated documents with independent slots, with the same outputs:
nothing that such a slot sees depends on its batch, so it may share passes with anything.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch

from schemax.config import DecodingConfig
from schemax.runtime.blocks import BlockCache
from schemax.runtime.choosing import Chooser
from schemax.runtime.decoder import Trace
from schemax.runtime.flight import Flight
from schemax.runtime.limits import Limits, Throttle, is_out_of_memory
from schemax.runtime.model import DecoderModel, InstructionKey
from schemax.runtime.outputs import NO_MEMORY, DocumentOutput, passes_of, too_long
from schemax.runtime.packing import pack
from schemax.runtime.plan import Ids, Ints, Plan, plan_prompt, single
from schemax.runtime.requests import Request, split_requests
from schemax.tokens import PromptIds, SlotOutput, StopTable

logger = logging.getLogger(__name__)

# Documents taken from the input at a time, to be sorted by length.
_WINDOW = 1024
# Documents that wait for an equal one in flight, beyond which no more are taken: unlike others they
# take no room there.
_READ_AHEAD = 4096


@dataclass(frozen=True, slots=True)
class Refused:
    """A document of the input that the model cannot take. It only passes through."""

    place: int
    output: DocumentOutput


Filled = tuple[Request, tuple[SlotOutput, ...] | None]


def fill_stream(
    model: DecoderModel, prompts: Iterable[PromptIds], stop: StopTable, config: DecodingConfig
) -> Iterator[tuple[int, DocumentOutput]]:
    """`engine.fill` for isolated documents with independent slots."""
    for done in stream(model, _requests(model, prompts, config), stop, config):
        if isinstance(done, Refused):
            yield done.place, done.output
            continue
        request, slots = done
        output = DocumentOutput((), 0, NO_MEMORY)
        if slots is not None:
            output = DocumentOutput(slots, passes_of(slots))
        for place in request.places:
            yield place, output


def decode_stream(
    model: DecoderModel,
    plans: Sequence[Plan],
    stop: StopTable,
    config: DecodingConfig,
    trace: Trace | None = None,
) -> list[list[SlotOutput]]:
    """A batch of prompts of isolated documents; what `decoder.decode` gives, and tells a trace."""
    requests: list[Request] = []
    for plan in plans:
        slots = sum(request.num_slots for request in requests)
        requests += split_requests(plan, plan.k_max, len(requests), slots, model.is_long(plan))
    found = {
        done[0].places[0]: done[1]
        for done in stream(model, iter(requests), stop, config, trace)
        if not isinstance(done, Refused)
    }
    if any(slots is None for slots in found.values()):
        raise MemoryError(NO_MEMORY)
    flat = iter(slot for place in range(len(requests)) for slot in found[place] or ())
    return [list(islice(flat, len(plan.slot_ids))) for plan in plans]


def _requests(
    model: DecoderModel,
    prompts: Iterable[PromptIds],
    config: DecodingConfig,
) -> Iterator[Request | Refused]:
    """The documents of all prompts, like lengths together, equal ones once."""
    alone = (single(prompt, j) for prompt in prompts for j in range(len(prompt.documents)))
    numbered = enumerate(alone)
    descending = False
    while window := list(islice(numbered, _WINDOW)):
        found: dict[PromptIds, Request] = {}
        for place, prompt in window:
            if (known := found.get(prompt)) is not None:
                known.places.append(place)
                continue
            plan = plan_prompt(prompt, config)
            if problem := model.misfit(plan):
                yield Refused(place, too_long(problem, len(prompt.documents[0])))
                continue
            budgets = model.budgets(plan, config.max_retries)
            limits = config.max_retries, model.bound(plan)
            (found[prompt],) = split_requests(plan, budgets, place, 0, model.is_long(plan), *limits)
        # Up and down in turn, so that neighbours are alike from one window to the next as well.
        yield from sorted(found.values(), key=_alike, reverse=descending)
        descending = not descending


def stream(
    model: DecoderModel,
    requests: Iterator[Request | Refused],
    stop: StopTable,
    config: DecodingConfig,
    trace: Trace | None = None,
) -> Iterator[Filled | Refused]:
    """Requests as they are done, with their slots; None for one that memory does not suffice for.

    requests are taken as there is room. Where memory runs out, all in flight begin again, half as
    many at a time (see `limits.Throttle`).
    """
    waiting: deque[Request | Refused] = deque()
    refused: deque[Refused] = deque()
    source = _Source(requests)
    throttle = Throttle(Limits.of(model, config))
    while True:
        chooser = Chooser(stop, config)
        flight = Flight(stop, chooser, throttle)
        try:
            yield from _run(model, flight, chooser, source, waiting, refused, throttle, trace)
            break
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
        # Outside the handler, so that the failed pass's tensors can be freed.
        model.forget_instructions()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        again = flight.requests
        if not again and waiting and isinstance(waiting[0], Request):
            again = [waiting[0]]  # not even taken up
            waiting.popleft()
        if len(again) == throttle.now.documents == 1:
            # Too large even by itself, with nothing else in memory. The others had done no harm.
            yield again[0], None
            throttle.restore()
            continue
        waiting.extendleft(reversed(again))
        throttle.halve(len(again))
        logger.warning(
            "out of memory with %d documents; going on with %d", len(again), throttle.now.documents
        )
    if source.error is not None:
        raise source.error


class _Source:
    """The input, apart from what decodes it: where it fails, what was taken is finished first.

    Whatever it raises is never taken for a failure of a pass.
    """

    def __init__(self, requests: Iterator[Request | Refused]) -> None:
        self._requests = requests
        self.error: Exception | None = None

    def __iter__(self) -> Iterator[Request | Refused]:
        return self

    def __next__(self) -> Request | Refused:
        if self.error is not None:
            raise StopIteration
        try:
            # It may compute something of its own.
            with torch.inference_mode(False):
                return next(self._requests)
        except StopIteration:
            raise
        except Exception as error:
            self.error = error
            raise StopIteration from None


@torch.inference_mode()
def _run(
    model: DecoderModel,
    flight: Flight,
    chooser: Chooser,
    requests: Iterator[Request | Refused],
    waiting: deque[Request | Refused],
    refused: deque[Refused],
    throttle: Throttle,
    trace: Trace | None,
) -> Iterator[Filled | Refused]:
    cache = model.new_block_cache()
    instructions = Instructions(model, cache)
    while True:
        _admit(flight, cache, instructions, requests, waiting, refused, throttle.now)
        met = bool(refused)
        while refused:
            yield refused.popleft()
        if not flight.residents:
            if met:
                continue
            return
        instructions.read(flight)
        work = pack(flight, model.spans, instructions.lengths, model.device)
        logits = model.run_pass(work, cache)
        slots = flight.slots
        if trace:
            trace(_tensor(model, slots.index), _tensor(model, slots.step), logits)
        keys = _tensor(model, slots.keys)
        chosen = chooser.choose(logits, slots.home, keys, slots.step, flight.given())
        done = list(flight.advance(chosen))
        throttle.count(len(done))
        yield from done


def _alike(request: Request) -> tuple[bool, int, Ids, int]:
    """Sorts like lengths together and, among these, documents with the same instruction."""
    length = len(request.stem)
    return request.long, length.bit_length(), request.instruction, length


def _admit(
    flight: Flight,
    cache: BlockCache,
    instructions: Instructions,
    requests: Iterator[Request | Refused],
    waiting: deque[Request | Refused],
    refused: deque[Refused],
    limits: Limits,
) -> None:
    """Takes up whole documents while a pass has room for them; a long one gets a pass of its own.

    Slots that documents in flight have called for come first: these are done all the sooner. A
    request leaves `waiting` when it is in flight, so that it is never in neither. What is met on
    the way and cannot be run goes to `refused`.
    """
    room = limits.pass_tokens - flight.num_growing
    room -= flight.spawn(room)
    while len(refused) < _WINDOW:
        if not waiting and flight.num_repeated < _READ_AHEAD:
            waiting.extend(islice(requests, 1))
        if not waiting:
            break
        request = waiting[0]
        if isinstance(request, Refused):
            refused.append(request)
            waiting.popleft()
            continue
        size = request.num_tokens
        first = not flight.entries and (not flight.residents or size > limits.pass_tokens)
        extent = flight.room_for(request) if first or size <= room else None
        if extent is None:
            break
        if extent != (flight.num_rows, flight.width):
            _extend(flight, cache, extent)
        flight.admit(request, instructions.handle(request))
        waiting.popleft()
        room -= size
    if flight.is_sparse:
        _extend(flight, cache, (flight.num_rows, flight.width))


def _extend(flight: Flight, cache: BlockCache, extent: tuple[int, int]) -> None:
    kept, used = flight.extend(*extent)
    cache.move(torch.from_numpy(kept), *extent, used)


class Instructions:
    """The instructions of a run, each read once and kept with the model for later runs."""

    def __init__(self, model: DecoderModel, cache: BlockCache) -> None:
        self._model, self._cache = model, cache
        self._handles: dict[InstructionKey, int] = {}
        self.lengths: dict[int, int] = {}

    def handle(self, request: Request) -> int:
        key = (request.instruction, request.long)
        return self._handles.setdefault(key, len(self._handles))

    def read(self, flight: Flight) -> None:
        """Makes sure that all instructions in use have been read, and lets go of all others."""
        used = set(flight.slots.instruction.tolist())
        for handle in self.lengths.keys() - used:
            del self.lengths[handle]
            for layer in self._cache.block_layers:
                layer.instructions.pop(handle, None)
        for key, handle in self._handles.items():
            if handle in self.lengths or handle not in used:
                continue
            if key[0]:
                blocks = self._model.read_instruction(*key)
                for layer, block in zip(self._cache.block_layers, blocks, strict=True):
                    layer.instructions[handle] = block
            self.lengths[handle] = len(key[0])


def _tensor(model: DecoderModel, values: Ints) -> torch.Tensor:
    return torch.from_numpy(values).to(model.device)
