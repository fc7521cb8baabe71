"""Earlier tables, whose rows a run keeps: `--reuse` and `--retry-failed`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from schemax.errors import InputError
from schemax.io.checkpoint import Checkpoint
from schemax.io.document_files import is_document
from schemax.io.fingerprint import differences, digest
from schemax.io.finished import RunRecord, is_table, keyed_results, read_run_record
from schemax.io.storage import Shelf, suffixes
from schemax.io.table_schema import TableSchema
from schemax.io.writers import is_typed

_OF_RECORD = ("id", "index", "kept", "schema")  # cells that a record decides, not its key

# Settings that a retry must not change, since rows that did not fail stay.
_SAME = ("limit", "shard", "keep", "details")


def values_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The cells of a row that rows with the same key share."""
    return {name: value for name, value in row.items() if name not in _OF_RECORD}


@dataclass(frozen=True)
class EarlierTable:
    """A finished table whose rows a run keeps, but for failed rows.

    by: a row is kept for a record with the same "key", or with the same "index" in the input.

    Each process opens the table by itself, on first use.
    """

    name: str
    by: Literal["key", "index"]

    @classmethod
    def to_reuse(cls, name: str, output: str) -> EarlierTable | None:
        """The table of `--reuse`; None if it is OUTPUT and does not exist yet.

        Raises InputError for a table that no run over files has made, and for another format.
        """
        if name == output and not is_table(output):
            return None
        read_run_record(name)
        if suffixes(name)[0] != suffixes(output)[0]:
            raise InputError(
                f"cannot take rows of {name} for {output}: formats keep values differently; name "
                "an output of the same format"
            )
        return cls(name, "key")

    def row(self, index: int, key: str | None) -> dict[str, Any] | None:
        """The values of a kept row and its key; None for a row to compute."""
        place = index if self.by == "index" else key
        stored = None if place is None else self._opened[0].get(place)
        return None if stored is None else json.loads(str(stored[0]))

    def was_there(self, id: object) -> bool:
        """True if the table has an id. `gone` requires a call for every id of the input."""
        key = digest(str(id))
        if id is None or self._opened[1].get(key) is None:
            return False
        self._opened[1].put(key, "met")
        return True

    def gone(self) -> int:
        """The number of ids in the table for which `was_there` was not called."""
        return self._opened[1].unset()

    @cached_property
    def _opened(self) -> tuple[Shelf, Shelf]:
        """The rows to keep by place, and all ids."""
        rows, ids = Shelf(), Shelf()
        for row in keyed_results(self.name):
            if row["id"] is not None:
                ids.add(digest(str(row["id"])))
            if row["attributes"] is not None and (place := row[self.by]) is not None:
                rows.put(place, json.dumps(values_of(row)))
        return rows, ids


@dataclass(frozen=True, slots=True)
class Retry:
    """A retry of the failed rows of a finished table. failed: their indexes.

    documents: input files that are a failed row each, and may have been corrected since.
    """

    output: str
    record: RunRecord
    failed: frozenset[int]
    documents: frozenset[str] = frozenset()

    @classmethod
    def of(cls, output: str) -> Retry:
        """The retry of a table. Raises InputError for a table that no run over files has made."""
        rows = keyed_results(output)
        failed = {row["index"]: row["id"] for row in rows if row["attributes"] is None}
        documents = filter(is_document, filter(None, failed.values()))
        return cls(output, read_run_record(output), frozenset(failed), frozenset(documents))

    @property
    def digest(self) -> str:
        """A digest of the indexes of the failed rows."""
        return digest(",".join(map(str, sorted(self.failed))))

    def is_over(self, checkpoint: Checkpoint) -> bool:
        """True if the checkpoint is of an earlier retry, whose rows the table holds already."""
        before = checkpoint.manifest() or {}
        earlier = self.record.settings.get("retried")
        return before.get("retried") == earlier != self.digest

    def check(self, known: Mapping[str, Any], table: TableSchema | None) -> None:
        """Raises InputError if new rows would not fit between the kept ones.

        known: the settings that the run's rows depend on.
        """
        now = {k: v for k, v in known.items() if k in _SAME or k.startswith("input ")}
        before = self.record.settings
        mended = {f"input {name}" for name in self.documents}
        now |= {key: before[key] for key in mended & now.keys() & before.keys()}
        changes = differences(before, now)
        if is_typed(self.output) and table != self.record.table:
            changes.append("the columns changed")
        if changes:
            raise InputError(
                f"cannot do the failed rows of {self.output} again: {'; '.join(changes)}; restore "
                f"these, or repeat the table's own command with --reuse {self.output} (reuse=), "
                "which computes failed and changed rows"
            )
