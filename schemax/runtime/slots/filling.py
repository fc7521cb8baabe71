"""The life of a request's slots: asked for, done, followed by others, wave by wave.

A slot that is done may call for follow-ups: the items of a list, choices not taken, or the choice
asked as free text. Once all slots are done, the next wave follows. Engine, fork and servers all ask
`Filling.end` for the slots that follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from schemax.runtime.slots.outputs import passes_of
from schemax.runtime.slots.requests import Request, with_retries
from schemax.tokens import ChildSlot, CopySource, Ids, Role, SlotOutput, SlotSpec, child_number


@dataclass(slots=True, eq=False)
class AskedSlot:
    """A slot from when it is asked for.

    key: ids behind the stem.
    spec: the slot's spec.
    budget: tokens, retries included.
    digest, number: keys of random numbers.
    role: see `tokens.Role`.
    shared: the number of the key's ids that its parent has read.
    slot_index: among the request's own slots, also of a slot's free text; -1 for all others.
    path: the path of a slot of a later wave, also of its free text.
    answer: given tokens.
    sources: the slot's document, to copy from; () for none.
    output: None until the slot is done.
    followed: the slots that followed it.
    """

    key: Ids
    spec: SlotSpec
    budget: int
    digest: int
    number: int
    role: Role = "first"
    shared: int = 0
    slot_index: int = -1
    path: tuple[str, ...] = ()
    answer: Ids = ()
    sources: tuple[CopySource, ...] = ()
    output: SlotOutput | None = None
    followed: list[AskedSlot] = field(default_factory=list)

    @property
    def is_named(self) -> bool:
        """True if watchers are told the slot's tokens one by one."""
        return self.slot_index >= 0 or bool(self.path)

    @property
    def is_whole(self) -> bool:
        """True if the slot is done, and all slots that followed it."""
        return self.output is not None and all(slot.is_whole for slot in self.followed)

    @property
    def whole(self) -> SlotOutput:
        """The output, with the outputs of all slots that followed."""
        assert self.output is not None
        if not self.followed:
            return self.output
        return replace(self.output, followed=tuple(slot.whole for slot in self.followed))


class Filling:
    """The slots of a request, and their outputs.

    follows_branches: whether choices not taken are asked for.
    slots: the slots of the wave under way, in order.
    num_open: the number of slots not done.
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
        """(N,) outputs of all waves of a request that is done."""
        return self.request.final_outputs(self._earlier)

    def end(self, slot: AskedSlot, output: SlotOutput) -> Sequence[AskedSlot]:
        """Stores a slot's output; returns the slots that follow, in the order of their turns."""
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
            left = granted - len(child.spec.begun)
            if child.role == "branch" and (not self._follows_branches or left <= 0):
                continue
            number = child_number(slot.number, len(followed))
            follow_up = self._asked_child(child, slot.digest, number, slot.sources, left)
            if child.role == "free_text":
                follow_up.slot_index, follow_up.path = slot.slot_index, slot.path
            followed.append(follow_up)
        return followed

    def _next_wave(self) -> list[AskedSlot]:
        """Begins the next wave, once all slots are done; returns its slots."""
        before = passes_of(self._earlier)
        wave = (slot.whole for slot in self.slots)
        self._earlier += tuple(
            replace(output, passes_before=before) if before else output for output in wave
        )
        request = self.request
        called = request.next_wave(self._earlier)
        digest, sources = request.digests[0], request.sources
        self.slots = [self._asked_child(child, digest, child.number, sources) for child in called]
        self.num_open = len(self.slots)
        return self.slots

    def _asked_child(
        self,
        child: ChildSlot,
        digest: int,
        number: int,
        sources: tuple[CopySource, ...],
        left: int = 0,
    ) -> AskedSlot:
        """Asks for a child. left: what is left of the parent's budget."""
        request = self.request
        budget = left
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


def key_end(key: Ids, request: Request) -> int:
    """The position of the last token of a key right behind the stem."""
    return int(request.stem_positions[-1]) + len(key)


def _own_slots(request: Request) -> list[AskedSlot]:
    layout, sources = request.layout, request.slot_sources
    digests = [request.digests[owner] for owner in layout.owners.tolist()]
    budgets, numbers = request.budgets.tolist(), layout.numbers.tolist()
    return [
        AskedSlot(
            layout.keys[n],
            layout.specs[n],
            budgets[n],
            digests[n],
            numbers[n],
            slot_index=n,
            answer=request.answers[n] if request.answers else (),
            sources=sources[n : n + 1],
        )
        for n in range(layout.num_slots)
    ]
