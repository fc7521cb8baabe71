"""The failed rows of a finished table, to be done again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from schemax.errors import InputError
from schemax.io import fingerprint
from schemax.io.checkpoint import Checkpoint, Row
from schemax.io.results import read_results
from schemax.io.run_record import RunRecord, read_run_record
from schemax.io.table_schema import TableSchema
from schemax.io.writers import is_typed

# What must be as it was, since the rows that did not fail stay.
_SAME = ("limit", "shard", "keep", "details")


@dataclass(frozen=True, slots=True)
class Retry:
    """A finished table some of whose rows have failed: `failed` has their indexes."""

    output: str
    record: RunRecord
    failed: frozenset[int]

    @classmethod
    def of(cls, output: str) -> Retry:
        """Raises InputError for a table that no run over files has made."""
        record = read_run_record(output)
        rows = read_results(output, record.table)
        return cls(output, record, frozenset(r["index"] for r in rows if r["attributes"] is None))

    @property
    def digest(self) -> str:
        """Of which rows they are."""
        return fingerprint.digest(",".join(map(str, sorted(self.failed))))

    def is_over(self, checkpoint: Checkpoint) -> bool:
        """Whether kept rows are those of an earlier retry, which the table has already."""
        before = checkpoint.manifest() or {}
        earlier = self.record.settings.get("retried")
        return before.get("retried") == earlier != self.digest

    def check(self, known: Mapping[str, Any], table: TableSchema | None) -> None:
        """Raises InputError where new rows would not fit between the others.

        known: what the rows of the run depend on.
        """
        now = {k: v for k, v in known.items() if k in _SAME or k.startswith("input ")}
        found = fingerprint.differences(self.record.settings, now)
        if is_typed(self.output) and table != self.record.table:
            found.append("the columns changed")
        if found:
            raise InputError(
                f"cannot do the failed rows of {self.output} again: {'; '.join(found)}; restore "
                "these, or do all rows again"
            )

    def others(self) -> Iterator[Row]:
        """The rows that did not fail, in order."""
        rows = read_results(self.output, self.record.table)
        return (row for row in rows if row["index"] not in self.failed)
