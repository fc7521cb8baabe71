"""Label Studio's JSON export, as annotated rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any


def rows_of_tasks(tasks: Any) -> Iterator[dict[str, Any]]:
    """Rows as annotated JSON Lines have them, of the tasks that somebody has annotated.

    A task's data has category and text, and may have id and fields: those that were asked for, so
    that one without an annotation is null. A text area, choice or number named as the field says
    its value; else the regions of the text that have its label, all of which are accepted.

    Raises ValueError, naming the task, for anything else.
    """
    if not isinstance(tasks, list):
        raise ValueError("expected an array of tasks, as Label Studio exports them (JSON)")
    for place, task in enumerate(tasks, 1):
        try:
            data, annotations = task["data"], task.get("annotations") or ()
            done = [one for one in annotations if not one.get("was_cancelled")]
            if done:
                yield _row(data, done[-1]["result"], task.get("id"))
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"task {place} is none of Label Studio: {error!r}") from error


def _row(data: Mapping[str, Any], results: list[dict[str, Any]], number: Any) -> dict[str, Any]:
    regions: dict[str, list[str]] = {}
    said: dict[str, Any] = {}
    for result in results:
        kind, value = result["type"], result["value"]
        if kind == "labels":
            for name in value["labels"]:
                regions.setdefault(name, []).append(value["text"])
        elif kind in ("textarea", "choices", "number"):
            found = value[{"textarea": "text"}.get(kind, kind)]
            said[result["from_name"]] = found[0] if isinstance(found, list) and found else found
    attributes: dict[str, Any] = dict.fromkeys(data.get("fields") or ())
    attributes |= {name: texts if len(texts) > 1 else texts[0] for name, texts in regions.items()}
    attributes |= said
    id = data.get("id", number)
    return {
        "id": None if id is None else str(id),
        "category": data["category"],
        "text": data["text"],
        "attributes": attributes,
    }
