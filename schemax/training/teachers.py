"""Labels that nobody annotated: a teacher's, or the model's own (paper, section 4.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from schemax.config import DecodingConfig
from schemax.errors import InputError
from schemax.evaluation.examples import Example, row_ids, shown_record
from schemax.extractor import Extractor
from schemax.formats import OutputFormat
from schemax.io.records import read_records
from schemax.progress import track
from schemax.results import Extraction
from schemax.training.lessons import Lesson, Stated, as_stated, make_lesson


def lessons_by_model(
    extractor: Extractor,
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    output: OutputFormat,
    decoding: DecodingConfig,
    *,
    template: Any = None,
    show_progress: bool = False,
) -> list[Lesson]:
    """What a model reads from the products, as lessons; their own labels are not looked at.

    Values that were cut off or do not fit their type are left out as unknown; products that could
    not be read at all are left out.
    """
    records = [shown_record(example) for example in examples]
    stream = extractor.stream(
        records,
        schemas,
        category="category",
        format=output,
        template=template,
        decoding=decoding,
    )
    found = track(stream, total=len(records)) if show_progress else stream
    lessons: list[tuple[int, Lesson]] = []
    names = row_ids(examples)
    for item in found:
        if item.fields:
            lesson = _lesson_of(item, names[item.index], examples[item.index], schemas, output)
            lessons.append((item.index, lesson))
    return [lesson for _, lesson in sorted(lessons, key=lambda pair: pair[0])]


def _lesson_of(
    item: Extraction[Any],
    name: str,
    example: Example,
    schemas: Mapping[str, type[BaseModel]],
    output: OutputFormat,
) -> Lesson:
    """From what the model wrote, not from the final values: defaults are not to be learnt."""
    bad = {error.field for error in item.errors if error.field}
    stated: dict[str, Stated] = {}
    for field, result in item.fields.items():
        if field in bad:
            continue
        value = None if result.raw is None else output.unescape(result.raw)
        if isinstance(value, list):
            stated[field] = [text for text in value if text is not None] or None
        else:
            stated[field] = value
    lesson, _ = make_lesson(name, example, stated, schemas, output)
    return Lesson(
        lesson.name,
        lesson.category,
        lesson.text,
        lesson.values,
        lesson.unknown | {field for field in bad if field in item.fields},
    )


def lessons_by_predictions(
    path: Path,
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    output: OutputFormat,
) -> list[Lesson]:
    """Lessons from a file of rows as `schemax extract` writes them.

    A row belongs to the product of its id, else to the one at its index or place in the file.
    Products without a row, and rows that failed, are left out.

    Raises InputError, naming the line, for rows that cannot be read or belong to no product.
    """
    names = row_ids(examples)
    by_id = {example.id: place for place, example in enumerate(examples) if example.id is not None}
    lessons: dict[int, Lesson] = {}
    with path.open("rb") as handle:
        for number, row in enumerate(read_records(handle), 1):
            where = f"{path}, row {number}"
            if isinstance(row, InputError):
                raise InputError(f"{path}, {row}")
            if isinstance(row, str) or not isinstance(row.get("attributes", 0), dict | None):
                raise InputError(f"{where}: no prediction; it needs attributes")
            place = _place(row, number - 1, by_id, len(examples))
            if place is None:
                raise InputError(f"{where}: there is no product {row.get('id')!r} to train on")
            if row["attributes"] is None:
                continue
            lessons[place] = _predicted(where, row, names[place], examples[place], schemas, output)
    if not lessons:
        raise InputError(f"{path} holds no predictions")
    return [lessons[place] for place in sorted(lessons)]


def _place(row: Mapping[str, Any], number: int, by_id: Mapping[str, int], count: int) -> int | None:
    if row.get("id") is not None and by_id:
        return by_id.get(str(row["id"]))
    place = row.get("index", number)
    return place if isinstance(place, int) and 0 <= place < count else None


def _predicted(
    where: str,
    row: Mapping[str, Any],
    name: str,
    example: Example,
    schemas: Mapping[str, type[BaseModel]],
    output: OutputFormat,
) -> Lesson:
    errors = row.get("errors") or []
    bad = {error.get("field") for error in errors if isinstance(error, dict)}
    try:
        flat = {key: as_stated(value) for key, value in _flat(row["attributes"]).items()}
        stated = {key: value for key, value in flat.items() if key not in bad}
        lesson, _ = make_lesson(name, example, stated, schemas, output)
    except (ValueError, InputError) as error:
        raise InputError(f"{where}: {error}") from error
    known = {key for key in bad if key in flat}
    return Lesson(lesson.name, lesson.category, lesson.text, lesson.values, lesson.unknown | known)


def _flat(attributes: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Nested models by dotted path, as attributes are named."""
    found: dict[str, Any] = {}
    for key, value in attributes.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{path}{key}.")
        else:
            found[f"{path}{key}"] = value
    return found
