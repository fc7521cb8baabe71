"""JSON Schema documents that anyone may have written: whatever they hold, time is bounded."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pydantic
import pytest
from grammar_walks import accepts_value

from schemax import AttrSchema, SchemaError, attr
from schemax.attributes import compile_attributes
from schemax.compiler import TextCodec, compile_schema
from schemax.formats import get_format
from schemax.results import SlotText, build


@contextmanager
def in_time() -> Iterator[None]:
    """Takes seconds of the processor at most; so many that only what never ends fails."""
    started = time.process_time()
    yield
    assert time.process_time() - started < 120


def declared(**properties: Any) -> type[AttrSchema]:
    document = {"type": "object", "properties": properties, "required": list(properties)}
    return AttrSchema.from_json_schema(document)


def refused(said: str, **properties: Any) -> None:
    with in_time(), pytest.raises(SchemaError, match=said):
        declared(**properties)


TEXT = {"type": "string"}


def thing(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


# Patterns


@pytest.mark.parametrize(
    ("pattern", "text", "is_found"),
    [
        ("^(a+)+$", "a" * 40 + "!", False),
        ("^(a+)+$", "a" * 40, True),
        ("(x+x+)+y", "x" * 40, False),
        ("^(?!b)[a-c]+$", "abc", True),
        ("^(?!b)[a-c]+$", "bc", False),
        (r"^(.)\1$", "aa", True),
        (r"^(.)\1$", "ab", False),
        ("b", "abc", True),
    ],
)
def test_patterns_are_searched_for_in_bounded_time(pattern: str, text: str, is_found: bool) -> None:
    model = declared(x={"type": "string", "pattern": pattern, "minLength": 1})
    assert model.model_json_schema()["properties"]["x"]["pattern"] == pattern
    with in_time():
        if is_found:
            assert model.model_validate({"x": text}).model_dump() == {"x": text}
        else:
            with pytest.raises(pydantic.ValidationError, match="should match pattern"):
                model.model_validate({"x": text})
    with pytest.raises(pydantic.ValidationError, match="at least 1 character"):
        declared(x={"type": "string", "minLength": 1, "pattern": ""}).model_validate({"x": ""})


def test_a_search_that_takes_too_long_is_an_error_of_its_value() -> None:
    """Look-around is beyond the engine that is always fast."""
    model = declared(x={"type": "string", "pattern": "^(?=a)(a|a)+$"})
    with in_time(), pytest.raises(pydantic.ValidationError, match=r"more than 0\.25 seconds"):
        model.model_validate({"x": "a" * 40 + "!"})
    assert model.model_validate({"x": "aaa"}).model_dump() == {"x": "aaa"}


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        ("(", "cannot be used"),
        ("(" * 5_000, "cannot be used"),
        ("a" * 10_001, "at most 10,000 characters"),
        ("((a{1000}){1000}){1000}", "repeats too much"),
        ("a{90000}", "repeats too much"),
        ("(a|bc){5000}", "repeats too much"),
        ("(?!b)" + "(" * 9 + "a" + "{9})" * 9, "repeats too much"),
        (5, "must be text"),
    ],
)
def test_patterns_that_are_refused(pattern: Any, said: str) -> None:
    refused(said, x={"type": "string", "pattern": pattern})


def test_all_patterns_of_a_document_are_bounded_together() -> None:
    """An automaton has a state for every character that a repetition stands for."""
    many = {f"p{n}": {**TEXT, "pattern": f"a{{900{n}}}"} for n in range(2)}
    refused("all together have more than 10,000 characters", **many)
    assert declared(**dict(list(many.items())[:1]))


def test_long_repetitions_are_left_to_validation(codec: TextCodec) -> None:
    model = declared(x={**TEXT, "pattern": "^a{5000}$"}, y={**TEXT, "pattern": "^a{1,200}$"})
    with in_time():
        long, short = compile_schema(model, codec).attributes
    assert accepts_value(long, "b")
    assert accepts_value(short, "a")
    assert not accepts_value(short, "b")


def test_common_patterns_with_look_around_are_taken() -> None:
    mail = r"^(?=.{1,254}$)(?=.{1,64}@)[-a-z]{1,64}@[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*$"
    model = declared(x={"type": "string", "pattern": mail})
    assert model.model_validate({"x": "me@example.com"})
    with pytest.raises(pydantic.ValidationError):
        model.model_validate({"x": "me"})


LONG_KEY = "a" * 40 + "!"
SLOW = {"patternProperties": {"^(a+)+$": TEXT}}


def judged(model: type[AttrSchema]) -> Any:
    """What is made of the text "x" in every field."""
    attributes = compile_attributes(model)
    slots = [SlotText(' "x"', "stop", 1, complete=True) for _ in attributes]
    return build(model, attributes, slots, get_format("json"), index=0, document_id=None)


@pytest.mark.parametrize(
    "condition",
    [
        SLOW,
        {**SLOW, "additionalProperties": False},
        {"additionalProperties": False, **SLOW, "properties": {"b": TEXT}},
        {"propertyNames": {"pattern": "^(a+)+$"}},
        {"additionalProperties": {"pattern": "^(x+)+y"}},
        # A part that names its draft is judged by the same engine, and so is what it refers to.
        {"$schema": "https://json-schema.org/draft/2020-12/schema", **SLOW},
        {"$schema": "http://json-schema.org/draft-07/schema#", "allOf": [{"$ref": "#/$defs/s"}]},
    ],
)
@pytest.mark.parametrize("look", ["", "(?=a)"])
def test_patterns_of_conditions_are_searched_for_in_bounded_time(condition: Any, look: str) -> None:
    text = str({"if": condition, "then": {"required": ["b"]}, "$defs": {"s": SLOW}})
    rules = ast.literal_eval(text.replace("^(a+)+$", f"^{look}(a|a)+$"))
    model = AttrSchema.from_json_schema(
        {"properties": {LONG_KEY: TEXT, "b": {"type": ["string", "null"]}}, **rules}
    )
    with in_time():
        found = judged(model)
    assert found.value is not None


def test_the_first_search_that_takes_too_long_ends_the_judging_of_an_instance() -> None:
    slow = {f"^(?={'a' * n})(a|a)+$": False for n in range(1, 30)}
    keys = {f"{LONG_KEY}{n}": TEXT for n in range(5)}
    rules = {"if": {}, "then": {"patternProperties": slow}}
    model = AttrSchema.from_json_schema({"properties": keys, **rules})
    with in_time():
        found = judged(model)
    assert "took more than 0.25 seconds" in found.errors[0].message


def test_patterns_of_keys_mean_what_they_say() -> None:
    rules = {"patternProperties": {"^n": {"pattern": "^y"}}, "additionalProperties": {"const": "x"}}
    document = {"properties": {"name": TEXT, "other": TEXT}, "allOf": [{"not": rules}]}
    assert judged(AttrSchema.from_json_schema(document)).ok
    document["allOf"] = [{"not": {**rules, "patternProperties": {"^n": {"pattern": "^x"}}}}]
    (error,) = judged(AttrSchema.from_json_schema(document)).errors
    assert "should not be valid" in error.message
    keyed = {"patternProperties": {"^n": True}, "additionalProperties": False}
    document = {"properties": {"name": TEXT, "other": TEXT}, "if": {}, "then": keyed}
    (error,) = judged(AttrSchema.from_json_schema(document)).errors
    assert "Additional properties are not allowed ('other')" in error.message


def test_unevaluated_properties_beside_patterns_of_keys_are_refused() -> None:
    rules = {"unevaluatedProperties": False, "not": SLOW}
    with pytest.raises(SchemaError, match="use additionalProperties"):
        AttrSchema.from_json_schema({"properties": {"a": TEXT}, **rules})


def test_conditions_that_multiply_with_every_level_end() -> None:
    node: Any = {"properties": {"a": {"const": "y"}}}
    for _ in range(24):
        node = {"allOf": [node], "unevaluatedProperties": {"type": "string"}}
    model = AttrSchema.from_json_schema({"properties": {"a": TEXT}, "not": node})
    with in_time():
        found = judged(model)
    assert found.value is not None


def test_the_engine_does_not_depend_on_the_class_that_is_derived_from() -> None:
    class Slow(AttrSchema, regex_engine="python-re"):  # type: ignore[call-arg]
        code: str | None = attr(pattern="^(?=a)")

    document = {"type": "object", "properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}}
    model = Slow.from_json_schema({**document, "required": ["x"]})
    with in_time(), pytest.raises(pydantic.ValidationError, match="should match pattern"):
        model.model_validate({"x": "a" * 40 + "!"})


# Nesting


def nested(levels: int, wrap: Any) -> Any:
    node: Any = {"type": "string"}
    for _ in range(levels):
        node = wrap(node)
    return node


@pytest.mark.parametrize(
    "wrap",
    [
        lambda node: {"type": "object", "properties": {"x": node}},
        lambda node: {"type": "array", "items": node},
        lambda node: {"anyOf": [node, {"type": "null"}]},
        lambda node: {"allOf": [node]},
        lambda node: {"nullable": True, **node, "properties": {"x": node}, "type": "object"},
    ],
)
@pytest.mark.parametrize("levels", [40, 300, 5_000])
def test_deep_documents_are_refused(wrap: Any, levels: int) -> None:
    refused("nested more than 32 levels deep", x=nested(levels, wrap))


def test_twenty_levels_are_read() -> None:
    model = declared(x=nested(20, lambda node: {"type": "object", "properties": {"x": node}}))
    assert model.model_validate({"x": {}})


@pytest.mark.parametrize("kind", ["object", "array", "anyOf"])
def test_references_that_double_with_every_level_are_refused(kind: str) -> None:
    def level(number: int) -> Any:
        both = [{"$ref": f"#/$defs/n{number + 1}"}] * 2
        if kind == "anyOf":
            return {"anyOf": both}
        properties = {"a": both[0], "b": both[1]}
        if kind == "array":
            properties = {key: {"type": "array", "items": node} for key, node in properties.items()}
        return {"type": "object", "properties": properties}

    leaf = {"type": "object", "properties": {"x": {"type": "string"}}}
    definitions = {f"n{number}": level(number) for number in range(14)} | {"n14": leaf}
    document = {"properties": {"r": {"$ref": "#/$defs/n0"}}, "$defs": definitions}
    with in_time(), pytest.raises(SchemaError, match=r"at most 2,000|20,000 parts"):
        AttrSchema.from_json_schema(document)


def test_annotations_of_references_that_double_are_looked_at_once() -> None:
    """Of a text, which has no parts that the reading of types would count."""

    def level(number: int) -> Any:
        both = [{"$ref": f"#/$defs/n{number - 1}"}] * 2
        return {"allOf": both, "required": ["x"], "minLength": number}

    definitions = {f"n{number}": level(number) for number in range(1, 25)} | {
        "n0": {"type": "string", "description": "innermost", "required": [5]}
    }

    def document(last: int) -> Any:
        known = {f"n{n}": definitions[f"n{n}"] for n in range(last + 1)}
        return {"properties": {"x": {"$ref": f"#/$defs/n{last}"}}, "$defs": known}

    with in_time(), pytest.raises(SchemaError, match=r"20,000 parts|32 levels|is not of type"):
        AttrSchema.from_json_schema(document(24))
    definitions["n0"].pop("required")
    made = AttrSchema.from_json_schema(document(4))
    assert made.model_fields["x"].description == "innermost"


@pytest.mark.parametrize("count", [40, 3_000])
@pytest.mark.parametrize("beside", [[], [{"allOf": [TEXT]}]])
def test_chains_and_circles_of_all_of_are_refused(count: int, beside: list[Any]) -> None:
    """Also where the type is known without following them."""
    for end in (TEXT, {"allOf": [{"$ref": "#/$defs/n0"}, {"$ref": "#/$defs/n0"}]}):
        chain = {f"n{n}": {"allOf": [{"$ref": f"#/$defs/n{n + 1}"}, *beside]} for n in range(count)}
        document = {
            "properties": {"x": {"$ref": "#/$defs/n0"}},
            "$defs": {**chain, f"n{count}": end},
        }
        with in_time(), pytest.raises(SchemaError, match="nested more than 32 levels deep"):
            AttrSchema.from_json_schema(document)


def test_all_parts_of_all_of_count() -> None:
    first = {"allOf": [thing(a=TEXT)]}
    second = {"allOf": [thing(b={"type": "integer"})]}
    assert set(AttrSchema.from_json_schema({"allOf": [first, second]}).model_fields) == {"a", "b"}


@pytest.mark.slow
def test_a_condition_nested_too_deep_is_refused() -> None:
    deep = nested(3_000, lambda node: {"not": node})
    with in_time(), pytest.raises(SchemaError, match="nested more than 32 levels deep"):
        AttrSchema.from_json_schema(thing(x=TEXT) | {"not": deep})
    chain = {f"n{n}": {"not": {"$ref": f"#/$defs/n{n + 1}"}} for n in range(2_000)}
    document = thing(x=TEXT) | {"not": {"$ref": "#/$defs/n0"}, "$defs": {**chain, "n2000": TEXT}}
    with in_time(), pytest.raises(SchemaError, match="behind more than 64 references"):
        AttrSchema.from_json_schema(document)


@pytest.mark.slow
def test_words_that_nobody_knows_are_compared_in_time() -> None:
    words = {f"proprety_{n}": 1 for n in range(3_000)}
    refused("properties/x/type: ", x={**TEXT, **words, "type": ["string"] * 90})


def test_many_properties_are_refused() -> None:
    refused("2,001 properties", **{f"p{n}": {"type": "string"} for n in range(2_001)})


@pytest.mark.slow
def test_properties_with_the_same_name_in_python_are_told_apart() -> None:
    keys = ["a b", "a-b", "a.b", "a_b", "a_b_2", "a!b"]
    titled = {key: {"type": "integer", "title": f"title {n}"} for n, key in enumerate(keys)}
    names = list(declared(**titled).model_fields)
    assert names == ["a_b_3", "a_b_4", "a_b_5", "a_b", "a_b_2", "a_b_6"]
    # In time, for as many as there may be.
    many = {"a" + "-" * n + "b": {"type": "integer", "title": f"t{n}"} for n in range(1, 1_500)}
    with in_time():
        assert len(declared(**many).model_fields) == len(many)


# Sizes


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
@pytest.mark.parametrize(
    "limits", [{"maxItems": 10**9}, {"minItems": 10**9}, {"minItems": 1, "maxItems": 10**18}]
)
def test_lists_of_any_declared_size_compile_in_time(
    codec: TextCodec, limits: dict[str, int], format: str
) -> None:
    model = declared(x={"type": "array", "items": {"type": "string"}, **limits})
    with in_time():
        compiled = compile_schema(model, codec, format=format)
    (attribute,) = compiled.attributes
    assert accepts_value(attribute, ["a"], format)


def test_a_thousand_items_are_kept_by_the_grammar(codec: TextCodec) -> None:
    model = declared(x={"type": "array", "items": {"type": "integer"}, "maxItems": 1_000})
    with in_time():
        (attribute,) = compile_schema(model, codec).attributes
    assert accepts_value(attribute, [1] * 1_000)
    assert not accepts_value(attribute, [1] * 1_001)


@pytest.mark.parametrize("long", [True, False])
def test_lists_in_two_phases_of_too_many_items_are_refused(codec: TextCodec, long: bool) -> None:
    """Of scalars, or of nested models, which are always read so."""
    row = {"type": "object", "properties": {"n": {"type": "integer"}}}
    items = {"items": {"type": "string"}, "long": True} if long else {"items": row}
    for limits in ({"maxItems": 10**9}, {"minItems": 10**9}, {"maxItems": 10_001}):
        model = declared(x={"type": "array", **items, **limits})
        with in_time(), pytest.raises(SchemaError, match=r"items, and .* keys in all"):
            compile_schema(model, codec)
    with in_time():
        compile_schema(declared(x={"type": "array", **items, "maxItems": 10_000}), codec)


def test_lists_within_lists_multiply_and_are_refused(codec: TextCodec) -> None:
    node: Any = {"type": "object", "properties": {"n": {"type": "integer"}}}
    for _ in range(5):
        node = {"type": "object", "properties": {"x": {"type": "array", "items": node}}}
    with in_time(), pytest.raises(SchemaError, match="500,000 keys"):
        compile_schema(declared(r=node), codec)


@pytest.mark.parametrize(
    "choices", [[f"choice {n}" for n in range(100_000)], ["x" * 600_000, "y" * 600_000]]
)
def test_too_many_choices_are_refused(choices: list[str]) -> None:
    refused("choices", x={"enum": choices})
    refused("choices|parts", x={"anyOf": [{"const": choice} for choice in choices]})


@pytest.mark.slow
def test_ten_thousand_choices_compile_in_time(codec: TextCodec) -> None:
    model = declared(x={"enum": [f"choice {n}" for n in range(10_000)]})
    with in_time():
        assert compile_schema(model, codec).slots[0].grammar is not None


def test_long_alternations_compile_in_time(codec: TextCodec) -> None:
    refused("at most 10,000 characters", x={"type": "string", "pattern": alternation(20_000)})
    model = declared(x={"type": "string", "pattern": f"^({alternation(1_100)})$"})
    with in_time():
        compile_schema(model, codec)

    class Trusted(AttrSchema):
        x: str = attr(pattern=f"^({alternation(20_000)})$")

    with in_time():
        (attribute,) = compile_schema(Trusted, codec).attributes
    assert accepts_value(attribute, "no such word")
    assert Trusted(x="word7").x == "word7"


def alternation(count: int) -> str:
    return "|".join(f"word{n}" for n in range(count))


@pytest.mark.parametrize(
    ("kind", "bound"),
    [
        *(("integer", bound) for bound in (10**4_000, 10**60, -(10**80))),
        *(("number", bound) for bound in (10**60, -(10**80), 5e-324)),
    ],
)
def test_bounds_of_many_digits_are_left_to_validation(
    codec: TextCodec, kind: str, bound: float
) -> None:
    keyword = "minimum" if bound < 0 else "maximum"
    model = declared(x={"type": kind, keyword: bound})
    with in_time():
        (attribute,) = compile_schema(model, codec).attributes
    assert accepts_value(attribute, 1 if kind == "integer" else 1.0)


# Unions, dicts, recursion


def nested_unions(levels: int) -> Any:
    node: Any = thing(a=TEXT)
    for level in range(levels):
        node = {"oneOf": [node, thing(**{f"b{level}": TEXT})]}
    return node


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"oneOf": [thing(**{f"a{n}": TEXT}) for n in range(1000)]}, "at most 100 are read"),
        ({"anyOf": [{**TEXT, "maxLength": n} for n in range(1, 9999)]}, "at most 100 are read"),
        ({"oneOf": [thing(**{f"a{n}_{m}": TEXT for m in range(21)}) for n in range(100)]},
         "at most 2,000"),
        (nested_unions(40), r"Schema\.x\.\.\.\.: is nested more than 32 levels deep"),
        ({"oneOf": [{"$ref": "#/properties/x"}, thing(a=TEXT)]}, "refers to itself"),
        ({"prefixItems": [TEXT] * 5000}, "at most 100 schemas"),
        ({**thing(y={"$ref": "#/properties/x", "max_depth": 8},
                  z={"$ref": "#/properties/x", "max_depth": 8})}, "asks for nothing"),
        ({"$ref": "#", "max_depth": 9}, "max_depth must be a whole number from 1 to 8"),
    ],
)  # fmt: skip
def test_unions_tuples_and_circles_without_bounds_are_refused(node: Any, said: str) -> None:
    refused(said, x=node)


def test_circles_that_branch_are_bounded_by_what_they_hold() -> None:
    again = {"anyOf": [{"$ref": "#"}, {"type": "null"}], "max_depth": 8}
    with in_time(), pytest.raises(SchemaError, match="at most 2,000"):
        AttrSchema.from_json_schema(thing(a=again, b=again, c=again))


def test_unions_of_unions_are_flattened(codec: TextCodec) -> None:
    with in_time():
        compiled = compile_schema(declared(x=nested_unions(20)), codec)
    assert [len(one.choices) for one in compiled.attributes if one.name == "x.kind"] == [21]


def test_conditions_that_refer_to_themselves_end() -> None:
    node = {**TEXT, "max_depth": 1, "not": {"$ref": "#/properties/x"}}
    attributes = compile_attributes(model := declared(x=node))
    slot = SlotText(' "a"', "stop", 1, complete=True)
    found = build(model, attributes, [slot], get_format("json"), index=0, document_id=None)
    assert found.value is not None
    assert "refer to themselves too often" in found.errors[0].message


@pytest.mark.slow
def test_conditions_that_double_with_every_level_end() -> None:
    again = {"$ref": "#"}
    document = {
        **thing(n=TEXT, kid={**again, "max_depth": 8}),
        "anyOf": [{"properties": {"kid": again, "n": {"const": "x"}}} for _ in range(5)],
    }
    model = AttrSchema.from_json_schema(document)
    attributes = compile_attributes(model)
    slots = [SlotText(' "a"', "stop", 1, complete=True) for _ in attributes]
    with in_time():
        found = build(model, attributes, slots, get_format("json"), index=0, document_id=None)
    assert "take more than 1 second" in found.errors[0].message


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"propertyNames": True, "additionalProperties": TEXT}, None),
        ({"propertyNames": False, "additionalProperties": TEXT}, "allows no name"),
        ({"patternProperties": [1]}, "patternProperties must be an object"),
        ({"patternProperties": 1, "additionalProperties": TEXT}, "must be an object of schemas"),
        ({"anyOf": [TEXT, thing(y=TEXT)], "properties": 1.5}, "properties must be an object"),
    ],
)
def test_keywords_of_another_type_are_refused_in_words(node: Any, said: str | None) -> None:
    if said is None:
        assert declared(x={"type": "object", **node})(x={"a": "b"}).model_dump() == {
            "x": {"a": "b"}
        }
    else:
        refused(said, x={"type": "object", **node})


def test_choices_of_all_fields_are_bounded_together() -> None:
    names = {"enum": [f"v{number}" for number in range(1_000)]}

    def document(fields: int) -> dict[str, Any]:
        uses = {f"x{number}": {"$ref": "#/$defs/e"} for number in range(fields)}
        return {**thing(**uses), "$defs": {"e": names}}

    with in_time(), pytest.raises(SchemaError, match="together are more than 50,000"):
        AttrSchema.from_json_schema(document(51))
    fields = compile_attributes(AttrSchema.from_json_schema(document(50)))
    assert [len(one.choices) for one in fields] == [1_000] * 50
