"""Decoding for models that go by the order of arrival: one row per slot.

Recurrent states and ALiBi know no position ids, so slots cannot share a sequence. What all slots of
a document read first is computed once, its state copied into one row per slot, and every row goes
on by itself: its key's tokens, then its value's, one token per row and pass. All rows of a pass are
equally long, so that nothing is ever padded and no mask is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count, groupby
from typing import Any

import numpy as np
import torch
from torch import Tensor

from schemax.config import DecodingConfig
from schemax.errors import ModelError
from schemax.runtime.decoder import Trace
from schemax.runtime.language_model import LanguageModel
from schemax.runtime.plan import Ints, Plan
from schemax.runtime.writing import Writer
from schemax.tokens import SlotOutput, SlotSpec, StopTable


class ForkModel(LanguageModel):
    """A model that decodes one row per slot.

    Raises ModelError for models that do not hand out what they have read.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        if self.anatomy.state_name is None:
            raise ModelError(
                f"{self.name} {self.anatomy.obstacle}, and hands out no state to go on from; "
                "choose a model with attention, or one with a cache of transformers"
            )
        self.state_name: str = self.anatomy.state_name

    def refusal(self, config: DecodingConfig) -> str | None:
        if config.layout != "gapped":
            return None
        return (
            f"{self.name} {self.anatomy.obstacle}, so it decodes one row per slot, and the layout "
            "'gapped' needs all slots in one sequence; use the layouts 'branched' (the preset "
            "'isolated') or 'autoregressive'"
        )

    def cache_tokens(self, plan: Plan) -> int:
        return len(plan.slot_ids) * (int((plan.slot < 0).sum()) + int(plan.k_max.max()))

    def passes(self, key_tokens: int, value_tokens: int) -> int:
        return key_tokens + value_tokens

    def forward(self, input_ids: Tensor, state: Any, read: int) -> tuple[Tensor, Any]:
        """(R, Q) ids behind a state of R rows -> (R, V) logits at the last of them, and the state.

        state: None before anything is read; read: how many tokens each row has read.
        """
        if isinstance(state, list) and len(input_ids) > 1:
            return self._one_by_one(input_ids, state, read)
        rows = torch.arange(len(input_ids), device=self.device)
        selection = rows, torch.full_like(rows, input_ids.shape[1] - 1)
        given = {self.state_name: state}
        if self.anatomy.takes_positions:
            # Some models would count them wrongly themselves, by a layer that counts nothing.
            positions = torch.arange(read, read + input_ids.shape[1], device=self.device)
            given["position_ids"] = positions.expand(input_ids.shape)
        output = self._run(selection, input_ids=input_ids, use_cache=True, **given)
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


@dataclass(frozen=True, slots=True)
class Stem:
    """What some slots of a prompt have in common, and where each goes on by itself.

    row: the prompt; places: the slots among the prompt's; ids: the common tokens; branches: each
    slot's key; k_max: (S,) budgets; sampling_keys: (S, 2); specs, answers: (S,).
    """

    row: int
    places: tuple[int, ...]
    ids: tuple[int, ...]
    branches: tuple[tuple[int, ...], ...]
    k_max: Ints
    sampling_keys: Ints
    specs: tuple[SlotSpec, ...]
    answers: tuple[tuple[int, ...], ...]


@torch.inference_mode()
def decode_forked(
    model: ForkModel,
    plans: Sequence[Plan],
    stop: StopTable,
    config: DecodingConfig,
    trace: Trace | None = None,
) -> list[list[SlotOutput]]:
    """Fills every slot of a batch of prompts; the twin of `decoder.decode`, with its outputs."""
    first = np.cumsum([0, *(len(plan.slot_ids) for plan in plans)])
    stems = [stem for row, plan in enumerate(plans) for stem in _stems(plan, row, config)]
    stems.sort(key=lambda stem: len(stem.ids))
    outputs: list[dict[int, SlotOutput]] = [{} for _ in plans]
    for _, alike in groupby(stems, key=lambda stem: len(stem.ids)):
        group = list(alike)
        places = [int(first[stem.row]) + place for stem in group for place in stem.places]
        traced = _at(trace, torch.tensor(places, device=model.device)) if trace else None
        slots = iter(_grow(model, group, stop, config, traced))
        for stem in group:
            outputs[stem.row].update((place, next(slots)) for place in stem.places)
    return [[found[place] for place in sorted(found)] for found in outputs]


def select_rows(state: Any, rows: Tensor) -> Any:
    """A state's rows, any of them several times."""
    if hasattr(state, "reorder_cache"):
        state.reorder_cache(rows)
        return state
    return type(state)(part.index_select(0, rows.to(part.device)) for part in state)


def _stems(plan: Plan, row: int, config: DecodingConfig) -> Iterator[Stem]:
    """One stem per document; one per prompt where documents are stacked."""
    common = plan.slot < 0
    alone = config.documents == "isolated"
    for document in dict.fromkeys(plan.slot_document.tolist()) if alone else [None]:
        mine = plan.slot_document == document if alone else plan.slot_document >= 0
        seen = common & ((plan.document < 0) | (plan.document == document)) if alone else common
        (places,) = np.nonzero(mine)
        branches = (plan.input_ids[plan.slot == slot] for slot in plan.slot_ids[places])
        yield Stem(
            row=row,
            places=tuple(places.tolist()),
            ids=tuple(plan.input_ids[seen].tolist()),
            branches=tuple(tuple(ids.tolist()) for ids in branches),
            k_max=plan.k_max[places],
            sampling_keys=plan.sampling_keys[places],
            specs=tuple(plan.specs[place] for place in places),
            answers=tuple(plan.answers[place] if plan.answers else () for place in places),
        )


def _grow(
    model: ForkModel,
    stems: Sequence[Stem],
    stop: StopTable,
    config: DecodingConfig,
    trace: Trace | None,
) -> Sequence[SlotOutput]:
    """Decodes all slots of stems of one length; outputs stem by stem.

    Per slot, (S,): owner, its stem; live, the slots that still grow.
    """
    device = model.device
    owner = torch.repeat_interleave(
        torch.arange(len(stems)), torch.tensor([len(stem.places) for stem in stems])
    ).to(device)
    keys = torch.from_numpy(np.concatenate([stem.sampling_keys for stem in stems])).to(device)
    answers = [answer for stem in stems for answer in stem.answers]
    writer = Writer(
        stop,
        config,
        np.concatenate([stem.k_max for stem in stems]),
        [spec for stem in stems for spec in stem.specs],
        answers if any(answers) else None,
    )
    branch, branch_length = _padded([ids for stem in stems for ids in stem.branches], device)
    live = torch.arange(len(owner), device=device)
    stem_ids = torch.tensor([stem.ids for stem in stems], device=device)
    logits, memory = model.forward(stem_ids, None, read=0)
    logits, memory = logits[owner], select_rows(memory, owner)
    for time in count():
        # The next token of a slot whose key is still being read is that key's.
        tokens = branch[live, min(time, branch.shape[1] - 1)]
        growing = torch.ones_like(live, dtype=torch.bool)
        writes = time >= branch_length[live]
        if writes.any():
            writers, writing = live[writes], logits[writes]
            if trace:
                trace(writers, time - branch_length[writers], writing)
            ids, grows = writer.write(writing, writers.cpu().numpy(), keys[writers])
            tokens[writes] = torch.from_numpy(ids).to(device)
            growing[writes] = torch.from_numpy(grows).to(device)
        if not growing.all():
            kept = growing.nonzero()[:, 0]
            if not len(kept):
                break
            live, tokens, memory = live[kept], tokens[kept], select_rows(memory, kept)
        logits, memory = model.forward(tokens[:, None], memory, read=stem_ids.shape[1] + time)
    return writer.outputs()


def _at(trace: Trace, places: Tensor) -> Trace:
    """Tells a trace the places of slots in the whole batch."""
    return lambda index, step, logits: trace(places[index], step, logits)


def _padded(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """(S, longest) ids and (S,) lengths."""
    lengths = torch.tensor([len(row) for row in rows])
    padded = torch.zeros(len(rows), max(1, int(lengths.max())), dtype=torch.int64)
    for place, row in enumerate(rows):
        padded[place, : len(row)] = torch.tensor(row)
    return padded.to(device), lengths.to(device)
