"""A pass: all tokens of a forward pass in one row, and the parts that their attention is made of.

The tokens of new documents come first, then those that belong to one slot each: the keys of new
slots and the newest tokens of all others. Whatever each of them sees is in one of four places:

- the instruction, the same for all: one matrix product for the whole pass;
- its own new document, up to itself;
- its slot's document, up to where the slot sees it;
- its slot's own tokens, up to itself.

Nothing is padded but inside attention, where documents of a pass, or slots of a document, differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from schemax.runtime.attention import Fetch, Part
from schemax.runtime.blocks import BlockLayer, Write
from schemax.runtime.flight import Flight
from schemax.runtime.plan import Ints
from schemax.runtime.slots import ranks
from schemax.runtime.visibility import Span, within_span

# Slots' own tokens are gathered side by side: up to 8 with up to 8, not with one of 200.
_BUCKETS = (8, 32, 128, 512, 2048, 8192, 32768, 1 << 62)
# Tokens of a new document and its keys up to which they are one masked square.
_SHORT = 192


@dataclass(frozen=True, slots=True)
class Pass:
    """T tokens of one forward pass.

    input_ids, position_ids: (1, T).
    selection: (S,) places whose logits the growing slots choose by, in the flight's order.
    parts: what the tokens attend to; write: where their keys and values go.
    long: whether longrope takes its long factors.
    """

    input_ids: Tensor
    position_ids: Tensor
    selection: Tensor
    parts: tuple[Part, ...]
    write: Write
    long: bool


def pack(flight: Flight, spans: Sequence[Span], lengths: Mapping[int, int], device: Any) -> Pass:
    """The next pass of a flight; gives its slots' next tokens their cells.

    spans: of the kinds of layers; lengths: of instructions, by handle.
    """
    return _Packer(flight, spans, lengths, device).packed()


def pack_instruction(ids: Sequence[int], handle: int, spans: Sequence[Span], device: Any) -> Pass:
    """A pass that reads an instruction by itself."""
    positions, counts = np.arange(len(ids)), np.array([len(ids)])
    return Pass(
        input_ids=_to(device, np.asarray(ids))[None],
        position_ids=_to(device, positions)[None],
        selection=_to(device, np.array([len(ids) - 1])),
        parts=(_stems(positions[None], positions, counts, spans, device),),
        write=Write(instruction=handle, padded=_to(device, positions)[None]),
        long=False,
    )


class _Packer:
    """Collects one pass: W new documents, their slots' keys, the newest tokens of old slots.

    Places in the pass: the stems of new documents, one after the other; then E tokens of slots, in
    the flight's order, which has the new ones first.
    """

    def __init__(
        self, flight: Flight, spans: Sequence[Span], lengths: Mapping[int, int], device: Any
    ) -> None:
        self.flight, self.spans, self.lengths, self.device = flight, spans, lengths, device
        self.slots, self.requests = flight.slots, [entry.request for entry in flight.entries]
        self.stem_counts = np.array([len(r.stem) for r in self.requests], np.int64)
        self.branch_counts = np.array([len(r.branch) for r in self.requests], np.int64)
        self.slot_counts = np.array([r.num_slots for r in self.requests], np.int64)
        self.num_stem = int(self.stem_counts.sum())
        self.num_branch = int(self.branch_counts.sum())
        self.num_new_slots = int(self.slot_counts.sum())
        old = np.arange(self.num_new_slots, len(self.slots))
        # New slots pass their keys, old ones what they have written and not read.
        newest = self.slots.pending[old]
        self.pending = np.concatenate([*(r.branch_lengths for r in self.requests), newest])
        self.owner = np.repeat(np.arange(len(self.slots)), self.pending)
        self.column = self.slots.length[self.owner] + ranks(self.pending)
        self.cells = flight.place_in_cells(self.pending)
        ids = [*(r.stem for r in self.requests), *(r.branch for r in self.requests)]
        positions = [r.stem_positions for r in self.requests]
        positions += [r.branch_positions for r in self.requests]
        behind = newest.repeat(newest) - ranks(newest) - 1
        self.input_ids = np.concatenate([*ids, flight.unread(old)])
        self.positions = np.concatenate(
            [*positions, self.slots.position[old].repeat(newest) - behind]
        )
        self.padded = self._padded() if self.requests else None

    def packed(self) -> Pass:
        return Pass(
            input_ids=self._tensor(self.input_ids)[None],
            position_ids=self._tensor(self.positions)[None],
            selection=self._tensor(self._selection()),
            parts=tuple(self._parts()),
            write=self._write(),
            long=self.flight.long,
        )

    def _padded(self) -> Ints:
        """(W, C) places of new documents' tokens: stems, and behind them what `together` adds."""
        counts = self.stem_counts
        if not self.together:
            return _padded_runs(counts, 0)
        stems = _padded_runs(counts, 0)
        branches = _padded_runs(self.branch_counts, self.num_stem)
        width = int((counts + self.branch_counts).max())
        column = np.arange(width) - counts[:, None]
        behind = np.clip(column, 0, branches.shape[1] - 1)
        before = np.minimum(np.arange(width), stems.shape[1] - 1)
        taken: Ints = np.where(
            column < 0, stems[:, before], np.take_along_axis(branches, behind, axis=1)
        )
        return taken

    @property
    def together(self) -> bool:
        """Whether new documents and their slots' keys are one part: if that is short enough.

        One masked square costs more products than its parts, and far fewer steps.
        """
        return self.num_branch > 0 and int((self.stem_counts + self.branch_counts).max()) <= _SHORT

    def _selection(self) -> Ints:
        """The last token of each slot's pending ones; of a slot without any, of what it sees."""
        last = self.num_stem + self.pending.cumsum() - 1
        starts = np.repeat(self.stem_counts.cumsum() - self.stem_counts, self.slot_counts)
        (bare,) = np.nonzero(self.pending == 0)
        last[bare] = starts[bare] + self.slots.visible[bare] - 1
        return last

    def _write(self) -> Write:
        flight = self.flight
        rows = padded = None
        if self.padded is not None:
            rows = self._tensor(np.array([entry.row for entry in flight.entries]))
            padded = self._tensor(self.padded)
        return Write(
            rows=rows,
            padded=padded,
            stem_width=int(self.stem_counts.max(initial=0)),
            num_rows=flight.num_rows,
            row_width=flight.width,
            cells=self._tensor(self.cells) if len(self.cells) else None,
            first_in_cells=self.num_stem,
            num_cells=flight.cells.size,
        )

    def _parts(self) -> Iterator[Part]:
        yield from self._instructions()
        first_apart = 0
        if self.padded is not None and self.together:
            yield self._new_documents_together(self.padded)
            first_apart = self.num_branch
        elif self.padded is not None:
            yield _stems(self.padded, self.positions, self.stem_counts, self.spans, self.device)
            if self.num_branch:
                yield self._keys_of_new_documents()
        if len(self.owner) > self.num_branch:
            yield self._old_documents()
        yield from self._own_tokens(first_apart)

    def _instructions(self) -> Iterator[Part]:
        of_stems = self.slots.instruction[self.slot_counts.cumsum() - self.slot_counts]
        handles = np.concatenate(
            [of_stems.repeat(self.stem_counts), self.slots.instruction[self.owner]]
        )
        found = np.unique(handles).tolist()
        for_all = all(self.lengths[handle] for handle in found)
        for handle in found:
            if not (length := self.lengths[handle]):
                continue
            (mine,) = np.nonzero(handles == handle)
            places = None if len(found) == 1 else self._tensor(mine)
            yield Part(
                queries=None if places is None else places[None],
                places=None,
                targets=slice(None) if places is None else places,
                fetch=lambda layer, handle=handle: layer.instructions[handle],  # type: ignore[misc]
                masks=self._masks(None, self.positions[mine][None], np.arange(length)[None]),
                first=for_all,
            )

    def _new_documents_together(self, padded: Ints) -> Part:
        """Stems and slots' keys, side by side: one square a document, under a mask."""
        width = padded.shape[1]
        real = np.arange(width) < (self.stem_counts + self.branch_counts)[:, None]
        labels = np.where(real, -1, -2)
        in_branch = padded >= self.num_stem
        labels[in_branch & real] = self.owner[padded[in_branch & real] - self.num_stem]
        key = labels[:, None, :]
        seen = np.tri(width, dtype=bool) & ((key == -1) | (key == labels[:, :, None]))
        positions = self.positions[padded]
        numbers = np.arange(len(padded))
        stems = numbers.repeat(self.stem_counts) * width + ranks(self.stem_counts)
        starts = numbers * width + self.stem_counts
        branches = starts.repeat(self.branch_counts) + ranks(self.branch_counts)
        return Part(
            queries=self._tensor(padded),
            places=self._tensor(np.concatenate([stems, branches])),
            targets=slice(0, self.num_stem + self.num_branch),
            fetch=_fetch_padded,
            masks=self._masks(seen, positions, positions),
        )

    def _keys_of_new_documents(self) -> Part:
        """Slots' keys beside their document, where `together` would be too much."""
        row = np.repeat(np.arange(len(self.requests)), self.branch_counts)
        positions = self.positions[self.padded]
        return self._beside(np.arange(self.num_branch), row, positions, _fetch_padded)

    def _old_documents(self) -> Part:
        """The newest tokens of old slots beside all rows of documents that are in use."""
        tokens = np.arange(self.num_branch, len(self.owner))
        used = max(self.flight.residents) + 1

        def fetch(layer: BlockLayer) -> tuple[Tensor, Tensor]:
            assert layer.documents is not None
            key, value = layer.documents
            return key[:used], value[:used]

        row = self.slots.row[self.owner[tokens]]
        return self._beside(tokens, row, self.flight.positions[:used], fetch)

    def _beside(self, tokens: Ints, row: Ints, key_positions: Ints, fetch: Fetch) -> Part:
        """Some of the E tokens, in a run, beside the documents they belong to; row: (t,) which."""
        num_rows = len(key_positions)
        order = np.argsort(row, kind="stable")
        counts = np.bincount(row, minlength=num_rows)
        rank = np.empty_like(order)
        rank[order] = ranks(counts)
        width = max(1, int(counts.max()))
        padded = np.full((num_rows, width), tokens[0])
        padded[row, rank] = tokens
        visible = np.zeros((num_rows, width), np.int64)
        visible[row, rank] = self.slots.visible[self.owner[tokens]]
        length = int(visible.max())
        whole = visible.max(axis=1, keepdims=True)
        shown = whole if ((visible == whole) | (visible == 0)).all() else visible
        # Rows without tokens, and padding, see something: their results are never read.
        allowed = np.arange(length) < np.where(shown == 0, length, shown)[..., None]

        def cut(layer: BlockLayer) -> tuple[Tensor, Tensor]:
            key, value = fetch(layer)
            return key[:, :, :length], value[:, :, :length]

        return Part(
            queries=self._tensor(padded + self.num_stem),
            places=self._tensor(row * width + rank),
            targets=slice(self.num_stem + int(tokens[0]), self.num_stem + int(tokens[-1]) + 1),
            fetch=cut,
            masks=self._masks(
                allowed, self.positions[padded + self.num_stem], key_positions[:, :length]
            ),
        )

    def _own_tokens(self, first: int) -> Iterator[Part]:
        """Each of the E tokens from `first` on, with the cells of its slot up to itself."""
        table, home = self.flight.cell_table, self.slots.home[self.owner]
        tokens = np.arange(first, len(self.owner))
        least = 0
        for bound in _BUCKETS:
            column = self.column[tokens]
            mine = tokens[(column >= least) & (column < bound)]
            least = bound
            if not len(mine):
                continue
            width = int(self.column[mine].max()) + 1
            cells = self._tensor(table[home[mine], :width])
            positions = self.positions[self.num_stem + mine][:, None]
            places = self._tensor(self.num_stem + mine)

            def fetch(layer: BlockLayer, cells: Tensor = cells) -> tuple[Tensor, Tensor]:
                assert layer.cells is not None
                key, value = layer.cells
                return key[cells].transpose(1, 2), value[cells].transpose(1, 2)

            behind = self.column[mine][:, None] - np.arange(width)
            run = slice(self.num_stem + int(mine[0]), self.num_stem + int(mine[-1]) + 1)
            yield Part(
                queries=places[:, None],
                places=None,
                targets=run if len(mine) == run.stop - run.start else places,
                fetch=fetch,
                masks=self._masks((behind >= 0)[:, None], positions, positions - behind),
            )

    def _masks(
        self, allowed: Any, query_positions: Ints, key_positions: Ints
    ) -> tuple[Tensor | None, ...]:
        return make_masks(allowed, query_positions, key_positions, self.spans, self.device)

    def _tensor(self, values: Ints) -> Tensor:
        return _to(self.device, values)


def _stems(padded: Ints, positions: Ints, counts: Ints, spans: Sequence[Span], device: Any) -> Part:
    """New documents among themselves: (W, C) places in the pass, padded; counts: (W,) real ones."""
    width = padded.shape[1]
    row = np.repeat(np.arange(len(counts)), counts)
    at = positions[padded]
    masks = make_masks(None, at, at, spans, device, np.tri(width, dtype=bool)[None])
    return Part(
        queries=_to(device, padded),
        places=_to(device, row * width + ranks(counts)),
        targets=slice(0, int(counts.sum())),
        fetch=_fetch_padded,
        masks=masks,
        causal=True,
    )


def _fetch_padded(layer: BlockLayer) -> tuple[Tensor, Tensor]:
    assert layer.padded is not None
    return layer.padded


def make_masks(
    allowed: Any,
    query_positions: Ints,
    key_positions: Ints,
    spans: Sequence[Span],
    device: Any,
    causal: Any = None,
) -> tuple[Tensor | None, ...]:
    """By kind of layer, (B, 1 or n, M) scores to be added; None where everything is seen.

    allowed: (B, 1 or n, M) bool, or None; query_positions: (B, n); key_positions: (B, M).
    causal: (1, n, M) what a causal kernel would allow, where a span makes it a matter of masks.
    """
    masks: list[Tensor | None] = []
    furthest = int(query_positions.max()) if query_positions.size else 0
    for span in spans:
        seen = allowed
        if span.bites(furthest):
            near = within_span(query_positions[:, :, None], key_positions[:, None, :], span)
            if causal is not None:
                near = near & causal
            seen = near if seen is None else near & seen
        if seen is None or seen.all():
            masks.append(None)
            continue
        least = np.finfo(np.float32).min
        masks.append(torch.from_numpy(np.where(seen, np.float32(0), least)).to(device))
    return tuple(masks)


def _padded_runs(counts: Ints, start: int) -> Ints:
    """(W, longest) places of W runs, one after the other from `start` on; padded with last ones."""
    starts = start + counts.cumsum() - counts
    last = np.maximum(counts[:, None] - 1, 0)
    places: Ints = starts[:, None] + np.minimum(np.arange(counts.max()), last)
    return places


def _to(device: Any, values: Ints) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(device)
