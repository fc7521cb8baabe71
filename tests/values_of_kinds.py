"""What the tests of a kind of value hold it against: grammars, rows, tables, prompts."""

from __future__ import annotations

import random
from typing import Any

import pyarrow
from grammar_walks import FORMATS, accepts_value, attribute_of, grammar_of, matcher_of, random_text
from pydantic import BaseModel, create_model

from schemax.attributes import attr, compile_attributes
from schemax.compiler.grammars import output_schema
from schemax.evaluation.examples import Example
from schemax.evaluation.scores import labelled_texts
from schemax.formats import get_format
from schemax.io.arrow import arrow_schema
from schemax.results import Extraction, SlotText, build


def model_of(annotation: Any) -> type[BaseModel]:
    made: type[BaseModel] = create_model("Item", value=(annotation, ...))
    return made


def read_as(annotation: Any, text: str, format: str = "json") -> Extraction[Any]:
    """The instance of a model with one field, whose slot wrote a text."""
    schema, output = model_of(annotation), get_format(format)
    slot = SlotText(output.escape(text), "stop", 1, complete=True)
    attributes = compile_attributes(schema)
    return build(schema, attributes, [slot], output, index=0, document_id=None)


def check_kind(annotation: Any, value: Any, text: str, *, kind: str) -> None:
    """value: one as JSON has it; text: another way to write it."""
    attribute = attribute_of(annotation)
    assert attribute.kind == kind
    assert attribute.scalar is not None
    strict = attribute_of(annotation, attr(strict=True))
    for name in FORMATS:
        assert accepts_value(attribute, value, name)
        check_literals(annotation, grammar_of(strict, name), name)
    (row,) = (read_as(annotation, written).to_row()["attributes"] for written in [text])
    assert row == {"value": value}
    assert read_as(annotation, value).fields["value"].note is None
    assert read_as(list[annotation], text).value is not None  # type: ignore[valid-type]
    schema = model_of(annotation)
    assert arrow_schema(schema).field("value").type == pyarrow.string()
    assert output_schema([attribute])["properties"]["value"]["type"] == "string"
    example = Example("Item", "", {"value": text})
    assert labelled_texts([example], [{"value": value}], {"Item": schema})[0]["value"] in (
        text,
        value,
    )


def check_literals(annotation: Any, grammar: str, name: str) -> None:
    """Whatever a strict slot may write is a value, if it is not any text."""
    matcher, table = matcher_of(grammar), [bytes([byte]) for byte in range(256)]
    if matcher.deep_copy().try_consume_tokens(list(b' "\x24\x25')) == 4:
        return
    schema, output = model_of(annotation), get_format(name)
    finished = 0
    for seed in range(20):
        if (data := random_text(matcher, table, random.Random(seed))) is None:
            continue
        finished += 1
        raw = data.decode()
        for tail in (",\n", "\n}", "</size>\n", "\n"):
            raw = raw.removesuffix(tail)
        slot = SlotText(raw, "stop", 1, complete=True)
        attributes = compile_attributes(schema)
        item = build(schema, attributes, [slot], output, index=0, document_id=None)
        assert item.errors == (), data
    assert finished
