"""Storage of keys and values: prefixes, rows of documents, slots' own tokens.

Prefixes are computed once and only read afterwards. A request has a row in the document store,
written when its document is read. Tokens of a single slot are in a pool, in any order, and are
freed with the slot. Nothing is concatenated, and nothing moves except to make more room. Memory
begins as zeros: masked keys take part with weight 0, and must be finite.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from schemax.runtime.attention.batch import Batch, KVSegment, KVWrite, SegmentKind
from schemax.runtime.attention.visibility import Mask, mask_of
from schemax.runtime.slots.arrays import Ints
from schemax.runtime.slots.staging import stage


class KVLayer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """The keys and values of one layer.

    prefixes: by handle, keys (1, Hk, I, D) and values.
    documents: (R, Hk, C, D) and values.
    pool: (places, Hk, D) and values.
    fresh: (W, Hk, C, D) and values of the documents that the pass under way reads.
    """

    is_sliding = False

    def __init__(self, cache: KVPool) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        # Weakly: after memory runs out, tensors are freed at once, not by the cycle collector.
        self._cache = weakref.ref(cache)
        self.prefixes: dict[int, tuple[Tensor, Tensor]] = {}
        self.documents: tuple[Tensor, Tensor] | None = None
        self.pool: tuple[Tensor, Tensor] | None = None
        self.fresh: tuple[Tensor, Tensor] | None = None
        self.bytes_per_token = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Does nothing: `store` allocates."""

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Returns the model's keys and values unchanged: attention stores them; see `store`."""
        cache = self._cache()
        assert cache is not None
        cache.layer_under_way = self
        return key_states, value_states

    def fetch(self, segment: KVSegment) -> tuple[Tensor, Tensor]:
        """(B, Hk, M, D) keys and (B, Hk, M, Dv) values of a segment."""
        if segment.kind is SegmentKind.PREFIX:
            return self.prefixes[segment.prefix]
        if segment.kind is SegmentKind.OWN:
            key, value = (rows_of(part, segment.pool).transpose(1, 2) for part in self.in_pool)
            return key, value
        key, value = _both(self.fresh if segment.kind is SegmentKind.FRESH else self.documents)
        if segment.kind is SegmentKind.DOCUMENTS:
            key, value = key[: segment.rows], value[: segment.rows]
        length = segment.length or key.shape[2]
        return key[:, :, :length], value[:, :, :length]

    @property
    def in_pool(self) -> tuple[Tensor, Tensor]:
        """(places, Hk, D) and (places, Hk, Dv): slots' own keys and values."""
        return _both(self.pool)

    def store(self, key: Tensor, value: Tensor, write: KVWrite) -> None:
        """Stores (1, Hk, T, D) keys and values of a pass at their destinations.

        They are attention's arguments, since some models (MLA) pass compressed states to a cache.
        """
        pair = key[0].transpose(0, 1), value[0].transpose(0, 1)
        self.bytes_per_token = sum(
            part.shape[1] * part.shape[2] * part.element_size() for part in pair
        )
        if write.prefix >= 0:
            # With a joint projection, keys and values are views that hold queries in memory, too.
            self.prefixes[write.prefix] = (key.contiguous(), value.contiguous())
        if write.fresh is not None:
            # (W, C, Hk, D) -> (W, Hk, C, D)
            keys, values = (rows_of(part, write.fresh).transpose(1, 2) for part in pair)
            self.fresh = keys, values
        if write.rows is not None:
            self._write_documents(write)
        if write.slot_mapping is not None:
            self._write_pool(write, pair)

    def _write_documents(self, write: KVWrite) -> None:
        fresh = _both(self.fresh)
        if self.documents is None:
            key, value = (
                part.new_zeros(write.num_rows, part.shape[1], write.row_width, part.shape[3])
                for part in fresh
            )
            self.documents = key, value
        width = write.stem_width
        for stored, part in zip(self.documents, fresh, strict=True):
            stored[write.rows, :, :width] = part[:, :, :width]

    def _write_pool(self, write: KVWrite, pair: tuple[Tensor, Tensor]) -> None:
        if self.pool is None:
            self.pool = pair[0][:0], pair[1][:0]
        if len(self.pool[0]) < write.pool_size:
            key, value = (_longer(part, write.pool_size) for part in self.pool)
            self.pool = key, value
        count = len(write.slot_mapping)
        for stored, part in zip(self.pool, pair, strict=True):
            stored[write.slot_mapping] = part[len(part) - count :]

    def resize(self, rows: Tensor, num_rows: int, width: int, used: int) -> None:
        """Moves the documents of `rows` to rows 0, 1, ...; keeps `used` columns."""
        moved = []
        for part in _both(self.documents):
            kept = part[rows, :, :used]
            room = part
            if (num_rows, width) != (part.shape[0], part.shape[2]):
                room = part.new_zeros(num_rows, part.shape[1], width, part.shape[3])
            room[: len(rows), :, :used] = kept
            moved.append(room)
        self.documents = (moved[0], moved[1])

    def get_seq_length(self) -> int:
        """Returns 0: the model is given positions, and must not derive them from the cache."""
        return 0

    def get_max_length(self) -> int:
        return -1

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return query_length, 0


def rows_of(part: Tensor, places: Tensor) -> Tensor:
    """Returns `part[places]`, several times as fast on a CPU."""
    return part.index_select(0, places.flatten()).view(*places.shape, *part.shape[1:])


def _both(stored: tuple[Tensor, Tensor] | None) -> tuple[Tensor, Tensor]:
    assert stored is not None
    return stored


def _longer(part: Tensor, length: int) -> Tensor:
    return torch.cat([part, part.new_zeros(length - len(part), *part.shape[1:])])


StagedBatch = tuple[Batch, list[tuple[KVSegment, tuple[Mask | None, ...]]]]
"""A batch on a device, and its segments with their masks by kind of layer."""


class KVPool(Cache):
    """The keys and values of all layers. Begin every pass with `begin`."""

    def __init__(self, num_layers: int) -> None:
        self.layer_under_way: KVLayer | None = None
        self.kv_layers = [KVLayer(self) for _ in range(num_layers)]
        super().__init__(layers=list(self.kv_layers))

    def begin(self, batch: Batch, windows: Sequence[int | None]) -> None:
        """Begins a pass. batch: on the host. windows: of each kind of layer."""
        self._batch, self._windows = batch, windows
        self._staged: dict[torch.device, StagedBatch] = {}

    def on(self, device: torch.device) -> StagedBatch:
        """The pass under way, staged on a device; a model's layers may be on several."""
        staged = self._staged.get(device)
        if staged is None:
            batch = self._batch.to(device)
            masks = [
                tuple(mask_of(segment, window, batch.furthest) for window in self._windows)
                for segment in batch.segments
            ]
            staged = batch, list(zip(batch.segments, masks, strict=True))
            self._staged[device] = staged
        return staged

    def resize(self, rows: Ints, num_rows: int, width: int, used: int) -> None:
        """See `KVLayer.resize`; rows: (r,) numbers on the host, copied once to each device."""
        staged: dict[torch.device, Tensor] = {}
        for layer in self.kv_layers:
            if layer.documents is not None:
                device = layer.documents[0].device
                if device not in staged:
                    (staged[device],) = stage([rows], device)
                layer.resize(staged[device], num_rows, width, used)

    def scrub(self) -> None:
        """Writes 0 over NaN and infinity, which a mask does not hide: 0 times NaN is NaN."""
        for layer in self.kv_layers:
            for part in (*(layer.documents or ()), *(layer.pool or ())):
                part.nan_to_num_(0.0, 0.0, 0.0)

    @property
    def bytes_per_token(self) -> int:
        """The bytes of a token's keys and values in all layers; 0 before the first pass."""
        return sum(layer.bytes_per_token for layer in self.kv_layers)
