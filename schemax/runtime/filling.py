"""The life of a request's slots: asked for, done, followed by others, wave by wave.

A slot that is done may call for follow-ups: the items of a list, what a choice could have been, the
choice once more as free text. Once all slots are done, the next wave follows. Engine, fork and
servers ask `Filling.end` what follows, and nothing else decides.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from schemax.runtime.outputs import passes_of
from schemax.runtime.plan import Ids
from schemax.runtime.requests import Request, with_retries
from schemax.tokens import ChildSlot, CopySource, Role, SlotOutput, SlotSpec


@dataclass(slots=True, eq=False)
class AskedSlot:
    """A slot from when it is asked for.

    key: ids behind the stem. budget: tokens, retries included. digest, number: what random numbers
    depend on. role: see `tokens.Role`; shared: how many of the key's ids its parent has read.
    place: among the request's own slots, of these and of their free texts; -1 of all others.
    path: what a slot of a later wave, and its free text, is called. answer: given tokens.
    sources: the slot's document, to copy from; () for none.
    output, followed: what has become of the slot.
    """

    key: Ids
    spec: SlotSpec
    budget: int
    digest: int
    number: int
    role: Role = "first"
    shared: int = 0
    place: int = -1
    path: tuple[str, ...] = ()
    answer: Ids = ()
    sources: tuple[CopySource, ...] = ()
    output: SlotOutput | None = None
    followed: list[AskedSlot] = field(default_factory=list)

    @property
    def is_named(self) -> bool:
        """True if those who watch are told of its tokens one by one."""
        return self.place >= 0 or bool(self.path)

    @property
    def is_whole(self) -> bool:
        """True if the slot is done, and so are all that followed."""
        return self.output is not None and all(slot.is_whole for slot in self.followed)

    @property
    def whole(self) -> SlotOutput:
        """The output with those of all slots that followed."""
        assert self.output is not None
        if not self.followed:
            return self.output
        followed = (slot.whole for slot in self.followed)
        return replace(self.output, followed=(*self.output.followed, *followed))


class Filling:
    """A request's slots: those that were asked for, and what was written into them.

    follows_branches: whether what choices could have been is asked for.
    slots: of the wave under way, in order. num_open: slots that are asked for and not done.
    """

    def __init__(self, request: Request, *, follows_branches: bool) -> None:
        self.request = request
        self._follows_branches = follows_branches
        self._earlier: tuple[SlotOutput, ...] = ()
        self.slots = _own_slots(request)
        self.num_open = len(self.slots)

    @property
    def is_done(self) -> bool:
        return not self.num_open

    @property
    def outputs(self) -> tuple[SlotOutput, ...]:
        """(N,) outputs of a request that is done, of all waves."""
        return self.request.settled(self._earlier)

    def end(self, slot: AskedSlot, output: SlotOutput) -> Sequence[AskedSlot]:
        """Takes up what a slot wrote; the slots that follow, in the order of their turns."""
        slot.output = replace(output, role=slot.role) if slot.role != "first" else output
        slot.followed = self._follow_ups(slot, output)
        self.num_open += len(slot.followed) - 1
        return self._next_wave() if self.is_done else slot.followed

    def _follow_ups(self, slot: AskedSlot, output: SlotOutput) -> list[AskedSlot]:
        if slot.spec.follow_ups is None or output.finish_reason == "length":
            return []
        granted = len(slot.spec.begun) + slot.budget
        followed: list[AskedSlot] = []
        for child in slot.spec.follow_ups.after(output):
            rest = granted - len(child.spec.begun)
            if child.role == "branch" and (not self._follows_branches or rest <= 0):
                continue
            number = child_number(slot.number, len(followed))
            asked = self._asked(child, slot.digest, number, slot.sources, rest)
            if child.role == "free_text":
                asked.place, asked.path = slot.place, slot.path
            followed.append(asked)
        return followed

    def _next_wave(self) -> list[AskedSlot]:
        """The slots of the next wave, which begins when all slots before are done."""
        before = passes_of(self._earlier)
        wave = (slot.whole for slot in self.slots)
        self._earlier += tuple(
            replace(one, passes_before=before) if before else one for one in wave
        )
        request = self.request
        called = request.next_wave(self._earlier)
        digest, sources = request.digests[0], request.sources
        self.slots = [self._asked(child, digest, child.number, sources) for child in called]
        self.num_open = len(self.slots)
        return self.slots

    def _asked(
        self,
        child: ChildSlot,
        digest: int,
        number: int,
        sources: tuple[CopySource, ...],
        rest: int = 0,
    ) -> AskedSlot:
        """rest: of the parent's budget."""
        request = self.request
        budget = rest
        if child.k_max is not None:
            k_max, position = np.array([child.k_max]), np.array([key_end(child.key, request)])
            budget = int(with_retries(k_max, position, request.retries, request.bound)[0])
        return AskedSlot(
            child.key,
            child.spec,
            budget,
            digest,
            number,
            child.role,
            child.shared,
            path=child.path,
            sources=sources,
        )


def child_number(parent: int, rank: int) -> int:
    """The number of a follow-up, which its random numbers depend on, by its parent's number."""
    return ((parent + 1) * 2**20 + rank) % 2**62


def key_end(key: Ids, request: Request) -> int:
    """The position of the last token of a key right behind the stem."""
    return int(request.stem_positions[-1]) + len(key)


def _own_slots(request: Request) -> list[AskedSlot]:
    layout, sources = request.layout, request.slot_sources
    ends = layout.suffix_lengths.cumsum().tolist()
    keys, starts = layout.suffix.tolist(), [0, *ends[:-1]]
    digests = [request.digests[owner] for owner in layout.owners.tolist()]
    budgets, numbers = request.budgets.tolist(), layout.numbers.tolist()
    return [
        AskedSlot(
            tuple(keys[starts[n] : ends[n]]),
            layout.specs[n],
            budgets[n],
            digests[n],
            numbers[n],
            place=n,
            answer=request.answers[n] if request.answers else (),
            sources=sources[n : n + 1],
        )
        for n in range(layout.num_slots)
    ]
