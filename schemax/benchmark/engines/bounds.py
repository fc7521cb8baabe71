"""What no engine can beat: plain forward passes over the tokens that must be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from schemax.benchmark.engines.base import Emitted, EngineKind
from schemax.benchmark.random_models import replica
from schemax.benchmark.workload import Workload, Writes

_ALIKE = 0.9


@dataclass
class Floor:
    """Causal forward passes without cache or mask over exactly the tokens of the work.

    Each instruction once; for each document its tokens, the opening, the keys, and those value
    tokens that are ever an input. The output head is computed for every generated token, and
    nowhere else. No attention to the instruction is charged, no token is chosen.
    """

    model: Any
    batch_sizes: tuple[int, ...] = (1, 4, 8, 16, 32, 64, 128)
    batch_size: int | None = None
    name: str = "floor"
    title: str = "the tokens that must be processed"
    kind: EngineKind = "bound"
    writes: Writes = "nothing"
    note: str = ""
    module: Any = field(default=None, repr=False)

    def setup(self, work: Workload) -> None:
        self.module = replica(self.model)

    def reset(self, work: Workload) -> None: ...

    def rows(self, work: Workload) -> list[tuple[int, int]]:
        """(tokens, head positions) of every sequence to be passed, the longest first."""
        found = [(len(category.instruction), 0) for category in work.used_categories()]
        for listing in work.listings:
            category = work.categories[listing.category]
            keys = sum(map(len, category.keys))
            head = sum(map(len, listing.answers))
            values = head - len(listing.answers)
            found.append((len(listing.ids) + len(category.opening) + keys + values, head))
        return sorted(found, reverse=True)

    @torch.inference_mode()
    def run(self, work: Workload) -> Emitted:
        for batch in self.batches(self.rows(work)):
            self._pass(batch, work)
        return []

    def batches(self, rows: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
        """Of like lengths: a bound must not be slow because it reads padding."""
        batch: list[tuple[int, int]] = []
        for row in rows:
            if batch and (len(batch) == (self.batch_size or 1) or row[0] < _ALIKE * batch[0][0]):
                yield batch
                batch = []
            batch.append(row)
        yield batch

    def _pass(self, rows: Sequence[tuple[int, int]], work: Workload) -> None:
        """Rows are right padded, which causal attention never sees."""
        device = self.module.device
        length = max(tokens for tokens, _ in rows)
        ids = torch.arange(length, device=device).remainder(work.vocab_size).expand(len(rows), -1)
        hidden = self.module.base_model(input_ids=ids, use_cache=False).last_hidden_state
        wanted = [hidden[row, tokens - min(head, tokens) : tokens] for row, (tokens, head) in
                  enumerate(rows) if head]  # fmt: skip
        if wanted:
            self.module.get_output_embeddings()(torch.cat(wanted))

    def teardown(self) -> None:
        self.module = None


@dataclass
class Reading(Floor):
    """The same over instruction and documents alone: nothing is asked, nothing is written."""

    name: str = "reading"
    title: str = "the documents alone"

    def rows(self, work: Workload) -> list[tuple[int, int]]:
        found = [len(category.instruction) for category in work.used_categories()]
        found += [len(listing.ids) for listing in work.listings]
        return [(tokens, 0) for tokens in sorted(found, reverse=True)]
