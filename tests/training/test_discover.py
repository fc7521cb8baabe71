"""Declarations that are made of samples: names, kinds, and what becomes of nonsense."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import jsonl, refused, save_model
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer
from typer.testing import CliRunner

from schemax import AttrSchema, Extraction, Extractor, InputError, SchemaError, discover
from schemax.attributes import compile_attributes
from schemax.base.resources import resource_dir
from schemax.commands import options
from schemax.commands.cli import app
from schemax.extraction.defaults import Defaults
from schemax.extraction.documents import RecordFields, read_documents
from schemax.formats import get_format
from schemax.results import SlotText, build
from schemax.training.discovery import TEMPLATE, as_json, candidates, discovered
from schemax.training.property_types import declared

Reader = Callable[[str, str], str | None]
"""(what the model is asked for, text) -> what it writes."""


class Scripted:
    """Quacks like an Extractor: lists the names that it is given, and reads with a function."""

    def __init__(self, names: list[str] | str, read: Reader, finish_reason: str = "stop") -> None:
        self.defaults = Defaults()
        self.names = names if isinstance(names, str) else json.dumps(names)
        self.read, self.finish_reason = read, finish_reason
        self.asked: list[str] = []

    def stream(
        self, products: Iterable[Any], schema: Any, *, template: Any = None, **_: Any
    ) -> Iterator[Extraction[Any]]:
        attributes = compile_attributes(schema)
        for document in read_documents(products, RecordFields()):
            assert document.text is not None
            slots = []
            for attribute in attributes:
                if template == TEMPLATE:
                    self.asked.append(document.text)
                    raw, reason = self.names, self.finish_reason
                else:
                    found = self.read(attribute.labels[-1], document.text)
                    raw, reason = "null" if found is None else json.dumps(found), "stop"
                slots.append(SlotText(raw, reason, 2, complete=reason == "stop"))  # type: ignore[arg-type]
            yield build(
                schema,
                attributes,
                slots,
                get_format("json"),
                index=document.index,
                document_id=document.id,
                steps=3,
                texts=document.texts,
            )


PATTERNS = {
    "Brand": r"^\w+",
    "Maker": r"^\w+",
    "Screen Size": r"\d+(?:-inch|\")",
    "Panel": r"OLED|LED|VA",
    "Curved": r"curved",
    "Ports": r"HDMI(?:, \w+)*",
    "Weight": r"\d kg",
}


def by_pattern(name: str, text: str) -> str | None:
    found = re.search(PATTERNS.get(name, r"(?!)"), text)
    return found[0] if found else None


TITLES = [
    f"{('Dell', 'LG', 'Acer')[n % 3]} {20 + n}{('-inch', chr(34))[n % 2]} "
    f"{('OLED', 'VA')[n % 2]} monitor{', curved' * (n % 4 == 0)}, HDMI, USB{', DP' * (n % 2)}"
    for n in range(20)
]
NAMES = ["Brand", "maker", "Screen Size", "screen sizes", "Panel", "Curved", "Ports", "Price"]
NAMES += ["Colour", "55 inches of glass that is seen from here", "!!", "Weight"]


def test_names_of_a_model_become_typed_attributes() -> None:
    model = Scripted(NAMES, by_pattern)
    found = discovered(TITLES, "monitors", model)  # type: ignore[arg-type]
    assert len(model.asked) == found.lists == 4
    assert found.samples == 20
    assert {item.title: (item.kind, item.unit) for item in found.attributes} == {
        "Brand": ("choice", None),
        "Screen Size": ("number", "inch"),
        "Panel": ("choice", None),
        "Curved": ("yes or no", None),
        "Ports": ("list", None),
    }
    assert found.attributes[0].coverage == 1.0
    assert found.attributes[0].lists == 4
    assert found.attributes[0].examples == ("Dell", "LG", "Acer")
    assert found.left_out == {
        "Maker": "has always the values of Brand",
        "Colour": "0 of 20 samples state it",
        "Weight": "0 of 20 samples state it",
    }
    assert found.doubt is None
    assert found.schema.json_schema()["category"] == "monitors"
    again = AttrSchema.from_json_schema(as_json(found.document))
    assert compile_attributes(again) == compile_attributes(found.schema)


def test_the_number_of_attributes_is_bounded() -> None:
    names = ["Brand", "Panel", "Ports", "Curved"]
    lines = [f"{title}\nHeight: {n} cm" for n, title in enumerate(TITLES)]
    found = discovered(lines, "monitors", Scripted(names, by_pattern), max_attributes=2)  # type: ignore[arg-type]
    assert [item.title for item in found.attributes] == ["Brand", "Panel"]
    assert found.left_out == {"Height": "2 names are more frequent"}


class Disagreeing(Scripted):
    """Lists another name for every few documents, as models that are too small do."""

    def stream(self, products: Iterable[Any], schema: Any, **settings: Any) -> Iterator[Any]:
        for number, text in enumerate(products):
            self.names = json.dumps([["Brand", "Panel", "Ports", "Curved"][number % 4]])
            yield from super().stream([text], schema, **settings)


def test_a_result_of_a_model_that_is_too_small_is_in_doubt() -> None:
    def one_brand(name: str, text: str) -> str | None:
        return by_pattern(name, text) if name == "Brand" else by_pattern(name, text[:24])

    found = discovered(TITLES, "monitors", Disagreeing([], one_brand))  # type: ignore[arg-type]
    assert found.doubt is not None
    assert "named by one list of 4 alone" in found.doubt
    assert found.doubt.endswith("name a larger model, or give more and longer samples")


def test_samples_are_drawn_always_the_same() -> None:
    model = Scripted(NAMES, by_pattern)
    texts = (f"LG {n}-inch" for n in range(500))
    found = discovered(texts, "monitors", model, samples=10)  # type: ignore[arg-type]
    again = discovered((f"LG {n}-inch" for n in range(500)), "monitors", model, samples=10)  # type: ignore[arg-type]
    assert found.samples == 10
    assert found.attributes == again.attributes
    assert model.asked[:2] == model.asked[2:]
    assert "LG 0-inch" not in model.asked[0]


def test_lines_that_name_attributes_are_enough() -> None:
    """The model lists nothing and reads nothing: what is found is in the documents."""
    lines = "Acme {0}\nWeight: {0}.5 kg\n- Cordless: {1}\n* Colors = red, blue | Gears: 7\nNote: x"
    texts = [lines.format(n, ("yes", "no")[n % 2]) for n in range(8)]
    found = discovered(texts, "drills", Scripted([], lambda *_, **__: None))  # type: ignore[arg-type]
    assert {item.title: (item.kind, item.unit, item.lines) for item in found.attributes} == {
        "Weight": ("number", "kilogram", 8),
        "Cordless": ("yes or no", None, 8),
        "Colors": ("list", None, 8),
        "Gears": ("number", None, 8),
    }
    assert [item.coverage for item in found.attributes] == [0.0] * 4


def test_keys_of_records_are_no_attributes() -> None:
    records = [
        {"title": f"Drill {n}", "maker": "Acme", "body": f"Weight: {n} kg"} for n in range(4)
    ]
    found = discovered(records, "drills", Scripted([], lambda *_, **__: None))  # type: ignore[arg-type]
    assert [item.title for item in found.attributes] == ["Weight"]


def test_of_a_list_that_was_cut_off_the_whole_names_count() -> None:
    model = Scripted('["Brand", "Panel", "Scr', by_pattern, "length")
    found = discovered(TITLES, "monitors", model)  # type: ignore[arg-type]
    assert [item.title for item in found.attributes] == ["Brand", "Panel"]


# What goes wrong


@pytest.mark.parametrize(
    "names",
    ["null", "[]", '[""]', '["12", "!!", "a very long name of many words"]', '["Price"]', "{", "}"],
)
def test_nonsense_is_a_schema_error(names: str) -> None:
    with pytest.raises(SchemaError, match=r"^CityBikes: no attribute was found: .*larger model"):
        discovered(TITLES, "city bikes", Scripted(names, by_pattern))  # type: ignore[arg-type]


def test_values_that_no_document_holds_do_not_count() -> None:
    model = Scripted(["Brand", "Taste"], lambda name, _: "invented")
    with pytest.raises(SchemaError, match=r"the samples state none of the names .*Brand, Taste"):
        discovered(TITLES, "monitors", model)  # type: ignore[arg-type]


def test_a_random_model_ends_in_a_schema_error(backend: Tokenizer, tmp_path: Path) -> None:
    extractor = Extractor.from_pretrained(save_model(backend, tmp_path), device="cpu")
    with pytest.raises(SchemaError, match="no attribute was found"):
        discover(TITLES[:6], "monitors", extractor=extractor, max_attributes=4)


@pytest.mark.parametrize(
    ("products", "category", "settings", "error", "said"),
    [
        ([], "x", {}, InputError, "there are none"),
        ([3, ""], "x", {}, InputError, "empty"),
        ("text", "x", {}, InputError, "not a single str"),
        (["a"], " ", {}, ValueError, "category is empty"),
        (["a"], "x", {"max_attributes": 0}, ValueError, "max_attributes must be"),
        (["a"], "x", {"samples": 0}, ValueError, "samples must be"),
        (["a"], "x", {"model": "m"}, ValueError, "not both"),
    ],
)
def test_what_is_refused(
    products: Any, category: str, settings: Any, error: type[Exception], said: str
) -> None:
    model: Any = Scripted(NAMES, by_pattern)
    with pytest.raises(error, match=said):
        discover(products, category, extractor=model, **settings)


# Kinds


@pytest.mark.parametrize(
    ("values", "kind", "said"),
    [
        (["55-inch", '65"', "140 cm"], "number", {"type": ["number", "null"], "unit": "inch"}),
        (["12 oz", "8 Ounce"], "number", {"unit": "ounce"}),
        (["SPF 50", "SPF 30"], "number", {"type": ["integer", "null"]}),
        (["Pack of 6", "Pack of 12"], "number", {"type": ["integer", "null"]}),
        (["$12.50", "$8"], "number", {"unit": "USD"}),
        (["20 ct", "100 Count"], "number", {"type": ["integer", "null"]}),
        (["1.5", "2"], "number", {"type": ["number", "null"]}),
        (["yes", "no", "Yes"], "yes or no", {"type": ["boolean", "null"]}),
        (["Waterproof"], "yes or no", {}),
        (["4K", "8K", "1080p"], "text", {}),
        (["UN55KU6300", "QN65"], "text", {}),
        (["00123", "04455"], "text", {}),
        (["10 x 20 cm", "3 x 4 cm"], "text", {"examples": ["10 x 20 cm", "3 x 4 cm"]}),
        (["12 oz", "Pack of 6", "large"], "text", {}),
        (["HDMI, USB", "HDMI", "DP; VGA"], "list", {"examples": ["HDMI", "USB", "DP"]}),
        (["red", "Red", "blue"] * 3 + ["blue"], "choice", {"enum": ["red", "blue", None]}),
        (["red", "blue"], "text", {}),
    ],
)
def test_kinds_go_by_the_values(values: list[str], kind: str, said: dict[str, Any]) -> None:
    found, node = declared("Waterproof", values)
    assert found == kind
    assert {key: node.get(key) for key in said} == said


@given(st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=12), st.text(max_size=12))
def test_whatever_is_found_compiles(values: list[str], title: str) -> None:
    (candidate, *_) = candidates([["Size"]], [])
    assert candidate.title == "Size"
    _, node = declared(title or "x", values)
    document = {"title": "T", "type": "object", "properties": {"a": {**node, "title": "A"}}}
    assert AttrSchema.from_json_schema(document).model_fields.keys() == {"a"}


@given(st.lists(st.lists(st.text(max_size=50), max_size=4), max_size=4), st.lists(st.text()))
def test_any_names_and_texts_can_be_looked_at(lists: list[list[str]], texts: list[str]) -> None:
    for found in candidates(lists, texts):
        assert 0 < len(found.title) <= 40


# On the command line


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.chdir(tmp_path)
    model = Scripted(NAMES, by_pattern)
    monkeypatch.setattr(options, "load_extractor", lambda *_, **__: model)
    return lambda *args: CliRunner().invoke(app, ["discover", *args])


def test_the_command_writes_a_schema_and_a_report(run: Callable[..., Any], tmp_path: Path) -> None:
    path = jsonl(tmp_path / "in.jsonl", [{"id": n, "t": title} for n, title in enumerate(TITLES)])
    result = run(path, "--category", "monitor", "-o", "out.json", "--report", "report.json")
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    made = AttrSchema.from_json_schema((tmp_path / "out.json").read_text("utf-8"))
    assert "brand" in made.model_fields
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert report["samples"] == 20
    assert report["attributes"][0]["coverage"] == 1.0
    said = result.stderr.splitlines()
    assert said[0] == "note: a ready-made schema is near to this category: monitor"
    assert said[1].split()[-1] == "coverage"
    assert "left out: Maker, has always the values of Brand" in said
    shown = run(path, "--category", "monitor", "--samples", "8", "--max-attributes", "1")
    assert list(json.loads(shown.stdout)["properties"]) == ["brand"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--category", " "], "category is empty"),
        (["--category", "x", "-o", "nowhere/s.json"], "no folder nowhere"),
        (["--category", "x", "--text", "body"], "no column 'body'"),
        (["--category", "x", "--tokenizer", "t"], "requires --server"),
    ],
)
def test_bad_usage(run: Callable[..., Any], tmp_path: Path, options: list[str], said: str) -> None:
    path = jsonl(tmp_path / "in.jsonl", [{"t": "LG"}])
    refused(run(path, *options), said)


@pytest.mark.slow
def test_the_embedded_model_with_lines(tmp_path: Path) -> None:
    """It names nothing of use, but lines of the documents do."""
    texts = [f"Acme {n}\nWeight: {n}.5 kg\nCordless: yes" for n in range(1, 5)]
    embedded = Extractor.from_pretrained(resource_dir("embedded"), device="cpu")
    with pytest.warns(UserWarning, match="do not rely on what was found: 2 attributes"):
        schema = discover(texts, "cordless drills", extractor=embedded, max_attributes=4)
    assert {"weight", "cordless"} <= schema.model_fields.keys()
