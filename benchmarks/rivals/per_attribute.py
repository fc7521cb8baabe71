"""One request per attribute: another way to decode values in parallel."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from transformers import DynamicCache

from schemax.evaluation.benchmark.engines import Emitted
from schemax.evaluation.benchmark.generate import (
    Replayed,
    alike_batches,
    behind,
    cache_arguments,
    copied_cache,
    left_padded,
    prefix_cache,
)
from schemax.evaluation.benchmark.workload import Listing, Workload
from schemax.tokens import Ids


class PerAttribute(Replayed):
    """An engine with a prompt per (document, attribute) pair: instruction, document and key."""

    name, title = "per-attribute", "transformers, per attribute"
    writes = "values"
    batch_sizes = (1, 4, 16)
    note = "the batch counts documents, each with all of its attributes"

    def run(self, work: Workload) -> Emitted:
        keys = [work.categories[listing.category].keys for listing in work.listings]
        asked = [(x, key) for x, own in zip(work.listings, keys, strict=True) for key in own]
        owners = [listing.category for listing, _ in asked]
        prompts = [(*work.stem(listing), *key) for listing, key in asked]
        answers = [answer for listing in work.listings for answer in listing.answers]
        size = max(map(len, keys)) * (self.batch_size or 1)
        rows = iter(self.answered(owners, prompts, answers, size, work))
        return [tuple(next(rows) for _ in own) for own in keys]


class PerAttributeCached(PerAttribute):
    """`PerAttribute` with each document read once and its cache copied for every attribute."""

    name, title = "per-attribute-cached", "transformers, per attribute, cache copied"

    def run(self, work: Workload) -> Emitted:
        found: dict[int, tuple[Ids, ...]] = {}
        for category in sorted({listing.category for listing in work.listings}):
            owned = [n for n, listing in enumerate(work.listings) if listing.category == category]
            cache = prefix_cache(self.module, work.categories[category].instruction)
            stems = [work.stem(work.listings[n]) for n in owned]
            for batch in alike_batches(stems, self.batch_size or 1):
                places = [owned[n] for n in batch]
                rows = self._batch(work, [work.listings[place] for place in places], cache)
                found.update(zip(places, rows, strict=True))
        return [found[place] for place in range(len(work))]

    @torch.inference_mode()
    def _batch(
        self, work: Workload, listings: Sequence[Listing], prefix: DynamicCache
    ) -> list[tuple[Ids, ...]]:
        """Returns the answers of a category's listings. prefix: the instruction's cache."""
        category = work.categories[listings[0].category]
        own, instruction = category.keys, category.instruction
        device, repeats = self.module.device, len(own)
        rests = [work.stem(listing)[len(instruction) :] for listing in listings]
        stems, stem_mask = behind(instruction, rests, work.eos_id, device)
        cache = copied_cache(prefix, len(listings))
        places = (stem_mask.cumsum(1) - 1).clamp(min=0)[:, len(instruction) :]
        self.module.base_model(
            input_ids=stems[:, len(instruction) :],
            attention_mask=stem_mask,
            position_ids=places,
            **cache_arguments(self.module, cache),
        )
        cache.batch_repeat_interleave(repeats)
        # Padding between a document and a shorter key is masked, and has no position.
        keys, key_mask = left_padded(own * len(listings), work.eos_id, device)
        input_ids = torch.cat([stems.repeat_interleave(repeats, 0), keys], dim=1)
        mask = torch.cat([stem_mask.repeat_interleave(repeats, 0), key_mask], dim=1)
        answers = [answer for listing in listings for answer in listing.answers]
        replay = self.replay((), answers, input_ids, work)
        rows = self.generated(input_ids, mask, replay, work, **cache_arguments(self.module, cache))
        return [tuple(rows[at : at + repeats]) for at in range(0, len(rows), repeats)]
