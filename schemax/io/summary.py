"""Summaries of runs: counts of rows, errors and costs."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemax.base.messages import clipped, counted
from schemax.results import Extraction
from schemax.results.list_results import without_items

COSTS = ("computed", "seconds", "decoded", "passes", "tokens")
"""The fields of a `Summary` that are costs of a run."""

_MOST_IDS = 10
_MOST_KINDS = 5
# The most ids and kinds of errors that are kept, to bound memory.
_MOST_KNOWN = 500_000
_MOST_COUNTED = 10_000
_OTHER = "of other kinds"
# The parts of a message that differ between rows; in reasons, quotations stay, as part of remedies.
_PARTICULARS = re.compile(r"'[^']*'|\"[^\"]*\"|\d[\d.,]*")
_NUMBERS = re.compile(r"\d[\d.,]*")
_FILE = re.compile(r"^cannot read .{1,1000}?: ")
_SEVERAL = re.compile(r"…(?:, …)+")
_ITEM = re.compile(r"(?<=\.)\d+(?=\.|$)")  # an item's number in the field of an error


@dataclass(frozen=True, slots=True)
class Summary:
    """The outcome of a run over files.

    inputs: the files that were read, patterns resolved.
    output: the file that was written.
    rows: rows of the output.
    computed: rows that this run has computed; an earlier run computed the others.
    failed: rows without an instance, whose `_error`, or in JSON Lines `errors`, has the reason.
    failure_kinds: (reason, count), commonest first; numbers are left out.
    field_errors: unusable fields of the other rows.
    error_kinds: (field and message, count), commonest first; numbers and quotations are left out.
    duplicates: rows with the id of an earlier row.
    duplicate_ids: some of these ids. Only the first 500,000 ids are compared, by their hashes.
    seconds: the time since the model was loaded.
    decoded: documents that this run has decoded.
    passes: the sum of forward passes that each took part in.
    tokens: of their values. Documents in a batch share passes.
    repeats: rows that were not computed, since the model sees the same as for another row.
    reused: rows taken from an earlier table.
    added: rows whose ids the table lacks.
    changed: other rows that the table lacks.
    gone: ids of the table that the input lacks.
    """

    inputs: tuple[str, ...]
    output: str
    rows: int
    failed: int
    failure_kinds: tuple[tuple[str, int], ...]
    field_errors: int
    error_kinds: tuple[tuple[str, int], ...]
    computed: int
    duplicates: int
    duplicate_ids: tuple[str, ...]
    seconds: float
    decoded: int
    passes: int
    tokens: int
    repeats: int = 0
    reused: int | None = None
    added: int = 0
    changed: int = 0
    gone: int = 0

    def unchanged(self) -> Summary:
        """The summary of a run that has computed nothing and kept the table."""
        table = replace(self, repeats=0, reused=None, added=0, changed=0, gone=0)
        return replace(table, computed=0, seconds=1e-9, decoded=0, passes=0, tokens=0)

    def plus(self, more: Summary, *counts: str) -> Summary:
        """The summary with the costs of both, and the sums of the named counts."""
        names = (*COSTS, *counts)
        return replace(self, **{name: getattr(self, name) + getattr(more, name) for name in names})

    def lines(self) -> Iterator[str]:
        """The summary as text: duplicate ids, the commonest kinds of errors, the numbers."""
        if self.duplicates:
            yield f"note: {duplicates_note(self.duplicates, self.duplicate_ids)}"
        yield from _kinds("failed", self.failure_kinds)
        yield from _kinds("field errors", self.error_kinds)
        parts = [
            counted(self.rows, "row"),
            f"{self.failed:,} failed",
            counted(self.field_errors, "field error"),
            f"{self.computed / self.seconds:,.1f} documents/s",
        ]
        if self.decoded:
            parts.append(f"{self.passes / self.decoded:.1f} passes per document")
            parts.append(counted(self.tokens, "token"))
        if self.repeats:
            parts.append(f"{self.repeats:,} of the rows repeat others and were not computed")
        if (earlier := self.rows - self.computed - self.repeats - (self.reused or 0)) > 0:
            parts.append(f"{earlier:,} of the rows from an earlier run")
        yield ", ".join(parts)
        if self.reused is not None:
            yield (
                f"{counted(self.reused, 'row')} reused, {self.added:,} new, "
                f"{self.changed:,} changed, {self.gone:,} gone"
            )


def _kinds(label: str, kinds: Sequence[tuple[str, int]]) -> Iterator[str]:
    for kind, number in kinds[:_MOST_KINDS]:
        yield f"{label}: {counted(number, 'time')} {kind}"
    if further := len(kinds[_MOST_KINDS:]):
        yield f"{label}: and {counted(further, 'more kind')}"


class Tally:
    """Counts rows, costs and errors; its clock starts at once."""

    def __init__(self) -> None:
        self._counts = Counter(rows=0, failed=0, computed=0, decoded=0, passes=0, tokens=0)
        self._kinds: Counter[str] = Counter()
        self._reasons: Counter[str] = Counter()
        self._ids = Duplicates()
        self._reused = self._added = self._changed = 0
        self.start()

    def start(self) -> None:
        """Resets the clock, once everything is loaded."""
        self._started = time.monotonic()

    def add_cost(self, item: Extraction[Any]) -> None:
        """Counts the costs of an extraction of this run."""
        tokens = sum(result.tokens for result in without_items(item.fields).values())
        self._counts.update(
            computed=1, passes=item.steps, decoded=int(item.steps > 0), tokens=tokens
        )

    def add_row(self, row: Mapping[str, Any]) -> None:
        """Counts a row of the output, of any run."""
        self._counts["rows"] += 1
        self._ids.add(row["id"])
        if row["attributes"] is None:
            self._counts["failed"] += 1
            _count(self._reasons, reason_of(row["errors"]))
        else:
            for error in row["errors"]:
                _count(self._kinds, kind_of(error))

    def add_origin(self, origin: str, *, was_there: bool) -> None:
        """Counts the origin of a row. was_there: whether an earlier table has its id."""
        self._counts["repeats"] += origin == "repeat"
        self._reused += origin == "reused"
        self._changed += origin != "reused" and was_there
        self._added += origin != "reused" and not was_there

    def summary(
        self, inputs: Sequence[str] = (), output: str = "-", gone: int | None = None
    ) -> Summary:
        """The summary. gone: ids of the earlier table that no row has; None without reuse."""
        compared = {"added": self._added, "changed": self._changed, "reused": self._reused}
        return Summary(
            **self._counts,
            **({} if gone is None else {**compared, "gone": gone}),
            inputs=tuple(inputs),
            output=output,
            failure_kinds=tuple(self._reasons.most_common()),
            field_errors=self._kinds.total(),
            error_kinds=tuple(self._kinds.most_common()),
            duplicates=self._ids.rows,
            duplicate_ids=tuple(self._ids.some),
            seconds=max(1e-9, time.monotonic() - self._started),
        )


def _count(kinds: Counter[str], kind: str) -> None:
    full = len(kinds) >= _MOST_COUNTED and kind not in kinds
    kinds[_OTHER if full else kind] += 1


def reason_of(errors: Iterable[Mapping[str, Any]]) -> str:
    """The reason why a row failed, without numbers and files, so that rows share it."""
    return _NUMBERS.sub("…", _FILE.sub("cannot read …: ", clipped(reasons(errors))))


def reasons(errors: Iterable[Mapping[str, Any]]) -> str:
    """The reasons why a row failed."""
    return "; ".join(
        f"{error['field']}: {error['message']}" if error["field"] else str(error["message"])
        for error in errors
    )


def kind_of(error: Mapping[str, Any]) -> str:
    """Field and message of an error, without numbers and quotations."""
    message = _SEVERAL.sub("…", _PARTICULARS.sub("…", str(error["message"])))
    return f"{_ITEM.sub('…', error['field'])}: {message}" if error["field"] else message


class Duplicates:
    """Finds ids that several rows share, among the first 500,000, by their hashes.

    rows: the number of rows with an earlier row's id.
    some: the first of these ids.
    """

    def __init__(self) -> None:
        self._known: set[int] = set()
        self.rows = 0
        self.some: dict[str, None] = {}

    def add(self, id: str | None) -> None:
        key = hash(id)
        if id is not None and key in self._known:
            self.rows += 1
            if len(self.some) < _MOST_IDS:
                self.some[id] = None
        elif id is not None and len(self._known) < _MOST_KNOWN:
            self._known.add(key)

    def note(self) -> str | None:
        """A note that names some duplicate ids; None without any."""
        return duplicates_note(self.rows, self.some) if self.rows else None


def duplicates_note(rows: int, ids: Collection[str]) -> str:
    more = ", ..." if len(ids) == _MOST_IDS else ""
    return (
        f"duplicate ids, all rows kept: {counted(rows, 'row')} with an id that an earlier row has: "
        f"{', '.join(map(clipped, ids))}{more}"
    )
