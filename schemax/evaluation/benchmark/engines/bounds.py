"""Bounds that no engine can beat: plain forward passes over the tokens that must be read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch

from schemax.evaluation.benchmark.engines.base import Emitted, Engine
from schemax.evaluation.benchmark.workload import Workload

_ALIKE = 0.9


class Floor(Engine):
    """Causal forward passes, without cache or mask, over exactly the tokens of the work.

    It reads each instruction once; for each document its tokens, the opening, the keys, and the
    value tokens that are ever an input. The output head is computed for generated tokens alone.
    Attention to the instruction is left out, and no token is chosen.
    """

    name, title = "floor", "the tokens that must be processed"
    kind, writes = "bound", "nothing"
    batch_sizes = (1, 4, 8, 16, 32, 64, 128)

    def rows(self, work: Workload) -> list[tuple[int, int]]:
        """(tokens, head positions) of every sequence, the longest first."""
        found = [(len(category.instruction), 0) for category in work.used_categories()]
        for listing in work.listings:
            category = work.categories[listing.category]
            head = sum(map(len, listing.answers))
            read = sum(map(len, (listing.ids, category.opening, *category.keys)))
            found.append((read + head - len(listing.answers), head))
        return sorted(found, reverse=True)

    @torch.inference_mode()
    def run(self, work: Workload) -> Emitted:
        for batch in self.batches(self.rows(work)):
            self._pass(batch, work.vocab_size)
        return []

    def batches(self, rows: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
        """Yields batches of like lengths, so that padding does not slow the bound down."""
        batch: list[tuple[int, int]] = []
        for row in rows:
            if batch and (len(batch) == (self.batch_size or 1) or row[0] < _ALIKE * batch[0][0]):
                yield batch
                batch = []
            batch.append(row)
        yield batch

    def _pass(self, rows: Sequence[tuple[int, int]], vocab_size: int) -> None:
        """Passes a batch; rows are padded on the right, which causal attention never sees."""
        length = max(tokens for tokens, _ in rows)
        ids = torch.arange(length, device=self.module.device).remainder(vocab_size)
        output = self.module.base_model(input_ids=ids.expand(len(rows), -1), use_cache=False)
        pairs = zip(output.last_hidden_state, rows, strict=True)
        wanted = [row[tokens - min(head, tokens) : tokens] for row, (tokens, head) in pairs if head]
        if wanted:
            self.module.get_output_embeddings()(torch.cat(wanted))


class Reading(Floor):
    """The floor over instruction and documents alone, without keys and values."""

    name, title = "reading", "the documents alone"

    def rows(self, work: Workload) -> list[tuple[int, int]]:
        read = [category.instruction for category in work.used_categories()]
        read += [listing.ids for listing in work.listings]
        return sorted(((len(ids), 0) for ids in read), reverse=True)
