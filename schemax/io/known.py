"""Rows that need no model: repeats within a run, and rows that an earlier table has already.

A row's key is a digest of all that its values depend on: what the model sees of the record, and the
settings of the run (schema, model, prompt, decoding). Rows with one key have the same values, in
whichever table they are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from schemax.documents import Shown, shown_text
from schemax.errors import InputError
from schemax.io.fingerprint import digest
from schemax.io.finished import is_table, keyed_results, read_run_record
from schemax.io.records import Record
from schemax.io.shelf import Shelf
from schemax.io.storage import suffixes

_BESIDE = ("id", "index", "kept", "schema")

# The settings of a run that no row's values depend on.
_APART = ("limit", "shard", "keep", "id", "part rows", "part length", "retried", "repeats")
_APART_KINDS = ("input", "outline")


def salt_of(settings: Mapping[str, Any]) -> str:
    """A digest of what all rows of a run depend on, out of its settings."""
    decisive = {
        key: value
        for key, value in settings.items()
        if key not in _APART and key.partition(" ")[0] not in _APART_KINDS
    }
    return digest(json.dumps(decisive, sort_keys=True, default=str))


@dataclass(frozen=True)
class Known:
    """The knowledge of a run about rows before a model reads them.

    salt: of the run, see `salt_of`; None where rows have no keys, since they depend on others.
    shown: what the model sees of a record. is_mixed: whether its category names its schema.
    earlier: a finished table, whose rows with these keys are taken.

    It is opened where it is used, in each process by itself.
    """

    salt: str | None = None
    shown: Shown = field(default_factory=Shown)
    is_mixed: bool = False
    earlier: str | None = None

    def key(self, record: Record) -> str | None:
        """The key of a row, in 32 digits; None for a record that cannot be shown, or has no key."""
        if self.salt is None or isinstance(record, InputError):
            return None
        try:
            text, texts = shown_text(record, self.shown)
        except ValueError:
            return None
        category = None
        if self.is_mixed and isinstance(record, Mapping):
            category = record.get(self.shown.category)
        category = None if category is None else str(category)
        return digest(json.dumps([self.salt, category, text, texts]))

    def body(self, key: str | None) -> dict[str, Any] | None:
        """The row of the earlier table with that key, without id and kept columns."""
        if key is None or self.earlier is None:
            return None
        found = self._opened[0].get(key)
        return None if found is None else json.loads(str(found[0]))

    def was_there(self, id: object) -> bool:
        """Tells whether the earlier table has that id; asked for all rows, before `gone`."""
        key = digest(str(id))
        if id is None or self.earlier is None or self._opened[1].get(key) is None:
            return False
        self._opened[1].put(key, "met")
        return True

    def gone(self) -> int:
        """The number of ids of the earlier table that nobody has asked for."""
        return 0 if self.earlier is None else self._opened[1].unset()

    @cached_property
    def _opened(self) -> tuple[Shelf, Shelf]:
        """The rows of the earlier table by key, and its ids."""
        bodies, ids = Shelf(), Shelf()
        assert self.earlier is not None
        for row in keyed_results(self.earlier):
            if row["id"] is not None:
                ids.add(digest(str(row["id"])))
            if row["attributes"] is not None and (key := row.pop("key")) is not None:
                bodies.put(key, json.dumps(body_of(row)))
        return bodies, ids


def body_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a row that rows with one key have in common."""
    return {name: value for name, value in row.items() if name not in _BESIDE}


def check_earlier(earlier: str, output: str) -> str | None:
    """The table whose rows a run takes; None where that is OUTPUT, which is still to be made.

    Raises InputError for what no run over files has made, and for a file of another format.
    """
    if earlier == output and not is_table(output):
        return None
    read_run_record(earlier)
    if suffixes(earlier)[0] != suffixes(output)[0]:
        raise InputError(
            f"cannot take rows of {earlier} for {output}: formats keep values differently; name an "
            "output of the same format"
        )
    return earlier
