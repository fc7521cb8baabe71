"""Labels that nobody annotated: a teacher's, or the model's own (paper, section 4.4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from schemax.config import DecodingConfig
from schemax.errors import InputError
from schemax.evaluation.examples import Example, row_ids, shown_record
from schemax.evaluation.labels import Stated, as_stated
from schemax.extractor import Extractor
from schemax.formats import OutputFormat
from schemax.io.records import bounded_lines, read_records
from schemax.progress import track
from schemax.results import Extraction
from schemax.training.training_examples import TrainingExample, training_example


def examples_by_model(
    extractor: Extractor,
    annotated: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    output: OutputFormat,
    decoding: DecodingConfig,
    *,
    template: Any = None,
    show_progress: bool = False,
) -> list[TrainingExample]:
    """Training examples from what a model reads; the labels of `annotated` are not used.

    Values that were cut off or do not fit their type are left out as unknown; products that could
    not be read at all are left out.
    """
    records = [shown_record(example) for example in annotated]
    stream = extractor.stream(
        records,
        schemas,
        category="category",
        format=output,
        template=template,
        decoding=decoding,
    )
    found = track(stream, total=len(records)) if show_progress else stream
    examples: list[tuple[int, TrainingExample]] = []
    names = row_ids(annotated)
    for item in found:
        if item.fields:
            example = _predicted_example(
                item, names[item.index], annotated[item.index], schemas, output
            )
            examples.append((item.index, example))
    return [example for _, example in sorted(examples, key=lambda pair: pair[0])]


def _predicted_example(
    item: Extraction[Any],
    name: str,
    annotated: Example,
    schemas: Mapping[str, type[BaseModel]],
    output: OutputFormat,
) -> TrainingExample:
    """An example of what the model wrote: final values may be defaults, not to be learnt."""
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
    example, _ = training_example(name, annotated, stated, schemas, output)
    return TrainingExample(
        example.name,
        example.category,
        example.text,
        example.values,
        example.unknown | {field for field in bad if field in item.fields},
    )


def examples_by_predictions(
    path: Path,
    annotated: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    output: OutputFormat,
) -> list[TrainingExample]:
    """Training examples from a file of rows as `schemax extract` writes them.

    A row belongs to the product of its id, else to the one at its index or place in the file.
    Products without a row, and rows that failed, are left out.

    Raises InputError, naming the line, for rows that cannot be read or belong to no product.
    """
    names = row_ids(annotated)
    by_id = {example.id: place for place, example in enumerate(annotated) if example.id is not None}
    examples: dict[int, TrainingExample] = {}
    with path.open("rb") as handle:
        for number, row in enumerate(read_records(bounded_lines(handle)), 1):
            where = f"{path}, row {number}"
            if isinstance(row, InputError):
                raise InputError(f"{path}, {row}")
            if isinstance(row, str) or not isinstance(row.get("attributes", 0), dict | None):
                raise InputError(f"{where}: not a prediction: attributes must be an object")
            place = _place(row, number - 1, by_id, len(annotated))
            if place is None:
                raise InputError(f"{where}: no product to train on has the id {row.get('id')!r}")
            if row["attributes"] is None:
                continue
            examples[place] = _predicted(
                where, row, names[place], annotated[place], schemas, output
            )
    if not examples:
        raise InputError(f"{path} contains no predictions")
    return [examples[place] for place in sorted(examples)]


def _place(row: Mapping[str, Any], number: int, by_id: Mapping[str, int], count: int) -> int | None:
    if row.get("id") is not None and by_id:
        return by_id.get(str(row["id"]))
    place = row.get("index", number)
    return place if isinstance(place, int) and 0 <= place < count else None


def _predicted(
    where: str,
    row: Mapping[str, Any],
    name: str,
    annotated: Example,
    schemas: Mapping[str, type[BaseModel]],
    output: OutputFormat,
) -> TrainingExample:
    errors = row.get("errors") or []
    bad = {error.get("field") for error in errors if isinstance(error, dict)}
    try:
        flat = {key: as_stated(value) for key, value in _flat(row["attributes"]).items()}
        stated = {key: value for key, value in flat.items() if key not in bad}
        example, _ = training_example(name, annotated, stated, schemas, output)
    except (ValueError, InputError) as error:
        raise InputError(f"{where}: {error}") from error
    known = {key for key in bad if key in flat}
    return TrainingExample(
        example.name, example.category, example.text, example.values, example.unknown | known
    )


def _flat(attributes: Mapping[str, Any], path: str = "") -> dict[str, Any]:
    """Nested models by dotted path, as attributes are named."""
    found: dict[str, Any] = {}
    for key, value in attributes.items():
        if isinstance(value, dict):
            found |= _flat(value, f"{path}{key}.")
        else:
            found[f"{path}{key}"] = value
    return found
