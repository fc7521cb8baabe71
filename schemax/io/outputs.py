"""What kind of table a name stands for: a file, a folder, or one that keeps versions of itself."""

from __future__ import annotations

from schemax.io.storage import (
    ICEBERG,
    expand,
    is_file,
    is_folder,
    is_remote,
    local_path,
    sidecar,
)

RECORD = ".run.json"
"""The suffix of what lies beside a finished table and says how it was made."""

_DELTA = ".delta"


def is_table(name: str) -> bool:
    """Whether something is there that may be a table: a file, or a local folder of files."""
    return is_lake(name) or is_table_folder(name) or is_file(name)


def is_table_folder(name: str) -> bool:
    """Whether a place is a local folder, which may be a table in partitions."""
    return not is_remote(name) and is_folder(name)


def is_lake(name: str) -> bool:
    """Whether a place is a table that keeps versions of itself: of Delta Lake or of Iceberg."""
    return name.startswith(ICEBERG) or is_delta(name)


def is_delta(name: str) -> bool:
    """Whether a place is a Delta table, or by its suffix is to become one."""
    if name.rstrip("/").endswith(_DELTA):
        return True
    return not is_remote(name) and (local_path(name) / "_delta_log").is_dir()


def tables_of(name: str) -> list[str]:
    """The tables that a name stands for: the files that `expand` gives, or a folder in partitions.

    A folder is one where a record of its run lies beside it. Raises InputError for no match.
    """
    is_one = is_table_folder(name) and is_file(sidecar(name, RECORD))
    return [name] if is_one else expand(name)
