"""Finds files of a model or an adapter, in a folder or on the Hub."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from transformers.utils.hub import cached_file


def find_file(name: str, file: str, revision: str | None) -> Path | None:
    """A file of a folder or of a repository on the Hub; None if it is missing or out of reach.

    name: of the folder, of a file in it, or of the repository. Raises OSError for any other name.
    """
    if Path(name).exists():
        path = (Path(name) if Path(name).is_dir() else Path(name).parent) / file
        return path if path.is_file() else None
    cached = cached_file(
        name,
        file,
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return Path(cached) if cached else None


def read_object(path: Path) -> dict[str, Any]:
    """Reads a JSON file that holds an object. Raises ValueError for any other file."""
    written = json.loads(path.read_text("utf-8"))
    if not isinstance(written, dict):
        raise ValueError(f"{path.name} holds no JSON object")
    return written
