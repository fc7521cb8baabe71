"""Reads annotated documents in other files and forms than our JSON Lines.

Each row becomes {"category", "text", "attributes"} and, optionally, "id" and "description".
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Required

from pydantic import TypeAdapter, ValidationError
from typing_extensions import TypedDict

from schemax.errors import InputError
from schemax.io.readers import ARROW, CSV, PARQUET, read_file
from schemax.io.storage import optional, suffixes

HUB = "hf:"
CATEGORY = "document"
"""The category of rows that name none."""

_TABLES = (*PARQUET, *ARROW, *CSV)
# Columns of a table that are not attributes.
_OWN = ("id", "category", "text", "description")


def is_table(path: Path) -> bool:
    """Returns True for a file that `rows_of` reads, False for JSON Lines."""
    if str(path).startswith(HUB) or (path / "state.json").is_file():
        return True
    suffix = suffixes(str(path))[0]
    return suffix in _TABLES or (suffix == ".json" and _is_array(path))


def _is_array(path: Path) -> bool:
    with path.open("rb") as handle:
        return handle.read(64).removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"["


def rows_of(path: Path) -> Iterator[tuple[str, Any]]:
    """Yields (the place, the row) of every row. Raises InputError for an unreadable file."""
    if str(path).startswith(HUB) or path.is_dir():
        rows: Iterator[Any] = _dataset(path)
    elif suffixes(str(path))[0] == ".json":
        rows = _tasks(path)
    else:
        rows = read_file(str(path))
    for number, row in enumerate(rows, 1):
        if isinstance(row, InputError):
            raise InputError(f"{path}, {row}")
        yield f"{path}, row {number}", row


def in_our_form(row: Any, *, is_table: bool) -> Any:
    """Converts a chat, a task of Label Studio, or the columns of a table to a row of ours.

    Returns other rows unchanged, and None for a task without annotations.

    Raises ValueError for a chat without a question, or whose answer is not JSON.
    """
    if not isinstance(row, Mapping):
        return row
    if "messages" in row:
        converted: Any = _of_chat(row)
    elif not is_table:
        return row
    else:
        converted = annotated_row(row) if "data" in row else _of_columns(row)
    if converted is not None and converted.get("category") is None:
        converted["category"] = CATEGORY
    return converted


def _of_columns(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row of a table. Attributes are the column "attributes", or the further columns.

    The column holds a struct or JSON. Empty cells are not annotated, since a struct has the keys of
    all rows.
    """
    attributes = row.get("attributes", {key: row[key] for key in row if key not in _OWN})
    if isinstance(attributes, str):
        attributes = json.loads(attributes, parse_int=str, parse_float=str)
    elif isinstance(attributes, Mapping):
        attributes = {key: v for key, v in attributes.items() if v not in (None, "")}
    return {key: row.get(key) for key in _OWN} | {"attributes": attributes}


def _of_chat(row: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a row of a chat: the last question is the text, its answer the labels."""
    turns = row["messages"]
    messages = (
        [message for message in turns if isinstance(message, Mapping)]
        if isinstance(turns, list)
        else []
    )
    if len(messages) < 2 or [message.get("role") for message in messages[-2:]] != [
        "user",
        "assistant",
    ]:
        raise ValueError("messages: expected a question of the user, and the assistant's answer")
    question, answer = (_content(message.get("content")) for message in messages[-2:])
    fenced = re.fullmatch(r"\s*```(?:json)?\s*\n(.*?)\n\s*```\s*", answer, re.DOTALL)
    try:
        attributes = json.loads(fenced[1] if fenced else answer, parse_int=str, parse_float=str)
    except ValueError as error:
        raise ValueError(f"messages: the answer is not JSON ({error})") from error
    return {**{key: row.get(key) for key in ("id", "category")}, "text": question} | {
        "attributes": attributes
    }


def _content(content: Any) -> str:
    if isinstance(content, list):
        parts = (part for part in content if isinstance(part, Mapping))
        content = "".join(str(part.get("text") or "") for part in parts)
    return content if isinstance(content, str) else ""


def _tasks(path: Path) -> Iterator[Any]:
    try:
        tasks = json.loads(path.read_text("utf-8-sig"))
    except ValueError as error:
        raise InputError(f"cannot read {path}: {error}") from error
    if not isinstance(tasks, list):
        raise InputError(f"{path}: expected a JSON array of tasks, as Label Studio exports them")
    return iter(tasks)


def _dataset(path: Path) -> Iterator[Any]:
    datasets = optional("datasets", str(path), "datasets")
    if not str(path).startswith(HUB):
        return iter(datasets.load_from_disk(str(path)))
    name, _, split = str(path).removeprefix(HUB).partition(":")
    try:
        return iter(datasets.load_dataset(name, split=split or "train"))
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from error


class _Task(TypedDict, total=False):
    id: Any
    data: Required[dict[str, Any]]
    annotations: list[dict[str, Any]] | None
    completions: list[dict[str, Any]] | None


_TASK = TypeAdapter(_Task)
_ITEMS = TypeAdapter(list[dict[str, Any]])
_FIELDS = TypeAdapter(list[str])

# Types of regions in a text, whose label names the attribute; other controls have its name.
_REGIONS = ("labels", "hypertextlabels", "paragraphlabels")


def annotated_row(task: Mapping[str, Any]) -> dict[str, Any] | None:
    """{"id", "category", "text", "description", "schema", "attributes"} of a task; None without
    annotations.

    The text is `text` in the task's data, else its only text. The last annotation that was not
    cancelled counts. A labelled region gives its label the text that it covers, unless another
    control has the value; repeated values are a list. The fields that `fields` in the data names
    are null without a value.

    Raises ValueError for anything but a task.
    """
    try:
        checked = _TASK.validate_python(task)
        fields = _FIELDS.validate_python(checked["data"].get("fields") or [])
        listed = checked.get("annotations", checked.get("completions")) or ()
        counted = [annotation for annotation in listed if not annotation.get("was_cancelled")]
        items = _ITEMS.validate_python(counted[-1].get("result") or []) if counted else None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"])) or "the task"
        raise ValueError(f"{place}: {first['msg']}, as Label Studio exports tasks") from error
    data = checked["data"]
    if items is None:
        return None
    regions: dict[str, list[Any]] = {}
    entered: dict[str, list[Any]] = {}
    for item in items:
        name, stated = _stated_values(item)
        if name is not None:
            values = regions if item.get("type") in _REGIONS else entered
            values.setdefault(name, []).extend(stated)
    labels = {
        name: items if len(items) > 1 else items[0] for name, items in (regions | entered).items()
    }
    texts = [key for key, value in data.items() if isinstance(value, str)]
    shown = [key for key in texts if key not in ("id", "category", "description")]
    if "text" not in data and len(shown) != 1:
        raise ValueError(f"data: no text among {', '.join(map(repr, data)) or 'nothing'}")
    return {
        "id": data.get("id", task.get("id")),
        "category": data.get("category"),
        "text": data["text"] if "text" in data else data[shown[0]],
        "description": data.get("description"),
        "schema": data.get("schema"),
        "attributes": dict.fromkeys(fields) | labels,
    }


def _stated_values(item: Mapping[str, Any]) -> tuple[str | None, Sequence[Any]]:
    """Returns the attribute of an annotation's item, None for relations, and its values."""
    kind, value = item.get("type"), item.get("value")
    if not isinstance(value, Mapping) or not isinstance(kind, str):
        return None, ()
    if kind in _REGIONS:
        names, text = value.get(kind), value.get("text")
        name = names[0] if isinstance(names, list) and names else None
        return (name, [text]) if isinstance(name, str) and text is not None else (None, ())
    name, stated = item.get("from_name"), value.get("text" if kind == "textarea" else kind)
    items = stated if isinstance(stated, list) else [stated]
    is_stated = isinstance(name, str) and items and stated is not None
    return (name, items) if is_stated else (None, ())
