"""`schemax explain`, and how SCHEMA is found."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from command_line import SCHEMA, Run, refused

from schemax.attributes.ready_made import demonstrations_of


@pytest.mark.slow
def test_schemas_come_from_names_modules_and_files(run: Run, tmp_path: Path) -> None:
    document = {"title": "Lamp", "type": "object", "properties": {"watts": {"type": "number"}}}
    (tmp_path / "lamp.json").write_text(json.dumps(document))
    for schema, slot in (
        ("television", "screen_size"),
        ("breakfast-cereal", "flavor"),
        ("shop:Small", "resolution"),
        ("shop.py:Strict", "year"),
        ("lamp.json", "watts"),
    ):
        result = run("explain", schema, "--json")
        assert result.exit_code == 0, result.output
        assert slot in [one["name"] for one in json.loads(result.stdout)["slots"]]


def test_a_terminal_without_a_width_shows_the_list(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert "television" in run("schemas").stdout


def test_schemas_lists_what_is_ready_made(run: Run) -> None:
    result = run("schemas")
    assert result.exit_code == 0
    rows = {line.split()[0]: line.split()[-1] for line in result.stdout.splitlines()[2:] if line}
    assert rows["television"] == "9"
    assert rows["bedding"] == "16"


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
@pytest.mark.parametrize("decoding", ["isolated", "paper", "autoregressive"])
def test_explain_shows_the_contract(run: Run, format: str, decoding: str) -> None:
    result = run("explain", SCHEMA, "--format", format, "--decoding", decoding)
    assert result.exit_code == 0, result.output
    for part in ("Prompt", "Stop rule", "Who sees whom", "Steps", "At most", "Manufacturer"):
        assert part in result.stdout
    assert ("⟦brand, " in result.stdout) == (decoding != "autoregressive")
    assert ("«text 6»" in result.stdout) == (decoding == "paper")


def test_explain_gives_the_same_as_data(run: Run) -> None:
    contract = json.loads(run("explain", SCHEMA, "--json", "--text", "LG C3").stdout)
    assert [slot["k_max"] for slot in contract["slots"]] == [6, 3, 7]
    assert contract["steps"]["this"] == 7
    assert contract["steps"]["autoregressive"] > 16
    tokens = contract["tokens"]
    start = tokens["instruction"] + tokens["documents"] + tokens["opening"]
    for slot in contract["slots"]:
        assert slot["key_start"] == start
        assert slot["first_value"] == slot["key_end"] + 1 == start + slot["key_tokens"]


def test_explain_shows_waves(run: Run, tmp_path: Path) -> None:
    fields = {
        "price": {"type": "number"},
        "currency": {"type": "string"},
        "size": {"type": "number"},
        "size unit": {"enum": ["cm", "in"]},
        "reason": {"type": "string"},
        "verdict": {"type": "boolean"},
    }
    path = tmp_path / "offer.json"
    path.write_text(json.dumps({"title": "Offer", "type": "object", "properties": fields}))
    contract = json.loads(run("explain", path.name, "--json").stdout)
    assert contract["waves"] == contract["warnings"] == []
    fields["currency"]["after"] = "price"
    fields["size unit"]["after"] = ["size", "currency"]
    fields["verdict"]["after"] = "reason"
    path.write_text(json.dumps({"title": "Offer", "type": "object", "properties": fields}))
    contract = json.loads(run("explain", path.name, "--json").stdout)
    assert contract["warnings"] == []
    names = [[field["name"] for field in wave] for wave in contract["waves"]]
    assert names == [["price", "size", "reason"], ["currency", "verdict"], ["size_unit"]]
    k_max = {slot["name"]: slot["k_max"] for slot in contract["slots"]}
    assert contract["steps"]["this"] == sum(max(k_max[n] for n in wave) for wave in names)
    text = run("explain", path.name).stdout
    assert '"price": ⟦price⟧,\n  "currency":⟦currency, ' in text
    assert "3: size_unit [currency, size]" in text


def test_explain_shows_the_gaps_of_the_paper(run: Run) -> None:
    contract = json.loads(run("explain", SCHEMA, "--json", "--decoding", "paper").stdout)
    first, second, _ = contract["slots"]
    assert [slot["k_max"] for slot in contract["slots"]] == [6, 3, 7]
    assert second["key_start"] == first["key_end"] + first["k_max"] + 1
    assert contract["stop"]["rule"] == "at the end of the line"


def seen(run: Run, decoding: str) -> dict[str, set[str]]:
    picture = json.loads(run("explain", SCHEMA, "--json", "--decoding", decoding).stdout)["picture"]
    labels = picture["labels"]
    return {
        label: {other for other, sees in zip(labels, row, strict=True) if sees}
        for label, row in zip(labels, picture["sees"], strict=True)
    }


def test_the_picture_follows_the_rule(run: Run) -> None:
    isolated = seen(run, "isolated")
    assert isolated["v2.2"] == {"I", "D", "S", "k2", "v2.1", "v2.2"}
    paper = seen(run, "paper")
    prompt = {"I", "D1", "D2", "S"}
    assert paper["ka2"] == {*prompt, "ka1", "ka2"}
    assert paper["va2.1"] == {*prompt, "ka1", "va1.1", "ka2", "va2.1"}
    assert seen(run, "autoregressive")["w2"] == {"I", "D", "S", "w1", "w2"}


def test_explain_needs_no_weights(run: Run, model: Path, tmp_path: Path) -> None:
    shutil.copy(model / "tokenizer.json", tmp_path)
    for place in (".", "tokenizer.json"):
        assert run("explain", SCHEMA, "--tokenizer", place).exit_code == 0
    refused(run("explain", SCHEMA, "--tokenizer", ".", "--model", "."), "not both")
    (tmp_path / "tokenizer.json").write_text("{}")
    refused(run("explain", SCHEMA, "--tokenizer", "."), "cannot be read")
    (tmp_path / "tokenizer.json").unlink()
    refused(run("explain", SCHEMA, "--model", "."), "tokenizer.json")


def test_explain_uses_the_prompt_that_a_model_brings(run: Run, model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "own")
    (tmp_path / "own" / "prompt.jinja").write_text("OWN\n{{ documents[0].text }}\n")
    own = json.loads(run("explain", SCHEMA, "--json", "-m", "own").stdout)
    assert own["prompt"].startswith("OWN\n«text»")
    named = json.loads(
        run("explain", SCHEMA, "--json", "-m", "own", "--template", "verbatim").stdout
    )
    assert "Rules:" in named["prompt"]
    assert own["sample"] == demonstrations_of("television")[0][0]  # by the category's name
    coffee = json.loads(run("explain", "coffee", "--json", "-m", "own").stdout)
    assert coffee["sample"] == demonstrations_of("coffee")[0][0]


def test_explain_shows_what_is_copied(run: Run, model: Path, tmp_path: Path) -> None:
    """By the call, else by the model's folder, whatever else the call asks for."""
    copies = "string, copied"
    folder = tmp_path / "copying"
    shutil.copytree(model, folder)
    (folder / "schemax.json").write_text('{"decoding": "isolated"}')
    assert copies not in run("explain", SCHEMA, "--model", folder).stdout
    asked = ("--decoding", "isolated:constrain=document")
    assert copies in run("explain", SCHEMA, "--model", folder, *asked).stdout
    (folder / "schemax.json").write_text('{"decoding": "isolated:constrain=document"}')
    for decoding, shown in (("isolated:k_max=4", True), ("isolated:constrain=types", False)):
        found = run("explain", SCHEMA, "--model", folder, "--decoding", decoding).stdout
        assert (copies in found) is shown


def test_explain_shows_which_items_are_copied(run: Run, tmp_path: Path) -> None:
    (tmp_path / "order.py").write_text(
        "from schemax import AttrSchema, attr\n"
        "class Line(AttrSchema):\n    item: str | None = None\n    count: int | None = None\n"
        "class Order(AttrSchema):\n    lines: list[Line]\n    names: list[str] = attr(long=True)\n"
    )
    asked = ("--decoding", "isolated:constrain=document", "--json")
    slots = json.loads(run("explain", "order.py:Order", *asked).stdout)["slots"]
    copied = {slot["name"]: slot["extractive"] for slot in slots}
    assert [copied[name] for name in ("lines.item", "names", "lines.count")] == [True, True, False]


def test_explain_refuses_what_extract_refuses(run: Run) -> None:
    refused(run("explain", SCHEMA, "--format", "toml"), "json, yaml, xml")
    refused(run("explain", SCHEMA, "--decoding", "fast"), "isolated, paper")
