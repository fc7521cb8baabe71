"""Slots that other slots' values call for: in line until a pass has room to read their keys.

The items of a list, once a slot has written how many there are; what a slot could have chosen
instead, once it has chosen. They join the slots of a document that is in flight, whose keys and
values are in the store, so nothing is read twice.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from schemax.runtime.choosing import Chooser
from schemax.runtime.plan import Ids, Ints, child_number, with_retries
from schemax.runtime.slots import Resident, Slots
from schemax.tokens import ChildSlot, SlotSpec


@dataclass(frozen=True, slots=True)
class Call:
    """One such slot.

    parent: the home of the slot that called for it.
    unread: what is left to read of its key; position: of the key's last token, which stands right
        behind the stem.
    budget: tokens, retries included.
    """

    resident: Resident
    parent: int
    child: ChildSlot
    unread: Ids
    position: int
    budget: int
    instruction: int
    sampling_key: tuple[int, int]

    @classmethod
    def of(
        cls,
        resident: Resident,
        parent: int,
        child: ChildSlot,
        rest: int,
        instruction: int,
        sampling_key: tuple[int, int],
    ) -> Call:
        """rest: of the parent's budget, behind what the child has in common with it."""
        request = resident.request
        position = int(request.stem_positions[-1]) + len(child.key)
        budget = child.k_max
        if budget is None:
            budget = rest
        else:
            k_max, last_position = np.array([budget]), np.array([position])
            budget = int(with_retries(k_max, last_position, request.retries, request.bound)[0])
        unread = child.key[child.shared :]
        return cls(resident, parent, child, unread, position, budget, instruction, sampling_key)

    @property
    def footprint(self) -> int:
        """Tokens that are kept for it, by a guess."""
        return len(self.unread) + self.budget // 4


class Calls:
    """Which slots may call for others, and what has been called for.

    keys: of the slots that the next pass takes up, one after the other.
    """

    def __init__(self) -> None:
        self._callers: dict[int, SlotSpec] = {}
        self._waiting: deque[Call] = deque()
        self.keys = np.zeros(0, np.int64)

    def begin(self, homes: Ints, specs: Sequence[SlotSpec]) -> None:
        for home, spec in zip(homes.tolist(), specs, strict=True):
            if spec.expansion is not None or spec.branching is not None:
                self._callers[home] = spec

    def end(
        self, done: Slots, residents: dict[int, Resident], written: Ints, chooser: Chooser
    ) -> list[int]:
        """Puts in line what slots call for that are done, by their homes in the table of tokens.

        Returns the homes of those whose cells are shared.
        """
        self.keys = self.keys[:0]
        sharing: list[int] = []
        if not self._callers:
            return sharing
        for place, home in enumerate(done.home.tolist()):
            if (spec := self._callers.get(home)) is None:
                continue
            resident = residents[int(done.row[place])]
            ids = (*chooser.begun(home), *written[home, : done.step[place]].tolist())
            children = spec.expansion.children(ids) if spec.expansion is not None else ()
            # With what was begun before it: as far as the positions of the slot may go.
            granted = len(chooser.begun(home)) + int(done.budget[place])
            if spec.branching is not None:
                branches = spec.branching.branches(ids, chooser.alternatives(home))
                children += tuple(b for b in branches if len(b.spec.begun) < granted)
            digest, number = done.keys[place].tolist()
            instruction = int(done.instruction[place])
            resident.growing += len(children)
            if any(child.shared for child in children):
                sharing.append(home)
            for at, child in enumerate(children):
                rest, key = granted - len(child.spec.begun), (digest, child_number(number, at))
                self._waiting.append(Call.of(resident, home, child, rest, instruction, key))
        return sharing

    def forget(self, homes: Ints) -> None:
        for home in homes.tolist() if self._callers else ():
            self._callers.pop(home, None)

    def take(self, room: int, alone: bool) -> list[Call]:
        """The first in line, as many as a pass has room for; at least one, if they are alone."""
        taken: list[Call] = []
        while self._waiting:
            room -= len(self._waiting[0].unread)
            if room < 0 and (taken or not alone):
                break
            taken.append(self._waiting.popleft())
        return taken

    def slots(self, taken: Sequence[Call], homes: Ints) -> Slots:
        """Those of (c,) calls, at their homes, with their keys still to be read."""
        self.keys = np.array([token for call in taken for token in call.unread], np.int64)
        for call, home in zip(taken, homes.tolist(), strict=True):
            called = call.resident.branches if call.child.spec.begun else call.resident.children
            called.setdefault(call.parent, []).append(home)
            call.resident.footprint += call.footprint
        zeros = np.zeros(len(taken), np.int64)
        shared = np.array([call.child.shared for call in taken])
        return Slots(
            row=np.array([call.resident.row for call in taken]),
            home=homes,
            step=zeros,
            length=shared,
            shared=shared,
            position=np.array([call.position for call in taken]),
            pending=np.array([len(call.unread) for call in taken]),
            passes=zeros,
            state=zeros,
            budget=np.array([call.budget for call in taken]),
            visible=np.array([len(call.resident.request.stem) for call in taken]),
            instruction=np.array([call.instruction for call in taken]),
            index=np.full(len(taken), -1),
            keys=np.array([call.sampling_key for call in taken]),
        )
