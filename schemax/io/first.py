"""Reads the first document of a file, or takes a text for a document."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from schemax.base.messages import say
from schemax.errors import InputError
from schemax.io.document_files import is_document, load_document
from schemax.io.excel import EXCEL
from schemax.io.readers import ARROW, CSV, PARQUET, read_file
from schemax.io.storage import suffixes

_TABLES = (".jsonl", ".ndjson", ".json", *CSV, *PARQUET, *ARROW, *EXCEL)


def first_document(text: str) -> str | Mapping[str, Any]:
    """The text itself, stdin for "-", or the first document of the file that the text names.

    Raises InputError for a file that is missing, cannot be read or holds no document.
    """
    if text == "-":
        return sys.stdin.read()
    is_word = text.split() == [text]
    if is_word and os.path.isdir(text):
        raise InputError(f"{text} is a folder; name a file, or give the text of a document")
    is_file = os.path.isfile(text)
    is_named = suffixes(text)[0] in _TABLES or is_document(text)
    if not is_named or not (is_file or is_word):
        return text
    if not is_file:
        raise InputError(f"no such file: {text}; give the text of a document")
    say(f"note: the first document of {text}")
    if is_document(text):
        return str(load_document(text)["text"])
    with closing(read_file(text)) as records:
        record = next(records, None)
    if isinstance(record, InputError):
        raise record
    if record is None:
        raise InputError(f"{text} holds no document")
    return record
