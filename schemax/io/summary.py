"""What became of the rows of a run, counted."""

from __future__ import annotations

import re
import time
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from schemax.results import Extraction
from schemax.results.lists import without_items

_MOST_IDS = 10
_MOST_KINDS = 5
# What is remembered, so that memory stays bounded: ids, and kinds of errors.
_MOST_KNOWN = 2_000_000
_MOST_COUNTED = 10_000
_OTHER = "of other kinds"
_TABLE_BITS = 22  # twice the room that so many ids take, else looking for a free place takes long
_TABLE_MASK = (1 << _TABLE_BITS) - 1
# Of a message, what differs from row to row.
_PARTICULARS = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d.,]*")
_ITEM = re.compile(r"(?<=\.)\d+(?=\.|$)")  # in the field of an error, of a list of nested models


class Tally:
    """Counts rows, what they cost, and what went wrong; the clock starts with it."""

    def __init__(self) -> None:
        self.rows = self.failed = self.computed = 0
        self.faults: Counter[str] = Counter()
        self._steps = self._decoded = self._tokens = 0
        self._started = time.monotonic()

    def add_cost(self, item: Extraction[Any]) -> None:
        """Counts what an extraction has cost: only this run's have been paid by it."""
        self.computed += 1
        self._steps += item.steps
        self._decoded += item.steps > 0
        self._tokens += sum(result.tokens for result in without_items(item.fields).values())

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Counts a row of the output, whichever run has computed it."""
        self.rows += 1
        if row["attributes"] is None:
            self.failed += 1
        else:
            for error in row["errors"]:
                kind = kind_of(error)
                full = len(self.faults) >= _MOST_COUNTED and kind not in self.faults
                self.faults[_OTHER if full else kind] += 1

    def start(self) -> None:
        """Sets the clock back to zero, once everything is loaded."""
        self._started = time.monotonic()

    def summary(self) -> str:
        seconds = max(1e-9, time.monotonic() - self._started)
        parts = [
            counted(self.rows, "row"),
            f"{self.failed:,} failed",
            counted(self.faults.total(), "field error"),
            f"{self.computed / seconds:,.1f} products/s",
        ]
        if self._decoded:
            parts.append(f"{self._steps / self._decoded:.1f} passes per product")
            parts.append(counted(self._tokens, "token"))
        if self.computed < self.rows:
            parts.append(f"{self.rows - self.computed:,} of the rows from an earlier run")
        return ", ".join(parts)

    def kinds(self) -> list[str]:
        """A line for each of the commonest kinds of field errors."""
        common = self.faults.most_common(_MOST_KINDS)
        lines = [f"field errors: {number:,} times {kind}" for kind, number in common]
        if rest := len(self.faults) - len(common):
            lines.append(f"field errors: and {rest:,} kinds more")
        return lines


def kind_of(error: Mapping[str, Any]) -> str:
    """Field and message of an error, without numbers and quotations."""
    message = _PARTICULARS.sub("…", str(error["message"]))
    return f"{_ITEM.sub('…', error['field'])}: {message}" if error["field"] else message


class Duplicates:
    """Finds ids that several rows have, among the first two million: known by their hashes.

    These stand in a table of 32 MiB: each at its own place, or at the next one that is free.
    """

    def __init__(self) -> None:
        self._table = array("q", [0]) * (1 << _TABLE_BITS)
        self._known = 0
        self._twice: dict[str, int] = {}
        self.rows = 0

    def add(self, id: str | None) -> None:
        if id is None:
            return
        if not self._is_known(id):
            return
        self.rows += 1
        if id in self._twice or len(self._twice) < _MOST_IDS:
            self._twice[id] = self._twice.get(id, 0) + 1

    def _is_known(self, id: str) -> bool:
        """Whether it was there before; it is from now on, if there is room."""
        table, key = self._table, hash(id) or 1  # 0 is a free place
        place = key & _TABLE_MASK
        while found := table[place]:
            if found == key:
                return True
            place = (place + 1) & _TABLE_MASK
        if self._known < _MOST_KNOWN:
            table[place] = key
            self._known += 1
        return False

    def warning(self) -> str | None:
        """Names some of them; None if there are none."""
        if not self.rows:
            return None
        more = ", ..." if sum(self._twice.values()) < self.rows else ""
        return (
            f"duplicate ids, all rows kept: {counted(self.rows, 'row')} with an id that an "
            f"earlier row has: {', '.join(self._twice)}{more}"
        )


def reasons(errors: Iterable[Any]) -> str:
    """Of a failed extraction, on one line."""
    return "; ".join(
        f"{error.field}: {error.message}" if error.field else error.message for error in errors
    )


def counted(number: int, thing: str) -> str:
    return f"{number:,} {thing}" if number == 1 else f"{number:,} {thing}s"
