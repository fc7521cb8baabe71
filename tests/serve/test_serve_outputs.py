"""What a server writes is what the client's schema allows, or a refusal that says why."""

from __future__ import annotations

import gc
import json
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from conftest import tiny_model
from serving import served
from transformers import PreTrainedTokenizerFast

from schemax import AttrSchema, Extractor
from schemax.attributes.json_classes import forbidden_by_document
from schemax.serve.output import pieces

httpx = pytest.importorskip("httpx")

TEXT, MAYBE = {"type": "string"}, {"type": ["string", "null"]}


def thing(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties)}


SHOE = thing(kind={"const": "shoe"}, sole=MAYBE)
TV = thing(kind={"const": "tv"}, ports=MAYBE, screen=thing(inches={"type": ["number", "null"]}))


@pytest.fixture(scope="module")
def url(codec: Any, backend: Any) -> Iterator[str]:
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    with served(Extractor(tiny_model("qwen3", codec.vocab_size), fast)) as address:
        yield address


def asked(schema: Any, **more: Any) -> dict[str, Any]:
    wanted = {"type": "json_schema", "json_schema": {"name": "s", "schema": schema}}
    return {"messages": [{"role": "user", "content": "LG"}], "response_format": wanted, **more}


def written(document: Any, instance: Any) -> Any:
    made = AttrSchema.from_json_schema(document)
    shown = json.loads("".join(text for text, _ in pieces(made.model_validate(instance))))
    assert forbidden_by_document(made, shown) is None
    return shown


@pytest.mark.parametrize("word", ["anyOf", "oneOf"])
@pytest.mark.parametrize("null", [[], [{"type": "null"}]])
def test_required_nulls_of_all_alternatives_are_written(word: str, null: list[Any]) -> None:
    document = thing(item={word: [{"$ref": "#/$defs/Shoe"}, {"$ref": "#/$defs/Tv"}, *null]})
    document["$defs"] = {"Shoe": SHOE, "Tv": TV}
    for item in (
        {"kind": "shoe", "sole": None},
        {"kind": "tv", "ports": None, "screen": {"inches": None}},
    ):
        assert written(document, {"item": item}) == {"item": item}
        jsonschema.validate({"item": item}, document)


def test_nulls_are_written_where_they_are_required_alone() -> None:
    inner = {**thing(a=MAYBE), "properties": {"a": MAYBE, "b": MAYBE}}
    both = {"allOf": [thing(c=MAYBE), {"properties": {"d": MAYBE}}]}
    listed = {"type": "array", "items": {"anyOf": [SHOE, inner]}}
    mapped = {"type": "object", "additionalProperties": inner}
    document = thing(x=inner, both=both, listed=listed, mapped=mapped)
    kept = {"a": None}
    instance = {
        "x": kept,
        "both": {"c": None},
        "listed": [{"kind": "shoe", "sole": None}, kept],
        "mapped": {"one": kept, "two": {"a": "y", "b": "z"}},
    }
    assert written(document, instance) == instance


INNER = thing(a=MAYBE)
URI = "https://example.com/s"


@pytest.mark.parametrize(
    ("ref", "more"),
    [
        ("#inner", {"$defs": {"i": {**INNER, "$anchor": "inner"}}}),
        ("inner.json", {"$id": f"{URI}/root.json", "$defs": {"i": {**INNER, "$id": "inner.json"}}}),
        ("#/$defs/a%20b", {"$defs": {"a b": INNER}}),
        ("#/properties/other/anyOf/0", {}),
        (f"{URI}#/$defs/i", {"$id": URI, "$defs": {"i": INNER}}),
        ("#/$defs/a~1b", {"$defs": {"a/b": {"$ref": "#/$defs/i"}, "i": INNER}}),
    ],
)
def test_references_of_every_kind(url: str, ref: str, more: Any) -> None:
    document = thing(x={"$ref": ref}, other={"anyOf": [INNER, {"type": "null"}]}) | more
    done = httpx.post(f"{url}/v1/chat/completions", json=asked(document), timeout=60)
    assert done.status_code == 200, done.text
    choice = done.json()["choices"][0]
    assert choice["message"]["refusal"] is None
    found = json.loads(choice["message"]["content"])
    assert found["x"].keys() == {"a"}
    jsonschema.Draft202012Validator(document).validate(found)


@pytest.mark.parametrize(
    "more",
    [
        {"minProperties": 3},
        {"dependentRequired": {"a": ["b"]}},
        {"if": {"required": ["a"]}, "then": {"required": ["c"]}},
        {"not": {"required": ["a"]}},
        {"propertyNames": {"maxLength": 0}},
    ],
)
@pytest.mark.parametrize("path", ["chat/completions", "responses"])
def test_what_the_schema_forbids_is_refused(url: str, more: Any, path: str) -> None:
    document = {**thing(a={"const": "x"}, n={"const": 1}), **more}
    body = asked(document)
    if path == "responses":
        wanted = {"type": "json_schema", "name": "s", "schema": document}
        body = {"input": "LG", "text": {"format": wanted}}
    for stream in (False, True):
        done = httpx.post(f"{url}/v1/{path}", json=body | {"stream": stream}, timeout=60)
        assert done.status_code == 200, done.text
        assert "the output is not what the schema allows" in done.text


def test_what_schemas_of_openapi_and_of_ours_allow_is_no_fault() -> None:
    document = thing(
        a={**TEXT, "nullable": True},
        price={"type": "number", "multipleOf": 0.01},
        day={**TEXT, "format": "date"},
        mail={**TEXT, "format": "email"},
        later={**TEXT, "skip": True},
    )
    shown = {"a": None, "price": 19.99, "day": "2024-05-01", "mail": "nobody"}
    assert written(document, shown) == shown
    made = AttrSchema.from_json_schema(document)
    assert "$.price: 1.005 is not" in str(forbidden_by_document(made, {**shown, "price": 1.005}))
    assert "$.a: 5 is not of type" in str(forbidden_by_document(made, {**shown, "a": 5}))
    del shown["price"]
    assert "'price' is a required" in str(forbidden_by_document(made, shown))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("text", "schema"),
    [
        ("LG OLED 55 " * 3_000, thing(a=TEXT)),
        ("LG", thing(a={**TEXT, "title": "LG OLED 55 " * 3_000})),
    ],
    ids=["text", "schema"],
)
def test_what_the_context_does_not_hold_is_refused(
    url: str, text: str, schema: Any, stream: bool
) -> None:
    """With a code that no client takes for a reason to ask again."""
    body = asked(schema, stream=stream)
    body["messages"] = [{"role": "user", "content": text}]
    wanted = {"type": "json_schema", "name": "s", "schema": schema}
    for path, sent in (
        ("chat/completions", body),
        ("responses", {"input": text, "text": {"format": wanted}, "stream": stream}),
    ):
        done = httpx.post(f"{url}/v1/{path}", json=sent, timeout=120)
        assert done.status_code == 400, done.text
        error = done.json()["error"]
        assert error["code"] == "context_length_exceeded"
        assert error["type"] == "invalid_request_error"
        assert "the document is too long" in error["message"]


def test_a_text_that_utf8_cannot_hold_is_an_escape() -> None:
    made = AttrSchema.from_json_schema({"properties": {"a": TEXT}})
    text = "".join(piece for piece, _ in pieces(made.model_construct(a="\udfff")))
    assert (text.encode(), json.loads(text)) == (b'{"a": "\\udfff"}', {"a": "\udfff"})


def test_a_number_that_is_no_json_is_refused(url: str) -> None:
    body = asked(thing(a={"type": "number", "default": float("inf")}))
    headers = {"content-type": "application/json"}
    sent = json.dumps(body)
    done = httpx.post(f"{url}/v1/chat/completions", content=sent, headers=headers, timeout=60)
    assert (done.status_code, "no JSON" in done.text) == (400, True)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads /proc")
def test_schemas_of_strangers_are_kept_within_bounds(url: str) -> None:
    """Each new pattern is an automaton of thousands of states, in several engines."""

    def send(numbers: range) -> None:
        for n in numbers:
            schema = thing(a={**TEXT, "pattern": f"^a{{{9_000 + n}}}$"})
            body = asked(schema, max_tokens=4)
            assert httpx.post(f"{url}/v1/chat/completions", json=body, timeout=60).is_success

    send(range(4))
    before = resident()
    send(range(4, 24))
    assert resident() - before < 64 * 2**20


def resident() -> int:
    """Bytes of this process in memory."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()
