"""What is in flight: which documents are being filled, and what the next pass has to hold.

A pass packs the newest token of every slot that still grows and, as far as there is room, whole new
documents. So passes are equally large to the end of the stream, slots leave when they are done, and
nothing waits for the slowest. All bookkeeping is by arrays: no Python per slot or token.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from schemax.runtime.calls import Calls
from schemax.runtime.choosing import Chooser, Chosen
from schemax.runtime.limits import Throttle
from schemax.runtime.plan import Ids, Ints
from schemax.runtime.requests import Request
from schemax.runtime.slots import Entry, Resident, Slots, Stack, grown, ranks
from schemax.runtime.writing import slot_outputs
from schemax.tokens import DONE, SlotOutput, SlotSpec, StopTable

# Room is made for so many documents at once, unless they are long, and for ones longer by this
# factor: moving costs.
_FEWEST_ROWS, _FEWEST_TOKENS = 64, 16_384
_GROWTH = 1.25


class Flight:
    """Documents and slots in flight, within the limits of a throttle.

    num_rows, width: the extent of the documents' store. Whoever changes it with `extend` moves what
    is stored.
    """

    def __init__(self, stop: StopTable, chooser: Chooser, throttle: Throttle) -> None:
        self._chooser = chooser
        self._next_state = stop.next_state
        self._eos_ids = np.array(stop.eos_ids, np.int64)
        self._throttle = throttle
        self.residents: dict[int, Resident] = {}
        self.slots = Slots.none()
        self.entries: list[Entry] = []
        self.num_rows = self.width = 0
        self.positions = np.zeros((0, 0), np.int64)
        self.cells = Stack()
        self._homes = Stack()
        self.cell_table = np.zeros((0, 0), np.int64)
        self._written = np.zeros((0, 0), np.int64)
        self._logprobs = np.zeros((0, 0), np.float32)
        self._null_logprobs = np.zeros(0, np.float32)
        self._reason = np.zeros(0, np.int64)
        self._passes = np.zeros(0, np.int64)
        self._answers: Ints | None = None
        self._calls = Calls()
        self._footprint = 0

    @property
    def requests(self) -> list[Request]:
        return [resident.request for resident in self.residents.values()]

    @property
    def num_repeated(self) -> int:
        """Documents of the input that wait for an equal one."""
        return sum(len(request.places) - 1 for request in self.requests)

    @property
    def long(self) -> bool:
        return any(resident.request.long for resident in self.residents.values())

    @property
    def is_sparse(self) -> bool:
        """Whether most of the rows up to the last one in use are empty."""
        return bool(self.residents) and max(self.residents) + 1 > max(8, 2 * len(self.residents))

    @property
    def num_growing(self) -> int:
        return len(self.slots)

    # --- admission -------------------------------------------------------------------------------

    def room_for(self, request: Request) -> tuple[int, int] | None:
        """(rows, width) of a store that holds the request as well; None if it has to wait."""
        limits, count = self._throttle.now, len(self.residents)
        if count and (count >= limits.documents or request.long != self.long):
            return None
        if count and self._footprint + request.footprint > limits.capacity:
            return None
        longest = max([len(request.stem), *(len(r.stem) for r in self.requests)])
        rows, width = self.num_rows, self.width
        if longest > width:
            width = int(longest * _GROWTH) if rows else longest
        if count == rows or width > self.width:
            most = max(1, (limits.capacity - self.cells.size) // width)
            if most <= count and width > longest * _GROWTH:
                # Wider than anything in flight, since longer documents have gone through.
                width = int(longest * _GROWTH)
                most = max(1, (limits.capacity - self.cells.size) // width)
            fewest = min(_FEWEST_ROWS, max(1, _FEWEST_TOKENS // width))
            rows = min(max(2 * count, fewest), most, limits.documents)
        if count >= rows:
            return None
        return rows, width

    def extend(self, rows: int, width: int) -> tuple[Ints, int]:
        """Renumbers rows for a store of another extent. The (r,) old rows that are kept, and the
        columns of them in use."""
        kept = np.array(sorted(self.residents), np.int64)
        used = max((len(r.stem) for r in self.requests), default=0)
        positions = np.zeros((rows, width), np.int64)
        positions[: len(kept), :used] = self.positions[kept, :used]
        renumbered = {int(old): new for new, old in enumerate(kept)}
        if len(self.slots):
            self.slots.row = np.searchsorted(kept, self.slots.row)
        self.residents = {renumbered[row]: r for row, r in self.residents.items()}
        for row, resident in self.residents.items():
            resident.row = row
        self.entries = [Entry(e.request, renumbered[e.row]) for e in self.entries]
        self.positions, self.num_rows, self.width = positions, rows, width
        return kept, used

    def admit(self, request: Request, instruction: int) -> None:
        """Takes up a document, whose tokens are read by the next pass."""
        row = next(row for row in range(self.num_rows) if row not in self.residents)
        count = request.num_slots
        homes = self._homes.take(count)
        self._begin(homes, int(request.budgets.max()), request.specs, request.answers)
        self.positions[row, : len(request.stem)] = request.stem_positions
        self.residents[row] = Resident(request, row, homes, count, request.footprint)
        self._footprint += request.footprint
        self.entries.insert(0, Entry(request, row))
        zeros = np.zeros(count, np.int64)
        fresh = Slots(
            row=np.full(count, row),
            home=homes,
            step=zeros,
            length=zeros,
            shared=zeros,
            position=request.last_position,
            pending=zeros,
            passes=zeros,
            state=zeros,
            budget=request.budgets,
            visible=request.visible,
            instruction=np.full(count, instruction),
            index=request.index,
            keys=request.sampling_keys,
        )
        self.slots = fresh.joined([self.slots])

    def spawn(self, room: int) -> int:
        """Takes up slots that others have called for, as far as there is room for their keys.

        Returns how many tokens the next pass reads of these.
        """
        calls = self._calls.take(room, alone=not len(self.slots))
        if not calls:
            return 0
        homes = self._homes.take(len(calls))
        specs = [call.child.spec for call in calls]
        fresh = self._calls.slots(calls, homes)
        fresh.state = np.array([self._chooser.state_after(spec.begun) for spec in specs])
        self._begin(homes, int(fresh.budget.max()), specs, None)
        for call, home in zip(calls, homes.tolist(), strict=True):
            shared = call.child.shared
            self.cell_table[home, :shared] = self.cell_table[call.parent, :shared]
        self._footprint += sum(call.footprint for call in calls)
        self.slots = self.slots.joined([fresh])
        return int(fresh.pending.sum())

    def _begin(
        self, homes: Ints, budget: int, specs: Sequence[SlotSpec], answers: Sequence[Ids] | None
    ) -> None:
        self._reserve(budget)
        self._written[homes] = -1
        self._chooser.begin(homes.tolist(), specs, answers)
        self._calls.begin(homes, specs)
        if answers is not None or self._answers is not None:
            self._set_answers(homes, answers or ((),) * len(homes))

    def _reserve(self, budget: int) -> None:
        self._written = grown(self._written, self._homes.size, budget, -1)
        self._logprobs = grown(self._logprobs, self._homes.size, budget, 0)
        self.cell_table = grown(self.cell_table, self._homes.size, 1, 0)
        for name in ("_reason", "_passes", "_null_logprobs"):
            setattr(self, name, np.resize(getattr(self, name), self._homes.size))

    def _set_answers(self, homes: Ints, answers: Sequence[Sequence[int]]) -> None:
        table = np.zeros((0, 0), np.int64) if self._answers is None else self._answers
        longest = max(1, *map(len, answers))
        table = grown(table, self._homes.size, longest, -1)
        table[homes] = -1
        for home, answer in zip(homes, answers, strict=True):
            table[home, : len(answer)] = answer
        self._answers = table

    def place_in_cells(self, pending: Ints) -> Ints:
        """Gives each slot cells for its next (S,) tokens. All their cells, slot by slot."""
        total = int(pending.sum())
        cells = self.cells.take(total)
        owner = np.repeat(np.arange(len(self.slots)), pending)
        column = self.slots.length[owner] + ranks(pending)
        if total:
            self.cell_table = grown(self.cell_table, self._homes.size, int(column.max()) + 1, 0)
        self.cell_table[self.slots.home[owner], column] = cells
        self.slots.length = self.slots.length + pending
        return cells

    # --- progress --------------------------------------------------------------------------------

    def unread(self, slots: Ints) -> Ints:
        """The pending tokens of some slots, by their places in the order of slots, slot by slot."""
        counts = self.slots.pending[slots]
        owner = np.repeat(slots, counts)
        behind = np.repeat(counts, counts) - ranks(counts)
        step = self.slots.step[owner]
        unread: Ints = self._written[self.slots.home[owner], np.maximum(step - behind, 0)]
        # Slots that have been called for begin with the pass that reads their keys, in this order.
        unread[step == 0] = self._calls.keys
        return unread

    def given(self) -> Ints | None:
        """(S,) the next tokens of slots that have an answer; -1 where the model chooses."""
        if self._answers is None:
            return None
        slots = self.slots
        given = self._answers[slots.home, np.minimum(slots.step, self._answers.shape[1] - 1)]
        return np.where(slots.step < self._answers.shape[1], given, -1)

    def advance(self, chosen: Chosen) -> Iterator[tuple[Request, tuple[SlotOutput, ...]]]:
        """Takes up chosen tokens and what they force; the documents that are done with them."""
        slots = self.slots
        first = slots.step == 0
        self._null_logprobs[slots.home[first]] = chosen.null_logprobs[first]
        self._written[slots.home, slots.step] = chosen.ids
        self._logprobs[slots.home, slots.step] = chosen.logprobs
        slots.step = slots.step + 1
        slots.position = slots.position + 1
        slots.pending = np.ones_like(slots.step)
        slots.passes = slots.passes + 1
        slots.state = self._next_state[slots.state, chosen.ids].astype(np.int64)
        ended = np.isin(chosen.ids, self._eos_ids)
        growing = (slots.state != DONE) & ~ended & (slots.step < slots.budget)
        self._write_forced(self._chooser.forced(slots.home[growing], slots.state[growing]))
        stopped = slots.state == DONE
        done = stopped | ended | (slots.step >= slots.budget)
        self._reason[slots.home] = np.where(ended, 1, np.where(stopped, 0, 2))
        self._passes[slots.home] = slots.passes
        whole = slots.keep(done & (ended | stopped))
        sharing = self._calls.end(whole, self.residents, self._written, self._chooser)
        self._free(slots.keep(done), sharing)
        self.slots = slots.keep(~done)
        self.entries = []
        rows, counts = np.unique(slots.row[done], return_counts=True)
        for row, count in zip(rows.tolist(), counts.tolist(), strict=True):
            resident = self.residents[row]
            resident.growing -= count
            if not resident.growing:
                del self.residents[row]
                self._footprint -= resident.footprint
                for cells in resident.kept:
                    self.cells.give(cells)
                yield resident.request, self._outputs(resident, resident.homes)

    def _write_forced(self, forced: dict[int, Ids]) -> None:
        """Writes forced tokens behind the chosen ones, as far as the budgets go."""
        if not forced:
            return
        slots = self.slots
        for place in np.flatnonzero(np.isin(slots.home, list(forced))).tolist():
            home, step = int(slots.home[place]), int(slots.step[place])
            ids = forced[home][: int(slots.budget[place]) - step]
            self._written[home, step : step + len(ids)] = ids
            self._logprobs[home, step : step + len(ids)] = 0.0
            for token in ids:
                slots.state[place] = self._next_state[slots.state[place], token]
            slots.step[place] += len(ids)
            slots.position[place] += len(ids)
            slots.pending[place] += len(ids)

    def _free(self, done: Slots, sharing: list[int]) -> None:
        """Gives back the cells of slots that are done; shared ones, once their document is."""
        column = np.arange(self.cell_table.shape[1])
        own = (column >= done.shared[:, None]) & (column < done.length[:, None])
        shares = np.isin(done.home, sharing)
        for place in np.flatnonzero(shares).tolist():
            kept = self.residents[int(done.row[place])].kept
            kept.append(self.cell_table[done.home[place]][own[place]])
        free = self.cell_table[done.home[~shares]][own[~shares]]
        self.cells.give(free)

    def _outputs(self, resident: Resident, homes: Ints) -> tuple[SlotOutput, ...]:
        self._homes.give(homes)
        tables = (self._written, self._logprobs, self._reason, self._null_logprobs, self._passes)
        outputs = slot_outputs(self._chooser, homes, *(table[homes] for table in tables))
        self._calls.forget(homes)
        if not resident.children and not resident.branches:
            return outputs

        def called(by: dict[int, list[int]], home: int) -> tuple[SlotOutput, ...]:
            return self._outputs(resident, np.array(by[home])) if home in by else ()

        return tuple(
            replace(
                output,
                children=called(resident.children, home),
                branches=called(resident.branches, home),
            )
            if home in resident.children or home in resident.branches
            else output
            for output, home in zip(outputs, homes.tolist(), strict=True)
        )
