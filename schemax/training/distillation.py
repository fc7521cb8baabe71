"""Distillation: labels predicted by a teacher, or by the model itself (paper, section 4.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ValidationError

from schemax.attributes import Attribute, compile_attributes
from schemax.attributes.classes import validated
from schemax.attributes.examples import FewShotExamples, leaf_value
from schemax.base.messages import track
from schemax.compiler.skeleton import leaves_of_item
from schemax.config import PRESETS, DecodingConfig
from schemax.errors import InputError
from schemax.evaluation.examples import Example, row_ids, shown_record
from schemax.extraction.extractor import Extractor
from schemax.extraction.labels import slot_text
from schemax.extraction.stated import as_stated, as_text, flat
from schemax.formats import OutputFormat, get_format
from schemax.io.records import bounded_lines, read_records
from schemax.results import FieldError, SlotText
from schemax.training.training_examples import TrainingExample, gold_examples, training_example


def examples_by_model(
    extractor: Extractor,
    annotated: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    output: OutputFormat,
    decoding: DecodingConfig,
    *,
    template: Any = None,
    examples: FewShotExamples | None = None,
) -> list[TrainingExample]:
    """Returns training examples with a model's predictions; labels of `annotated` are not used.

    examples: the examples in the model's prompts, by category.
    Values that were cut off or do not fit their type are unknown. Products without an output are
    left out.
    """
    records = [shown_record(example) for example in annotated]
    stream = extractor.stream(
        records,
        schemas,
        category="category",
        format=output,
        template=template,
        decoding=decoding,
        examples=examples,
    )
    names = row_ids(annotated)
    by_index: dict[int, TrainingExample] = {}
    for item in track(stream, total=len(records)):
        attributes = compile_attributes(schemas[annotated[item.index].category])
        bad = _lists(item.errors)
        # Final values may be defaults, which must not be learnt.
        written = {
            attribute.name: None
            if slot is None or attribute.name in bad
            else _as_written(attribute, slot, output)
            for attribute, slot in zip(attributes, item.slots, strict=False)
        }
        if written:
            index = item.index
            by_index[index] = _example(
                names[index], annotated[index], written, bad, schemas, output
            )
    return [by_index[index] for index in sorted(by_index)]


def _lists(errors: Iterable[FieldError]) -> set[str]:
    """Returns the fields of errors, and the lists around them: for "lines.2.price", "lines"."""
    names = [error.field.split(".") for error in errors if error.field]
    return {".".join(parts[:depth]) for parts in names for depth in range(1, len(parts) + 1)}


def _as_written(attribute: Attribute, slot: SlotText, output: OutputFormat) -> Any:
    """Returns the value of a slot; for a list in two phases, its items that are not all null."""
    if slot.items is None:
        return output.unescape(slot.raw, is_list=attribute.is_list)
    leaves = leaves_of_item(attribute, 1)
    rows = [
        [_as_written(leaf, leaf_slot, output) for leaf, leaf_slot in zip(leaves, item, strict=True)]
        for item in slot.items
    ]
    stated = [row for row in rows if any(value is not None for value in row)]
    if not attribute.fields:
        return [value for (value,) in stated]
    names = [leaf.name for leaf in attribute.fields]
    return [dict(zip(names, row, strict=True)) for row in stated]


def _example(
    name: str,
    annotated: Example,
    values: Mapping[str, Any],
    bad: Set[Any],
    schemas: Mapping[str, type[BaseModel]],
    output: OutputFormat,
) -> TrainingExample:
    """Returns a training example. values: by field; bad: fields with an unknown value."""
    stated = {field: as_stated(value) for field, value in values.items() if field not in bad}
    example, _ = training_example(name, annotated, stated, schemas, output)
    unknown = example.unknown | (bad & values.keys())
    labels = {field: as_text(value) for field, value in stated.items() if field not in unknown}
    return replace(example, unknown=unknown, labels=labels)


def examples_by_predictions(
    path: Path,
    annotated: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    output: OutputFormat,
) -> list[TrainingExample]:
    """Returns training examples from a file of rows written by `schemax extract`.

    A row belongs to the product with its id, else to the product at its `index` or line.
    Products without a row, and failed rows, are left out.

    Raises InputError, naming the line, for rows that cannot be read or belong to no product.
    """
    names = row_ids(annotated)
    by_id = {example.id: index for index, example in enumerate(annotated) if example.id is not None}
    examples: dict[int, TrainingExample] = {}
    with path.open("rb") as handle:
        for number, row in enumerate(read_records(bounded_lines(handle)), 1):
            where = f"{path}, row {number}"
            if isinstance(row, InputError):
                raise InputError(f"{path}, {row}")
            if isinstance(row, str) or not isinstance(row.get("attributes", 0), dict | None):
                raise InputError(f"{where}: not a prediction: attributes must be an object")
            index = _index_of(row, number - 1, by_id, len(annotated))
            if index is None:
                raise InputError(f"{where}: no document to train on has the id {row.get('id')!r}")
            if row["attributes"] is None:
                continue
            errors = (e for e in row.get("errors") or [] if isinstance(e, dict))
            bad = _lists(FieldError(e.get("field"), "") for e in errors)
            schema = schemas.get(annotated[index].category)
            try:
                values = _values(row["attributes"], schema, output)
                examples[index] = _example(
                    names[index], annotated[index], values, bad, schemas, output
                )
            except (ValueError, InputError) as error:
                raise InputError(f"{where}: {error}") from error
    if not examples:
        raise InputError(f"{path} contains no predictions")
    return [examples[index] for index in sorted(examples)]


def _values(
    row: Mapping[str, Any], schema: type[BaseModel] | None, output: OutputFormat
) -> dict[str, Any]:
    """Returns the values of a row, by attribute; validation finds the kinds of unions."""
    attributes = compile_attributes(schema) if schema is not None else ()
    if schema is None or not any(
        leaf.is_discriminator for a in attributes for leaf in (a, *a.fields)
    ):
        return flat(row, attributes)
    try:
        instance = validated(schema, row, by_alias=True, by_name=True)
    except ValidationError as error:
        raise InputError(f"attributes: {error.errors()[0]['msg']}") from error
    return {
        a.name: _as_written(a, slot_text(a, leaf_value(a, instance), output), output)
        for a in attributes
    }


def _index_of(
    row: Mapping[str, Any], number: int, by_id: Mapping[str, int], count: int
) -> int | None:
    if row.get("id") is not None and by_id:
        return by_id.get(str(row["id"]))
    index = row.get("index", number)
    return index if isinstance(index, int) and 0 <= index < count else None


LabelSource = Literal["gold", "teacher", "self"]
"""Annotations, predictions of a teacher, or the model's own predictions."""


def is_by_model(labels: LabelSource, teacher: str | None) -> bool:
    """Returns True if a model predicts the labels. teacher: see `labelled_examples`."""
    return labels == "self" or (teacher is not None and not teacher.endswith(".jsonl"))


def labelled_examples(
    annotated: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    extractor: Extractor,
    settings: Mapping[str, Any],
    load: Callable[[str], Extractor],
    labels: LabelSource = "gold",
    teacher: str | None = None,
    decoding: DecodingConfig | None = None,
) -> list[TrainingExample]:
    """Returns training examples for a model.

    settings: format, template and examples of `Extractor.stream`.
    load: loads a teacher.
    teacher: a model, a server's address, or a file of rows written by `schemax extract`.
    decoding: of the teacher or the model itself; None: as it was trained, else autoregressive.
    """
    output = get_format(settings["format"] or extractor.defaults.format or "json")
    if labels == "gold":
        return gold_examples(annotated, schemas, output)
    if teacher is not None and not is_by_model(labels, teacher):
        if not Path(teacher).is_file():
            raise InputError(f"no such file: {teacher}")
        return examples_by_predictions(Path(teacher), annotated, schemas, output)
    reader, own, template = extractor, None, settings["template"]
    if teacher is not None:
        reader, template = load(teacher), None
        own, output = reader.trained.decoding, get_format(reader.defaults.format or "json")
    return examples_by_model(
        reader,
        annotated,
        schemas,
        output,
        decoding or own or PRESETS["autoregressive"],
        template=template,
        examples=settings["examples"],
    )
