"""Exports of Label Studio (JSON): tasks become rows of annotated documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

# Regions of a text, whose label names the attribute; any other control names it itself.
_REGIONS = ("labels", "hypertextlabels", "paragraphlabels")


def annotated_row(task: Mapping[str, Any]) -> dict[str, Any] | None:
    """{"id", "category", "text", "description", "attributes"} of a task; None without annotations.

    The text is that of `text` among the task's data, else its only text. Of several annotations
    the last one counts that was not cancelled. Labelled regions give their label the text that they
    cover, unless the value was entered in another control; what is there several times is a list.
    `fields` among the data are those that were asked for: without a value they are null.

    Raises ValueError for what is no task.
    """
    data = task.get("data")
    if not isinstance(data, Mapping):
        raise ValueError("data: expected an object, as Label Studio exports tasks")
    found = task.get("annotations", task.get("completions"))
    annotations = [one for one in found or () if not one.get("was_cancelled")]
    if not annotations:
        return None
    regions: dict[str, list[Any]] = {}
    entered: dict[str, list[Any]] = {}
    for item in annotations[-1].get("result") or ():
        name, stated = _stated(item)
        if name is not None:
            values = regions if item["type"] in _REGIONS else entered
            values.setdefault(name, []).extend(stated)
    said = {name: some if len(some) > 1 else some[0] for name, some in (regions | entered).items()}
    texts = [key for key, value in data.items() if isinstance(value, str)]
    shown = [key for key in texts if key not in ("id", "category", "description")]
    if "text" not in data and len(shown) != 1:
        raise ValueError(f"data: no text among {', '.join(map(repr, data)) or 'nothing'}")
    return {
        "id": data.get("id", task.get("id")),
        "category": data.get("category"),
        "text": data["text"] if "text" in data else data[shown[0]],
        "description": data.get("description"),
        "attributes": dict.fromkeys(data.get("fields") or ()) | said,
    }


def _stated(item: Mapping[str, Any]) -> tuple[str | None, Sequence[Any]]:
    """Which attribute a part of an annotation is about, and what it says; None for relations."""
    kind, value = item.get("type"), item.get("value")
    if not isinstance(value, Mapping) or not isinstance(kind, str):
        return None, ()
    if kind in _REGIONS:
        names, text = value.get(kind) or (), value.get("text")
        return (names[0], [text]) if names and text is not None else (None, ())
    stated = value.get("text" if kind == "textarea" else kind)
    some = stated if isinstance(stated, list) else [stated]
    return (item.get("from_name"), some) if some and stated is not None else (None, ())
