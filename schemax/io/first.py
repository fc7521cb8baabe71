"""Reads the first document of a file, or takes a text for a document."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from schemax.errors import InputError
from schemax.io.excel import EXCEL
from schemax.io.readers import ARROW, CSV, PARQUET, read_file
from schemax.io.storage import suffixes
from schemax.messages import say

_TABLES = (".jsonl", ".ndjson", ".json", *CSV, *PARQUET, *ARROW, *EXCEL)
_TEXTS = (".txt", ".md", ".html", ".htm")


def first_document(text: str) -> str | Mapping[str, Any]:
    """The text itself, stdin for "-", or the first document of the file that the text names.

    Raises InputError for a file that is missing, cannot be read or holds no document.
    """
    if text == "-":
        return sys.stdin.read()
    suffix = suffixes(text)[0]
    is_file = os.path.isfile(text)
    if suffix not in (*_TEXTS, *_TABLES) or not (is_file or text.split() == [text]):
        return text
    if not is_file:
        raise InputError(f"no such file: {text}; give the text of a document")
    say(f"note: the first document of {text}")
    if suffix not in _TABLES:
        return Path(text).read_text("utf-8-sig")
    with closing(read_file(text)) as records:
        record = next(records, None)
    if isinstance(record, InputError):
        raise record
    if record is None:
        raise InputError(f"{text} holds no document")
    return record
