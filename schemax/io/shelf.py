"""Values by key on the disk, for a run to look up or sort any number of rows."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import TypeAlias

Key: TypeAlias = str | bytes | int


class Shelf:
    """Values by key in a temporary file, of which a few MiB are in memory."""

    def __init__(self) -> None:
        # Streams may read their input in another thread than the one that began them.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.executescript(
            "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;"
            "CREATE TABLE shelf (key BLOB PRIMARY KEY, value TEXT) WITHOUT ROWID; BEGIN"
        )

    def put(self, key: Key, value: str | None = None) -> None:
        self._database.execute("INSERT OR REPLACE INTO shelf VALUES (?, ?)", (key, value))

    def add(self, key: Key, value: str | None = None) -> bool:
        """Adds a key; True if the key is new. An old key keeps its value."""
        cursor = self._database.execute("INSERT OR IGNORE INTO shelf VALUES (?, ?)", (key, value))
        return cursor.rowcount == 1

    def get(self, key: Key) -> tuple[str | None] | None:
        """The value in a tuple; None for an unknown key."""
        row: tuple[str | None] | None = self._database.execute(
            "SELECT value FROM shelf WHERE key = ?", (key,)
        ).fetchone()
        return row

    def items(self) -> Iterator[tuple[bytes, str]]:
        """Yields keys and values, in the order of the keys."""
        yield from self._database.execute("SELECT key, value FROM shelf ORDER BY key")

    def unset(self) -> int:
        """The number of keys without a value."""
        query = "SELECT count(*) FROM shelf WHERE value IS NULL"
        return int(self._database.execute(query).fetchone()[0])
