"""Conditions that anyone may have written are judged in bounded time, by hashes."""

from __future__ import annotations

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
MIXED = [value for number in range(6_600) for value in (number, str(number))]


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


def test_choices_of_conditions_are_looked_up() -> None:
    model = AttrSchema.from_json_schema(doubling(3))
    assert "should not be valid" in str(forbidden_by_document(model, {"x": ["q"] * 3}))
    assert forbidden_by_document(model, {"x": ["v1", *["q"] * 2]}) is None


def test_large_values_and_messages_count() -> None:
    """A message of jsonschema's holds the whole value, each time that it is judged."""
    model = AttrSchema.from_json_schema(doubling(3000))
    said = str(forbidden_by_document(model, {"x": ["q"] * 3000}))
    assert "more than 200,000 steps" in said
    effort = json_checks.Effort(steps=10)
    with pytest.raises(json_checks.TooMuch, match="more than 10 steps"):
        effort.telling("x" * 3000)
    with pytest.raises(json_checks.TooMuch, match="more than 10 steps"):
        json_checks.Effort(steps=10).entering(["x"] * 200)


@pytest.mark.parametrize("count", [100, 200])
def test_items_that_no_keyword_has_judged_count_in_pairs(count: int) -> None:
    from jsonschema import Draft202012Validator

    effort = json_checks.Effort(steps=1_000)
    node = {"prefixItems": [True], "unevaluatedItems": {"type": "integer"}}
    judge = json_checks.bounded(Draft202012Validator, effort)(node)
    if count == 100:
        assert not list(judge.iter_errors([1] * count))
    else:
        with pytest.raises(json_checks.TooMuch):
            list(judge.iter_errors([1] * count))


@pytest.mark.slow
def test_names_of_conditions_count() -> None:
    """A keyword is gone through once a schema that is entered, however many names it lists."""
    names = [f"n{number}" for number in range(8_000)]
    steps = {f"n{n}": {"anyOf": [{"$ref": f"#/$defs/n{n - 1}"}] * 2} for n in range(1, 11)}
    model = AttrSchema.from_json_schema(
        {
            **{"type": "object", "properties": {"x": TEXT}, "required": ["x"]},
            **{"$defs": {"n0": {"required": names}, **steps}, "not": {"$ref": "#/$defs/n10"}},
        }
    )
    said = str(forbidden_by_document(model, {"x": "q"}))
    assert "more than 200,000 steps" in said


@pytest.mark.parametrize(
    ("node", "value", "is_allowed"),
    [
        ({"enum": [1, "a", None]}, 1.0, True),
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
    ],
)
def test_values_are_equal_as_the_standard_says(node: Any, value: Any, is_allowed: bool) -> None:
    from jsonschema import Draft202012Validator

    judge = json_checks.bounded(Draft202012Validator, json_checks.Effort())(node)
    for _ in range(2):
        assert (not list(judge.iter_errors(value))) is is_allowed
    assert Draft202012Validator(node).is_valid(value) is is_allowed


@pytest.mark.parametrize(
    ("draft", "words", "said"),
    [
        ("http://json-schema.org/draft-04/schema#", {"definitions": {"e": {"enum": MIXED}}}, None),
        ("https://json-schema.org/draft/2020-12/schema", {"$defs": {"e": {"type": MIXED}}}, "type"),
        (
            "http://json-schema.org/draft-04/schema#",
            {"definitions": {"e": {"enum": [*MIXED, 5]}}},
            "non-unique",
        ),
    ],
)
def test_large_documents_are_held_against_the_standard(
    draft: str, words: Any, said: str | None
) -> None:
    document = {"$schema": draft, "type": "object", "properties": {"x": TEXT}, **words}
    if said is None:
        assert AttrSchema.from_json_schema(document)
    else:
        with pytest.raises(SchemaError, match=said):
            AttrSchema.from_json_schema(document)


def test_holding_a_document_against_the_standard_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_checks, "MOST_CHECKING", 10)
    with pytest.raises(SchemaError, match="take more than 10 steps; shorten it"):
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
