"""Packs a pass: a pure function from the scheduler's state to a `Batch`.

The stems of entering requests come first, then tokens of single slots: the keys of entering slots,
and the newest tokens of all others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from schemax.runtime.attention.batch import Batch, KVSegment, KVWrite, Places, SegmentKind, stems
from schemax.runtime.engine.scheduler import Scheduler
from schemax.runtime.slots.arrays import Ints, grouped_by_row, padded_runs, ranks, run_of
from schemax.runtime.slots.block_table import UNSEEN, padded_values

# Bounds of slots' own tokens that share a segment, so that few tokens are not padded to many.
_BUCKETS = (8, 32, 128, 512, 2048, 8192, 32768, 1 << 62)
# The most tokens of a new document and its keys that form one masked square.
_SHORT = 192


def make_batch(
    scheduler: Scheduler,
    places: Places,
    prefix_lengths: Mapping[int, int],
    windows: Sequence[int | None],
) -> Batch:
    """The next pass of the requests in flight.

    places: the destinations of its tokens' keys and values.
    prefix_lengths: by handle.
    windows: of each kind of layer.
    """
    return _Builder(scheduler, places, prefix_lengths, windows).batch()


class _Builder:
    """Builds a pass: stems of W entering requests, their slots' keys, other slots' newest tokens.

    Places in the pass: the D tokens of stems, one after the other; then E tokens of slots, in the
    scheduler's order, the first B of them of entering slots.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        places: Places,
        prefix_lengths: Mapping[int, int],
        windows: Sequence[int | None],
    ) -> None:
        table = scheduler.table
        self.scheduler, self.places, self.prefix_lengths = scheduler, places, prefix_lengths
        self.slots = slots = scheduler.growing
        entering = scheduler.entering
        self.entered = np.array([running.row for running in entering], np.int64)
        requests = [running.request for running in entering]
        layouts = [request.layout for request in requests]
        self.stem_counts = np.array([len(request.stem) for request in requests], np.int64)
        self.suffix_counts = np.array([len(layout.suffix) for layout in layouts], np.int64)
        self.slot_counts = np.array([layout.num_slots for layout in layouts], np.int64)
        self.num_stem = int(self.stem_counts.sum())
        self.num_suffix = int(self.suffix_counts.sum())
        old = slots[int(self.slot_counts.sum()) :]
        self.owner = np.repeat(slots, places.counts)
        newest = table.num_new[old]
        counts = newest + scheduler.drafts.counts[len(slots) - len(old) :]
        ids = [*(r.stem for r in requests), *(layout.suffix for layout in layouts)]
        positions = [r.stem_positions for r in requests]
        positions += [r.layout.suffix_positions + r.first_position for r in requests]
        behind = newest.repeat(counts) - ranks(counts) - 1  # below 0 for drafts
        self.input_ids = np.concatenate([*ids, scheduler.new_ids(old)])
        self.positions = np.concatenate([*positions, table.position[old].repeat(counts) - behind])
        self.furthest = int(self.positions.max())
        self.is_bounded = any(window is not None and self.furthest >= window for window in windows)
        self.fresh = self._fresh() if requests else None

    def batch(self) -> Batch:
        return Batch(
            input_ids=self.input_ids,
            position_ids=self.positions,
            selection=self._selection(),
            segments=tuple(self._segments()),
            write=self._write(),
            furthest=self.furthest,
        )

    @property
    def is_together(self) -> bool:
        """True if new documents and their slots' keys are short enough to be one segment.

        One masked square costs more multiplications than its parts, but far fewer calls.
        """
        return self.num_suffix > 0 and int((self.stem_counts + self.suffix_counts).max()) <= _SHORT

    def _fresh(self) -> Ints:
        """(W, C) places of new documents' tokens: stems, and keys if these are together."""
        if not self.is_together:
            return padded_runs(self.stem_counts, 0)
        stems = padded_runs(self.stem_counts, 0)
        suffixes = padded_runs(self.suffix_counts, self.num_stem)
        width = int((self.stem_counts + self.suffix_counts).max())
        column = np.arange(width) - self.stem_counts[:, None]
        behind = np.clip(column, 0, suffixes.shape[1] - 1)
        before = np.minimum(np.arange(width), stems.shape[1] - 1)
        places: Ints = np.where(
            column < 0, stems[:, before], np.take_along_axis(suffixes, behind, axis=1)
        )
        # Padding repeats a token of its own document, since masks do not hide NaN of another.
        is_real = np.arange(width) < (self.stem_counts + self.suffix_counts)[:, None]
        return np.where(is_real, places, stems[:, :1])

    def _selection(self) -> Ints:
        """(S,) the last new token of each slot, or the last token that it sees if it has none;
        then all tokens of drafts."""
        counts, table = self.places.counts, self.scheduler.table
        drafted = self.scheduler.drafts.counts
        last = self.num_stem + counts.cumsum() - drafted - 1
        starts = np.repeat(self.stem_counts.cumsum() - self.stem_counts, self.slot_counts)
        (bare,) = np.nonzero(counts == 0)
        last[bare] = starts[bare] + table.visible[self.slots[bare]] - 1
        return np.concatenate([last, last.repeat(drafted) + ranks(drafted) + 1])

    def _write(self) -> KVWrite:
        store, places = self.scheduler.rows, self.places
        entering = self.fresh is not None
        has_tokens = len(self.owner) > 0
        return KVWrite(
            fresh=self.fresh,
            rows=self.entered if entering else None,
            stem_width=int(self.stem_counts.max(initial=0)),
            num_rows=store.num_rows,
            row_width=store.width,
            slot_mapping=places.pool if has_tokens else None,
            pool_size=self.scheduler.kv.size,
        )

    def _segments(self) -> Iterator[KVSegment]:
        yield from self._prefixes()
        first_apart = 0
        if self.fresh is not None and self.is_together:
            yield self._new_documents_together(self.fresh)
            first_apart = self.num_suffix
        elif self.fresh is not None:
            yield stems(self.fresh, self.positions, self.stem_counts)
            if self.num_suffix:
                row = np.repeat(np.arange(len(self.entered)), self.suffix_counts)
                tokens = np.arange(self.num_suffix)
                yield self._beside(SegmentKind.FRESH, tokens, row, self.positions[self.fresh])
        if len(self.owner) > self.num_suffix:
            tokens = np.arange(self.num_suffix, len(self.owner))
            row = self.scheduler.table.request[self.owner[tokens]]
            used = self.scheduler.rows.num_used
            yield self._beside(
                SegmentKind.DOCUMENTS, tokens, row, self.scheduler.rows.positions[:used]
            )
        own = np.arange(first_apart, len(self.owner))
        if self.scheduler.num_causal:
            is_causal = self.scheduler.table.is_causal[self.owner[own]] > 0
            if is_causal.any():
                yield self._values(own[is_causal])
            own = own[~is_causal]
        yield from self._own_tokens(own)

    def _prefixes(self) -> Iterator[KVSegment]:
        """Yields instructions, then demonstrations, each with all tokens behind it."""
        prefixes = self.scheduler.rows.prefixes
        entered = self.entered.repeat(self.stem_counts)
        shown = prefixes[np.concatenate([entered, self.scheduler.table.request[self.owner]])]
        instructions = np.unique(shown[:, 0]).tolist()
        demonstrations = np.unique(shown[:, 1:]).tolist()
        covers_all = all(self.prefix_lengths[handle] for handle in instructions)
        for handle in instructions:
            if self.prefix_lengths[handle]:
                (rows,) = np.nonzero(shown[:, 0] == handle)
                only = len(instructions) == 1
                yield self._prefix(handle, slice(None) if only else rows, comes_first=covers_all)
        for handle in demonstrations:
            if handle >= 0:
                (rows,) = np.nonzero((shown[:, 1:] == handle).any(axis=1))
                yield self._prefix(handle, rows, comes_first=False)

    def _prefix(self, handle: int, rows: Any, *, comes_first: bool) -> KVSegment:
        """The segment of a prefix. rows: places of the tokens that see it; a slice means all."""
        length = self.prefix_lengths[handle]
        return KVSegment(
            SegmentKind.PREFIX,
            targets=rows,
            queries=None if isinstance(rows, slice) else rows[None],
            comes_first=comes_first,
            prefix=handle,
            length=length,
            **self._positions(self.positions[rows][None], np.arange(length)[None]),
        )

    def _new_documents_together(self, fresh: Ints) -> KVSegment:
        """The segment of stems with slots' keys: one masked square per document."""
        width = fresh.shape[1]
        real = np.arange(width) < (self.stem_counts + self.suffix_counts)[:, None]
        labels = np.where(real, -1, -2)
        in_suffix = (fresh >= self.num_stem) & real
        labels[in_suffix] = self.owner[fresh[in_suffix] - self.num_stem]
        positions = self.positions[fresh]
        numbers = np.arange(len(fresh))
        stems = numbers.repeat(self.stem_counts) * width + ranks(self.stem_counts)
        starts = numbers * width + self.stem_counts
        suffixes = starts.repeat(self.suffix_counts) + ranks(self.suffix_counts)
        return KVSegment(
            SegmentKind.FRESH,
            targets=slice(0, self.num_stem + self.num_suffix),
            queries=fresh,
            real=np.concatenate([stems, suffixes]),
            labels=labels,
            **self._positions(positions, positions),
        )

    def _beside(self, kind: SegmentKind, tokens: Ints, row: Ints, key_positions: Ints) -> KVSegment:
        """The segment of some of the E tokens, a run, over their documents. row: (t,) documents."""
        num_rows = len(key_positions)
        rank, queries = grouped_by_row(self.num_stem + tokens, row, num_rows)
        visible = np.zeros(queries.shape, np.int64)
        visible[row, rank] = self.scheduler.table.visible[self.owner[tokens]]
        length = int(visible.max())
        whole = visible.max(axis=1, keepdims=True)
        if ((visible == whole) | (visible == 0)).all():
            visible = whole
        return KVSegment(
            kind,
            targets=run_of(self.num_stem + tokens),
            queries=queries,
            real=row * queries.shape[1] + rank,
            rows=num_rows,
            length=length,
            visible=None if ((visible >= length) | (visible == 0)).all() else visible,
            **self._positions(self.positions[queries], key_positions[:, :length]),
        )

    def _values(self, tokens: Ints) -> KVSegment:
        """The segment of tokens of `causal` slots over the values of their requests."""
        table, owner = self.scheduler.table, self.owner[tokens]
        requests, row = np.unique(table.request[owner], return_inverse=True)
        pool, positions, orders = padded_values([*map(self.scheduler.values_of, requests.tolist())])
        rank, queries = grouped_by_row(self.num_stem + tokens, row, len(requests))
        own_orders = np.full(queries.shape, UNSEEN)  # padding sees all keys
        own_orders[row, rank] = table.order[owner]
        return KVSegment(
            SegmentKind.OWN,
            targets=run_of(self.num_stem + tokens),
            queries=queries,
            real=row * queries.shape[1] + rank,
            pool=pool,
            orders=orders,
            own_orders=own_orders,
            **self._positions(self.positions[queries], positions),
        )

    def _own_tokens(self, tokens: Ints) -> Iterator[KVSegment]:
        """Yields segments of some of the E tokens, each over its slot up to itself."""
        least = 0
        for bound in _BUCKETS:
            column = self.places.columns[tokens]
            part = tokens[(column >= least) & (column < bound)]
            least = bound
            if not len(part):
                continue
            behind = self.places.columns[part]
            width = int(behind.max()) + 1
            places = self.num_stem + part
            positions = self.positions[places][:, None]
            pool = self.scheduler.kv.blocks[self.owner[part], :width]
            yield KVSegment(
                SegmentKind.OWN,
                targets=run_of(places),
                queries=places[:, None],
                pool=np.where(np.arange(width) <= behind[:, None], pool, pool[:, :1]),
                visible=None if (behind == width - 1).all() else behind[:, None] + 1,
                **self._positions(positions, positions - behind[:, None] + np.arange(width)),
            )
            if len(part) == len(tokens):
                break

    def _positions(self, queries: Ints, keys: Ints) -> dict[str, Any]:
        """Positions of queries and keys; {} if all layers see everything in this pass."""
        return {"query_positions": queries, "key_positions": keys} if self.is_bounded else {}
