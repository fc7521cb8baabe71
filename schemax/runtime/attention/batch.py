"""A batch: all tokens of one forward pass in one row, and the segments that they attend to.

A token attends to these segments:

- PREFIX: the instruction, shared by all tokens: one product for the whole pass;
- FRESH: its document, up to the token itself, if the document enters in this pass;
- DOCUMENTS: its request's row of the document store, as far as its slot sees it;
- OWN: its slot's own tokens, up to the token itself, in the KV pool; for `causal` slots,
  the tokens of all slots of the request.

Linear layers see no padding; attention pads within a segment, where documents of a pass, or slots
of a document, differ in length. A batch is plain data, and goes to the device in one copy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import Enum, auto
from typing import Any

import numpy as np

from schemax.runtime.slots.arrays import Ints, ranks
from schemax.runtime.slots.staging import stage
from schemax.tokens import Ids


class SegmentKind(Enum):
    """The kind of a segment, by where its keys and values are stored; see the module."""

    PREFIX = auto()
    FRESH = auto()
    DOCUMENTS = auto()
    OWN = auto()


@dataclass(frozen=True, slots=True, eq=False)
class KVSegment:
    """The queries of a pass, in B groups of up to n, and the M keys that a group may see.

    Index arrays are numpy's on the host and tensors on the device.

    queries: (B, n) places in the pass, padded with any place; None: all T places, as one group.
    real: (t,) the places of queries that are no padding in the flattened (B * n); None: all.
    targets: the t places in the pass that get the results: a slice, or (t,).
    comes_first: whether this segment is computed first. All such segments together cover the T
        queries once, so there is nothing to merge with.
    prefix: the handle of a PREFIX.
    rows: the number of the store's rows in DOCUMENTS.
    length: M of PREFIX and DOCUMENTS.
    pool: (B, M) places in the KV pool of OWN.
    causal: whether each query sees as many keys as its place in the group, itself included.
    visible: (B, 1 or n) the number of keys that a query sees; None: all, unless another field hides
        some.
    labels: (B, M) the slot that a FRESH token belongs to: -1 for all slots, -2 for padding.
    orders, own_orders: (B, M) and (B, n) orders of slots that see the values of earlier ones; see
        `block_table.RequestValues`.
    query_positions, key_positions: (B, n) and (B, M), for layers that do not see all keys.
    """

    kind: SegmentKind
    targets: Any
    queries: Any = None
    real: Any = None
    comes_first: bool = False
    prefix: int = -1
    rows: int = 0
    length: int = 0
    pool: Any = None
    causal: bool = False
    visible: Any = None
    labels: Any = None
    orders: Any = None
    own_orders: Any = None
    query_positions: Any = None
    key_positions: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class KVWrite:
    """Destinations of the keys and values of a pass.

    prefix: the handle of the prefix, if the pass reads nothing else; -1 for none.
    fresh: (W, C) places in the pass of the entering documents' tokens, padded with any place.
    rows: (W,) rows of entering requests, which get the first `stem_width` columns of `fresh`.
    num_rows, row_width: the extent of the document store.
    slot_mapping: (t,) places in the KV pool for the last t tokens.
    pool_size: the pool's size.
    """

    prefix: int = -1
    fresh: Any = None
    rows: Any = None
    stem_width: int = 0
    num_rows: int = 0
    row_width: int = 0
    slot_mapping: Any = None
    pool_size: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Places that the scheduler has allotted to the tokens of slots in the next pass.

    counts: (S,) tokens of each growing slot.
    columns: (E,) each token's place in its slot.
    pool: (E,) places in the KV pool.
    """

    counts: Ints
    columns: Ints
    pool: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """T tokens of one forward pass.

    input_ids, position_ids: (T,).
    selection: (S,) places whose logits the growing slots choose by.
    segments: the keys that the tokens attend to.
    write: the destinations of keys and values.
    furthest: the largest position id.
    """

    input_ids: Any
    position_ids: Any
    selection: Any
    segments: tuple[KVSegment, ...]
    write: KVWrite
    furthest: int

    def to(self, device: Any) -> Batch:
        """Copies all arrays to the device at once; returns the batch with tensors for arrays."""
        parts: list[Any] = [self, self.write, *self.segments]
        arrays = [_arrays_of(part) for part in parts]
        tensors = iter(stage([array for own in arrays for array in own.values()], device))
        placed: list[Any] = [
            replace(part, **{name: next(tensors) for name in own})
            for part, own in zip(parts, arrays, strict=True)
        ]
        batch: Batch = placed[0]
        return replace(batch, write=placed[1], segments=tuple(placed[2:]))


def _arrays_of(part: Any) -> dict[str, Ints]:
    values = ((field.name, getattr(part, field.name)) for field in fields(part))
    return {name: value for name, value in values if isinstance(value, np.ndarray)}


def prefix_batch(ids: Ids, handle: int, *, behind: int = 0) -> Batch:
    """A pass that reads an instruction, or a demonstration, by itself.

    behind: the length of the prefix with the handle 0, which the demonstration follows.
    """
    places, counts = np.arange(len(ids)), np.array([len(ids)])
    positions = places + behind
    before = KVSegment(
        SegmentKind.PREFIX,
        targets=slice(None),
        comes_first=True,
        prefix=0,
        length=behind,
        query_positions=positions[None],
        key_positions=np.arange(behind)[None],
    )
    own = stems(places[None], positions, counts)
    return Batch(
        input_ids=np.asarray(ids),
        position_ids=positions,
        selection=np.array([len(ids) - 1]),
        segments=(before, own) if behind else (own,),
        write=KVWrite(prefix=handle, fresh=places[None]),
        furthest=int(positions[-1]),
    )


def stems(fresh: Ints, positions: Ints, counts: Ints) -> KVSegment:
    """The segment of stems. fresh: (W, C) places, padded. counts: (W,) tokens of each stem."""
    width = fresh.shape[1]
    row = np.repeat(np.arange(len(counts)), counts)
    at = positions[fresh]
    return KVSegment(
        SegmentKind.FRESH,
        targets=slice(0, int(counts.sum())),
        queries=fresh,
        real=row * width + ranks(counts),
        causal=True,
        query_positions=at,
        key_positions=at,
    )
