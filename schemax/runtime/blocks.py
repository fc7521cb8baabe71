"""Keys and values where attention in parts finds them: instructions, documents, slots' own tokens.

Instructions are computed once and only read afterwards. A document has a row, written once when it
is read. Whatever belongs to one slot alone lies in cells of one token each, in any order, and is
freed with the slot. Nothing is concatenated, and nothing moves but when there is more room to make.
All room begins as zeros: what a mask hides still takes part, with no weight, and must be a number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from schemax.runtime.attention import Part


@dataclass(frozen=True, slots=True)
class Write:
    """Where a pass's keys and values go.

    instruction: the handle of one that this pass reads, and nothing else.
    padded: (W, C) the places of what is read together, padded with any; see `BlockLayer.padded`.
    rows: (W,) those of new documents, whose first `stem_width` columns of `padded` are kept.
    num_rows, row_width: the extent of the documents' store.
    cells: (t,) for the last t tokens, which are those from `first_in_cells` on; num_cells: in all.
    """

    instruction: int | None = None
    padded: Tensor | None = None
    rows: Tensor | None = None
    stem_width: int = 0
    num_rows: int = 0
    row_width: int = 0
    cells: Tensor | None = None
    first_in_cells: int = 0
    num_cells: int = 0


class BlockLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """The blocks of one layer.

    instructions: by handle, keys (1, Hk, I, D) and values; documents: (R, Hk, C, D) and values;
    cells: (cells, Hk, D) and values; fresh: those of the pass under way, (T, Hk, D).
    padded: of these, what is read together, side by side: (W, Hk, C, D) and values.
    """

    is_sliding = False

    def __init__(self, cache: BlockCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cache = cache
        self.instructions: dict[int, tuple[Tensor, Tensor]] = {}
        self.documents: tuple[Tensor, Tensor] | None = None
        self.cells: tuple[Tensor, Tensor] | None = None
        self.fresh: tuple[Tensor, Tensor] | None = None
        self.padded: tuple[Tensor, Tensor] | None = None
        self.bytes_per_token = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Nothing to do: blocks are made by `update`, for there is more than one kind."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Whatever the model would keep, as it is: attention says what is stored; see `store`."""
        self.cache.layer_under_way = self
        return key_states, value_states

    def store(self, key: Tensor, value: Tensor) -> None:
        """(1, Hk, T, D) of a pass's tokens, put where the pass says.

        Taken from attention's arguments: some models (MLA) hand compressed states to their cache.
        """
        write = self.cache.write
        self.fresh = (key[0].transpose(0, 1), value[0].transpose(0, 1))
        self.bytes_per_token = sum(
            part.shape[1] * part.shape[2] * part.element_size() for part in self.fresh
        )
        if write.instruction is not None:
            # Models that project queries, keys and values at once hand out views of all of it.
            self.instructions[write.instruction] = (key.contiguous(), value.contiguous())
        if write.padded is not None:
            # (W, C, Hk, D) -> (W, Hk, C, D)
            keys, values = (part[write.padded].transpose(1, 2) for part in self.fresh)
            self.padded = keys, values
        if write.rows is not None:
            self._write_documents(write)
        if write.cells is not None:
            self._write_cells(write)

    def _write_documents(self, write: Write) -> None:
        assert self.fresh is not None
        assert self.padded is not None
        width = write.stem_width
        if self.documents is None:
            key, value = (
                part.new_zeros(write.num_rows, part.shape[1], write.row_width, part.shape[2])
                for part in self.fresh
            )
            self.documents = key, value
        for stored, part in zip(self.documents, self.padded, strict=True):
            stored[write.rows, :, :width] = part[:, :, :width]

    def _write_cells(self, write: Write) -> None:
        assert self.fresh is not None
        if self.cells is None:
            key, value = self.fresh
            self.cells = key[:0], value[:0]
        if len(self.cells[0]) < write.num_cells:
            key, value = (_longer(part, write.num_cells) for part in self.cells)
            self.cells = key, value
        for stored, part in zip(self.cells, self.fresh, strict=True):
            stored[write.cells] = part[write.first_in_cells :]

    def move(self, rows: Tensor, num_rows: int, width: int, used: int) -> None:
        """Documents into other rows: those of `rows` become 0, 1, ...; `used` columns are kept."""
        if self.documents is None:
            return
        moved = []
        for part in self.documents:
            kept = part[rows.to(part.device), :, :used]
            room = part
            if (num_rows, width) != (part.shape[0], part.shape[2]):
                room = part.new_zeros(num_rows, part.shape[1], width, part.shape[3])
            room[: len(rows), :, :used] = kept
            moved.append(room)
        self.documents = (moved[0], moved[1])

    def get_seq_length(self) -> int:
        """Always none: positions are given, and what lies in memory says nothing of them."""
        return 0

    def get_max_length(self) -> int:
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0


def _longer(part: Tensor, length: int) -> Tensor:
    return torch.cat([part, part.new_zeros(length - len(part), *part.shape[1:])])


class BlockCache(Cache):
    """Set `write` and `parts` before every forward pass."""

    def __init__(self, num_layers: int) -> None:
        self.write = Write()
        self.parts: Sequence[Part] = ()
        self.layer_under_way: BlockLayer | None = None
        self.block_layers = [BlockLayer(self) for _ in range(num_layers)]
        super().__init__(layers=list(self.block_layers))

    def move(self, rows: Tensor, num_rows: int, width: int, used: int) -> None:
        for layer in self.block_layers:
            layer.move(rows, num_rows, width, used)

    @property
    def bytes_per_token(self) -> int:
        """Of one token's keys and values in all layers; 0 before anything was read."""
        return sum(layer.bytes_per_token for layer in self.block_layers)
