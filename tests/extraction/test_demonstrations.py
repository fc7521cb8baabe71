"""Demonstrations of ready-made schemas: they fit, they are literal, they show what is absent."""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from conftest import slow_but
from tokenizers import Tokenizer

from recipes.embedded.tasks import TASKS, documents
from schemax import load_schema, schema_names
from schemax.attributes import Attribute, compile_attributes
from schemax.attributes.examples import example_values
from schemax.attributes.ready_made import document_of
from schemax.attributes.settings import settings_of
from schemax.base.resources import resource_dir
from schemax.compiler import compile_schema
from schemax.compiler.prompt import written_examples
from schemax.config import resolve_decoding
from schemax.evaluation.shots import few_shot
from schemax.formats import format_names, get_format

FOLDER = resource_dir("schemas") / "demonstrations"
CHECKOUT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in FOLDER.glob("*.jsonl"))

ALWAYS_STATED = {("ingredient", "name")}
"""Attributes that no demonstration leaves out, since hardly any text does."""


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return Tokenizer.from_file(str(resource_dir("embedded") / "tokenizer.json"))


schema_of = cache(load_schema)


def demonstrations_of(name: str) -> tuple[Any, ...]:
    """As the schema carries them."""
    return settings_of(schema_of(name)).demonstrations or ()


def rows_of(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text().splitlines()]


def texts_in(value: Any) -> list[str]:
    """The texts of a value, also those of a list."""
    items = value if isinstance(value, list) else [value]
    return [item for item in items if isinstance(item, str)]


def leaves_of(attribute: Attribute, value: Any) -> list[tuple[Attribute, Any]]:
    """The attribute with its value; of a list of nested models the leaves of all items."""
    if not attribute.fields:
        return [(attribute, value)]
    return [(leaf, item[leaf.name]) for item in value or () for leaf in attribute.fields]


def numbers_in(text: str) -> set[float]:
    """The numbers of a text, with a comma for thousands or decimals; 0 for what is free."""
    found = re.findall(r"\d+(?:[.,]\d+)*", text)
    readings = [form for one in found for form in (one.replace(",", ""), one.replace(",", "."))]
    numbers = {float(form) for form in readings if form.count(".") < 2}
    return numbers | {0.0} if "free" in text.lower() else numbers


def test_every_schema_has_demonstrations() -> None:
    assert sorted(schema_names()) == NAMES


@pytest.mark.parametrize("name", slow_but(NAMES[::7], NAMES))
def test_they_are_examples_of_a_prompt(name: str, tokenizer: Tokenizer) -> None:
    shown = demonstrations_of(name)
    assert len(shown) == 4
    schema, config = schema_of(name), resolve_decoding(None)
    for output_format in format_names():
        values = example_values(shown, schema, compile_attributes(schema))
        written = written_examples(values, schema, get_format(output_format), config)
        assert [example.text for example in written] == [text for text, _ in shown]
    assert compile_schema(schema, tokenizer, examples=shown) != compile_schema(schema, tokenizer)


@pytest.mark.parametrize("name", NAMES)
def test_they_are_annotated_documents(name: str, tmp_path: Path) -> None:
    """The same instances, whether they are read as annotations or as demonstrations."""
    path, schema = tmp_path / "annotated.jsonl", schema_of(name)
    lines = [json.dumps(row | {"category": name}) for row in rows_of(name)]
    path.write_text("\n".join(lines), "utf-8")
    annotated = few_shot(path, {name: schema})
    assert isinstance(annotated, dict)
    read = [(text, schema.model_validate(values)) for text, values in demonstrations_of(name)]
    assert [(text, value.model_dump()) for text, value in annotated[name]] == [
        (text, value.model_dump()) for text, value in read
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_attribute_is_named_stated_and_absent(name: str) -> None:
    attributes = [item.name for item in compile_attributes(schema_of(name))]
    rows = rows_of(name)
    for row in rows:
        assert list(row) == ["text", "attributes"]
        assert list(row["attributes"]) == attributes
    for attribute in attributes:
        values = [row["attributes"][attribute] for row in rows]
        assert [] not in values, f"{attribute}: no items are null"
        assert (None not in values) is ((name, attribute) in ALWAYS_STATED), attribute
        assert any(value is not None for value in values), attribute


@pytest.mark.parametrize("name", NAMES)
def test_values_stand_in_their_texts(name: str) -> None:
    attributes = {item.name: item for item in compile_attributes(schema_of(name))}
    for row in rows_of(name):
        text, numbers = row["text"], numbers_in(row["text"])
        for key, stated in row["attributes"].items():
            for leaf, value in leaves_of(attributes[key], stated):
                copied = not leaf.choices and leaf.kind != "date"
                if copied:
                    assert [item for item in texts_in(value) if item not in text] == [], key
                if isinstance(value, (int, float)) and not isinstance(value, bool):
                    assert value in numbers, key


@pytest.mark.parametrize("name", NAMES)
def test_no_two_are_alike_in_length(name: str) -> None:
    """A short one, a long one, two between."""
    lengths = sorted(len(row["text"].split()) for row in rows_of(name))
    assert lengths[0] < lengths[1] <= lengths[2] < lengths[3]
    assert lengths[3] >= 2 * lengths[0]


def test_their_texts_stand_nowhere_else() -> None:
    texts = [row["text"] for name in NAMES for row in rows_of(name)]
    assert len(set(texts)) == len(texts)
    assert not set(texts) & {text for task in TASKS for text, _ in documents(task)}
    pages = [CHECKOUT / "README.md", *CHECKOUT.glob("docs/**/*.md")]
    elsewhere = "\n".join(path.read_text("utf-8") for path in pages)
    elsewhere += json.dumps([document_of(name) for name in schema_names()], ensure_ascii=False)
    samples = [path.read_text("utf-8") for path in CHECKOUT.glob("docs/samples/*.jsonl")]
    known = {json.loads(line)["text"] for sample in samples for line in sample.splitlines()}
    assert [text for text in texts if text in elsewhere or text in known] == []
