"""Conditions that anyone may have written are judged in bounded time."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import tiny_model
from serving import served
from transformers import PreTrainedTokenizerFast

from schemax import AttrSchema, Extractor, SchemaError
from schemax.attributes import json_checks
from schemax.attributes.json_classes import forbidden_by_document

httpx = pytest.importorskip("httpx")

TEXT = {"type": "string"}


def doubling(items: int) -> dict[str, Any]:
    """References that double, to an enum of 9,000 texts, for each item of a list."""
    steps = {f"n{n}": {"anyOf": [{"$ref": f"#/$defs/n{n - 1}"}] * 2} for n in range(1, 11)}
    texts = {**TEXT, "maxLength": 3}
    listed = {"type": "array", "minItems": items, "maxItems": items, "items": texts}
    return {
        "type": "object",
        "properties": {"x": listed},
        "required": ["x"],
        "$defs": {"n0": {"enum": [f"v{n}" for n in range(9_000)]}, **steps},
        "not": {"properties": {"x": {"not": {"contains": {"$ref": "#/$defs/n10"}}}}},
    }


def test_conditions_that_take_too_long_are_said_to(monkeypatch: pytest.MonkeyPatch) -> None:
    model = AttrSchema.from_json_schema(doubling(3))
    monkeypatch.setattr(json_checks, "MOST_SECONDS", 0.1)
    traced = sys.gettrace()
    said = str(forbidden_by_document(model, {"x": ["q"] * 3}))
    assert said == "the document's conditions take more than 0.1 second"
    assert sys.gettrace() is traced


@pytest.mark.parametrize(
    ("node", "value", "is_allowed"),
    [
        ({"enum": [1, "a", None]}, 1.0, True),
        ({"enum": [1, "a", None]}, "a", True),
        ({"enum": [1, "a", None]}, "b", False),
        ({"enum": [1, "a", None]}, True, False),
        ({"enum": [True]}, 1, False),
        ({"enum": [[1, {"a": True}]]}, [1.0, {"a": True}], True),
        ({"enum": [[1, {"a": True}]]}, [1, {"a": 1}], False),
        ({"enum": [{"a": 1, "b": 2}]}, {"b": 2, "a": 1}, True),
        ({"const": None}, None, True),
        ({"const": None}, False, False),
        ({"const": ["a"]}, "a", False),
        ({"uniqueItems": True}, [1, True, "1", [1], {"a": 1}], True),
        ({"uniqueItems": True}, [[1, 2], [1.0, 2]], False),
        ({"uniqueItems": True}, [{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ({"uniqueItems": False}, [1, 1], True),
        ({"patternProperties": {"^a": {"const": 1}}}, {"ab": 2, "b": 2}, False),
        ({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"ab": 2}, True),
        ({"patternProperties": {"^a": {}}, "additionalProperties": False}, {"b": 2}, False),
        ({"multipleOf": 0.01}, 19.99, True),
    ],
)
def test_conditions_are_judged_as_the_standard_says(
    node: Any, value: Any, is_allowed: bool
) -> None:
    model = AttrSchema.from_json_schema(
        {"type": "object", "properties": {"y": TEXT}, "allOf": [{"not": {"required": ["z"]}}],
         "if": True, "then": {"properties": {"x": node}}}
    )  # fmt: skip
    for _ in range(2):
        assert (forbidden_by_document(model, {"x": value}) is None) is is_allowed


def test_holding_a_document_against_the_standard_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_checks, "MOST_CHECKING", -1)
    with pytest.raises(SchemaError, match="takes more than -1 seconds; shorten it"):
        AttrSchema.from_json_schema({"type": "object", "properties": {"x": TEXT}})


@pytest.fixture(scope="module")
def url(codec: Any, backend: Any) -> Iterator[str]:
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    with served(Extractor(tiny_model("qwen3", codec.vocab_size), fast)) as address:
        yield address


def test_a_server_answers_while_conditions_are_judged(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No condition is judged in the thread that all requests share."""
    from schemax.attributes.json_checks import Checks

    threads: set[str] = set()
    for way in ("forbidden", "problems"):
        judged = getattr(Checks, way)

        def told(self: Any, value: Any, judged: Any = judged) -> Any:
            threads.add(threading.current_thread().name)
            return judged(self, value)

        monkeypatch.setattr(Checks, way, told)
    document = {
        **{"type": "object", "properties": {"x": {"const": "v"}}, "required": ["x"]},
        "not": {"required": ["y"]},
    }
    wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": document}}
    body = {"messages": [{"role": "user", "content": "LG"}], "response_format": wanted}
    for stream in (False, True):
        done = httpx.post(f"{url}/v1/chat/completions", json=body | {"stream": stream}, timeout=60)
        assert done.status_code == 200, done.text
    assert threads
    assert all("asyncio" in name for name in threads), threads
