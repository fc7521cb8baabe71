"""Made classes and extractors in other processes."""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import tiny_model

from schemax import AttrSchema, Extractor, attr, extract
from schemax.compiler import TextCodec

DOCUMENT: dict[str, Any] = {
    "title": "Receipt",
    "type": "object",
    "required": ["shop"],
    "properties": {
        "shop": {"type": "string", "pattern": "^(?=.)"},
        "Total (EUR)": {"type": "number", "minimum": 0},
        "seller": {"$ref": "#/$defs/party"},
        "buyer": {"$ref": "#/$defs/party"},
        "lines": {
            "type": "array",
            "items": {"type": "object", "properties": {"price": {"type": "number"}}},
        },
    },
    "$defs": {"party": {"type": "object", "properties": {"name": {"type": "string"}}}},
}


class Base(AttrSchema, format="yaml"):
    """What made classes may derive from."""

    note: str | None = attr("A note")


def receipt(base: type[AttrSchema] = AttrSchema) -> Any:
    model = base.from_json_schema(DOCUMENT)
    return model.model_validate(
        {"shop": "x", "seller": {"name": "s"}, "buyer": {"name": "b"}, "lines": [{"price": 2}]}
    )


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("base", [AttrSchema, Base])
def test_within_a_process_a_made_class_is_itself(base: type[AttrSchema], protocol: int) -> None:
    made = receipt(base)
    found = pickle.loads(pickle.dumps(made, protocol))
    assert found == made
    assert type(found) is type(made)
    assert type(found.seller) is type(made.seller) is type(found.buyer)
    assert pickle.loads(pickle.dumps(type(made.lines[0]), protocol)) is type(made.lines[0])


@pytest.mark.slow
def test_a_class_is_made_again_where_it_is_not() -> None:
    code = """
import pickle, sys
made = pickle.loads(sys.stdin.buffer.read())
assert type(made).model_validate(made.model_dump(by_alias=True)) == made
assert type(made.seller) is type(made.buyer)
assert pickle.loads(pickle.dumps(type(made))) is type(made)
sys.stdout.buffer.write(pickle.dumps(made))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=pickle.dumps(receipt()),
        stdout=subprocess.PIPE,
        check=True,
    )
    # Here the classes are gone by now, and are made again.
    gc.collect()
    made = pickle.loads(done.stdout)
    assert made.model_dump() == receipt().model_dump()
    assert made.seller == type(made.buyer)(name="s")


def test_the_document_is_kept_as_it_was() -> None:
    document = {"type": "object", "properties": {"a": {"type": "integer"}}}
    model = AttrSchema.from_json_schema(document)
    document["properties"].clear()
    assert list(pickle.loads(pickle.dumps(model)).model_fields) == ["a"]


def test_classes_derived_from_made_ones_are_found_by_name() -> None:
    assert pickle.loads(pickle.dumps(Derived)) is Derived
    assert pickle.loads(pickle.dumps(Derived(a=1))) == Derived(a=1)


class Derived(  # type: ignore[misc]
    AttrSchema.from_json_schema({"type": "object", "properties": {"a": {"type": "integer"}}})
):
    """Of a class that no module holds."""


@pytest.mark.slow
def test_a_loaded_extractor_is_loaded_again(saved_model: Path) -> None:
    extractor = Extractor.from_pretrained(saved_model, device="cpu", format="yaml")
    again = pickle.loads(pickle.dumps(extractor))
    assert again is not extractor
    assert again.defaults == extractor.defaults
    model = AttrSchema.from_json_schema(DOCUMENT | {"required": []})
    options: dict[str, Any] = {"on_error": "null"}
    expected = extract(["LG 5"], model, extractor=extractor, **options)
    assert extract(["LG 5"], model, extractor=again, **options) == expected


def test_an_extractor_of_a_model_in_memory_says_what_to_do(codec: TextCodec) -> None:
    extractor = Extractor(tiny_model("qwen3", codec.vocab_size), codec)
    with pytest.raises(TypeError, match=r"call Extractor\.from_pretrained where it arrives"):
        pickle.dumps(extractor)


@pytest.mark.release
def test_a_spawned_process_extracts(saved_model: Path) -> None:
    extractor = Extractor.from_pretrained(saved_model, device="cpu")
    model = AttrSchema.from_json_schema({"properties": {"a": {"type": ["string", "null"]}}})
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        found = pool.apply(extract, (["LG", "Sony"], model), {"extractor": extractor})
    assert found == extract(["LG", "Sony"], model, extractor=extractor)
    assert all(type(item) is model for item in found)
