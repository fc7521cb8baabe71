"""Extractions as the rows of a page: plain, short, and safe inside HTML.

Keys are short, and what is usual is left out, since there are many thousands of each.

row: i index, id, l field set, c cells in that set's order, t texts as [name, text], e errors as
    [field, message, raw], n forward passes, x 1 if there is no instance.
cell: v value, r raw, c confidence, s spans as [start, end, text] or null, g 1 or 0 for grounded,
    o 1 if left out, k what the type allowed of the model's probability, if not all, m note,
    f finish reason if not "stop", t tokens; n probability of null, a the likeliest alternatives
    as [text, probability].
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from typing import Any

from pydantic_core import to_jsonable_python

from schemax.attributes import settings_of
from schemax.results import Extraction, FieldResult, Span
from schemax.results.lists import without_items

_LARGEST = 2**53  # beyond it, JavaScript's numbers are not exact
_MOST_SHOWN, _LEAST_SHOWN = 4, 0.005  # of alternatives
_SURROGATE = re.compile("[\ud800-\udfff]")


class FieldSets:
    """The columns of a page: which fields there are, and which of them a schema has."""

    def __init__(self) -> None:
        self.fields: dict[str, int] = {}
        self._names: dict[tuple[str, ...], dict[str | None, int]] = {}
        self._known: list[tuple[str | None, tuple[str, ...]]] = []

    def of(self, item: Extraction[Any]) -> int:
        """The number of an extraction's field set.

        A failed row does not tell its schema; it is taken for the first one with these fields.
        """
        fields = tuple(without_items(item.fields))
        names = self._names.setdefault(fields, {})
        name = None if item.value is None else settings_of(type(item.value)).category
        if name is None and names:
            return next(iter(names.values()))
        if name not in names:
            if None in names:  # failed rows came first
                number = names.pop(None)
                self._known[number] = (name, fields)
            else:
                number = len(self._known)
                self._known.append((name, fields))
            names[name] = number
        for field in fields:
            self.fields.setdefault(field, len(self.fields))
        return names[name]

    def plain(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "fields": [self.fields[field] for field in fields]}
            for name, fields in self._known
        ]


def plain_row(item: Extraction[Any], field_sets: FieldSets) -> dict[str, Any]:
    """A row as the page reads it. Never raises, whatever the values are."""
    row: dict[str, Any] = {"i": item.index}
    if item.document_id is not None:
        row["id"] = item.document_id
    if item.fields:
        row["l"] = field_sets.of(item)
        row["c"] = [_cell(result, item.texts) for result in without_items(item.fields).values()]
    if item.texts:
        row["t"] = list(item.texts.items())
    if item.errors:
        row["e"] = [[error.field, error.message, error.raw] for error in item.errors]
    if item.steps:
        row["n"] = item.steps
    if item.value is None:
        row["x"] = 1
    return row


def _cell(result: FieldResult, texts: Mapping[str, str]) -> dict[str, Any]:
    cell: dict[str, Any] = {}
    value = _plain(result.value)
    if value is not None:
        cell["v"] = value
    if result.raw is not None:
        cell["r"] = result.raw
    if result.confidence is not None and isfinite(result.confidence):
        cell["c"] = round(result.confidence, 4)
    if result.null_probability is not None and isfinite(result.null_probability):
        cell["n"] = round(result.null_probability, 4)
    if result.legal_probability is not None and result.legal_probability < 0.995:
        cell["k"] = round(result.legal_probability, 2)
    if result.left_out:
        cell["o"] = 1
    if result.note:
        cell["m"] = result.note
    if alternatives := _likeliest(result):
        cell["a"] = alternatives
    if any(result.spans):
        cell["s"] = [span and _place(span, texts) for span in result.spans]
    if result.grounded is not None:
        cell["g"] = int(result.grounded)
    if result.finish_reason != "stop":
        cell["f"] = result.finish_reason
    if result.tokens:
        cell["t"] = result.tokens
    return cell


def _likeliest(result: FieldResult) -> list[tuple[str, float]]:
    """Choices other than the value, as texts; those that would show as 0 are left out."""
    others = [
        (str(_plain(choice)) if choice is not None else "null", round(probability, 4))
        for choice, probability in result.alternatives.items()
        if choice != result.value and probability >= _LEAST_SHOWN
    ]
    return sorted(others, key=lambda other: -other[1])[:_MOST_SHOWN]


def _place(span: Span, texts: Mapping[str, str]) -> tuple[int, int, int]:
    text = texts[span.field]
    return _units(text, span.start), _units(text, span.end), list(texts).index(span.field)


def _units(text: str, offset: int) -> int:
    """An offset in characters as JavaScript counts: an emoji is two."""
    return len(text[:offset].encode("utf-16-le", "surrogatepass")) // 2


def _plain(value: Any) -> Any:
    """A value as JSON holds it; as text where JavaScript would change it."""
    try:
        return _exact(to_jsonable_python(value, fallback=str))
    except Exception:  # a validator may have made anything of the value
        return f"<{type(value).__name__}>"


def _exact(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, int):
        return value if abs(value) < _LARGEST else str(value)
    if isinstance(value, list):
        return [_exact(item) for item in value]
    if isinstance(value, dict):
        return {key: _exact(item) for key, item in value.items()}
    return value


def to_json(value: Any) -> str:
    """JSON that can stand inside <script>: no "<", and no lone surrogate but as an escape."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c")
    return _SURROGATE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
