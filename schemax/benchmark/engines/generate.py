"""transformers' `generate`: one request per document, which writes keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList

from schemax.benchmark.engines.base import Emitted, EngineKind
from schemax.benchmark.engines.replay import DraftedReplay, Replay, ReplayStop
from schemax.benchmark.random_models import replica
from schemax.benchmark.workload import Ids, Workload, Writes


@dataclass
class Generate:
    """Greedy, batched, left padded: what most people run."""

    model: Any
    batch_sizes: tuple[int, ...] = (1, 8, 32, 64)
    batch_size: int | None = None
    name: str = "generate"
    title: str = "transformers generate"
    kind: EngineKind = "rival"
    writes: Writes = "output"
    note: str = ""
    module: Any = field(default=None, repr=False)

    def setup(self, work: Workload) -> None:
        self.module = replica(self.model)

    def reset(self, work: Workload) -> None: ...

    def run(self, work: Workload) -> Emitted:
        stems = [work.stem(listing) for listing in work.listings]
        outputs = [answers[0] for answers in work.expected("output")]
        found: list[Any] = [None] * len(work)
        for places in alike_batches(stems, self.batch_size or 1):
            rows = self._generate(
                [stems[place] for place in places], [outputs[place] for place in places], work
            )
            for place, row in zip(places, rows, strict=True):
                found[place] = (row,)
        return found

    def _generate(self, stems: Sequence[Ids], outputs: Sequence[Ids], work: Workload) -> list[Ids]:
        input_ids, mask = left_padded(stems, work.eos_id, self.module.device)
        replay = Replay(input_ids.shape[1], outputs, work.eos_id, self.module.device)
        return replayed_rows(self.module, input_ids, mask, replay, work)

    def teardown(self) -> None:
        self.module = None


@dataclass
class Lookup(Generate):
    """Drafts copied from the prompt, as transformers' own documentation recommends them."""

    batch_sizes: tuple[int, ...] = ()
    name: str = "lookup"
    title: str = "transformers, prompt lookup"
    note: str = "batch 1, its maximum; values are spans of the document"
    copied: int = 10

    def _generate(self, stems: Sequence[Ids], outputs: Sequence[Ids], work: Workload) -> list[Ids]:
        input_ids, mask = left_padded(stems, work.eos_id, self.module.device)
        replay = Replay(input_ids.shape[1], outputs, work.eos_id, self.module.device)
        return replayed_rows(self.module, input_ids, mask, replay, work, copied=self.copied)


@dataclass
class Draft(Generate):
    """Assisted generation: a smaller model drafts, and is right as often as is stated."""

    batch_sizes: tuple[int, ...] = ()
    name: str = "draft"
    title: str = "transformers, draft model"
    draft: Any = None
    acceptance: float = 0.8
    _draft: Any = field(default=None, repr=False)

    def setup(self, work: Workload) -> None:
        super().setup(work)
        self._draft = replica(self.draft)
        size = sum(weight.numel() for weight in self._draft.parameters()) / 1e6
        self.note = (
            f"batch 1, its maximum; a draft of {size:,.1f} M parameters whose tokens are "
            f"made to be right with probability {self.acceptance:.2f}"
        )

    def _generate(self, stems: Sequence[Ids], outputs: Sequence[Ids], work: Workload) -> list[Ids]:
        device = self.module.device
        input_ids, mask = left_padded(stems, work.eos_id, device)
        (output,) = outputs
        replay = DraftedReplay(input_ids.shape[1], output, work.eos_id, device, self.acceptance)

        def turn(drafting: bool) -> Any:
            def hook(*_: Any) -> None:
                replay.drafting = drafting

            return hook

        # Whoever ran last is the one whose scores come next.
        hooks = [
            self._draft.register_forward_pre_hook(turn(True)),
            self.module.register_forward_pre_hook(turn(False)),
        ]
        try:
            return replayed_rows(
                self.module, input_ids, mask, replay, work, assistant_model=self._draft
            )
        finally:
            for handle in hooks:
                handle.remove()

    def teardown(self) -> None:
        super().teardown()
        self._draft = None


def alike_batches(stems: Sequence[Ids], size: int) -> Iterator[list[int]]:
    """Places in batches of like length, the longest first: little padding, an early failure."""
    order = sorted(range(len(stems)), key=lambda place: -len(stems[place]))
    for at in range(0, len(order), size):
        yield order[at : at + size]


def left_padded(rows: Sequence[Ids], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(B, L) ids and (B, L) mask, as `generate` wants them."""
    length = max(map(len, rows))
    ids = [[*[pad] * (length - len(row)), *row] for row in rows]
    mask = [[*[0] * (length - len(row)), *[1] * len(row)] for row in rows]
    return torch.tensor(ids, device=device), torch.tensor(mask, device=device)


def replayed_rows(
    model: Any,
    input_ids: Tensor,
    mask: Tensor,
    replay: Replay,
    work: Workload,
    copied: int | None = None,
    **more: Any,
) -> list[Ids]:
    """What `generate` wrote behind (B, L) prompts, each row up to its own end.

    copied: tokens of a draft that is looked up in the prompt; None drafts nothing.
    """
    config = GenerationConfig(  # type: ignore[no-untyped-call]
        do_sample=False,
        max_new_tokens=replay.longest,
        eos_token_id=work.eos_id,
        pad_token_id=work.eos_id,
        prompt_lookup_num_tokens=copied,
    )
    with torch.inference_mode():
        sequences = model.generate(
            input_ids,
            attention_mask=mask,
            generation_config=config,
            logits_processor=LogitsProcessorList([replay]),
            stopping_criteria=StoppingCriteriaList([ReplayStop(replay)]),
            **more,
        )
    rows = sequences[:, input_ids.shape[1] :].tolist()
    lengths = replay.lengths.tolist()
    return [tuple(row[:length]) for row, length in zip(rows, lengths, strict=True)]
