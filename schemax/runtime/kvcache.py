"""A key-value cache whose tokens are written to named columns.

Transformers' own caches append, in one order for all rows; here every row appends its live slots'
tokens at its own next free column, and rows leave as they finish.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class SlotLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of one layer, (B, H, capacity, D). Grows geometrically."""

    is_sliding = False

    def __init__(self, cache: SlotCache) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.cache = cache

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocates room for the cache's capacity; dtype and head shapes come from the states."""
        self.dtype, self.device = key_states.dtype, key_states.device
        self.keys = self._allocate(key_states)
        self.values = self._allocate(value_states)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """(B, H, Q, D) -> all keys and values written so far, (B, H, length, D)."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None
        assert self.values is not None
        keys = self.keys = self._write(self.keys, key_states)
        values = self.values = self._write(self.values, value_states)
        length = self.cache.length
        return keys[:, :, :length], values[:, :, :length]

    def keep_rows(self, rows: Tensor) -> None:
        """Drops every row but these."""
        if self.keys is not None and self.values is not None:
            rows = rows.to(self.keys.device)
            self.keys, self.values = self.keys[rows], self.values[rows]

    def get_seq_length(self) -> int:
        """Columns in use before the pass under way, as models ask before they update."""
        return self.cache.length - self.cache.columns.shape[1]

    def get_max_length(self) -> int:
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.cache.length, 0

    def _allocate(self, states: Tensor) -> Tensor:
        batch, heads, _, dim = states.shape
        return states.new_zeros(batch, heads, self.cache.capacity, dim)

    def _write(self, storage: Tensor, states: Tensor) -> Tensor:
        if storage.shape[2] < self.cache.capacity:
            grown = self._allocate(states)
            grown[:, :, : storage.shape[2]] = storage
            storage = grown
        index = self.cache.columns[:, None, :, None].to(states.device).expand_as(states)
        return storage.scatter_(2, index, states)


class SlotCache(Cache):
    """Set `columns` with `write_to` before every forward pass."""

    def __init__(self, num_layers: int) -> None:
        self.capacity = 0
        self.length = 0
        self.columns = torch.empty(0, 0, dtype=torch.int64)
        self.slot_layers = [SlotLayer(self) for _ in range(num_layers)]
        super().__init__(layers=list(self.slot_layers))

    def write_to(self, columns: Tensor, length: int) -> None:
        """(B, Q) where the next tokens go; `length` columns are in use afterwards."""
        self.columns = columns
        self.length = length
        if length > self.capacity:
            # Room for the first steps at once: growing copies everything.
            self.capacity = 3 * length // 2

    def keep_rows(self, rows: Tensor) -> None:
        """Drops every row but these, in every layer."""
        for layer in self.slot_layers:
            layer.keep_rows(rows)
