"""One request per attribute: the other way to ask for values in parallel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import DynamicCache

from schemax.benchmark.engines.base import Emitted, EngineKind
from schemax.benchmark.engines.generate import alike_batches, left_padded, replayed_rows
from schemax.benchmark.engines.replay import Replay
from schemax.benchmark.random_models import replica
from schemax.benchmark.workload import Ids, Listing, Workload, Writes


@dataclass
class PerAttribute:
    """Every (document, attribute) pair is a prompt of its own: instruction, document and key."""

    model: Any
    batch_sizes: tuple[int, ...] = (1, 4, 16)
    batch_size: int | None = None
    name: str = "per-attribute"
    title: str = "transformers, per attribute"
    kind: EngineKind = "rival"
    writes: Writes = "values"
    note: str = "the batch counts documents, each with all of its attributes"
    module: Any = field(default=None, repr=False)

    def setup(self, work: Workload) -> None:
        self.module = replica(self.model)

    def reset(self, work: Workload) -> None: ...

    def run(self, work: Workload) -> Emitted:
        pairs = [
            ((*work.stem(listing), *key), answer)
            for listing in work.listings
            for key, answer in _slots(work, listing)
        ]
        found: list[Any] = [None] * len(pairs)
        device = self.module.device
        attributes = max(len(listing.answers) for listing in work.listings)
        size = attributes * (self.batch_size or 1)
        for places in alike_batches([stem for stem, _ in pairs], size):
            input_ids, mask = left_padded([pairs[p][0] for p in places], work.eos_id, device)
            answers = [pairs[place][1] for place in places]
            replay = Replay(input_ids.shape[1], answers, work.eos_id, device)
            rows = replayed_rows(self.module, input_ids, mask, replay, work)
            for place, row in zip(places, rows, strict=True):
                found[place] = row
        return list(_regrouped(work, found))

    def teardown(self) -> None:
        self.module = None


@dataclass
class PerAttributeCached(PerAttribute):
    """The same, with each document read once and its cache copied for every attribute."""

    batch_sizes: tuple[int, ...] = (1, 4, 16)
    name: str = "per-attribute-cached"
    title: str = "transformers, per attribute, cache copied"

    def run(self, work: Workload) -> Emitted:
        stems = [work.stem(listing) for listing in work.listings]
        found: list[Any] = [None] * len(work)
        for category in sorted({listing.category for listing in work.listings}):
            owned = [n for n, listing in enumerate(work.listings) if listing.category == category]
            for batch in alike_batches([stems[n] for n in owned], self.batch_size or 1):
                places = [owned[n] for n in batch]
                rows = self._batch(work, [work.listings[place] for place in places])
                for place, row in zip(places, rows, strict=True):
                    found[place] = row
        return found

    @torch.inference_mode()
    def _batch(self, work: Workload, listings: Sequence[Listing]) -> list[tuple[Ids, ...]]:
        device = self.module.device
        stems, stem_mask = left_padded([work.stem(x) for x in listings], work.eos_id, device)
        cache = DynamicCache(config=self.module.config)
        self.module.base_model(
            input_ids=stems, attention_mask=stem_mask, past_key_values=cache, use_cache=True
        )
        slots = [slot for listing in listings for slot in _slots(work, listing)]
        repeats = len(slots) // len(listings)
        cache.batch_repeat_interleave(repeats)
        # Padding between a document and a shorter key is masked, and takes no position.
        keys, key_mask = left_padded([key for key, _ in slots], work.eos_id, device)
        input_ids = torch.cat([stems.repeat_interleave(repeats, 0), keys], dim=1)
        mask = torch.cat([stem_mask.repeat_interleave(repeats, 0), key_mask], dim=1)
        replay = Replay(input_ids.shape[1], [answer for _, answer in slots], work.eos_id, device)
        rows = replayed_rows(self.module, input_ids, mask, replay, work, past_key_values=cache)
        return [tuple(rows[at : at + repeats]) for at in range(0, len(rows), repeats)]


def _slots(work: Workload, listing: Listing) -> list[tuple[Ids, Ids]]:
    keys = work.categories[listing.category].keys
    return list(zip(keys, listing.answers, strict=True))


def _regrouped(work: Workload, rows: Sequence[Ids]) -> Iterator[tuple[Ids, ...]]:
    at = 0
    for listing in work.listings:
        yield tuple(rows[at : at + len(listing.answers)])
        at += len(listing.answers)
