"""Reads annotated examples, texts with labels, from files."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from schemax.base.messages import counted, some_of
from schemax.errors import InputError
from schemax.evaluation.sources import in_our_form, is_table, rows_of
from schemax.extraction.documents import RecordFields, read_documents
from schemax.extraction.stated import Label


@dataclass(frozen=True, slots=True)
class Example:
    """An annotated text, with labels by attribute.

    description: further text of the product, shown below `text`.
    schema: the JSON Schema document of the category, as text, if the row brings it along.
    """

    category: str
    text: str
    attributes: Mapping[str, Label]
    description: str | None = None
    id: str | None = None
    schema: str | None = None

    @property
    def whole_text(self) -> str:
        """The text, and the description below it."""
        return self.text + (f"\n{self.description}" if self.description else "")

    @property
    def stated(self) -> dict[str, str | None]:
        """The canonical value of every label, by attribute."""
        return {name: canonical_value(label) for name, label in self.attributes.items()}


def canonical_value(label: Label) -> str | None:
    """Returns the canonical value of a label: its first accepted value, None for null."""
    return label[0] if isinstance(label, tuple) else label


def accepted(label: Label) -> tuple[str | None, ...]:
    """Returns every accepted value, the canonical value first; (None,) for an explicit null."""
    return label if isinstance(label, tuple) else (label,)


def read_examples(path: Path) -> list[Example]:
    """Reads the examples of a file.

    Rows of a JSONL file are {"category", "text", "attributes": {name: label}} and, optionally,
    "id", "description" and "schema" (the JSON Schema document of the category); other keys are
    ignored. `schemax.evaluation.sources` reads other forms: chats, tables,
    datasets, exports of Label Studio.

    A label is text, null, a number or boolean (read as its JSON text), or a list of accepted
    values, the canonical value first; a list of objects is a list of nested models. Raises
    InputError, naming the line, for anything else, and for a file without documents.
    """
    examples = []
    table = is_table(path)
    for where, read in _rows(path, table):
        try:
            if (row := in_our_form(read(), is_table=table)) is not None:
                examples.append(_example(row))
        except (ValueError, RecursionError) as error:
            raise InputError(
                f"{where}: not an annotated document ({error}); "
                "it needs category, text and attributes"
            ) from error
    if not examples:
        raise InputError(f"{path} contains no documents")
    return examples


def read_predictions(path: Path, examples: Sequence[Example]) -> list[Example]:
    """Returns the examples with the values of a file in the place of their labels.

    Rows of the file are {"attributes": {name: value}}, as `extract` writes them, or "predicted" in
    its place; they are those of the same "id" if every row and example has one, else in the order
    of the examples, by "index" if there is one. A failed row has null for its attributes.

    Raises InputError, naming the line, for other rows; and for a file that lacks examples.
    """
    by_key: dict[Any, Mapping[str, Label]] = {}
    for where, read in _rows(path, table=False):
        try:
            row = read()
            values = row["predicted"] if "predicted" in row else row["attributes"]
            key = row.get("id"), int(row.get("index", len(by_key)))
            by_key[key] = {
                name: _label(name, value) for name, value in (values or {}).items() if value != []
            }
        except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
            raise InputError(
                f'{where}: not a row of predictions; it needs "attributes" or "predicted"'
            ) from error
    ids = [id for id, _ in by_key]
    named = all(example.id is not None for example in examples) and None not in ids
    rows = {str(id) if named else place: values for (id, place), values in by_key.items()}
    keys = [example.id if named else place for place, example in enumerate(examples)]
    if lacking := [
        name for key, name in zip(keys, row_ids(examples), strict=True) if key not in rows
    ]:
        raise InputError(
            f"{path} has no row for {len(lacking):,} of {counted(len(examples), 'document')}: "
            f"{some_of(lacking)}"
        )
    return [replace(e, attributes=rows[key]) for e, key in zip(examples, keys, strict=True)]


def _rows(path: Path, table: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yields (the place, a function that reads the row) of every row."""
    if table:
        for where, row in rows_of(path):
            yield where, partial(_with_texts, row)
        return
    # Only a line feed ends a line: JSON strings may hold other separators as they are.
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if line.strip():
            yield f"{path}, line {number}", partial(_of_line, line)


def _of_line(line: bytes) -> Any:
    return json.loads(
        line.decode(),
        parse_int=_NumberText,
        parse_float=_NumberText,
        parse_constant=_refuse_constant,
    )


def _with_texts(value: Any) -> Any:
    """Returns cells of a table as values of JSON, numbers as texts."""

    def text(leaf: Any) -> Any:
        if leaf is None or isinstance(leaf, bool | str):
            return leaf
        return _NumberText(json.dumps(leaf) if isinstance(leaf, int | float) else leaf)

    return _with_leaves(value, text)


def _with_leaves(value: Any, changed: Callable[[Any], Any]) -> Any:
    """Returns nested mappings and lists with all leaves changed."""
    if isinstance(value, Mapping):
        return {key: _with_leaves(item, changed) for key, item in value.items()}
    if isinstance(value, list):
        return [_with_leaves(item, changed) for item in value]
    return changed(value)


def shown_record(example: Example) -> dict[str, str]:
    """Returns the record of an example for the extractor, under the keys of the file."""
    record = {"category": example.category, "text": example.text}
    return record if not example.description else record | {"description": example.description}


def shown_text(name: str, example: Example) -> str:
    """Returns the text of a product as extraction shows it to the model. Raises InputError."""
    (document,) = read_documents([shown_record(example)], RecordFields())
    if document.text is None:
        raise InputError(f"document {name}: {document.problem}")
    return document.text


def row_ids(examples: Sequence[Example]) -> tuple[str, ...]:
    """Returns the name of each example in reports: its id, else its place, such as "#3"."""
    return tuple(
        f"#{place}" if example.id is None else example.id
        for place, example in enumerate(examples, 1)
    )


def duplicated_ids(examples: Sequence[Example]) -> tuple[str, ...]:
    """Returns the ids that several examples share, in order of appearance."""
    counts = Counter(example.id for example in examples if example.id is not None)
    return tuple(id for id, count in counts.items() if count > 1)


def overlap(train: Sequence[Example], test: Sequence[Example]) -> tuple[str, ...]:
    """Returns the names, as in `row_ids`, of examples of `test` whose text occurs in `train`."""
    known = {example.text for example in train}
    names = zip(row_ids(test), test, strict=True)
    return tuple(name for name, example in names if example.text in known)


def attribute_names(examples: Sequence[Example], category: str) -> list[str]:
    """Returns the annotated attributes of a category, most frequent first."""
    counts = Counter(name for e in examples if e.category == category for name in e.attributes)
    return sorted(counts, key=lambda name: (-counts[name], name))


class _NumberText(str):
    """A number as written in the file: 1.50 stays 1.50. A document's text cannot be a number."""


class ObjectText(str):
    """A list of nested models, or a dict, as JSON; other fields refuse it."""


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _example(row: Any) -> Example:
    if not isinstance(row, dict):
        raise ValueError(f"expected an object, got {_type_name(row)}")
    attributes, id = row.get("attributes"), row.get("id")
    if not isinstance(attributes, dict):
        raise ValueError(f"attributes: expected an object, got {_type_name(attributes)}")
    if not isinstance(id, str | None):
        raise ValueError(f"id: expected text or a number, got {_type_name(id)}")
    return Example(
        category=_text(row, "category"),
        text=_text(row, "text"),
        attributes={name: _label(name, value) for name, value in attributes.items()},
        description=None if row.get("description") is None else _text(row, "description"),
        id=None if id is None else str(id),
        schema=_schema(row.get("schema")),
    )


def _schema(document: Any) -> str | None:
    """Returns a JSON Schema document as text, equal for equal documents; None for anything else."""
    if not isinstance(document, dict):
        return None

    def number(leaf: Any) -> Any:
        return json.loads(leaf) if isinstance(leaf, _NumberText) else leaf

    return json.dumps(_with_leaves(document, number), ensure_ascii=False)


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    if type(value) is not str:
        raise ValueError(f"{key}: expected text, got {_type_name(value)}")
    return value


def _label(name: str, value: Any) -> Label:
    items = value if isinstance(value, list) else [value]
    if any(isinstance(item, dict) for item in items):
        return ObjectText(json.dumps(value, ensure_ascii=False))
    if not isinstance(value, list):
        return _scalar(name, value)
    accepted = tuple(dict.fromkeys(_scalar(name, item) for item in value))
    if not accepted:
        raise ValueError(f"attribute {name!r}: an empty list; use null where there is no value")
    return accepted if len(accepted) > 1 else accepted[0]


def _scalar(name: str, value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, str):
        return str(value)
    raise ValueError(f"attribute {name!r}: expected a value, got {_type_name(value)}")


def _type_name(value: Any) -> str:
    if value is None:
        return "nothing"
    names = {dict: "an object", list: "a list", bool: "a boolean", _NumberText: "a number"}
    return names.get(type(value), "text")
