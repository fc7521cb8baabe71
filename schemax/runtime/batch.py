"""A batch: all tokens of one forward pass in one row, and the segments that they attend to.

What a token sees lies in segments:

- PREFIX, the instruction: the same for all, one product for the whole pass;
- FRESH, its own entering document, up to itself, out of this very pass;
- DOCUMENTS, its request's row of the document store, up to where its slot sees it; slots that see
  each other's values have these in the row, too;
- OWN, its slot's own tokens, up to itself, out of the KV pool.

Linear layers see no padding; attention pads within a segment, where documents of a pass, or slots
of a document, differ in number. A batch is plain data, and goes to the device in one copy.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import Enum, auto
from functools import cache
from typing import Any

import numpy as np

from schemax.runtime.plan import Ints
from schemax.runtime.staging import stage

OWN_ONLY = 1 << 32
"""Added to the order of a token that no other slot sees."""


class Kind(Enum):
    """The place where a segment's keys and values lie; see the module."""

    PREFIX = auto()
    FRESH = auto()
    DOCUMENTS = auto()
    OWN = auto()


@dataclass(frozen=True, slots=True, eq=False)
class KVSegment:
    """Queries of a pass, in B groups of up to n, and the M keys that a group may see.

    Index arrays are numpy's on the host and tensors on the device.

    queries: (B, n) places in the pass, padded with any; None: all T of them, as one group.
    real: (t,) where the real ones lie in the flattened (B * n); None: all of them.
    targets: the t places in the pass that the results are for: a slice, or (t,).
    comes_first: whether this segment, with the others that say so, is computed first and covers all
        T queries: there is nothing to merge with.
    prefix: the handle of a PREFIX. rows: how many rows of the store DOCUMENTS takes.
    length: M of PREFIX and DOCUMENTS. pool: (B, M) places in the KV pool of OWN.
    causal: each query sees as many keys as its place in the group, itself included.
    visible: (B, 1 or n) how many keys a query sees; None: all, or what else is said here.
    labels: (B, M) which slot a FRESH token belongs to: -1 for all slots, -2 for padding.
    orders, own_orders: (B, M) and (B, n) of slots that see the values of earlier ones.
    query_positions, key_positions: (B, n) and (B, M), for layers that do not see all.
    """

    kind: Kind
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

    prefix: the handle of an instruction that this pass reads, and nothing else; -1 for none.
    fresh: (W, C) the places of what is read together, padded with any.
    rows: (W,) those of entering requests, which get the first `stem_width` columns of `fresh`.
    num_rows, row_width: the extent of the document store.
    slot_mapping: (t,) places in the KV pool of the last t tokens; pool_size: of the pool.
    row_mapping, column_mapping: (t,) the same, of tokens that go into rows of the document store.
    """

    prefix: int = -1
    fresh: Any = None
    rows: Any = None
    stem_width: int = 0
    num_rows: int = 0
    row_width: int = 0
    slot_mapping: Any = None
    pool_size: int = 0
    row_mapping: Any = None
    column_mapping: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Places that the scheduler has allotted to the tokens of slots in the next pass.

    counts: (S,) tokens of each growing slot; columns: (E,) each token's place in its slot.
    pool: (E,) places in the KV pool, or None where tokens go into rows: then (t,) rows and columns
    of the tokens of slots that entered earlier.
    """

    counts: Ints
    columns: Ints
    pool: Ints | None = None
    rows: Ints | None = None
    row_columns: Ints | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """T tokens of one forward pass.

    input_ids, position_ids: (T,). selection: (S,) places whose logits the growing slots choose by.
    segments: what the tokens attend to. write: where their keys and values go.
    use_long_rope: whether longrope takes its long factors. furthest: the largest position id.
    """

    input_ids: Any
    position_ids: Any
    selection: Any
    segments: tuple[KVSegment, ...]
    write: KVWrite
    use_long_rope: bool
    furthest: int

    def to(self, device: Any) -> Batch:
        """The batch with its arrays as tensors on the device, all in one copy."""
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
    values = ((name, getattr(part, name)) for name in _names_of(part.__class__))
    return {name: value for name, value in values if isinstance(value, np.ndarray)}


@cache
def _names_of(kind: Any) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind))
