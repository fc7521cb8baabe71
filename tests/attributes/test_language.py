"""The language of documents: declared by a class, a field or an option, and carried to readings."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any, Generic, TypeVar

import httpx
import pytest
from command_line import Run, computed, jsonl, refused, rows, stand_in_runner
from pydantic import BaseModel, RootModel
from serving import served
from typer.testing import CliRunner
from typing_extensions import TypedDict

from schemax import AttrSchema, Extractor, SchemaError, attr, load_schema
from schemax.attributes import Attribute, compile_attributes
from schemax.attributes.json_classes import declaration_of
from schemax.base.resources import resource_dir
from schemax.commands.cli import app
from schemax.commands.extract import Args
from schemax.compiler import compile_schema, load_codec
from schemax.extraction.declarations import in_language, read_schema
from schemax.extraction.labels import labelled_instance
from schemax.formats import get_format
from schemax.io.finished import read_run_record
from schemax.results import SlotText, build
from schemax.results.fields import part_of

T = TypeVar("T")


class Size(AttrSchema):
    width: float | None = None
    height: float | None = attr(language="en", default=None)


class French(AttrSchema, language="fr"):
    first: date | None = None


class Offer(AttrSchema, language="de"):
    price: float | None = None
    size: Size | None = None
    sold: French | None = None
    boxes: list[Size] = attr(language="fr", default_factory=list)
    weights: dict[str, float] = attr(default_factory=dict)


LANGUAGES = {
    "price": "de",
    "size.width": "de",
    "size.height": "en",
    "sold.first": "fr",
    "boxes": "fr",
    "boxes.width": "fr",
    "boxes.height": "en",
    "weights": "de",
    "weights.key": "de",
    "weights.value": "de",
}


def languages_of(schema: Any) -> dict[str, str | None]:
    """The language of every leaf, and of the leaves of items."""

    def below(attributes: tuple[Attribute, ...], around: str = "") -> dict[str, str | None]:
        found = {}
        for item in attributes:
            found[around + item.name] = item.language
            found |= below(item.fields, f"{around}{item.name}.")
        return found

    return below(compile_attributes(schema))


def read(schema: Any, document: str | None, **raws: str) -> Any:
    """The instance of slots of JSON. document: None if unknown."""
    attributes = compile_attributes(schema)
    slots = [SlotText(raws.get(item.name, "null"), "stop", 1, True) for item in attributes]
    texts = None if document is None else {"text": document}
    output = get_format("json")
    item = build(schema, attributes, slots, output, index=0, document_id=None, texts=texts)
    assert item.errors == ()
    return item.value


# --- declarations --------------------------------------------------------------------------------


def test_the_closest_declaration_counts() -> None:
    assert languages_of(Offer) == LANGUAGES


def test_subclasses_inherit_the_language_and_may_change_it() -> None:
    class Sale(Offer):
        until: date | None = None

    class Austrian(Sale, language="de-AT"):
        pass

    assert languages_of(Sale) == LANGUAGES | {"until": "de"}
    assert {languages_of(Austrian)[name] for name in ("price", "until")} == {"de-AT"}
    assert languages_of(Austrian)["sold.first"] == "fr"


def test_a_class_without_a_language_has_none() -> None:
    assert languages_of(Size) == {"width": None, "height": "en"}


def test_a_nested_field_passes_its_language_on() -> None:
    class Plain(BaseModel):
        at: date | None = None

    class Holder(BaseModel):
        plain: Plain | None = attr(language="fr")
        french: French | None = attr(language="de")

    assert languages_of(Holder) == {"plain.at": "fr", "french.first": "fr"}


def test_an_unknown_language_is_refused_where_it_is_named() -> None:
    with pytest.raises(SchemaError, match=r"^Wrong: unknown language 'german'; name "):

        class Wrong(AttrSchema, language="german"):
            pass

    class Inner(BaseModel):
        price: float | None = attr(language="xx")

    class Outer(BaseModel):
        inner: Inner | None = None

    with pytest.raises(SchemaError, match=r"^Outer\.inner\.price: unknown language 'xx'"):
        compile_attributes(Outer)


@pytest.mark.parametrize("language", ["xx", "", 7, ["de"], {"de": 1}])
def test_a_document_with_an_unknown_language_is_refused(language: Any) -> None:
    field = {"title": "Tea", "properties": {"price": {"type": "number", "language": language}}}
    root = {"title": "Tea", "language": language, "properties": {"price": {"type": "number"}}}
    for document, name in ((field, r"Tea\.price"), (root, "Tea")):
        with pytest.raises(SchemaError, match=f"^{name}: unknown language"):
            AttrSchema.from_json_schema({"type": "object", **document})


def test_examples_are_read_in_the_language() -> None:
    class German(AttrSchema, language="de"):
        pieces: int | None = attr(examples=["1.299"])
        litres: int | None = attr(examples=["1,299"])

    pieces, litres = compile_attributes(German)
    assert pieces.misfits == ()
    assert "1,299" in litres.misfits[0]


# --- documents of JSON Schema --------------------------------------------------------------------


def test_documents_say_the_language_at_the_root_and_at_properties() -> None:
    document = Offer.json_schema()
    assert document["language"] == "de"
    assert document["$defs"]["French"]["language"] == "fr"
    assert document["properties"]["boxes"]["language"] == "fr"
    assert "language" not in document["$defs"]["Size"]
    assert "language" not in Size.json_schema()


def test_documents_go_round() -> None:
    again = AttrSchema.from_json_schema(json.dumps(Offer.json_schema()))
    assert languages_of(again) == LANGUAGES
    assert languages_of(AttrSchema.from_json_schema(again.json_schema())) == LANGUAGES


def test_a_document_names_languages_anywhere() -> None:
    day = {"type": "string", "format": "date"}
    inner = {"type": "object", "properties": {"at": day}}
    document = {
        "title": "Trip",
        "type": "object",
        "language": "pt-BR",
        "properties": {
            "start": day,
            "end": {**day, "language": "en-US"},
            "stop": {**inner, "language": "de"},
            "stops": {"type": "array", "items": {**inner, "language": "fr"}},
            "same": {"$ref": "#/$defs/Same", "language": "it"},
            "named": {"$ref": "#/$defs/Named"},
        },
        "$defs": {"Same": inner, "Named": {**inner, "language": "es"}},
    }
    right = {
        "start": "pt-BR",
        "end": "en-US",
        "stop.at": "de",
        "stops": "pt-BR",
        "stops.at": "fr",
        "same.at": "it",
        "named.at": "es",
    }
    schema = AttrSchema.from_json_schema(document)
    assert languages_of(schema) == right
    assert languages_of(AttrSchema.from_json_schema(schema.json_schema())) == right
    assert languages_of(pickle.loads(pickle.dumps(schema))) == right


def test_a_union_at_the_root_has_a_language() -> None:
    class Cat(BaseModel):
        born: date

    class Dog(BaseModel):
        weight: float

    class Pet(AttrSchema, RootModel[Cat | Dog], language="de"):
        pass

    for schema in (Pet, AttrSchema.from_json_schema(declaration_of(Pet))):
        assert languages_of(schema) == {"kind": None, "born": "de", "weight": "de"}


# --- readings ------------------------------------------------------------------------------------


def test_values_are_read_in_the_language() -> None:
    item = read(
        Offer,
        "Preis 1.299, Breite 1,250; ab 03/04/2021",
        price="1.299",
        **{"size.width": '"1,250"', "sold.first": '"03/04/2021"'},
    )
    assert item.price == 1299
    assert item.size.width == 1.25
    assert item.sold.first == date(2021, 4, 3)


def test_without_a_language_nothing_changes() -> None:
    class Plain(AttrSchema):
        price: float | None = None
        sold: date | None = None

    item = read(Plain, "1.299 03/04/2021", price="1.299", sold='"03/04/2021"')
    assert item == Plain(price=1.299, sold=date(2021, 3, 4))


@pytest.mark.parametrize(
    ("raw", "document", "value"),
    [
        ("1.255", "Gewicht 1,255", 1.255),
        ("1.255", "Gewicht 1.255", 1255),
        ("-1.255", "Temperatur \u22121.255", -1255),
        ("1299.00", "Preis 1.299,00", 1299),
        ('"1.255,5"', "", 1255.5),
        ("1.255", None, 1.255),
    ],
)
def test_a_bare_number_of_no_document_is_one_of_json(
    raw: str, document: str | None, value: float
) -> None:
    assert read(Offer, document, price=raw).price == value


def test_labels_are_read_in_the_language_and_typed_labels_stay() -> None:
    def instance(label: str) -> Any:
        return labelled_instance("d", "offer", {"price": label}, Offer).price

    assert instance("1.299 \u20ac") == 1299
    assert instance("1,255") == 1.255
    assert instance("1.255") == 1.255


def test_units_near_by_are_read_in_the_language() -> None:
    class Parcel(AttrSchema, language="de"):
        weight: float | None = attr(unit="kg")

    assert read(Parcel, "wiegt 1.250 g", weight="1.250").weight == 1.25
    assert read(Parcel, "wiegt 1.250", weight="1.250").weight == 1250


def test_a_field_that_is_read_early_keeps_the_language() -> None:
    assert languages_of(part_of(Offer, "price")) == {"price": "de"}
    assert languages_of(part_of(Offer, "sold")) == {"sold.first": "fr"}


def test_the_model_is_not_shown_the_language() -> None:
    class Plain(AttrSchema, category="offer"):
        price: float | None = attr("The price", examples=["5"])

    class German(AttrSchema, category="offer", language="de"):
        price: float | None = attr("The price", examples=["5"])

    codec = load_codec(resource_dir("embedded"))
    plain, german = compile_schema(Plain, codec), compile_schema(German, codec)
    assert german.instruction == plain.instruction
    assert [slot.json_schema for slot in german.slots] == [s.json_schema for s in plain.slots]


# --- a language for schemas that are read by name ------------------------------------------------


@dataclass
class Flat:
    price: float | None = None


class Typed(TypedDict):
    price: float | None


class Plain(BaseModel):
    price: float | None = None
    again: Plain | None = attr(max_depth=1)


class Box(BaseModel, Generic[T]):
    price: T | None = None


class Either(RootModel[Plain | French]):
    pass


@pytest.mark.parametrize(
    "schema", [Flat, Typed, Plain, Box[float], Either, load_schema("tea")], ids=str
)
def test_a_language_for_any_class(schema: Any) -> None:
    before = languages_of(schema)
    assert in_language(schema, None) is schema
    assert languages_of(schema) == before
    assert in_language({"a": schema}, "de")["a"] is schema
    after = languages_of(schema)
    assert after == {
        name: "fr" if "first" in name else None if name == "kind" else "de" for name in before
    }
    assert languages_of(AttrSchema.from_json_schema(declaration_of(schema))) == after


DECLARATION = """
from datetime import date
from schemax import AttrSchema, attr

class Offer(AttrSchema):
    price: float | None = attr("Price", k_max=12)
    own: float | None = attr("Own", language="en", k_max=12)

class Day(AttrSchema, category="product"):
    available: date = attr("Available from", k_max=12)
"""
DOCUMENTS = [{"id": "a", "t": "1.299 1.299"}, {"id": "b", "t": "1,299 2,5"}]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    found = stand_in_runner(tmp_path, monkeypatch)
    (tmp_path / "shop.py").write_text(DECLARATION)
    jsonl(tmp_path / "in.jsonl", DOCUMENTS)
    return found


def values(path: Path) -> list[Any]:
    return [row["attributes"] for row in rows(path.read_text("utf-8"))]


def test_extract_takes_the_language(run: Run, tmp_path: Path) -> None:
    document = read_schema("shop.py:Offer").json_schema()
    (tmp_path / "offer.json").write_text(json.dumps(document))
    for spec in ("shop.py:Offer", "offer.json"):
        args = ("extract", spec, "in.jsonl", "-o", "out.jsonl", "-q")
        assert run(*args, "--language", "de").exit_code == 0
        assert values(tmp_path / "out.jsonl")[0] == {"price": 1299, "own": 1.299}
        assert values(tmp_path / "out.jsonl")[1]["price"] == 1.299
        assert run(*args).exit_code == 0
        assert values(tmp_path / "out.jsonl")[0] == {"price": 1.299, "own": 1.299}


def test_extract_takes_the_language_for_several_schemas(run: Run, tmp_path: Path) -> None:
    source = [{**record, "kind": kind} for record in DOCUMENTS for kind in ("A", "B")]
    jsonl(tmp_path / "in.jsonl", source)
    spec = "A=shop.py:Offer,B=shop.py:Offer"
    args = ("extract", spec, "in.jsonl", "-o", "out.jsonl", "--category", "kind", "--text", "t")
    assert run(*args, "--language", "de").exit_code == 0
    assert [row["price"] for row in values(tmp_path / "out.jsonl")] == [1299, 1299, 1.299, 1.299]


def test_ready_made_schemas_take_the_language(run: Run, tmp_path: Path) -> None:
    jsonl(tmp_path / "in.jsonl", [{"kind": "tea", "t": "Mint"}])
    args = ("extract", "auto", "in.jsonl", "-o", "out.jsonl", "--category", "kind")
    for more, language in (((), None), (("--language", "de"), "de")):
        assert run(*args, *more).exit_code == 0
        (document,) = read_run_record("out.jsonl").schemas.values()
        assert document.get("language") == language


@pytest.mark.slow
def test_an_unknown_language_is_bad_usage(run: Run) -> None:
    verbs = (
        ("extract", "shop.py:Offer", "in.jsonl"),
        ("trace", "shop.py:Offer", "text"),
        *((verb, "in.jsonl") for verb in ("evaluate", "calibrate", "fit")),
        ("train", "in.jsonl", "-o", "out"),
    )
    for verb in verbs:
        refused(run(*verb, "--language", "german"), "--language: unknown language 'german'")


def test_a_table_in_another_language_is_another_table(run: Run, tmp_path: Path) -> None:
    def done(*more: str) -> int:
        (tmp_path / "computed").unlink(missing_ok=True)
        assert run("extract", "shop.py:Offer", "in.jsonl", "-o", "out.jsonl", *more).exit_code == 0
        return (tmp_path / "computed").exists() and sum(computed(tmp_path).values())

    assert done() == 2
    assert done("--if-complete", "skip") == 0
    assert done("--reuse", "out.jsonl") == 0
    assert done("--reuse", "out.jsonl", "--language", "de") == 2
    assert values(tmp_path / "out.jsonl")[0]["price"] == 1299
    assert done("--if-complete", "skip", "--language", "de") == 0
    result = run(
        "extract", "shop.py:Offer", "in.jsonl", "-o", "out.jsonl", "--if-complete", "error"
    )
    assert result.exit_code == 2


def test_failed_rows_are_done_again_in_the_language(run: Run, tmp_path: Path) -> None:
    jsonl(tmp_path / "in.jsonl", [*DOCUMENTS, {"id": "c", "t": "hard 1.299 1.299"}])
    args = ("extract", "shop.py:Offer", "in.jsonl", "-o", "out.jsonl", "--max-errors", "1")
    assert run(*args, "--language", "de").exit_code == 0
    assert run("extract", "--retry-failed", "out.jsonl", "--format", "yaml").exit_code == 0
    assert values(tmp_path / "out.jsonl")[0]["price"] == 1299


PROGRAM = """
import pickle, sys
from schemax.attributes import compile_attributes
for task in pickle.load(sys.stdin.buffer):
    task.loaded()
    print(*(attribute.language for attribute in compile_attributes(task.schemas)))
"""


@pytest.mark.release
def test_another_process_reads_in_the_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an actor does, which imports the class of a module by name."""
    (tmp_path / "goods.py").write_text(DECLARATION)
    monkeypatch.syspath_prepend(tmp_path)
    schemas = [in_language(read_schema(spec), "de") for spec in ("goods:Offer", "tea")]
    reader = Args(model="embedded", language="de")
    sent = pickle.dumps([reader.task(schema, {"text": ["t"]}) for schema in schemas])
    there = subprocess.run(
        [sys.executable, "-c", PROGRAM], input=sent, cwd=tmp_path, capture_output=True
    )
    for schema, line in zip(schemas, there.stdout.decode().splitlines(), strict=True):
        assert line.split() == [item.language for item in compile_attributes(schema)]


# --- with a model --------------------------------------------------------------------------------

TEXT = "Twinings Green Tea, available from 03/04/2021"


@pytest.fixture
def days(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SCHEMAX_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "shop.py").write_text(DECLARATION)
    return tmp_path


def test_trace_takes_the_language(days: Path) -> None:
    for more, value in (((), "2021-03-04"), (("--language", "fr"), "2021-04-03")):
        result = CliRunner().invoke(app, ["trace", "shop.py:Day", TEXT, "--json", *more])
        assert json.loads(result.stdout)["row"]["attributes"] == {"available": value}


@pytest.mark.slow
def test_evaluate_takes_the_language(days: Path) -> None:
    """Labels are read in the language, as values are."""
    labels = ["2021-04-03", "03/04/2021"]
    examples = [
        {"category": "product", "text": TEXT, "attributes": {"available": label}, "id": str(n)}
        for n, label in enumerate(labels)
    ]
    jsonl(days / "gold.jsonl", examples)
    args = ["evaluate", "gold.jsonl", "--schemas", "shop.py:Day", "--json"]
    for more, right in (((), 1), (("--language", "fr"), 2)):
        result = CliRunner().invoke(app, [*args, *more])
        (scores,) = json.loads(result.stdout)
        assert scores["counts"]["vc"] == right


@pytest.mark.slow
def test_calibrate_takes_the_language(days: Path) -> None:
    (days / "model").mkdir()
    for file in Path(resource_dir("embedded")).iterdir():
        (days / "model" / file.name).symlink_to(file)
    (days / "model" / "calibration.json").unlink()
    row = {"category": "product", "text": TEXT, "attributes": {"available": "2021-04-03"}}
    jsonl(days / "gold.jsonl", [row] * 4)
    args = ["calibrate", "gold.jsonl", "--schemas", "shop.py:Day", "--model", "model"]
    for more, f1 in (((), "0.000"), (("--language", "fr"), "1.000")):
        result = CliRunner().invoke(app, [*args, *more])
        assert f1 in result.stdout.splitlines()[2], result.output


@pytest.mark.slow
def test_a_trained_model_keeps_the_language(days: Path, folder: Path) -> None:
    row = {"category": "product", "text": TEXT, "attributes": {"available": "03/04/2021"}}
    jsonl(days / "gold.jsonl", [row] * 2)
    args = ["train", "gold.jsonl", "--schemas", "shop.py:Day", "--model", str(folder)]
    more = ["-o", "out", "--steps", "1", "--held-out", "0", "--language", "fr"]
    result = CliRunner().invoke(app, [*args, *more])
    assert result.exit_code == 0, result.output
    assert languages_of(read_schema("out")) == {"available": "fr"}


@pytest.mark.slow
def test_the_server_takes_the_language_of_the_document() -> None:
    day = {"type": "string", "format": "date", "description": "Available from"}
    schema = {"title": "product", "type": "object", "properties": {"available": day}}
    schema["required"] = ["available"]
    model = Extractor.from_pretrained(resource_dir("embedded"), device="cpu")
    with served(model) as url:
        for language, value in ((None, "2021-03-04"), ("fr", "2021-04-03")):
            body = {"schema": {**schema, "language": language}, "documents": [TEXT]}
            (row,) = httpx.post(f"{url}/v1/extract", json=body).json()["rows"]
            assert row["attributes"] == {"available": value}
        wrong = httpx.post(
            f"{url}/v1/extract", json={**body, "schema": {**schema, "language": "x"}}
        )
        assert wrong.status_code in (400, 422)
        assert "unknown language 'x'" in wrong.text
