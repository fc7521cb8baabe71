"""transformers' `generate`: requests that write keys and values, behind an instruction's cache."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import DynamicCache, GenerationConfig, LogitsProcessorList, StoppingCriteriaList
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
        owners = [listing.category for listing in work.listings]
        stems = [work.stem(listing) for listing in work.listings]
        outputs = [work.output(listing) for listing in work.listings]
        return [(row,) for row in self.answered(owners, stems, outputs, self.batch_size or 1, work)]

    def answered(
        self,
        owners: Sequence[int],
        prompts: Sequence[Ids],
        answers: Sequence[Ids],
        size: int,
        work: Workload,
    ) -> list[Ids]:
        """What `generate` writes behind every prompt, `size` of them at a time.

        owners: the category of every prompt, with whose instruction it begins. That is read once;
        every batch gets a copy of its cache.
        """
        found: dict[int, Ids] = {}
        for owner in sorted(set(owners)):
            instruction = work.categories[owner].instruction
            cache = prefix_cache(self.module, instruction)
            own = [place for place, one in enumerate(owners) if one == owner]
            for batch in alike_batches([prompts[place] for place in own], size):
                places = [own[n] for n in batch]
                rests = [prompts[place][len(instruction) :] for place in places]
                inputs = behind(instruction, rests, work.eos_id, self.module.device)
                replay = self.replay(places, [answers[p] for p in places], inputs[0], work)
                rows = self.generated(
                    *inputs, replay, work, past_key_values=copied_cache(cache, len(places))
                )
                found.update(zip(places, rows, strict=True))
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


class BatchPrompting(Generate):
    """The same with several documents in a prompt, and one output for all (Cheng et al., 2023)."""

    name, title = "batch-prompting", "transformers generate, batch prompting, J = 6"
    note = "the batch counts prompts of up to 6 documents"
    documents_per_prompt = 6

    def run(self, work: Workload) -> Emitted:
        groups = work.groups(self.documents_per_prompt)
        rows = self.answered(
            [some[0].category for some in groups],
            [work.stem(*some) for some in groups],
            [work.joined_output(some) for some in groups],
            self.batch_size or 1,
            work,
        )
        pairs = zip(rows, groups, strict=True)
        return [(ids,) for row, some in pairs for ids in work.parted_output(row, some)]


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
    copied = 10

    def run(self, work: Workload) -> Emitted:
        passes: list[int] = []
        hook = self.module.register_forward_pre_hook(lambda *_: passes.append(1))
        try:
            found = super().run(work)
        finally:
            hook.remove()
        tokens = sum(len(ids) for (ids,) in found)
        self.note = (
            f"batch 1, its maximum; values are spans of the document; {tokens / len(passes):.2f} "
            "tokens a verification"
        )
        return found


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
        self.turns: Counter[bool] = Counter()  # forward passes, of the draft and of the model

    def run(self, work: Workload) -> Emitted:
        """Measures how many drafted tokens were accepted: all that are not a verification's own."""
        self.turns.clear()
        found = super().run(work)
        tokens = sum(len(ids) for (ids,) in found)
        verified, drafted = self.turns[False], self.turns[True]
        self.note = (
            f"batch 1, its maximum; a draft of {self.drafter.num_parameters() / 1e6:,.1f} M "
            "parameters whose tokens are made to be right with probability "
            f"{self.options.draft_acceptance:.2f}, and which stops where it is not sure; measured: "
            f"{drafted / verified:.1f} tokens a draft, {(tokens - verified) / drafted:.0%} of them "
            f"accepted, {tokens / verified:.2f} tokens a verification"
        )
        return found

    def replay(
        self, places: Sequence[int], answers: Sequence[Ids], input_ids: Tensor, work: Workload
    ) -> DraftedReplay:
        return DraftedReplay(input_ids, answers, work.eos_id, self.options.draft_acceptance)

    def generated(
        self, input_ids: Tensor, mask: Tensor, replay: Replay, work: Workload, **more: Any
    ) -> list[Ids]:
        # Whoever ran last is the one whose scores come next.
        hooks = [
            module.register_forward_pre_hook(partial(self._turn, replay, module is self.drafter))
            for module in (self.drafter, self.module)
        ]
        try:
            return super().generated(input_ids, mask, replay, work, assistant_model=self.drafter)
        finally:
            for hook in hooks:
                hook.remove()

    def _turn(self, replay: Any, drafting: bool, *_: Any) -> None:
        replay.drafting = drafting
        self.turns[drafting] += 1

    def teardown(self) -> None:
        super().teardown()
        self.drafter = None


def prefix_cache(module: Any, ids: Ids) -> DynamicCache:
    """The keys and values of an instruction; empty if it is."""
    cache = DynamicCache(config=module.config)
    if ids:
        with torch.inference_mode():
            read = torch.tensor([ids], device=module.device)
            module.base_model(input_ids=read, past_key_values=cache, use_cache=True)
    return cache


def copied_cache(cache: DynamicCache, rows: int) -> DynamicCache:
    """A copy for so many rows, which may be written to."""
    made = copy.deepcopy(cache)
    if made.get_seq_length():
        made.batch_repeat_interleave(rows)
    return made


def behind(
    instruction: Ids, rests: Sequence[Ids], pad: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """(B, L) ids and mask of prompts with one instruction, padded between it and the rest."""
    ids, mask = left_padded(rests, pad, device)
    prefix = torch.tensor([instruction], dtype=torch.int64, device=device).expand(len(rests), -1)
    return torch.cat([prefix, ids], dim=1), torch.cat([torch.ones_like(prefix), mask], dim=1)


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
