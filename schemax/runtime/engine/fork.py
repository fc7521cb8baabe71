"""Decoding for models that go by the order of arrival: one row per slot.

Recurrent states and ALiBi know no position ids, so slots cannot share a sequence. The stem of a
document is read once and its state is copied into one row per slot. Every row then reads its key
and writes its value, one token per pass. All rows of a pass are equally long, so that nothing is
padded and no mask is needed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count, groupby, islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from schemax.config import DecodingConfig
from schemax.errors import ModelError
from schemax.runtime.engine.limits import AdmissionControl, DecodingLimits
from schemax.runtime.engine.scheduler import write_chosen
from schemax.runtime.engine.watched_pass import Written, watched
from schemax.runtime.models.language_model import LanguageModel
from schemax.runtime.sampling.sampler import Sampler
from schemax.runtime.slots.filling import AskedSlot, Filling
from schemax.runtime.slots.memory import is_out_of_memory, release_memory
from schemax.runtime.slots.outputs import NO_ROOM, DocumentOutput
from schemax.runtime.slots.requests import Filled, Request
from schemax.runtime.slots.slot_table import SlotTable
from schemax.tokens import SlotOutput

# Tokens in flight under batch_size="auto". On a CPU, larger batches only cost cache misses.
_AUTO_TOKENS = {"cpu": 8_192, "cuda": 65_536}
# Requests taken from the input at a time, to be sorted by length.
_WINDOW = 256


class ForkModel(LanguageModel):
    """A model that decodes one row per slot.

    Raises ModelError for models that do not hand out what they have read.
    """

    def __init__(self, model: Any, obstacle: str | None = None) -> None:
        super().__init__(model)
        self.obstacle = obstacle or self.architecture.obstacle or "decodes one row per slot"
        if self.architecture.state_name is None:
            raise ModelError(
                f"{self.name} {self.obstacle}, and hands out no state to go on from; "
                "choose a model with attention, or one with a cache of transformers"
            )
        self.state_name: str = self.architecture.state_name

    def refusal(self, config: DecodingConfig) -> str | None:
        if config.nearest_examples:
            return (
                f"{self.name} {self.obstacle}, so it decodes one row per slot, and "
                "nearest_examples requires all examples in one sequence; leave the setting out"
            )
        if not config.has_skeleton:
            return None
        return (
            f"{self.name} {self.obstacle}, so it decodes one row per slot, and the layout "
            f"{config.layout!r} needs all slots in one sequence; use the layouts 'branched' (the "
            "preset 'isolated') or 'autoregressive'"
        )

    def forward(self, input_ids: Tensor, state: Any, read: int) -> tuple[Tensor, Any]:
        """(R, Q) ids behind a state of R rows -> (R, V) logits at the last of them, and the state.

        state: None before anything is read; read: how many tokens each row has read.
        """
        if isinstance(state, list) and len(input_ids) > 1:
            return self._one_by_one(input_ids, state, read)
        rows = torch.arange(len(input_ids), device=self.device)
        selection = rows, torch.full_like(rows, input_ids.shape[1] - 1)
        options = {self.state_name: state}
        if self.architecture.takes_positions:
            # Some models would count them wrongly themselves, by a layer that counts nothing.
            positions = torch.arange(read, read + input_ids.shape[1], device=self.device)
            options["position_ids"] = positions.expand(input_ids.shape)
        output = self._run(selection, input_ids=input_ids, use_cache=True, **options)
        state = output.get(self.state_name)
        if state is None:
            raise ModelError(
                f"{self.name} keeps what it has read to itself, so that its state cannot be copied "
                "into one row per slot; choose another model"
            )
        return output.logits[0].to(self.device), state

    def _one_by_one(self, input_ids: Tensor, state: list[Tensor], read: int) -> tuple[Tensor, Any]:
        """RWKV mixes up the rows of a batch when it reads one token."""
        rows = torch.arange(len(input_ids), device=self.device)[:, None]
        done = [self.forward(input_ids[row], select_rows(state, row), read) for row in rows]
        logits, states = zip(*done, strict=True)
        return torch.cat(logits), [torch.cat(parts) for parts in zip(*states, strict=True)]


def fork_stream(
    model: ForkModel,
    requests: Iterable[Request],
    config: DecodingConfig,
    cancelled: deque[Request],
) -> Iterator[list[Filled]]:
    """The twin of `stream.stream` for these models: runs batches of equally long stems to their
    end."""
    source = iter(requests)
    tokens = _AUTO_TOKENS.get(model.device.type, _AUTO_TOKENS["cpu"])
    documents = 1 << 30 if config.batch_size == "auto" else config.batch_size
    control = AdmissionControl(DecodingLimits(documents, tokens, capacity=0))
    while jobs := list(islice(source, _WINDOW)):
        jobs.sort(key=lambda request: len(request.prefix) + len(request.stem))
        for _, alike in groupby(jobs, key=lambda request: len(request.prefix) + len(request.stem)):
            waiting = list(alike)
            while waiting := [request for request in waiting if request not in cancelled]:
                size = max(1, control.now.pass_tokens // _row_tokens(waiting[0]))
                batch = waiting[: min(size, control.now.documents)]
                outputs = _in_memory(model, batch)
                if outputs is None and len(batch) > 1:
                    control.halve(len(batch))
                    continue
                del waiting[: len(batch)]
                if outputs is None:
                    yield [(batch[0], NO_ROOM)]
                    control.restore()
                else:
                    control.count(len(batch))
                    yield list(zip(batch, outputs, strict=True))
        cancelled.clear()


def _row_tokens(request: Request) -> int:
    """Counts the tokens that the rows of a request come to hold."""
    longest = len(request.prefix) + request.num_tokens + int(request.budgets.max())
    return request.num_slots * longest


def _in_memory(
    model: ForkModel, batch: list[Request]
) -> list[tuple[SlotOutput, ...] | DocumentOutput] | None:
    """The slots of a batch; None if the batch exceeds the memory."""
    try:
        return decode_forked(model, batch)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
    # Outside the handler, so that the failed batch's tensors can be freed.
    release_memory()
    return None


@torch.inference_mode()
def decode_forked(
    model: ForkModel, requests: Sequence[Request]
) -> list[tuple[SlotOutput, ...] | DocumentOutput]:
    """Fills the slots of requests whose stems are equally long, and those that values call for."""
    fillings = [Filling(request, follows_branches=False) for request in requests]
    rows = [ForkRow(filling, slot) for filling in fillings for slot in filling.slots]
    for request in requests:
        if request.watcher is not None:
            request.watcher.begin()
    broken: set[Request] = set()
    while rows:  # every time, all requests are read once more
        outputs = _grow(model, requests, rows, broken)
        rows = [
            ForkRow(row.filling, slot)
            for row, output in zip(rows, outputs, strict=True)
            if row.request not in broken
            for slot in row.filling.end(row.slot, output)
        ]
    outputs_of_requests: list[tuple[SlotOutput, ...] | DocumentOutput] = []
    for request, filling in zip(requests, fillings, strict=True):
        result = model.not_finite if request in broken else filling.outputs
        outputs_of_requests.append(result)
        if request.watcher is not None and not isinstance(result, DocumentOutput):
            request.watcher.saw((), 0, dict(enumerate(result)))
    return outputs_of_requests


class ForkRow(NamedTuple):
    """A slot as a row of its own."""

    filling: Filling
    slot: AskedSlot

    @property
    def request(self) -> Request:
        return self.filling.request


def select_rows(state: Any, rows: Tensor) -> Any:
    """A state's rows, any of them several times."""
    if hasattr(state, "reorder_cache"):
        state.reorder_cache(rows)
        for parts in vars(state).values():  # some caches hold states beside those of their layers
            if isinstance(parts, list):
                parts[:] = [
                    part.index_select(0, rows.to(part.device)) if isinstance(part, Tensor) else part
                    for part in parts
                ]
        return state
    return type(state)(part.index_select(0, rows.to(part.device)) for part in state)


def _grow(
    model: ForkModel,
    requests: Sequence[Request],
    rows: Sequence[ForkRow],
    broken: set[Request],
) -> list[SlotOutput]:
    """Decodes slots of requests whose stems are equally long: (S,) outputs.

    broken: takes up requests whose logits are not finite.
    """
    device = model.device
    table = SlotTable()
    sampler = Sampler(table, model.vocab_size)
    row_slots, row_requests = [row.slot for row in rows], [row.request for row in rows]
    slots = sampler.grammars.take_up(row_slots, row_requests, {})
    numbers = {request: number for number, request in enumerate(requests)}

    def request_of(slot: int) -> Request:
        return rows[slot].request

    key, key_length = _padded_rows([row.slot.key for row in rows], device)
    owner = torch.tensor([numbers[row.request] for row in rows], device=device)
    stems = torch.tensor([[*r.prefix, *r.stem.tolist()] for r in requests], device=device)
    live = torch.arange(len(rows), device=device)
    logits, memory = model.forward(stems, None, read=0)
    logits, memory = logits[owner], select_rows(memory, owner)
    for time in count():
        # The next token of a slot whose key is still being read is that key's.
        tokens = key[live, min(time, key.shape[1] - 1)]
        growing = torch.ones_like(live, dtype=torch.bool)
        writes = time >= key_length[live]
        if writes.any():
            writers, writing = live[writes], logits[writes]
            writing_slots = slots[writers.cpu().numpy()]
            written = None
            if any(request.watcher is not None for request in requests):
                seen = [
                    watched(rows[slot].request, rows[slot].slot) for slot in writing_slots.tolist()
                ]
                written = Written(table, writing_slots, writing, seen)
            chosen = sampler.choose(writing, writing_slots)
            # Forced tokens that end a slot are written at once; the model reads others one by one.
            grows = write_chosen(
                table, sampler.grammars, writing_slots, chosen, request_of, defers=True
            )
            grows &= chosen.are_finite
            broken |= {request_of(slot) for slot in writing_slots[~chosen.are_finite].tolist()}
            if written is not None:
                written.tell(lambda _: {}, [request.watcher for request in broken])
            tokens[writes] = torch.from_numpy(chosen.ids).to(device)
            growing[writes] = torch.from_numpy(grows).to(device)
        if not growing.all():
            kept = growing.nonzero()[:, 0]
            if not len(kept):
                break
            live, tokens, memory = live[kept], tokens[kept], select_rows(memory, kept)
        logits, memory = model.forward(tokens[:, None], memory, read=stems.shape[1] + time)
    outputs = table.outputs(slots)
    return [
        # Every token of a key took a pass of its own.
        replace(output, passes=output.passes + len(row.slot.key))
        for output, row in zip(outputs, rows, strict=True)
    ]


def _padded_rows(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """(S, longest) ids and (S,) lengths."""
    lengths = torch.tensor([len(row) for row in rows])
    padded = torch.zeros(len(rows), max(1, int(lengths.max())), dtype=torch.int64)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = torch.tensor(row)
    return padded.to(device), lengths.to(device)
