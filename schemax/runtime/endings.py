"""Ends slots that loop before their budgets are spent."""

from __future__ import annotations

from collections.abc import Callable

from schemax.loops import FEWEST_TOKENS, is_loop, may_be_loops
from schemax.runtime.plan import Ints
from schemax.runtime.requests import Request
from schemax.runtime.slot_table import SlotTable


def end_loops(table: SlotTable, slots: Ints, request_of: Callable[[int], Request]) -> None:
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
