"""`generate` under a grammar, as for typed outputs, with masks of outlines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from schemax.evaluation.benchmark.engines import Unavailable
from schemax.evaluation.benchmark.generate import Generate, Replay
from schemax.evaluation.benchmark.workload import Category, Workload
from schemax.tokens import Ids

# A JSON string or null, with any part of the delimiter in its last token.
_VALUE = r'( "([^"\\\x00-\x1f]|\\.)*"| null),?\n?'


class Outlines(Generate):
    """`generate` with outlines' automaton, advanced and applied for every token of every row.

    The index is built before the clock. All given tokens are allowed: otherwise it would raise.
    """

    name, title = "outlines", "transformers generate, outlines' grammar"
    note = "keys given by the grammar, values any JSON string or null"

    def setup(self, work: Workload) -> None:
        if find_spec("outlines_core") is None:
            raise Unavailable("not installed: outlines-core")
        if not work.token_bytes or work.facts.get("format") != "json":
            raise Unavailable("its grammar needs tokens of text; name documents with --data")
        super().setup(work)
        from outlines_core import Index, Vocabulary

        tokens: dict[bytes, list[int]] = {}
        for number, data in enumerate(work.token_bytes[: work.vocab_size]):
            if data and number != work.eos_id:
                tokens.setdefault(data, []).append(number)
        vocabulary = Vocabulary(work.eos_id, tokens)
        patterns = [output_pattern(category, work.token_bytes) for category in work.categories]
        self.indices = [Index(pattern, vocabulary) for pattern in patterns]

    def replay(
        self, places: Sequence[int], answers: Sequence[Ids], input_ids: Tensor, work: Workload
    ) -> MaskedReplay:
        indices = [self.indices[work.listings[place].category] for place in places]
        return MaskedReplay(input_ids, answers, work.eos_id, indices)

    def teardown(self) -> None:
        super().teardown()
        self.indices = []


class MaskedReplay(Replay):
    """A replay under a grammar: one guide per row, one bit per token of the vocabulary."""

    def __init__(
        self, prompts: Tensor, rows: Sequence[Ids], filler: int, indices: Sequence[Any]
    ) -> None:
        super().__init__(prompts, rows, filler)
        from outlines_core import Guide

        self.rows = rows
        self.guides = [Guide(index) for index in indices]
        self.shifts = torch.arange(32, dtype=torch.int32, device=prompts.device)
        self.bits = torch.zeros(0, 0, dtype=torch.int32)

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        step = input_ids.shape[1] - self.prompt_length
        if not len(self.bits):
            words = (scores.shape[1] + 31) // 32
            self.bits = torch.zeros(len(self.guides), words, dtype=torch.int32)
        newest = input_ids[:, -1].tolist() if step else []
        for place, guide in enumerate(self.guides):
            if step >= len(self.rows[place]):
                continue  # this row has ended, others have not
            if step:
                guide.advance(newest[place])  # raises ValueError for a token that is not allowed
            row = self.bits[place]
            guide.write_mask_into(row.data_ptr(), row.numel(), row.element_size())
        allowed = (self.bits.to(scores.device)[:, :, None] >> self.shifts) & 1
        scores.masked_fill_(allowed.view(len(scores), -1)[:, : scores.shape[1]] == 0, -torch.inf)
        return super().__call__(input_ids, scores)


def output_pattern(category: Category, token_bytes: Sequence[bytes]) -> str:
    """Returns a regular expression of all outputs with the category's keys in order."""
    texts = [b"".join(token_bytes[i] for i in key).decode() for key in category.keys]
    return "".join(re.escape(text) + _VALUE for text in texts)
