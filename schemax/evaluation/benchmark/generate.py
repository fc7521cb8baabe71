"""transformers' `generate`: requests that write keys and values, behind an instruction's cache.

`Replay` makes `generate` write the expected answers, at the cost of writing its own.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import (
    DynamicCache,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
    StoppingCriteriaList,
)

from schemax.evaluation.benchmark.engines import Emitted, Engine, EngineOptions
from schemax.evaluation.benchmark.workload import Workload
from schemax.runtime.models.architecture import state_name
from schemax.tokens import Ids


class Replayed(Engine):
    """The base of engines that run `generate`: greedy, batched, left padded.

    copied: the tokens of drafts that are looked up in the prompt; None drafts nothing.
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
        """Runs `generate` behind every prompt, `size` prompts at a time.

        owners: the category of every prompt, which begins with the category's instruction. An
        instruction is read once; every batch gets a copy of its cache.
        """
        outputs: dict[int, Ids] = {}
        for owner in sorted(set(owners)):
            instruction = work.categories[owner].instruction
            cache = prefix_cache(self.module, instruction)
            own = [place for place, category in enumerate(owners) if category == owner]
            for batch in alike_batches([prompts[place] for place in own], size):
                places = [own[n] for n in batch]
                rests = [prompts[place][len(instruction) :] for place in places]
                inputs = behind(instruction, rests, work.eos_id, self.module.device)
                replay = self.replay(places, [answers[p] for p in places], inputs[0], work)
                own_cache = cache_arguments(self.module, copied_cache(cache, len(places)))
                rows = self.generated(*inputs, replay, work, **own_cache)
                outputs.update(zip(places, rows, strict=True))
        return [outputs[place] for place in range(len(prompts))]

    def replay(
        self, places: Sequence[int], answers: Sequence[Ids], input_ids: Tensor, work: Workload
    ) -> Replay:
        """Returns the processor that makes `generate` write the answers. input_ids: (B, L)."""
        return Replay(input_ids, answers, work.eos_id)

    def generated(
        self, input_ids: Tensor, mask: Tensor, replay: Replay, work: Workload, **more: Any
    ) -> list[Ids]:
        """Runs `generate` behind (B, L) prompts; returns each row's tokens up to its end."""
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
                stopping_criteria=StoppingCriteriaList([replay.ended]),
                **more,
            )
        rows = zip(
            sequences[:, input_ids.shape[1] :].tolist(), replay.lengths.tolist(), strict=True
        )
        return [tuple(row[:length]) for row, length in rows]


class Generate(Replayed):
    """transformers' `generate`, which most users run."""

    name, title = "generate", "transformers generate"

    def __init__(self, model: Any, options: EngineOptions) -> None:
        super().__init__(model, options)
        self.batch_sizes = options.generate_batches


def prefix_cache(module: Any, ids: Ids) -> DynamicCache:
    """Returns the keys and values of an instruction; an empty cache for an empty instruction."""
    cache = DynamicCache(config=module.config)
    if ids:
        with torch.inference_mode():
            read = torch.tensor([ids], device=module.device)
            module.base_model(input_ids=read, **cache_arguments(module, cache))
    return cache


def cache_arguments(module: Any, cache: DynamicCache) -> dict[str, Any]:
    """Returns the arguments with which a model of this transformers continues a cache."""
    return {state_name(module) or "past_key_values": cache, "use_cache": True}


def copied_cache(cache: DynamicCache, rows: int) -> DynamicCache:
    """Returns a copy of the cache, repeated for so many rows."""
    repeated = copy.deepcopy(cache)
    if repeated.get_seq_length():
        repeated.batch_repeat_interleave(rows)
    return repeated


def behind(
    instruction: Ids, rests: Sequence[Ids], pad: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Returns (B, L) ids and mask of prompts with one instruction, padded right behind it."""
    ids, mask = left_padded(rests, pad, device)
    prefix = torch.tensor([instruction], dtype=torch.int64, device=device).expand(len(rests), -1)
    return torch.cat([prefix, ids], dim=1), torch.cat([torch.ones_like(prefix), mask], dim=1)


def alike_batches(stems: Sequence[Ids], size: int) -> Iterator[list[int]]:
    """Yields places in batches of similar length, the longest first, which need most memory."""
    order = sorted(range(len(stems)), key=lambda place: -len(stems[place]))
    for at in range(0, len(order), size):
        yield order[at : at + size]


def left_padded(rows: Sequence[Ids], pad: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Returns (B, L) ids and (B, L) mask, padded on the left for `generate`."""
    tensors = [torch.tensor(row, dtype=torch.int64) for row in rows]
    ids = pad_sequence(tensors, batch_first=True, padding_value=pad, padding_side="left")
    lengths = torch.tensor(list(map(len, rows)))
    mask = torch.arange(ids.shape[1]) >= ids.shape[1] - lengths[:, None]
    return ids.to(device), mask.long().to(device)


class Replay(LogitsProcessor):
    """Raises the score of the answer's next token above all other scores, per row and step.

    The library still computes scores, copies them and searches their maximum.

    prompts: (B, L) padded ids.
    rows: (B,) answers.
    filler: the token of a finished row while others go on.
    """

    def __init__(self, prompts: Tensor, rows: Sequence[Ids], filler: int) -> None:
        self.prompt_length = prompts.shape[1]
        self.longest = max(map(len, rows))
        padded = [[*row, *[filler] * (self.longest + 1 - len(row))] for row in rows]
        self.answers = torch.tensor(padded, device=prompts.device)
        self.lengths = torch.tensor([len(row) for row in rows], device=prompts.device)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """(B, T) ids so far, (B, V) scores -> (B, V) scores."""
        wanted = self.answers[:, self.step(input_ids)]
        # Finite, since softmax of an infinite score is NaN.
        return scores.scatter_(1, wanted[:, None], torch.finfo(scores.dtype).max)

    def step(self, input_ids: Tensor) -> int:
        """Counts the tokens behind the prompt, up to those of the longest answer."""
        return min(input_ids.shape[1] - self.prompt_length, self.longest)

    def ended(self, input_ids: Tensor, scores: Tensor, **_: object) -> Tensor:
        """(B, T) ids so far -> (B,) whether a row is done; a stopping criterion of `generate`."""
        return self.lengths <= input_ids.shape[1] - self.prompt_length
