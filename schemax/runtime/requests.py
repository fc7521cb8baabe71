"""A request: one isolated document and its slots, ready to be packed with others."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from schemax.runtime.plan import Ids, Ints, Plan
from schemax.tokens import SlotSpec

# An instruction of up to so many tokens is read with every document: attending to it apart costs
# more.
_LEAST_SHARED = 16


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One document: D stem tokens that all its slots read, B of slots' own keys, N slots.

    instruction: shared ids that come before the stem, from position 0 on.
    stem, stem_positions: (D,) the document, the output's opening and, if gapped, the skeleton;
        before them the instruction, if it is too short to be shared.
    branch, branch_positions: (B,) slots' own keys, one after the other; branch_lengths: (N,).
    visible: (N,) how many of the stem's tokens a slot sees. The last of them gives the logits of a
        slot's first token where it has no branch.
    last_position: (N,) position id of the token before the first of the value.
    budgets: (N,) tokens; sampling_keys: (N, 2); specs: (N,); answers: (N,) given tokens, or None.
    places: whose output it is: documents with equal tokens are read once.
    index: (N,) the slots' places among all of a run, for traces.
    long: whether longrope takes its long factors.
    retries, bound: of slots that others call for; see `plan.with_retries`.
    """

    instruction: Ids
    stem: Ints
    stem_positions: Ints
    branch: Ints
    branch_positions: Ints
    branch_lengths: Ints
    visible: Ints
    last_position: Ints
    budgets: Ints
    sampling_keys: Ints
    specs: tuple[SlotSpec, ...]
    answers: tuple[Ids, ...] | None
    places: list[int]
    index: Ints
    long: bool
    retries: int = 0
    bound: int | None = None

    @property
    def num_tokens(self) -> int:
        """How many tokens are read before the first one is written."""
        return len(self.stem) + len(self.branch)

    @property
    def footprint(self) -> int:
        """Tokens that are kept for it, by a generous guess: few values come near their budgets."""
        return self.num_tokens + int(self.budgets.sum()) // 4

    @property
    def num_slots(self) -> int:
        return len(self.visible)


def split_requests(
    plan: Plan,
    budgets: Ints,
    first_place: int,
    first_slot: int,
    long: bool,
    retries: int = 0,
    bound: int | None = None,
) -> Iterator[Request]:
    """The requests of a prompt of isolated documents, in order.

    budgets: (S,) of the plan's slots, retries included; first_place, first_slot: of its first
        document and of its first slot; retries, bound: see `Request`.
    """
    (common,) = np.nonzero(plan.document < 0)
    shared = len(common) > _LEAST_SHARED
    instruction = tuple(plan.input_ids[common].tolist()) if shared else ()
    for document in dict.fromkeys(plan.slot_document.tolist()):
        (stem,) = np.nonzero((plan.document == document) & (plan.slot < 0))
        (branch,) = np.nonzero((plan.document == document) & (plan.slot >= 0))
        (slots,) = np.nonzero(plan.slot_document == document)
        last, start = plan.last_index[slots], stem[0]
        if not shared:
            stem, start = np.concatenate([common, stem]), start - len(common)
        names, owners = plan.slot_ids[slots], plan.slot[branch]
        lengths = (names[:, None] == owners).sum(axis=1)
        yield Request(
            instruction=instruction,
            stem=plan.input_ids[stem],
            stem_positions=plan.position_ids[stem],
            branch=plan.input_ids[branch],
            branch_positions=plan.position_ids[branch],
            branch_lengths=lengths,
            visible=np.where(lengths > 0, len(stem), last - start + 1),
            last_position=plan.last_position[slots],
            budgets=budgets[slots],
            sampling_keys=plan.sampling_keys[slots],
            specs=tuple(plan.specs[s] for s in slots),
            answers=None if plan.answers is None else tuple(plan.answers[s] for s in slots),
            places=[first_place + document],
            index=first_slot + slots,
            long=long,
            retries=retries,
            bound=bound,
        )
