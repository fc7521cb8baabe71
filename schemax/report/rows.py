"""Rows of a page made from extractions: plain, short, and safe inside HTML.

Keys are short, and defaults are left out, since there are many thousands of each.

row: i index, id, l field set, c cells in that set's order, t texts as [name, text], e errors as
    [field, message, raw], n forward passes, x 1 if there is no instance, p pages as
    [number, image, width, height, marks], a mark being [field, left, top, right, bottom].
cell: v value, r raw, c confidence, s spans as [start, end, text] or null, g 1 or 0 for grounded,
    o 1 if left out, k the model's probability of what the type allows, if not all, m note,
    f finish reason if not "stop", t tokens; n probability of null, a the likeliest alternatives
    as [text, probability].
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from math import isfinite
from typing import Any

from pydantic_core import to_jsonable_python

from schemax.attributes import Attribute, compile_attributes, settings_of
from schemax.attributes.json_classes import known_declaration
from schemax.errors import InputError, SchemaError
from schemax.io.document_files import MOST_BYTES
from schemax.io.pdf import page_images
from schemax.io.readers import decompressed
from schemax.io.storage import reading, suffixes
from schemax.results import Extraction, FieldResult, Span
from schemax.results.file_text import Box, FileText
from schemax.results.list_results import without_items

logger = logging.getLogger(__name__)

_MOST_OF_ROW = 4  # pages
ROOM = 40_000_000  # characters of images in a report
_LONGEST = 1_100  # pixels of a page's longer side


class PageImages:
    """A maker of rows' images, within the room of a report.

    room: the characters left for images.
    """

    def __init__(self) -> None:
        self.room = ROOM

    def of(self, item: Extraction[Any], fields: Mapping[str, int]) -> list[Any]:
        """Returns the first pages with values: [page, data URL, width, height, marks].

        A mark is [field, left, top, right, bottom], in points, as width and height are. The list is
        empty if no page has values, or pages can no longer be read.

        fields: name -> number.
        """
        pages = []
        for text in item.texts.values():
            if isinstance(text, FileText) and text.pages is not None:
                pages += self._of_text(text, _marks(item, text, fields))
        return pages

    def _of_text(self, text: FileText, marks: dict[int, list[tuple[int, Box]]]) -> list[Any]:
        numbers = sorted(marks)[:_MOST_OF_ROW]
        if not numbers or self.room <= 0:
            return []
        try:
            with reading(text.file) as raw, decompressed(raw, suffixes(text.file)[1]) as handle:
                images = page_images(handle.read(MOST_BYTES), numbers, _LONGEST)
        except (InputError, OSError, EOFError, ValueError) as error:
            logger.warning("pages of %s are not shown: %s", text.file, error)
            return []
        pages = []
        for number, (url, width, height) in zip(numbers, images, strict=True):
            if len(url) <= self.room:
                self.room -= len(url)
                places = [[field, *box] for field, box in marks[number]]
                pages.append([number, url, round(width, 1), round(height, 1), places])
        return pages


def _marks(
    item: Extraction[Any], text: FileText, fields: Mapping[str, int]
) -> dict[int, list[tuple[int, Box]]]:
    """Returns page -> (field, box) of all values in the text."""
    marks: dict[int, list[tuple[int, Box]]] = {}
    for name, result in without_items(item.fields).items():
        for span in result.spans:
            if span is None or item.texts[span.field] is not text:
                continue
            page, boxes, _ = text.location(span.start, span.end)
            if page is not None and boxes:
                marks.setdefault(page, []).extend((fields[name], box) for box in boxes)
    return marks


_LARGEST = 2**53  # beyond it, JavaScript's numbers are not exact
_MOST_SHOWN, _LEAST_SHOWN = 4, 0.005  # of alternatives


class FieldSets:
    """The columns of a page: all fields, and the fields of each schema."""

    def __init__(self) -> None:
        self.fields: dict[str, int] = {}
        self._names: dict[tuple[str, ...], dict[str | None, int]] = {}
        self._known: list[tuple[str | None, tuple[str, ...]]] = []
        self._schemas: dict[int, type[Any]] = {}

    def of(self, item: Extraction[Any]) -> int:
        """Returns the number of an extraction's field set.

        A failed row has no schema; it counts as a row of the first schema with its fields.
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
            if item.value is not None:
                self._schemas[number] = type(item.value)
        for field in fields:
            self.fields.setdefault(field, len(self.fields))
        return names[name]

    def plain(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "fields": [self.fields[field] for field in fields]} | self._editors(at)
            for at, (name, fields) in enumerate(self._known)
        ]

    def _editors(self, number: int) -> dict[str, Any]:
        """Returns the editors of a field set, and its schema."""
        schema = self._schemas.get(number)
        if schema is None:
            return {}
        editors = {self.fields[name]: editor for name, editor in editors_of(schema).items()}
        return {"editors": editors, "schema": known_declaration(schema)}


def plain_row(item: Extraction[Any], field_sets: FieldSets, images: PageImages) -> dict[str, Any]:
    """Returns a row as the page reads it. Never raises, whatever the values are."""
    fields = without_items(item.fields).values()
    row = {
        "i": item.index,
        "id": item.document_id,
        "l": field_sets.of(item) if item.fields else None,
        "c": [_cell(result, item.texts) for result in fields] or None,
        "t": list(item.texts.items()) or None,
        "e": [[error.field, error.message, error.raw] for error in item.errors] or None,
        "n": item.steps or None,
        "x": 1 if item.value is None else None,
    }
    if item.fields:
        row["p"] = images.of(item, field_sets.fields) or None
    return _without_nulls(row)


def _cell(result: FieldResult, texts: Mapping[str, str]) -> dict[str, Any]:
    spans = [span and _place(span, texts) for span in result.spans]
    legal = result.legal_probability
    cell = {
        "v": _plain(result.value),
        "r": result.raw or None,
        "c": _rounded_number(result.confidence),
        "n": _rounded_number(result.null_probability),
        "k": None if legal is None or legal > 0.995 else round(legal, 2),
        "o": 1 if result.left_out else None,
        "m": result.note,
        "a": _likeliest(result) or None,
        "s": spans if any(spans) else None,
        "g": None if result.grounded is None else int(result.grounded),
        "f": None if result.finish_reason == "stop" else result.finish_reason,
        "t": result.tokens or None,
    }
    return _without_nulls(cell)


def _without_nulls(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}


def _rounded_number(value: float | None) -> float | None:
    return round(value, 4) if value is not None and isfinite(value) else None


def _likeliest(result: FieldResult) -> list[tuple[str, float]]:
    """Returns the likeliest choices other than the value, as texts, if they round above 0."""
    choices = [
        (str(_plain(choice)) if choice is not None else "null", round(probability, 4))
        for choice, probability in result.alternatives.items()
        if choice != result.value and probability >= _LEAST_SHOWN
    ]
    return sorted(choices, key=lambda choice: -choice[1])[:_MOST_SHOWN]


def _place(span: Span, texts: Mapping[str, str]) -> tuple[int, int, int]:
    text = texts[span.field]
    return _units(text, span.start), _units(text, span.end), list(texts).index(span.field)


def _units(text: str, offset: int) -> int:
    """Converts an offset to JavaScript's UTF-16 units: an emoji counts two."""
    return len(text[:offset].encode("utf-16-le", "surrogatepass")) // 2


def _plain(value: Any) -> Any:
    """Returns a value as JSON holds it; as text if JavaScript would change it."""
    try:
        return _exact(to_jsonable_python(value, fallback=str))
    except Exception:  # a validator may return any object
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


def editors_of(schema: type[Any]) -> dict[str, dict[str, Any]]:
    """Returns field -> t type, o choices, u unit, l 1 for a list. Plain texts are left out."""
    try:
        attributes = compile_attributes(schema)
    except SchemaError:  # a class without fields, the name of a category
        return {}
    editors = {attribute.name: _editor(attribute) for attribute in attributes}
    return {name: editor for name, editor in editors.items() if editor}


def _editor(attribute: Attribute) -> dict[str, Any]:
    is_json = attribute.fields or attribute.members or attribute.positions
    if is_json:
        return {"t": "json"} if attribute.is_list or attribute.positions else {}
    editor: dict[str, Any] = {}
    if attribute.choices:
        editor |= {"t": "choice", "o": list(attribute.choices)}
    elif attribute.scalar and attribute.scalar.column != "string":
        editor["t"] = attribute.scalar.column
    if attribute.unit is not None:
        editor["u"] = attribute.unit
    if attribute.is_list:
        editor["l"] = 1
    return editor
