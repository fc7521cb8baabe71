"""`schemax check`: all that is wrong with declarations, at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Run, refused, runner

FAULTY = """
from typing import Any, Literal
from dataclasses import dataclass
from pydantic import BaseModel
from typing_extensions import TypedDict
from schemax import attr

class Inner(BaseModel):
    bad: Any
    fine: str

class Outer(BaseModel):
    name: str
    sizes: dict[str, Any]
    inner: Inner
    brand: str = attr(k_max=0)

@dataclass
class Fine:
    a: str

class Noted(TypedDict):
    b: list[Any]
"""


@pytest.fixture
def run(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    (tmp_path / "faulty.py").write_text(FAULTY)
    return runner(tmp_path, model, monkeypatch)


@pytest.mark.parametrize("where", ["faulty.py", "faulty"])
def test_every_fault_of_every_class_is_named(run: Run, where: str) -> None:
    result = run("check", where)
    assert result.exit_code == 1, result.output
    lines = [line.partition(": ") for line in result.stdout.splitlines()]
    assert [(place, said.partition(":")[0]) for place, _, said in lines] == [
        ("faulty.py:9", "Inner.bad"),
        ("faulty.py:14", "Outer.sizes"),
        ("faulty.py:15", "Outer.inner.bad"),
        ("faulty.py:16", "Outer.brand"),
        ("faulty.py:23", "Noted.b"),
    ]
    assert "declarations: 4, refusals: 5, warnings: 0" in result.stderr


def test_faults_of_types_do_not_hide_those_of_after(run: Run, tmp_path: Path) -> None:
    fields = {
        "a": "list",
        "b": "str | None = attr(after='absent')",
        "c": "str | None = attr(after='d')",
        "d": "str | None = attr(after='c')",
        "e": "str | None = attr(after='a')",
    }
    lines = ["from schemax import AttrSchema, attr", "class Order(AttrSchema):"]
    lines += [f"    {name}: {declared}" for name, declared in fields.items()]
    (tmp_path / "order.py").write_text("\n".join(lines))
    found = run("check", "order.py").stdout.splitlines()
    assert [line.split(": ")[1] for line in found] == ["Order.a", "Order.b", "Order.c"]
    assert "'absent'" in found[1]
    assert "circle" in found[2]


def test_classes_that_are_unions_are_declarations(run: Run, tmp_path: Path) -> None:
    """Others without named fields are types of fields."""
    (tmp_path / "reach.py").write_text(
        "from pydantic import BaseModel, RootModel\n"
        "class Email(BaseModel):\n    address: str | None = None\n"
        "class Phone(BaseModel):\n    number: str | None = None\n"
        "class Reach(RootModel[Email | Phone]): pass\n"
        "class Tags(RootModel[list[str]]): pass\n"
    )
    result = run("check", "reach.py")
    assert "declarations: 3, refusals: 0, warnings: 0" in result.stderr


def test_findings_as_data(run: Run) -> None:
    result = run("check", "faulty.py:Inner", "--json", "--format", "xml", "--format", "yaml")
    assert result.exit_code == 1
    assert json.loads(result.stdout) == {
        "checked": ["Inner"],
        "findings": [
            {
                "level": "refusal",
                "schema": "Inner",
                "field": "bad",
                "place": "faulty.py:9",
                "reason": "Any says nothing about the value; name its type, such as str",
                "formats": [],
            }
        ],
    }


def test_documents_and_folders_of_them(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "schemas"
    (folder / "more").mkdir(parents=True)
    text = {"type": "string"}
    wrong = {"a": {"type": "strin"}, "b": {**text, "minLenght": 3}, "c": {"type": "object"}}
    document = {"title": "Wrong", "type": "object", "properties": {**wrong, "d": text}}
    (folder / "wrong.json").write_text(json.dumps(document))
    (folder / "broken.json").write_text("{")
    (folder / "more" / "fine.json").write_text(json.dumps({"properties": {"d": text}}))
    result = run("check", "schemas", "--json")
    assert result.exit_code == 1, result.output
    found = json.loads(result.stdout)
    assert found["checked"] == ["broken", "fine", "wrong"]
    places = [(Path(one["place"]).name, one["field"]) for one in found["findings"]]
    assert places[:4] == [
        ("broken.json", None), ("wrong.json", "a"), ("wrong.json", "b"), ("wrong.json", "c")
    ]  # fmt: skip
    assert run("check", "schemas/more/fine.json").exit_code == 0


def test_what_is_found_where_it_is_compiled(run: Run, tmp_path: Path) -> None:
    """Two keys that look the same in one format, though their names differ."""
    properties = {"a b": {"type": "string"}, "a-b": {"type": "string"}}
    (tmp_path / "same.json").write_text(json.dumps({"title": "Same", "properties": properties}))
    result = run("check", "same.json", "--json", "--format", "json", "--format", "xml")
    findings = json.loads(result.stdout)["findings"]
    refusals = [one["formats"] for one in findings if one["level"] == "refusal"]
    assert (result.exit_code, refusals) == (1, [["xml"]])


MISFITS = """
from datetime import date
from typing import Literal
from schemax import AttrSchema, attr
from pydantic import field_validator

class Part(AttrSchema):
    width: float | None = attr(examples=[1.5, "wide"])

class Tv(AttrSchema):
    size: float = attr(examples=["55-Inch", 65, "big", -1], ge=0)
    resolution: Literal["4K", "8K"] | None = attr(examples=["4K", "4k"])
    ports: list[str] = attr(examples=["HDMI", ["USB", "HDMI"], ["USB"]], min_length=2)
    stock: int = attr(default=-1, ge=0)
    name: str = attr(examples=[55, "x" * 11], max_length=10)
    parts: list[Part] = []
    weights: dict[str, float] = attr(examples=[{"net": 1}, {"net": "light"}])
    pair: tuple[int, str] | None = attr(examples=[[1, "a"], ["a", 1]])
    released: date | None = attr(examples=["March 3, 2021", "soon"])
    smart: bool | None = attr(examples=["Yes", "smart"])
    code: int = attr(examples=["five"])

    @field_validator("code", mode="before")
    def _read(cls, code):
        return 5
"""


def test_examples_and_defaults_that_do_not_fit(run: Run, tmp_path: Path) -> None:
    (tmp_path / "misfits.py").write_text(MISFITS)
    result = run("check", "misfits.py:Tv", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["findings"]
    assert {one["level"] for one in found} == {"warning"}
    said = [
        (one["field"], one["place"], one["reason"].partition(" does not fit")[0]) for one in found
    ]
    assert said == [
        ("size", "misfits.py:11", "example 'big'"),
        ("size", "misfits.py:11", "example -1"),
        ("resolution", "misfits.py:12", "example '4k'"),
        ("ports", "misfits.py:13", "example ['USB']"),
        ("stock", "misfits.py:14", "default -1"),
        ("name", "misfits.py:15", "example 'xxxxxxxxxxx'"),
        ("parts.width", "misfits.py:16", "example 'wide'"),
        ("weights", "misfits.py:17", "example {'net': 'light'}"),
        ("pair", "misfits.py:18", "example ['a', 1]"),
        ("released", "misfits.py:19", "example 'soon'"),
        ("smart", "misfits.py:20", "example 'smart'"),
    ]
    assert "example 'wide' does not fit the field" in run("explain", "misfits.py:Tv").stdout
    text = {"type": "integer", "examples": [5, "large"], "minimum": 0}
    (tmp_path / "tv.json").write_text(json.dumps({"title": "Tv", "properties": {"size": text}}))
    line = run("check", "tv.json").stdout
    assert line.startswith("tv.json: warning: Tv.size: example 'large' does not fit the field")


def test_fine_declarations(run: Run) -> None:
    for where in ("shop.py", "shop:Small", "television"):
        result = run("check", where, "--format", "json", "--format", "yaml", "--format", "xml")
        assert result.exit_code == 0, result.output


def test_what_cannot_be_checked(run: Run, tmp_path: Path) -> None:
    refused(run("check", "absent.py"), "no such file: absent.py")
    refused(run("check", "absent_module"), "cannot import absent_module")
    (tmp_path / "typo.py").write_text("from schemax import attr\n\nattr('x', kmax=3)\n")
    refused(run("check", "typo.py"), "cannot import typo.py, line 3: TypeError: ")
    lines = ["from schemax import *", "class Tv(AttrSchema):", "    size: str = attr(pattern='(')"]
    (tmp_path / "pattern.py").write_text("\n".join(lines))
    reason = "pattern.py, line 2: field size: pattern '(' cannot be used: unclosed group; mend it"
    refused(run("check", "pattern.py"), reason)
    refused(run("explain", "pattern.py:Tv"), reason)
    refused(run("check", "absent.json"), "cannot read absent.json")
    refused(run("check", "json"), "declares nothing")
    refused(run("check", "shop.py", "--format", "toml"), "'toml'")
    refused(run("check", "shop.py", "--model", "x", "--tokenizer", "y"), "not both")
    (tmp_path / "empty").mkdir()
    refused(run("check", "empty"), "declares nothing")
