"""A pass: all tokens of a forward pass in one row, and the parts that their attention is made of.

The tokens of new documents come first, then those that belong to one slot each: the keys of new
slots and the newest token of all others. Whatever each of them sees is in one of four places:

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

from schemax.runtime.attention import Part
from schemax.runtime.blocks import BlockLayer, Write
from schemax.runtime.flight import Flight, ranks
from schemax.runtime.plan import Ints
from schemax.runtime.visibility import Span, within_span

# Slots' own tokens are gathered side by side: up to 8 with up to 8, not with one of 200.
_BUCKETS = (8, 32, 128, 512, 2048, 8192, 32768)


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
    positions = np.arange(len(ids))
    stem = _Stems(np.arange(len(ids))[None], positions[None], device)
    return Pass(
        input_ids=_to(device, np.asarray(ids))[None],
        position_ids=_to(device, positions)[None],
        selection=_to(device, np.array([len(ids) - 1])),
        parts=(stem.part(slice(None), None, spans),),
        write=Write(instruction=handle),
        long=False,
    )


class _Packer:
    """Collects one pass. Names: W new documents, E tokens that belong to slots, T in all."""

    def __init__(
        self, flight: Flight, spans: Sequence[Span], lengths: Mapping[int, int], device: Any
    ) -> None:
        self.flight, self.spans, self.lengths, self.device = flight, spans, lengths, device
        self.slots = flight.slots
        entries = flight.entries
        self.stems = [entry.request.stem for entry in entries]
        self.num_stem = sum(map(len, self.stems))
        # Old slots pass their newest token, new ones their keys.
        num_old = len(self.slots) - sum(entry.request.num_slots for entry in entries)
        branch_lengths = [entry.request.branch_lengths for entry in entries]
        self.pending = np.concatenate([np.ones(num_old, np.int64), *branch_lengths])
        self.num_old = num_old
        self.column = self.slots.length.repeat(self.pending) + ranks(self.pending)
        self.owner = np.repeat(np.arange(len(self.slots)), self.pending)
        self.cells = flight.place_in_cells(self.pending)
        ids = [*self.stems, self.slots.newest[:num_old], *(e.request.branch for e in entries)]
        positions = [
            *(entry.request.stem_positions for entry in entries),
            self.slots.position[:num_old],
            *(entry.request.branch_positions for entry in entries),
        ]
        self.input_ids = np.concatenate(ids)
        self.positions = np.concatenate(positions)
        self.stem_starts = np.cumsum([0, *map(len, self.stems)])[:-1]

    def packed(self) -> Pass:
        return Pass(
            input_ids=self._tensor(self.input_ids)[None],
            position_ids=self._tensor(self.positions)[None],
            selection=self._tensor(self._selection()),
            parts=tuple(self._parts()),
            write=self._write(),
            long=self.flight.long,
        )

    def _selection(self) -> Ints:
        """The last token of each slot's pending ones; of a slot without any, of what it sees."""
        last = self.num_stem + self.pending.cumsum() - 1
        starts = np.repeat(self.stem_starts, [e.request.num_slots for e in self.flight.entries])
        new = np.arange(self.num_old, len(self.slots))
        bare = new[self.pending[new] == 0]
        last[bare] = starts[bare - self.num_old] + self.slots.visible[bare] - 1
        return last

    def _write(self) -> Write:
        flight = self.flight
        cells = self._tensor(self.cells) if len(self.cells) else None
        rows = stems = None
        if flight.entries:
            rows = self._tensor(np.array([entry.row for entry in flight.entries]))
            stems = self._tensor(_padded_runs([len(stem) for stem in self.stems]))
        return Write(
            rows=rows,
            stems=stems,
            num_rows=flight.num_rows,
            row_width=flight.width,
            cells=cells,
            first_in_cells=self.num_stem,
            num_cells=flight.cells.size,
        )

    def _parts(self) -> Iterator[Part]:
        yield from self._instructions()
        if self.flight.entries:
            yield self._new_documents()
        yield from self._documents()
        yield from self._own_tokens()

    def _instructions(self) -> Iterator[Part]:
        entries = self.flight.entries
        of_stems = [
            np.full(len(stem), self.slots.instruction[self._first_slot(place)])
            for place, stem in enumerate(self.stems)
        ]
        assert len(of_stems) == len(entries)
        handles = np.concatenate([*of_stems, self.slots.instruction[self.owner]])
        found = np.unique(handles).tolist()
        for handle in found:
            if not (length := self.lengths[handle]):
                continue
            (mine,) = np.nonzero(handles == handle)
            alone = len(found) == 1
            places = None if alone else self._tensor(mine)
            yield Part(
                queries=None if places is None else places[None],
                places=None,
                targets=slice(None) if places is None else places,
                fetch=lambda layer, handle=handle: layer.instructions[handle],  # type: ignore[misc]
                masks=self._masks(None, self.positions[mine][None], np.arange(length)[None]),
            )

    def _first_slot(self, place: int) -> int:
        before = sum(e.request.num_slots for e in self.flight.entries[:place])
        return self.num_old + before

    def _new_documents(self) -> Part:
        padded = _padded_runs([len(stem) for stem in self.stems])
        positions = np.concatenate([entry.request.stem_positions for entry in self.flight.entries])[
            padded
        ]
        places = np.concatenate(
            [row * padded.shape[1] + np.arange(len(stem)) for row, stem in enumerate(self.stems)]
        )
        stems = _Stems(padded, positions, self.device)
        return stems.part(slice(0, self.num_stem), self._tensor(places), self.spans)

    def _documents(self) -> Iterator[Part]:
        """Tokens of slots and their documents: old ones in all rows, new ones in theirs."""
        flight, row = self.flight, self.slots.row[self.owner]
        used = max(flight.residents) + 1
        if self.num_old:
            yield self._rows(np.arange(self.num_old), row[: self.num_old], used, None)
        if len(self.owner) > self.num_old:
            rows = np.array([entry.row for entry in flight.entries])
            index = np.zeros(flight.num_rows, np.int64)
            index[rows] = np.arange(len(rows))
            mine = np.arange(self.num_old, len(self.owner))
            yield self._rows(mine, index[row[mine]], len(rows), rows)

    def _rows(self, tokens: Ints, row: Ints, num_rows: int, chosen: Ints | None) -> Part:
        """Some of the E tokens, beside the first rows of documents, or beside chosen ones."""
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
        places = self._tensor(np.arange(num_rows) if chosen is None else chosen)

        def fetch(layer: BlockLayer) -> tuple[Tensor, Tensor]:
            assert layer.documents is not None
            key, value = layer.documents
            if chosen is None:
                return key[:num_rows, :, :length], value[:num_rows, :, :length]
            return key[places, :, :length], value[places, :, :length]

        index = np.arange(num_rows) if chosen is None else chosen
        real = counts > 0
        whole = visible.max(axis=1, keepdims=True)
        alike = bool(((visible == whole) | (visible == 0)).all())
        shown = whole if alike else visible
        allowed = None
        if not (shown[real] == length).all():
            # Rows without tokens, and padding, see something: their results are never read.
            allowed = np.arange(length) < np.where(shown == 0, length, shown)[..., None]
        return Part(
            queries=self._tensor(padded + self.num_stem),
            places=self._tensor(row * width + rank),
            targets=slice(self.num_stem + int(tokens[0]), self.num_stem + int(tokens[-1]) + 1),
            fetch=fetch,
            masks=self._masks(
                allowed,
                self.positions[padded + self.num_stem],
                self.flight.positions[index, :length],
            ),
        )

    def _own_tokens(self) -> Iterator[Part]:
        """Each of the E tokens, with the cells of its slot up to itself."""
        table, home = self.flight.cell_table, self.slots.home[self.owner]
        least = 0
        for bound in _BUCKETS:
            (mine,) = np.nonzero((self.column >= least) & (self.column < bound))
            least = bound
            if not len(mine):
                continue
            width = int(self.column[mine].max()) + 1
            columns = np.arange(width)
            cells = self._tensor(table[home[mine], :width])
            positions = self.positions[self.num_stem + mine][:, None]
            places = self._tensor(self.num_stem + mine)

            def fetch(layer: BlockLayer, cells: Tensor = cells) -> tuple[Tensor, Tensor]:
                assert layer.cells is not None
                key, value = layer.cells
                return key[cells].transpose(1, 2), value[cells].transpose(1, 2)

            behind = self.column[mine][:, None] - columns
            yield Part(
                queries=places[:, None],
                places=None,
                targets=places,
                fetch=fetch,
                masks=self._masks((behind >= 0)[:, None], positions, positions - behind),
            )

    def _masks(
        self, allowed: Any, query_positions: Ints, key_positions: Ints
    ) -> tuple[Tensor | None, ...]:
        return make_masks(allowed, query_positions, key_positions, self.spans, self.device)

    def _tensor(self, values: Ints) -> Tensor:
        return _to(self.device, values)


class _Stems:
    """New documents among themselves: (W, C) places in the pass and position ids, padded."""

    def __init__(self, padded: Ints, positions: Ints, device: Any) -> None:
        self.places = _to(device, padded)
        self.positions, self.device = positions, device

    def part(self, targets: slice, places: Tensor | None, spans: Sequence[Span]) -> Part:
        seen = np.tri(self.positions.shape[1], dtype=bool)[None]
        masks = make_masks(None, self.positions, self.positions, spans, self.device, seen)
        return Part(self.places, places, targets, self.fetch, masks, causal=True)

    def fetch(self, layer: BlockLayer) -> tuple[Tensor, Tensor]:
        assert layer.fresh is not None
        key, value = layer.fresh
        return key[self.places].transpose(1, 2), value[self.places].transpose(1, 2)


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


def _padded_runs(lengths: Sequence[int]) -> Ints:
    """(W, longest) places of W runs, one after the other; padded with each run's last place."""
    counts = np.array(lengths)
    starts = counts.cumsum() - counts
    places: Ints = starts[:, None] + np.minimum(np.arange(counts.max()), counts[:, None] - 1)
    return places


def _to(device: Any, values: Ints) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values)).to(device)
