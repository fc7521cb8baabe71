"""Hyper-Parallel Decoding (paper, section 4.3 and Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, islice

import numpy as np
import torch
from torch import Tensor

from schemax.config import DecodingConfig
from schemax.runtime.kvcache import SlotCache
from schemax.runtime.model import DecoderModel
from schemax.runtime.plan import Ints, Plan
from schemax.runtime.visibility import TokenInfo
from schemax.runtime.writing import Writer
from schemax.tokens import SlotOutput, StopTable

# (S,) places, (S,) steps, (S, V) logits, to be copied if they are kept.
Trace = Callable[[Tensor, Tensor, Tensor], None]


@dataclass(slots=True)
class LiveSlots:
    """The slots that still grow, all (S,), sorted by row.

    index: place among all slots of the batch; row: of the batch; position: of the slot's last token
    so far.
    """

    index: Tensor
    row: Tensor
    document: Tensor
    slot: Tensor
    position: Tensor
    sampling_keys: Tensor

    def __len__(self) -> int:
        return len(self.index)

    def keep(self, kept: Tensor) -> LiveSlots:
        return LiveSlots(*(getattr(self, name)[kept] for name in self.__slots__))


@torch.inference_mode()
def decode(
    model: DecoderModel,
    plans: Sequence[Plan],
    stop: StopTable,
    config: DecodingConfig,
    trace: Trace | None = None,
) -> list[list[SlotOutput]]:
    """Fills every slot of a batch of prompts: max(K) forward passes, whatever the number of slots.

    trace: told, at every step, the slots' places, their steps and their logits.
    Returns one `SlotOutput` per slot, in the order of each plan's `slot_ids`. The first tokens come
    from the prefill's own logits; afterwards only live slots' newest tokens are passed.
    """
    live, input_ids, tokens, selection = _prefill(plans, model.device)
    writer = new_writer(plans, stop, config)
    memory = Memory(model.new_cache(), tokens)
    long = any(map(model.is_long, plans))
    for step in count(1):
        context = memory.append(tokens)
        logits = model.forward(input_ids, tokens, context, memory.cache, selection, config, long)
        if trace:
            trace(live.index, torch.full_like(live.index, step - 1), logits)
        ids, grows = writer.write(logits, live.index.cpu().numpy(), live.sampling_keys)
        growing = _to(model.device, np.flatnonzero(grows))
        live = live.keep(growing)
        if not len(live):
            break
        live.position = live.position + 1
        live.row = memory.drop_finished(live.row)
        newest = _to(model.device, ids[grows])
        input_ids, tokens, selection = _next_tokens(newest, live, step, memory.num_rows)
    outputs = iter(writer.outputs())
    return [list(islice(outputs, len(plan.slot_ids))) for plan in plans]


def new_writer(plans: Sequence[Plan], stop: StopTable, config: DecodingConfig) -> Writer:
    """For all slots of a batch, one plan after the other."""
    answers = [plan.answers or ((),) * len(plan.slot_ids) for plan in plans]
    return Writer(
        stop,
        config,
        np.concatenate([plan.k_max for plan in plans]),
        [spec for plan in plans for spec in plan.specs],
        [answer for row in answers for answer in row] if any(map(any, answers)) else None,
    )


class Memory:
    """What is in the cache: the keys and values, and the four integers of every token."""

    def __init__(self, cache: SlotCache, prompt: TokenInfo) -> None:
        self.cache = cache
        self.used = prompt.real.new_zeros(prompt.real.shape[0], dtype=torch.int64)
        self.info = prompt[:, :0]

    @property
    def num_rows(self) -> int:
        return len(self.used)

    def append(self, tokens: TokenInfo) -> TokenInfo:
        """Gives (B, Q) new tokens their columns: each row's next free ones.

        Padding goes behind a row's real tokens, unseen, and is overwritten by the next step.
        """
        width = tokens.real.shape[1]
        columns = self.used[:, None] + torch.arange(width, device=self.used.device)
        length = int(self.used.max()) + width
        self.cache.write_to(columns, length)
        self.info = _write(_widen(self.info, length), tokens, columns)
        self.used = self.used + tokens.real.sum(dim=1)
        return self.info[:, :length]

    def drop_finished(self, row: Tensor) -> Tensor:
        """Lets go of rows without live slots once they are half of all. (S,) rows, renumbered."""
        rows: Tensor
        renumbered: Tensor
        rows, renumbered = row.unique(return_inverse=True)  # type: ignore[no-untyped-call]
        if 2 * len(rows) > self.num_rows:
            return row
        self.cache.keep_rows(rows)
        self.used = self.used[rows]
        self.info = self.info[rows]
        return renumbered


def _prefill(
    plans: Sequence[Plan], device: torch.device
) -> tuple[LiveSlots, Tensor, TokenInfo, tuple[Tensor, Tensor]]:
    """Prompts, right padded, as (B, L); and all slots, at the ends of their keys."""
    length = max(len(plan.input_ids) for plan in plans)

    def padded(name: str, fill: int) -> Tensor:
        rows = np.full((len(plans), length), fill, np.int64)
        for row, plan in zip(rows, plans, strict=True):
            values = getattr(plan, name)
            row[: len(values)] = values
        return torch.from_numpy(rows).to(device)

    def joined(name: str) -> Tensor:
        return _to(device, np.concatenate([getattr(plan, name) for plan in plans]))

    lengths = _to(device, np.array([len(plan.input_ids) for plan in plans]))
    tokens = TokenInfo(
        position_ids=padded("position_ids", 0),
        document=padded("document", -1),
        slot=padded("slot", -1),
        step=padded("step", 0),
        real=torch.arange(length, device=device) < lengths[:, None],
    )
    counts = [len(plan.slot_ids) for plan in plans]
    live = LiveSlots(
        index=torch.arange(sum(counts), device=device),
        row=_to(device, np.repeat(np.arange(len(plans)), counts)),
        document=joined("slot_document"),
        slot=joined("slot_ids"),
        position=joined("last_position"),
        sampling_keys=joined("sampling_keys"),
    )
    return live, padded("input_ids", 0), tokens, (live.row, joined("last_index"))


def _next_tokens(
    chosen: Tensor, live: LiveSlots, step: int, num_rows: int
) -> tuple[Tensor, TokenInfo, tuple[Tensor, Tensor]]:
    """The live slots' newest tokens as (B, Q), right padded where a row has fewer than Q."""
    counts = torch.bincount(live.row, minlength=num_rows)
    starts = counts.cumsum(0) - counts
    column = torch.arange(len(live), device=chosen.device) - starts[live.row]
    shape = (num_rows, int(counts.max()))

    def placed(values: Tensor | int, fill: int) -> Tensor:
        grid = torch.full(shape, fill, dtype=torch.int64, device=chosen.device)
        grid[live.row, column] = values
        return grid

    tokens = TokenInfo(
        position_ids=placed(live.position, 0),
        document=placed(live.document, -1),
        slot=placed(live.slot, -1),
        step=placed(step, 0),
        real=torch.arange(shape[1], device=chosen.device) < counts[:, None],
    )
    return placed(chosen, 0), tokens, (live.row, column)


def _widen(info: TokenInfo, length: int) -> TokenInfo:
    extra = length - info.real.shape[1]
    if extra <= 0:
        return info
    return TokenInfo(
        *(
            torch.cat([part, part.new_zeros(part.shape[0], extra)], dim=1)
            for part in (info.position_ids, info.document, info.slot, info.step, info.real)
        )
    )


def _write(info: TokenInfo, tokens: TokenInfo, columns: Tensor) -> TokenInfo:
    return TokenInfo(
        info.position_ids.scatter(1, columns, tokens.position_ids),
        info.document.scatter(1, columns, tokens.document),
        info.slot.scatter(1, columns, tokens.slot),
        info.step.scatter(1, columns, tokens.step),
        info.real.scatter(1, columns, tokens.real),
    )


def _to(device: torch.device, values: Ints) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(device)
