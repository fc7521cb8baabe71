"""The running batch: which requests are in flight, and what the next pass has to hold.

A pass packs the newest tokens of every slot that still grows and, as far as there is room, whole
new requests. So passes are equally large to the end of the stream, slots leave when they are done,
and nothing waits for the slowest. The cost of a request does not depend on the number in flight:
numbers come from free lists, columns have room to spare, totals are kept as they change.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence

import numpy as np
import numpy.typing as npt
from torch import Tensor

from schemax.runtime.attention.batch import Places
from schemax.runtime.engine.document_rows import DocumentRows, RunningRequest
from schemax.runtime.engine.drafts import Drafts, follow, length_of_drafts
from schemax.runtime.engine.follow_up_queue import FollowUpQueue
from schemax.runtime.engine.limits import AdmissionControl
from schemax.runtime.sampling.loops import FEWEST_TOKENS, is_loop, may_be_loops
from schemax.runtime.sampling.sampler import Chosen, Sampler
from schemax.runtime.sampling.slot_grammars import SlotGrammars
from schemax.runtime.slots.arrays import Ints, ranks
from schemax.runtime.slots.block_table import OWN_ONLY, BlockTable, RequestValues
from schemax.runtime.slots.outputs import DocumentOutput
from schemax.runtime.slots.requests import Filled, Request
from schemax.runtime.slots.slot_table import SlotTable
from schemax.tokens import SlotOutput

_NO_KV = np.zeros(0, np.int64)


class Scheduler:
    """Requests and slots of one flight, within the limits of an admission control.

    table: the slots of all requests in flight.
    rows: the rows of the document store.
    entering: new requests, which the next pass reads.
    growing: (S,) numbers of the slots that still grow, those of `entering` requests first.
    kv: the places of the slots' keys and values.
    follow_ups: the slots that other slots have called for.
    drafts: of the growing slots, in the next pass.
    """

    def __init__(
        self,
        table: SlotTable,
        sampler: Sampler,
        control: AdmissionControl,
        flight: int = 0,
    ) -> None:
        self.table = table
        self.rows = DocumentRows()
        self.entering: list[RunningRequest] = []
        self.growing = np.zeros(0, np.int64)
        self.kv = BlockTable(table)
        self._sampler = sampler
        self._control, self._flight = control, flight
        self.follow_ups = FollowUpQueue()
        self.drafts = Drafts.of(0)
        self._footprint = self._num_documents = 0
        self.num_repeated = self.num_watched = self.num_traced = self.num_causal = 0

    @property
    def requests(self) -> list[Request]:
        return [running.request for running in self.rows.running.values()]

    @property
    def num_running(self) -> int:
        return len(self.rows.running)

    # --- admission -------------------------------------------------------------------------------

    def room_for(self, request: Request) -> tuple[int, int] | None:
        """(rows, width) of a store that holds the request as well; None if it has to wait."""
        limits, count = self._control.now.of_flight(self._flight), self.num_running
        if not limits.documents:
            return None
        if count and (
            self._num_documents >= limits.documents
            or self._footprint + self.follow_ups.footprint + request.footprint > limits.capacity
        ):
            return None
        most = limits.capacity - self.kv.size, limits.documents // request.num_documents
        return self.rows.extent_for(request, *most)

    def resize(self, rows: int, width: int) -> tuple[Ints, int]:
        """Gives the document store another extent; what `DocumentRows.resize` returns."""
        kept, used = self.rows.resize(rows, width)
        entering = (running.slots for running in self.entering)
        slots = np.concatenate([self.growing, *entering])
        self.table.request[slots] = np.searchsorted(kept, self.table.request[slots])
        return kept, used

    def admit(self, request: Request, prefixes: Sequence[int]) -> None:
        """Takes up a request behind prefixes; the next pass reads its tokens."""
        row = self.rows.take(request, prefixes)
        layout, count = request.layout, len(request.stem)
        has_skeleton = len(layout.skeleton) > 0
        before = count - len(layout.skeleton)
        slots = self.table.add(
            {
                "request": row,
                "order": np.arange(layout.num_slots),
                "position": layout.last_position + request.first_position,
                "state": self.table.stops.start(request.stop),
                "budget": request.budgets,
                "k_max": layout.budgets,
                "visible": layout.visible + before if has_skeleton else count,
                "digest": np.array(request.digests, np.int64)[layout.owners],
                "number": layout.numbers,
                "null_id": layout.null_ids,
                "is_causal": request.is_causal,
                **request.sampling,
            },
            layout.specs,
            request.stop,
            request.answers,
        )
        self._begin(slots, request)
        running = RunningRequest.of(request, row, slots)
        self.rows.running[row] = running
        self._footprint += running.footprint
        self._num_documents += request.num_documents
        self.num_repeated += len(request.places) - 1
        if request.is_causal:
            self.num_causal += 1
            self.kv.keep(slots)
        if request.watcher is not None:
            self.num_watched += 1
            self.num_traced += request.watcher.num_rivals > 0
            request.watcher.begin()
        self.entering.append(running)

    def _begin(self, slots: Ints, request: Request) -> None:
        """Takes up the grammars of slots; one with an answer is given its tokens."""
        specs, answers = request.layout.specs, request.answers
        sources = request.slot_sources
        if answers is not None:
            free = [place for place, answer in enumerate(answers) if not answer]
            slots, specs = slots[free], tuple(specs[place] for place in free)
            sources = tuple(sources[place] for place in free) if sources else ()
        self._sampler.grammars.begin(slots, specs, request.stop, sources)

    def spawn(self, room: int, share: int) -> int:
        """Takes up slots that others have called for, as far as there is room for their keys.

        share: of each request's tokens. Returns how many tokens the next pass reads of these.
        """
        batch = self.follow_ups.take(room, share, alone=not len(self.growing))
        if not batch:
            return 0
        slots = self.follow_ups.begin(batch, self._sampler.grammars)
        for waiting, slot in zip(batch, slots.tolist(), strict=True):
            self.kv.begin(slot, waiting.kv)
        self.growing = np.concatenate([self.growing, slots])
        return int(self.table.num_new[slots].sum())

    # --- one pass --------------------------------------------------------------------------------

    def begin_pass(self) -> None:
        """Puts the slots of entering requests first."""
        fresh = [running.slots for running in self.entering]
        self.growing = np.concatenate([*fresh, self.growing])

    def allot(self) -> Places:
        """Gives the tokens of the next pass their places."""
        table, slots = self.table, self.growing
        fresh = [running.request.layout.suffix_lengths for running in self.entering]
        old = slots[sum(map(len, fresh)) :]
        counts = np.concatenate([*fresh, table.num_new[old]])
        self.drafts = self._drafts(len(slots) - len(old), int(counts.sum()))
        counts += self.drafts.counts
        columns = np.repeat(table.num_kv[slots], counts) + ranks(counts)
        places = self.kv.place(slots, counts, columns)
        if self.num_causal:
            self._show(np.repeat(slots, counts), places)
        return Places(counts, columns, places)

    def _drafts(self, num_entering: int, num_tokens: int) -> Drafts:
        """The drafts of the next pass; none while a watcher wants the rivals of each token, or
        other slots read the tokens.

        num_entering: slots that enter; num_tokens: of slots that the pass reads without drafts.
        """
        table, old = self.table, self.growing[num_entering:]
        num_tokens += sum(len(running.request.stem) for running in self.entering)
        most = length_of_drafts(self._control.now.pass_tokens, num_tokens, len(old))
        if not most or self.num_traced or self.num_causal:
            return Drafts.of(len(self.growing))
        room = (table.budget - table.step)[old].tolist()
        ahead = zip(self._sampler.grammars.ahead(old, most), room, strict=True)
        return Drafts.of(num_entering, [ids[:left] for ids, left in ahead])

    def _show(self, owner: Ints, places: Ints) -> None:
        """Adds tokens of `causal` slots to what others see. owner: (E,) slots of the tokens.

        Such a slot reads one token a pass, so that all slots of a request move in step.
        """
        table = self.table
        causal = table.is_causal[owner] > 0
        owner, places = owner[causal], places[causal]
        is_beyond = table.step[owner] >= table.k_max[owner]
        orders = table.order[owner] + is_beyond * OWN_ONLY
        order = np.argsort(table.request[owner], kind="stable")
        rows, starts = np.unique(table.request[owner[order]], return_index=True)
        for row, part in zip(rows.tolist(), np.split(order, starts)[1:], strict=True):
            self.values_of(row).add(places[part], table.position[owner[part]], orders[part])

    def values_of(self, row: int) -> RequestValues:
        """The values of the request in a row, whose slots are `causal`."""
        values = self.rows.running[row].values
        assert values is not None
        return values

    def new_ids(self, slots: Ints) -> Ints:
        """The tokens that the next pass reads of slots that entered earlier, slot by slot, each
        slot's draft last."""
        newest = self.table.newest(slots)
        counts = self.table.num_new[slots]
        # Follow-ups begin with the pass that reads their keys, in this order.
        newest[np.repeat(self.table.step[slots] == 0, counts)] = self.follow_ups.keys
        if not len(self.drafts.ids):
            return newest
        with_drafts = counts + self.drafts.counts[-len(slots) :]
        is_draft = ranks(with_drafts) >= np.repeat(counts, with_drafts)
        ids = np.zeros(len(is_draft), np.int64)
        ids[~is_draft], ids[is_draft] = newest, self.drafts.ids
        return ids

    # --- progress --------------------------------------------------------------------------------

    def advance(
        self, chosen: Chosen, not_finite: DocumentOutput, drafted: Tensor | None = None
    ) -> Iterator[Filled]:
        """Takes up chosen tokens and what they force; the requests that are done with them.

        not_finite: the output of requests whose logits are not finite; they leave.
        drafted: (E, V) logits behind the tokens of the pass's drafts; None without drafts.
        """
        slots, self.entering = self.growing, []
        broken = {self._request_of(slot) for slot in slots[~chosen.are_finite].tolist()}

        def write(slots: Ints, chosen: Chosen) -> npt.NDArray[np.bool_]:
            return write_chosen(self.table, self._sampler.grammars, slots, chosen, self._request_of)

        growing = write(slots, chosen)
        if drafted is not None and len(drafted):
            true = follow(self.drafts, drafted, slots, growing, self.table, self._sampler, write)
            self.kv.drop(slots, self.drafts.counts - true)
        self.growing = slots[growing]
        yield from (done for done in self._end(slots[~growing]) if done[0] not in broken)
        if broken:
            self.cancel(broken)
            yield from ((request, not_finite) for request in broken)

    def _end(self, done: Ints) -> Iterator[tuple[Request, tuple[SlotOutput, ...]]]:
        """Ends slots, whose numbers are free from here on; the requests that end with them."""
        table, outputs = self.table, self.table.outputs(done)
        self.follow_ups.forget(done)
        self._sampler.grammars.end(done)
        rows = table.request[done].tolist()
        for slot, row, output in zip(done.tolist(), rows, outputs, strict=True):
            running = self.rows.running[row]
            followed = running.end(slot, output)
            if not followed:
                continue
            kv = _NO_KV
            if any(follow_up.shared for follow_up in followed):
                kv = self.kv.of(slot)
            for follow_up in followed:
                self.follow_ups.put(running, follow_up, kv)
        self._free(done)
        for running in [self.rows.running[row] for row in sorted(set(rows))]:
            if running.filling.is_done:
                # Before the request is let go: if this raises, it is still in flight.
                request_outputs = running.filling.outputs
                self._let_go(running)
                yield running.request, request_outputs

    def _free(self, slots: Ints) -> None:
        """Frees the KV cells and table rows of finished slots."""
        for slot, places in self.kv.free(slots):
            self.rows.running[int(self.table.request[slot])].kept_kv.append(places)
        self.table.release(slots)

    def _request_of(self, slot: int) -> Request:
        return self.rows.running[int(self.table.request[slot])].request

    def cancel(self, requests: Container[Request]) -> None:
        """Frees the given requests and their slots, between passes."""
        leaving = [r for r in self.rows.running.values() if r.request in requests]
        rows = [running.row for running in leaving]
        leaves = np.isin(self.table.request[self.growing], rows)
        slots, self.growing = self.growing[leaves], self.growing[~leaves]
        self.follow_ups.cancel(rows, slots)
        self._sampler.grammars.end(slots)
        self._free(slots)
        for running in leaving:
            self._let_go(running)

    def _let_go(self, running: RunningRequest) -> None:
        """Frees the row and the KV cells of a request."""
        self.rows.give(running.row)
        self._footprint -= running.footprint
        self._num_documents -= running.request.num_documents
        self.num_repeated -= len(running.request.places) - 1
        if (watcher := running.request.watcher) is not None:
            self.num_watched -= 1
            self.num_traced -= watcher.num_rivals > 0
        self.num_causal -= running.request.is_causal
        for places in running.kept_kv:
            self.kv.give(places)


def write_chosen(
    table: SlotTable,
    grammars: SlotGrammars,
    slots: Ints,
    chosen: Chosen,
    request_of: Callable[[int], Request],
    *,
    defers: bool = False,
) -> npt.NDArray[np.bool_]:
    """Writes one token, and its forced tokens, into (S,) slots; returns (S,) True for slots that
    go on.

    defers: see `SlotGrammars.settle`.
    """
    table.write(slots, *chosen)
    _end_loops(table, slots, request_of)
    growing = table.is_growing(slots)
    grammars.settle(slots[growing], chosen.ids[growing], defers=defers)
    return table.is_growing(slots)


def _end_loops(table: SlotTable, slots: Ints, request_of: Callable[[int], Request]) -> None:
    """Cuts the budgets of looping slots to the tokens written.

    Only slots of requests with retries are cut: without retries a budget is kept. Given answers are
    exempt, and so are strict grammars, which allow few values that loop by mistake.
    """
    counts = table.step[slots]
    if counts.max(initial=0) < FEWEST_TOKENS:
        return
    glance = may_be_loops(table.written[slots, : int(counts.max())], counts)
    for slot in slots[glance].tolist():
        request, grammar = request_of(slot), table.specs[slot].grammar
        is_strict = grammar is not None and grammar.strict
        if is_strict or not request.retries or request.answers is not None:
            continue
        count = int(table.step[slot])
        if is_loop(table.written[slot, :count].tolist(), request.stem.tolist()):
            table.budget[slot] = count
