"""Lists in two phases: what is declared, and what it compiles to."""

from __future__ import annotations

from typing import Any

import pytest
from list_models import Port, Television

from schemax import SchemaError
from schemax.attributes import attr, compile_attributes
from schemax.attributes.examples import example_values
from schemax.compiler import TextCodec, compile_schema
from schemax.compiler.prompt import written_examples
from schemax.compiler.skeleton import all_labels, written_values
from schemax.extraction.schema import AttrSchema
from schemax.tokens import SlotOutput

# --- declarations --------------------------------------------------------------------------------


def test_what_is_long() -> None:
    brand, colors, ports = compile_attributes(Television)
    assert (brand.two_phase, colors.two_phase, ports.two_phase) == (False, True, True)
    assert [leaf.name for leaf in ports.fields] == ["kind", "version"]
    assert (ports.kind, ports.is_list, ports.name) == ("model", True, "ports")
    assert colors.num_items == (0, 64)


@pytest.mark.parametrize(
    ("annotation", "field", "reason"),
    [
        (str, attr(long=True), "long applies to lists only"),
        (Port, attr(long=True), "long applies to lists only"),
        (str, attr(unique=True), "unique applies to lists only"),
        (list[str], attr(json_schema_extra={"long": 3}), "long must be True or False"),
        (set[Port], attr(), "a set of nested models"),
        (list[list[Port]], attr(), "a list of lists"),
    ],
)
def test_refused(annotation: Any, field: Any, reason: str) -> None:
    namespace = {"__annotations__": {"x": annotation}, "x": field}
    with pytest.raises(SchemaError, match=reason):
        compile_attributes(type("Refused", (AttrSchema,), namespace))


def test_errors_name_the_way_to_a_leaf() -> None:
    class Item(AttrSchema):
        size: dict[str, Any]

    class Cart(AttrSchema):
        items: list[Item]

    with pytest.raises(SchemaError, match=r"Cart\.items\.size"):
        compile_attributes(Cart)


def test_a_model_that_is_a_list_of_itself_is_refused() -> None:
    with pytest.raises(SchemaError, match="contains itself"):
        compile_attributes(Recursive)


class Recursive(AttrSchema):
    name: str
    parts: list[Recursive]


def test_unique_is_pydantics() -> None:
    class Shoe(AttrSchema):
        sizes: list[int] | None = attr(unique=True, min_length=2)
        colors: tuple[str, ...] = attr(unique=True, default=())
        ports: list[Port] = attr(unique=True, default_factory=list)

    same = {"kind": "USB", "version": 2}
    shoe = Shoe(sizes=["8", 8, "9"], colors=("a", "b", "a"), ports=[same, same])
    assert (shoe.sizes, shoe.colors, len(shoe.ports)) == ([8, 9], ("a", "b"), 1)
    assert Shoe(sizes=None).sizes is None
    with pytest.raises(ValueError, match="at least 2 items"):
        Shoe(sizes=[8, "8"])


def test_json_schema_there_and_back() -> None:
    class Shoe(AttrSchema):
        sizes: list[int] | None = attr(long=True, unique=True, min_length=2)
        ports: list[Port] = attr(unique=True)

    again = AttrSchema.from_json_schema(Shoe.model_json_schema())
    assert [(a.name, a.kind, a.two_phase, a.constraints) for a in compile_attributes(again)] == [
        (a.name, a.kind, a.two_phase, a.constraints) for a in compile_attributes(Shoe)
    ]
    assert again.model_validate({"sizes": [1, 1, 2], "ports": []}).sizes == [1, 2]


# --- compiled ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("format", "keys", "item"),
    [
        ("json", '  "ports (count)":', '  "ports 2": {\n    "kind":'),
        ("yaml", "ports (count):", "ports 2:\n  kind:"),
        ("xml", "  <ports_count>", "  <ports_2>\n    <kind>"),
    ],
)
def test_keys(codec: TextCodec, format: str, keys: str, item: str) -> None:
    compiled = compile_schema(Television, codec, format=format)
    assert compiled.key_texts[0][2] == keys
    assert compiled.slot_attributes[2].kind == "integer"
    items = compiled.slots[2].follow_ups
    assert items is not None
    output = compiled.format
    children = items.after(
        SlotOutput(tuple(codec.encode(output.escape(2) + output.delimiter)), "stop")
    )
    assert len(children) == 4
    assert codec.decode_bytes(children[2].key).decode() == item
    assert children[0].spec.grammar is not None
    assert children[0].spec.grammar is children[2].spec.grammar  # one for all items


def test_names_that_clash_with_an_items(codec: TextCodec) -> None:
    class Clash(AttrSchema):
        colors: list[str] = attr(long=True)
        colors_7: str | None = None

    with pytest.raises(SchemaError, match="colors 7"):
        compile_schema(Clash, codec)
    assert len(list(all_labels(compile_attributes(Clash)))) == 66


@pytest.mark.parametrize(
    "decoding", ["paper", "autoregressive", "isolated:layout=gapped", "isolated:documents=stacked"]
)
def test_other_layouts_read_lists_inline(codec: TextCodec, decoding: str) -> None:
    class Shoe(AttrSchema):
        colors: list[str] = attr(long=True)

    compiled = compile_schema(Shoe, codec, decoding=decoding)
    assert not compiled.attributes[0].two_phase
    assert all(spec.follow_ups is None for spec in compiled.slots)
    if decoding == "autoregressive":  # which writes such a list as JSON, and as nothing else
        assert compile_schema(Television, codec, decoding=decoding).k_max[0] > 100
    with pytest.raises(SchemaError, match=r"Television\.ports.*requires isolated documents"):
        compile_schema(
            Television,
            codec,
            decoding=decoding,
            format="xml" if decoding == "autoregressive" else "json",
        )


def test_the_prompt_says_what_is_asked_for(codec: TextCodec) -> None:
    prompt = compile_schema(Television, codec).prompt.instruction
    assert "- colors (count): how many there are" in prompt
    assert "- colors 1, colors 2, ...: Colours" in prompt
    assert "- ports 1, ports 2, ... > kind: Connectors [one of: HDMI, USB]" in prompt


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
def test_examples_are_written_in_the_same_form(codec: TextCodec, format: str) -> None:
    shown = Television(brand=None, colors=["red"], ports=[{"kind": "USB", "version": 2}])
    compiled = compile_schema(Television, codec, format=format, examples=[("a text", shown)])
    output, config = compiled.format, compiled.decoding
    values = example_values([("a text", shown)], Television, compile_attributes(Television))
    (example,) = written_examples(values, Television, output, config)
    assert example.output in compiled.prompt.instruction
    found = output.parse(
        example.output.removeprefix(output.opening()), list(all_labels(compiled.attributes))
    )
    values = {path: output.unescape(raw) for path, raw in found.items()}
    assert values["colors (count)",] == "1"
    assert values["colors 1",] == "red"
    assert values["ports 1", "version"] == "2"
    assert ("ports 2", "kind") not in values


def test_written_values() -> None:
    *_, ports = compile_attributes(Television)
    assert list(written_values(ports, [["USB", None]])) == [
        (("ports (count)",), 1),
        (("ports 1", "kind"), "USB"),
        (("ports 1", "version"), None),
    ]
    assert list(written_values(ports, None)) == [(("ports (count)",), None)]
