"""transformers' `generate`: one request per document, which writes keys and values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig, LogitsProcessorList, StoppingCriteriaList
from transformers.utils.import_utils import is_flash_attn_2_available

from schemax.benchmark.engines.base import Emitted, Engine, EngineOptions, Unavailable
from schemax.benchmark.engines.replay import DraftedReplay, Replay, ReplayStop
from schemax.benchmark.random_models import random_model, shallow_replica, shape_config
from schemax.benchmark.workload import Ids, Workload


class Replayed(Engine):
    """`generate` as all of its engines run it: greedy, batched, left padded.

    copied: tokens of a draft that is looked up in the prompt; None drafts nothing.
    """

    copied: int | None = None

    def run(self, work: Workload) -> Emitted:
        stems = [work.stem(listing) for listing in work.listings]
        outputs = [work.output(listing) for listing in work.listings]
        return [(row,) for row in self.answered(stems, outputs, self.batch_size or 1, work)]

    def answered(
        self, prompts: Sequence[Ids], answers: Sequence[Ids], size: int, work: Workload
    ) -> list[Ids]:
        """What `generate` writes behind every prompt, `size` of them at a time."""
        found: dict[int, Ids] = {}
        for places in alike_batches(prompts, size):
            inputs = left_padded([prompts[p] for p in places], work.eos_id, self.module.device)
            replay = self.replay(places, [answers[p] for p in places], inputs[0], work)
            found.update(zip(places, self.generated(*inputs, replay, work), strict=True))
        return [found[place] for place in range(len(prompts))]

    def replay(
        self, places: Sequence[int], answers: Sequence[Ids], input_ids: Tensor, work: Workload
    ) -> Replay:
        """What makes `generate` write the answers behind (B, L) prompts; places: theirs."""
        return Replay(input_ids, answers, work.eos_id)

    def generated(
        self, input_ids: Tensor, mask: Tensor, replay: Replay, work: Workload, **more: Any
    ) -> list[Ids]:
        """What `generate` wrote behind (B, L) prompts, each row up to its own end."""
        config = GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=False,
            max_new_tokens=replay.longest,
            eos_token_id=work.eos_id,
            pad_token_id=work.eos_id,
            prompt_lookup_num_tokens=self.copied,
        )
        with torch.inference_mode():
            sequences = self.module.generate(
                input_ids,
                attention_mask=mask,
                generation_config=config,
                logits_processor=LogitsProcessorList([replay]),
                stopping_criteria=StoppingCriteriaList([ReplayStop(replay)]),
                **more,
            )
        rows = zip(
            sequences[:, input_ids.shape[1] :].tolist(), replay.lengths.tolist(), strict=True
        )
        return [tuple(row[:length]) for row, length in rows]


class Generate(Replayed):
    """What most people run."""

    name, title = "generate", "transformers generate"

    def __init__(self, model: Any, options: EngineOptions) -> None:
        super().__init__(model, options)
        self.batch_sizes = options.generate_batches


class GenerateFlash(Generate):
    """The same with FlashAttention, which many install for it."""

    name, title = "generate-flash", "transformers generate, FlashAttention"

    def setup(self, work: Workload) -> None:
        if not is_flash_attn_2_available():
            raise Unavailable("flash-attn is not installed, or the device is no CUDA device")
        super().setup(work)
        self.module.set_attn_implementation("flash_attention_2")


class Lookup(Replayed):
    """Drafts copied from the prompt, as transformers' own documentation recommends them."""

    name, title = "lookup", "transformers, prompt lookup"
    note = "batch 1, its maximum; values are spans of the document"
    copied = 10


class Draft(Replayed):
    """Assisted generation: a smaller model drafts, and is right as often as is stated."""

    name, title = "draft", "transformers, draft model"

    def setup(self, work: Workload) -> None:
        super().setup(work)
        shape, device = self.options.draft, self.module.device
        self.drafter = (
            shallow_replica(self.model)
            if shape is None
            else random_model(shape_config(shape), self.module.dtype, device)
        )
        self.note = (
            f"batch 1, its maximum; a draft of {self.drafter.num_parameters() / 1e6:,.1f} M "
            "parameters whose tokens are made to be right with probability "
            f"{self.options.draft_acceptance:.2f}"
        )

    def replay(
        self, places: Sequence[int], answers: Sequence[Ids], input_ids: Tensor, work: Workload
    ) -> DraftedReplay:
        return DraftedReplay(input_ids, answers, work.eos_id, self.options.draft_acceptance)

    def generated(
        self, input_ids: Tensor, mask: Tensor, replay: Replay, work: Workload, **more: Any
    ) -> list[Ids]:
        # Whoever ran last is the one whose scores come next.
        hooks = [
            module.register_forward_pre_hook(partial(_turn, replay, module is self.drafter))
            for module in (self.drafter, self.module)
        ]
        try:
            return super().generated(input_ids, mask, replay, work, assistant_model=self.drafter)
        finally:
            for hook in hooks:
                hook.remove()

    def teardown(self) -> None:
        super().teardown()
        self.drafter = None


def _turn(replay: Any, drafting: bool, *_: Any) -> None:
    replay.drafting = drafting


def alike_batches(stems: Sequence[Ids], size: int) -> Iterator[list[int]]:
    """Places in batches of like length, the longest first: little padding, an early failure."""
    order = sorted(range(len(stems)), key=lambda place: -len(stems[place]))
    for at in range(0, len(order), size):
        yield order[at : at + size]


def left_padded(rows: Sequence[Ids], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """(B, L) ids and (B, L) mask, as `generate` wants them."""
    tensors = [torch.tensor(row, dtype=torch.int64) for row in rows]
    ids = pad_sequence(tensors, batch_first=True, padding_value=pad, padding_side="left")
    lengths = torch.tensor(list(map(len, rows)))
    mask = torch.arange(ids.shape[1]) >= ids.shape[1] - lengths[:, None]
    return ids.to(device), mask.long().to(device)
