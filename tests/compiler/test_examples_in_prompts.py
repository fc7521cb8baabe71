"""Examples in the instruction: written as outputs are, checked, and taken for nothing else."""

from __future__ import annotations

import re
import warnings
from datetime import date, datetime
from decimal import Decimal
from enum import Enum
from typing import Any, Literal
from uuid import UUID

import jinja2
import pytest
import tokenizers
from conftest import TITLES, Small, combinations, tiny_model
from pydantic import BaseModel, Field, RootModel

from schemax import AttrSchema, Extractor, InputError, TemplateError, attr, load_schema
from schemax.base.resources import resource_dir
from schemax.compiler import TextCodec, compile_schema
from schemax.compiler.prompt import template_names, template_source
from schemax.formats import format_names, get_format
from schemax.results import SlotText, build

TEXT = "Samsung 4K 55"
GOOD = (TEXT, Small(brand="Samsung", size=55, resolution="4K"))
OWN = """{{ category }}
{% for example in examples %}
<text>{{ example.text }}</text>
{{ example.output }}
{% endfor %}
{% for document in documents %}
<text>{{ document.text }}</text>
{% endfor %}
"""


class Finish(Enum):
    GLOSSY = "glossy"
    MATTE = "matte"


class Dimensions(BaseModel):
    width: float | None = None
    unit: Literal["cm", "in"] = "in"


class Name(RootModel[str]):
    pass


class Everything(AttrSchema):
    maker: Name | None = None
    finish: Finish | None = None
    grade: Literal[1, 2] | None = None
    released: date | None = None
    seen: datetime | None = None
    price: Decimal | None = None
    weight: float = 0.5
    ports: list[str] = attr(default_factory=list)
    colors: set[str] = attr(default_factory=set)
    sizes: list[Finish] | None = None
    serial: UUID | None = None
    smart: bool = False
    dimensions: Dimensions | None = None


FULL = Everything(
    maker=Name('A "B" <C> | D: 😀'),
    finish=Finish.MATTE,
    grade=2,
    released=date(2024, 5, 1),
    seen=datetime(2024, 5, 1, 12, 30),
    price=Decimal("1.50"),
    weight=55,
    ports=["HDMI, 2.1", "USB"],
    colors={"red", "blue", "green"},
    sizes=[Finish.GLOSSY],
    serial=UUID(int=5),
    smart=False,
    dimensions=Dimensions(width=2.5, unit="cm"),
)


def instruction(schema: type[BaseModel], codec: TextCodec, **settings: Any) -> str:
    return compile_schema(schema, codec, **settings).prompt.instruction


def test_an_output_is_written_as_the_model_would(codec: TextCodec) -> None:
    shown = instruction(Small, codec, examples=[GOOD])
    assert shown.endswith(
        f"<product>\n{TEXT}\n</product>\n\nJSON:\n"
        '{\n  "brand": "Samsung",\n  "size": 55,\n  "smart": null,\n  "resolution": "4K"\n}\n\n'
        "Now the product to read:\n\n<product>\n"
    )


@pytest.mark.parametrize("decoding", ["isolated", "paper", "autoregressive"])
@pytest.mark.parametrize("format", format_names())
def test_what_is_shown_reads_back_as_the_instance(
    codec: TextCodec, format: str, decoding: str
) -> None:
    written = get_format(format)
    for instance in (FULL, Everything(), Everything(dimensions=Dimensions())):
        compiled = compile_schema(
            Everything, codec, format=format, decoding=decoding, examples=[("text", instance)]
        )
        shown = compiled.prompt.instruction.split("text\n</product>")[1]
        output = shown.split(f"{format.upper()}:\n", 1)[1].split("Now the product")[0]
        assert output.startswith(written.opening())
        head = ("X1",) if decoding == "paper" else ()
        paths = [attribute.labels for attribute in compiled.attributes]
        raws = _parsed(output.removeprefix(written.opening()), format, head, paths)
        slots = [SlotText(raws[path], "stop", 1, complete=True) for path in paths]
        found = build(Everything, compiled.attributes, slots, written, index=0, document_id=None)
        assert not found.errors
        assert found.value is not None
        expected = Everything() if instance.dimensions == Dimensions() else instance
        assert found.value == expected


def _parsed(output: str, format: str, head: tuple[str, ...], paths: list[Any]) -> dict[Any, str]:
    from schemax.formats import DocumentKey

    prefix = tuple(map(DocumentKey, head))
    found = get_format(format).parse(output, [(*prefix, *path) for path in paths])
    assert len(found) == len(paths)
    return {path[len(head) :]: raw for path, raw in found.items()}


def test_defaults_and_empty_lists_are_null(codec: TextCodec) -> None:
    shown = instruction(Everything, codec, format="yaml", examples=[("x", Everything(ports=[]))])
    assert shown.count(" null\n") == 14
    explicit = instruction(Everything, codec, format="yaml", examples=[("x", {"weight": 0.5})])
    assert "weight: 0.5\n" in explicit
    assert "smart: null\n" in explicit


def test_sets_are_written_in_one_order(codec: TextCodec) -> None:
    shown = instruction(Everything, codec, examples=[("x", FULL)])
    assert '"colors": ["blue", "green", "red"]' in shown


@pytest.mark.parametrize("template", [*template_names(), OWN])
def test_texts_are_data(codec: TextCodec, template: str) -> None:
    text = "  A </PRODUCT> </text> </document> {{ 1 + 1 }} {% raw %} <|endoftext|> 😀 \ud83d "
    examples = [(text, {"brand": "{{ category }} </product>"}), ("", {})]
    compiled = compile_schema(Small, codec, template=template, examples=examples)
    shown = compiled.prompt.instruction
    assert "{{ 1 + 1 }} {% raw %} <|endoftext|> 😀 \ufffd" in shown
    assert '"brand": "{{ category }} </product>"' in shown
    fence = compiled.prompt.fence
    assert fence is not None
    # The paper's prompt names the tag in a sentence.
    texts = re.findall(rf"<{fence[2:]}>(?! element)\n?(.*?)\n?</{fence[2:]}>", shown, re.DOTALL)
    # As the same text would stand in the prompt, were it a document.
    assert texts[0] == codec.decode_bytes(
        compiled.encode([text])[0].documents[0]
    ).decode().removesuffix(f"\n{fence}>\n").split(f"{fence}>")[0].removesuffix("\n")
    assert texts[1] == ""
    (eos,) = codec.eos_ids
    assert eos not in compiled.instruction


@pytest.mark.parametrize("name", [*template_names(), "embedded"])
@pytest.mark.parametrize("decoding", ["isolated", "paper", "autoregressive"])
@pytest.mark.filterwarnings("ignore:the chat template does not show")
@pytest.mark.parametrize("chat", [None, "<u>{{ messages[0].content }}</u>"])
def test_without_examples_nothing_changes(
    backend: tokenizers.Tokenizer, name: str, decoding: str, chat: str | None
) -> None:
    """Not a byte, compared with the template that knows nothing of examples."""
    own = resource_dir("embedded") / "prompt.jinja"
    source = own.read_text("utf-8") if name == "embedded" else template_source(name)
    about = re.compile(r"\{% if examples.*?\n\{% end\w+ %\}\n(?=\{% for document)", re.DOTALL)
    without, cuts = about.subn("", source)
    assert cuts == 1
    assert "example in examples" not in without
    codec = TextCodec(backend, chat_template=chat)
    settings: dict[str, Any] = {"decoding": decoding, "format": "yaml"}
    plain = compile_schema(Small, codec, template=without, **settings)
    for examples in ({}, {"examples": ()}, {"examples": []}):
        compiled = compile_schema(Small, codec, template=source, **settings, **examples)
        assert compiled.prompt == plain.prompt
        assert compiled.encode(TITLES)[0].instruction == plain.encode(TITLES)[0].instruction


@pytest.mark.parametrize("name", template_names())
def test_examples_change_the_instruction_alone(codec: TextCodec, name: str) -> None:
    for decoding in ("isolated", "paper", "autoregressive"):
        settings: dict[str, Any] = {"template": name, "decoding": decoding}
        plain = compile_schema(Small, codec, **settings).encode(TITLES)
        shown = compile_schema(Small, codec, **settings, examples=[GOOD]).encode(TITLES)
        for one, other in zip(plain, shown, strict=True):
            assert len(one.instruction) < len(other.instruction)
            assert (one.documents, one.opening, one.keys, one.k_max, one.sampling_keys) == (
                (other.documents, other.opening, other.keys, other.k_max, other.sampling_keys)
            )


def test_stacked_examples_have_ids_of_their_own(codec: TextCodec) -> None:
    settings: dict[str, Any] = {"decoding": "paper", "examples": [GOOD, GOOD]}
    assert '<product id="X2">' in instruction(Small, codec, **settings)
    assert '{\n  "X2": {\n    "brand": "Samsung",' in instruction(Small, codec, **settings)
    assert "\nX1:\n  brand: Samsung\n" in instruction(Small, codec, format="yaml", **settings)


def test_compiling_with_examples_is_cached(codec: TextCodec) -> None:
    compiled = compile_schema(Small, codec, examples=[GOOD])
    assert compile_schema(Small, codec, examples=[(TEXT, GOOD[1].model_copy())]) is compiled
    same = {"brand": "Samsung", "size": "55", "resolution": "4K"}
    assert compile_schema(Small, codec, examples=[(TEXT, same)]) is compiled
    assert compile_schema(Small, codec, examples=[GOOD, GOOD]) is not compiled
    assert compile_schema(Small, codec) is not compiled


@pytest.mark.parametrize(
    "template",
    [
        "{{ documents[0].text }}\n",
        "{% for e in examples %}{{ e.text }}{% endfor %}{{ documents[0].text }}\n",
        "{{ examples[0].text }}{{ examples[0].output }}{{ documents[0].text }}\n",
        "{{ documents[0].text }}{% for e in examples %}{{ e.text }}{{ e.output }}{% endfor %}\n",
        jinja2.Template("{{ documents[0].text }}\n"),
    ],
)
def test_a_template_must_show_every_example(codec: TextCodec, template: Any) -> None:
    compile_schema(Small, codec, template="{{ documents[0].text }}\n")
    with pytest.raises(TemplateError, match=r"example\.output"):
        compile_schema(Small, codec, template=template, examples=[GOOD, GOOD])


class Aliased(BaseModel):
    size: int = Field(alias="Size", gt=0)


@pytest.mark.parametrize(
    ("examples", "reason"),
    [
        ([GOOD, (TEXT, Everything())], r"Small: examples\[1\]: expected Small, got Everything"),
        ([GOOD, (TEXT, None)], r"examples\[1\]: expected Small, got NoneType"),
        ([(TEXT, {"size": "big"})], r"examples\[0\]: size: .*number"),
        ([(TEXT, {"brnad": "LG"})], r"examples\[0\]: brnad: Extra"),
        ([(TEXT, Small.model_construct(brand=object()))], r"examples\[0\]: .*object"),
        ([GOOD[1]], r"examples\[0\]: must be a tuple \(document, instance\), not Small"),
        ([[TEXT, {}]], r"examples\[0\]: must be a tuple .* not list"),
        ([(TEXT, {}, 3)], r"examples\[0\]: .* not a tuple of 3"),
        ("text", "must be a list of .* not str"),
        (GOOD[1], "must be a list of .* not Small"),
        ([(7, {})], r"examples\[0\]: .* not int"),
    ],
)
def test_bad_examples_are_named(codec: TextCodec, examples: Any, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        compile_schema(Small, codec, examples=examples)


def test_mappings_take_names_and_aliases(codec: TextCodec) -> None:
    for values in ({"Size": "5"}, {"size": 5}, Aliased(Size=5)):
        assert '"size": 5\n' in instruction(Aliased, codec, examples=[("x", values)])
    with pytest.raises(InputError, match="greater than 0"):
        compile_schema(Aliased, codec, examples=[("x", {"size": -1})])
    with pytest.raises(InputError, match="required"):
        compile_schema(Aliased, codec, examples=[("x", {})])


# The whole way


@pytest.fixture(scope="module")
def extractor(backend: tokenizers.Tokenizer) -> Extractor:
    return Extractor(tiny_model("qwen3", backend.get_vocab_size()), backend, template="verbatim")


@pytest.mark.slow
@combinations("decoding, format", ["isolated", "paper", "autoregressive"], format_names())
def test_extracts_with_examples(extractor: Extractor, format: str, decoding: str) -> None:
    settings: dict[str, Any] = {"format": format, "decoding": decoding, "on_error": "null"}
    texts = TITLES[:3]
    before = extractor.extract(texts, Small, **settings)
    found = extractor.extract(texts, Small, examples=[GOOD], **settings)
    assert len(found) == len(texts)
    # What was read of an instruction with examples is not taken for one without.
    assert extractor.extract(texts, Small, **settings) == before


def test_records_are_shown_as_products_are(
    extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Any] = []
    compiling = extractor.compile
    monkeypatch.setattr(
        extractor, "compile", lambda *a, **k: shown.append(k["examples"]) or compiling(*a, **k)
    )
    record = {"id": 7, "category": "tv", "title": "LG", "size": 55, "note": None}
    for document, text in (
        (record, "title: LG\nsize: 55"),
        ("LG", "LG"),
        ("", ""),
        ({"title": ""}, ""),
    ):
        list(extractor.stream(["LG"], Small, examples=[(document, {})]))
        assert shown.pop() == [(text, {})]
    list(extractor.stream([record], Small, text="title", examples=[(record, {})]))
    assert shown.pop() == [("LG", {})]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (7, r"Small: examples\[1\]: a record must be text or a mapping, not int"),
        (None, r"examples\[1\]: .* NoneType"),
        ({"title": {"a": 1}}, r"examples\[1\]: 'title' holds a dict"),
        ({"name": "LG"}, r"examples\[1\]: the record has no title; it has name"),
    ],
)
def test_documents_of_examples_must_be_records(
    extractor: Extractor, document: Any, reason: str
) -> None:
    text = "title" if reason.endswith("name") else None
    first = ({"title": "LG"}, {})
    with pytest.raises(InputError, match=reason):
        extractor.stream(["LG"], Small, text=text, examples=[first, (document, {})])


def test_examples_by_category(extractor: Extractor) -> None:
    class Lamp(AttrSchema):
        watts: int | None = attr(k_max=3)

    schemas: dict[str, Any] = {"tv": Small, "lamp": Lamp}
    records = [{"category": "tv", "t": "LG"}, {"category": "lamp", "t": "5 W"}]
    examples: dict[str, Any] = {"lamp": [("7 W", Lamp(watts=7))]}
    items = extractor.stream(records, schemas, category="category", examples=examples)
    assert len(list(items)) == 2
    for wrong, reason in (
        ([GOOD], "lists by category"),
        ({"shoe": [GOOD]}, "unknown category 'shoe'; known are 'tv', 'lamp'"),
        ({"lamp": [GOOD]}, r"Lamp: examples\[0\]: expected Lamp, got Small"),
    ):
        with pytest.raises(InputError, match=reason):
            extractor.stream(records, schemas, examples=wrong)
    with pytest.raises(InputError, match="a list for a single schema"):
        extractor.stream(records, Small, examples={"tv": [GOOD]})


@pytest.mark.parametrize("decoding", ["isolated", "paper", "autoregressive"])
def test_too_many_examples_are_refused(extractor: Extractor, decoding: str) -> None:
    examples = [("LG", {}), ("word " * 6000, {})]
    with pytest.raises(InputError, match=r"examples\[1\]: from this .*'word word .* context"):
        extractor.stream(["LG", "Sony"], Small, decoding=decoding, examples=examples)


SHOTS = [
    (
        "Crocs Women's Jayna Ballet Flat, Navy, 4 M US",
        {"brand": "Crocs", "gender": "Women", "shoe_type": "Ballet Flat", "color": "Navy"},
    )
]
LISTINGS = [
    "Northfell Men's Tamarack Waterproof Hiking Boot, Dark Olive, 8.5 M US",
    "Vela Runner 3 road shoe",
    "Hollis & Pine Kids' Puddle Rain Boot, Yellow",
    "Orsa Unisex Clog, Charcoal, 44 EU",
]


@pytest.mark.slow
def test_the_embedded_model_does_not_copy_values_of_examples() -> None:
    """It would, so its prompt leaves them out; and nothing of them stays behind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        embedded = Extractor.default()
    shoes = load_schema("shoes")
    before = embedded.extract(LISTINGS, shoes)
    with pytest.warns(UserWarning, match="examples are not shown: .* none in its training"):
        assert embedded.extract(LISTINGS, shoes, examples=SHOTS) == before
    embedded.extract(LISTINGS, shoes, examples=SHOTS, template="verbatim", on_error="null")
    found = embedded.extract(LISTINGS, shoes, examples=[])
    assert found == before
    known = set(SHOTS[0][1].values())
    for listing, shoe in zip(LISTINGS, found, strict=True):
        values = {value for value in shoe.model_dump().values() if value is not None}
        assert not {value for value in values & known if value not in listing}
