"""Rows that require no model: repeats within a run, and rows of an earlier table.

A row's key is a digest of all that its values depend on: the part of the record that the model
sees, and the settings of the run (schema, model, prompt, decoding). Rows with the same key have the
same values in all tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from schemax.errors import InputError
from schemax.extraction.documents import category_of, shown_text
from schemax.io.fingerprint import digest
from schemax.io.finished import is_table, keyed_results, read_run_record
from schemax.io.records import Record
from schemax.io.rows import RowForm
from schemax.io.shelf import Shelf
from schemax.io.storage import suffixes

_BESIDE = ("id", "index", "kept", "schema")

# The settings of a run that no row's values depend on.
_APART = ("limit", "shard", "keep", "id", "part rows", "part length", "retried", "repeats")
_APART_KINDS = ("input", "outline")


def salt_of(settings: Mapping[str, Any]) -> str:
    """A digest of the settings that all rows of a run depend on."""
    decisive = {
        key: value
        for key, value in settings.items()
        if key not in _APART and key.partition(" ")[0] not in _APART_KINDS
    }
    return digest(json.dumps(decisive, sort_keys=True, default=str))


@dataclass(frozen=True)
class Known:
    """The rows that a run knows before a model reads them.

    salt: the run's, see `salt_of`; None if rows have no keys, since they depend on each other.
    form: the run's, which says what the model sees of a record, and which schema reads it.
    earlier: a finished table, whose rows with equal keys are taken.

    Each process opens the table by itself, on first use.
    """

    salt: str | None = None
    form: RowForm = field(default_factory=RowForm)
    earlier: str | None = None

    def key(self, record: Record) -> str | None:
        """The key of a row in 32 digits; None without keys, and for an unreadable record."""
        if self.salt is None or isinstance(record, InputError):
            return None
        try:
            text, texts = shown_text(record, self.form.shown)
        except ValueError:
            return None
        category = category_of(record, self.form.shown) if self.form.categories else None
        return digest(json.dumps([self.salt, category, text, texts]))

    def body(self, key: str | None) -> dict[str, Any] | None:
        """The row of the earlier table with a key, without id and kept columns."""
        if key is None or self.earlier is None:
            return None
        found = self._opened[0].get(key)
        return None if found is None else json.loads(str(found[0]))

    def was_there(self, id: object) -> bool:
        """True if the earlier table has an id. `gone` requires that all ids were asked for."""
        key = digest(str(id))
        if id is None or self.earlier is None or self._opened[1].get(key) is None:
            return False
        self._opened[1].put(key, "met")
        return True

    def gone(self) -> int:
        """The number of ids of the earlier table that were not asked for."""
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
    """The part of a row that rows with the same key share."""
    return {name: value for name, value in row.items() if name not in _BESIDE}


def check_earlier(earlier: str, output: str) -> str | None:
    """The table whose rows a run takes; None if it is OUTPUT and does not exist yet.

    Raises InputError for a table that no run over files has made, and for another format.
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
