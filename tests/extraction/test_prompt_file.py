"""`prompt.json`: read, written, refused; and what comes before what it says."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command_line import Run, jsonl, refused, rows

from schemax import AttrSchema, Extractor, attr
from schemax.base.calibration import Calibration
from schemax.config import DecodingConfig
from schemax.errors import InputError
from schemax.extraction.prompt_file import (
    Demonstration,
    PromptFile,
    read_prompt_file,
    write_prompt_file,
)

TEMPLATE = (
    "Mine: {% for example in examples %}{{ example.text }} => {{ example.output }}\n{% endfor %}"
    "{% for document in documents %}{{ document.text }}{% endfor %}\n"
)
SHOWN = Demonstration("television", "LG 4k", {"brand": "LG", "resolution": "4k", "smart": None})
PROMPT = PromptFile(
    template=TEMPLATE,
    format="json",
    decoding=DecodingConfig(constrain="document", temperature=1.5),
    demonstrations=(SHOWN, Demonstration("shoe", "Crocs", {"sole": ["rubber", "foam"]})),
    calibration=Calibration(1.5, -0.25, 0.3),
)


ROW = {"category": "television", "text": "LG 4k", "attributes": {"brand": "LG"}}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "prompt.json"
    write_prompt_file(PROMPT, path)
    return path


class Small(AttrSchema, category="Television", template="Class: {{ documents[0].text }}"):
    brand: str | None = attr("Manufacturer", k_max=4)
    smart: bool | None = attr(k_max=3)
    resolution: str | None = attr(k_max=4)


class Other(AttrSchema, category="zeppelin"):
    """Of a category without demonstrations; as a television, it has those of the file."""

    brand: str | None = None
    smart: bool | None = None
    resolution: str | None = None


def test_a_file_says_what_was_written(tmp_path: Path) -> None:
    path = tmp_path / "prompt.json"
    for prompt in (PROMPT, PromptFile(), PromptFile(demonstrations=(SHOWN,))):
        write_prompt_file(prompt, path)
        assert read_prompt_file(path) == replace(prompt, source=str(path))
    assert [one.name for one in tmp_path.iterdir()] == ["prompt.json"]
    assert read_prompt_file(PROMPT) is PROMPT


def test_people_may_edit_a_file(file: Path) -> None:
    """With a byte-order mark, without what need not be said, with numbers and other titles."""
    shown = {"category": "television", "text": "LG", "attributes": {"BRAND": "LG", "smart": True}}
    file.write_text(json.dumps({"demonstrations": [shown]}), "utf-8-sig")
    read = read_prompt_file(file)
    assert read.demonstrations[0].attributes == {"BRAND": "LG", "smart": True}
    assert (read.template, read.format, read.decoding, read.calibration) == (None,) * 4


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("", "Invalid JSON"),
        ("[" * 99_999, "Invalid JSON"),
        ("\xff", "not a prompt file"),
        ([], "should be an object"),
        ({"demonstation": []}, "demonstation: Extra inputs"),
        ({"template": 3}, "template: Input should be a valid string"),
        ({"format": []}, "format: Input should be a valid string"),
        ({"decoding": "issolated"}, "decoding: decoding must be one of"),
        ({"decoding": "isolated:temperature=1e9"}, "temperature"),
        ({"decoding": {}}, "decoding: Input should be a valid string"),
        ({"calibration": {"temperature": 0}}, "calibration: temperature must be above 0"),
        ({"calibration": {"temperature": float("nan")}}, "calibration"),
        ({"calibration": {"temperature": "2"}}, "calibration.temperature: Input"),
        ({"decoding": "isolated:warmth=1"}, "warmth"),
        ({"calibration": {"warmth": 1}}, "calibration.warmth: Unexpected"),
        ({"calibration": 1}, "calibration: Input should be an object"),
        ({"demonstrations": {}}, "demonstrations: Input should be a valid array"),
        ({"format": "toml"}, "format: unknown format 'toml'"),
        ({"template": "{{"}, "template, line 1: unexpected 'end of template'"),
        ({"demonstrations": [1]}, "demonstrations.0: Input should be an object"),
        (
            {"demonstrations": [{"text": "x", "attributes": {}}]},
            "demonstrations.0.category: Field",
        ),
        (
            {"demonstrations": [{"category": "x", "attributes": {}}]},
            "demonstrations.0.text: Field",
        ),
        (
            {"demonstrations": [{"category": "x", "text": "x"}]},
            "demonstrations.0.attributes: Field",
        ),
        (
            {"demonstrations": [{"category": "x", "text": 1, "attributes": {}}]},
            "demonstrations.0.text: Input should be a valid string",
        ),
        (
            {"demonstrations": [{"category": "x", "text": "x", "attributes": {}, "code": 1}]},
            "demonstrations.0.code: Unexpected",
        ),
    ],
    ids=lambda value: str(value)[:40],
)
def test_damaged_files_are_refused_with_file_and_key(file: Path, written: Any, said: str) -> None:
    text = written if isinstance(written, str) else json.dumps(written)
    file.write_text(text, "latin-1")
    with pytest.raises(InputError) as caught:
        read_prompt_file(file)
    assert str(file) in str(caught.value)
    assert said in str(caught.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.json", tmp_path):
        with pytest.raises(InputError, match=f"cannot read {path}"):
            read_prompt_file(path)


def test_a_template_of_one_line_is_no_name_and_no_path(file: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret {{ documents[0].text }}")
    for name in ("standard", str(tmp_path / "secret")):
        file.write_text(json.dumps({"template": name}))
        assert read_prompt_file(file).template == f"{name}\n"


def test_code_in_a_template_meets_the_sandbox(run: Run, tmp_path: Path, file: Path) -> None:
    text = "{{ documents.__class__.__mro__ }}{{ documents[0].text }}\n"
    file.write_text(json.dumps({"template": text}))
    refused(run("explain", "shop.py:Small", "--prompt", str(file)), "template")


def test_what_a_file_says_is_used(run: Run, tmp_path: Path, file: Path) -> None:
    shown = run("explain", "shop.py:Small", "--prompt", str(file))
    assert shown.exit_code == 0, shown.output
    assert 'Mine: LG 4k => {\n  "brand": "LG",\n  "smart": null,\n  "resolution": "4K"\n}' in (
        shown.stdout
    )
    assert "copied" in shown.stdout  # extractive
    assert "Crocs" not in shown.stdout
    source = jsonl(tmp_path / "in.jsonl", [{"t": "Sony", "category": "tv"}])
    args = (source, "--prompt", str(file), "--category", "category")
    for schema in ("shop.py:Small", "tv=shop.py:Small,TELEVISION=shop.py:Small"):
        result = run("extract", schema, *args)
        assert result.exit_code == 0, result.output
        assert set(rows(result.stdout)[0]["attributes"]) == {"brand", "smart", "resolution"}


def test_what_is_named_comes_first(run: Run, tmp_path: Path, file: Path) -> None:
    other = jsonl(
        tmp_path / "shots.jsonl",
        [{"category": "television", "text": "Sony", "attributes": {"brand": "Sony"}}],
    )
    explain = ("explain", "shop.py:Small", "--prompt", str(file))
    assert "Mine: Sony => " in run(*explain, "--examples", other).stdout
    named = run(*explain, "--template", "standard").stdout
    assert "Mine" not in named
    assert "LG 4k" in named
    assert "copied" not in run(*explain, "--decoding", "isolated").stdout
    assert "brand: " in run(*explain, "--format", "yaml").stdout


@pytest.fixture
def load(model: Path) -> Callable[..., Extractor]:
    return lambda **settings: Extractor.from_pretrained(model, **settings)


def test_an_extractor_with_a_prompt(load: Callable[..., Extractor], file: Path) -> None:
    fitted = load(prompt=file)
    assert fitted.defaults.decoding == PROMPT.decoding
    assert fitted.defaults.calibration == PROMPT.calibration
    # Before what the class says, and after what the call says.
    assert fitted.defaults.named_template(Small) == TEMPLATE
    named = load(prompt=file, template="standard", decoding="isolated", format="yaml")
    assert named.defaults.named_template(Small) == Small.__schema_settings__["template"]
    assert named.defaults.decoding == DecodingConfig()
    assert named.compile(Small).format.name == "yaml"
    assert fitted.compile(Small).format.name == "json"
    plain = load()
    assert plain.with_prompt(PROMPT).defaults.decoding == PROMPT.decoding
    assert plain.with_prompt(PROMPT).model is plain.model
    assert plain.defaults.decoding == DecodingConfig()  # as it was


def test_an_extractor_takes_its_prompt_to_other_processes(
    load: Callable[..., Extractor], file: Path
) -> None:
    for fitted in (load(prompt=file), load().with_prompt(file)):
        sent = pickle.dumps(fitted)
        text = file.read_text()
        file.unlink()
        there = pickle.loads(sent)
        assert there.defaults.prompt == fitted.defaults.prompt
        assert there.defaults.calibration == PROMPT.calibration
        file.write_text(text)


def test_demonstrations_are_of_categories(load: Callable[..., Extractor]) -> None:
    fitted = load().with_prompt(PROMPT)
    for one in (Other, {"TELEVISION": Other, "other": Other}):
        with_them, none = (
            fitted.extractions([], one, examples=shown).compiled for shown in (None, ())
        )
        lengths, without = (
            [len(some.encode(["x"])[0].instruction) for some in found.values()]
            for found in (with_them, none)
        )
        assert (lengths[0] > without[0]) == isinstance(one, dict)
        assert lengths[1:] == without[1:]


@pytest.mark.parametrize(
    ("attributes", "said"),
    [
        ({"brnad": "LG"}, "no attribute 'brnad'"),
        ({"smart": "perhaps"}, "smart: "),
        ({"resolution": [["4K"]]}, "a list"),
    ],
    ids=str,
)
def test_a_demonstration_that_does_not_fit_is_refused_by_its_place(
    run: Run, tmp_path: Path, file: Path, attributes: dict[str, Any], said: str
) -> None:
    shown = [
        {"category": "television", "text": "LG", "attributes": {"brand": "LG"}},
        {"category": "television", "text": "LG", "attributes": attributes},
    ]
    file.write_text(json.dumps({"demonstrations": shown}))
    source = jsonl(tmp_path / "in.jsonl", ["LG"])
    for command in (("explain", "shop.py:Small"), ("extract", "shop.py:Small", source)):
        refused(run(*command, "--prompt", str(file)), "demonstrations[1] of", "prompt.json", said)


def test_evaluated_documents_are_not_shown(run: Run, tmp_path: Path) -> None:
    """Nor attributes that schemas made of the annotations do not ask for."""
    shown = [
        {"category": "Gadget", "text": text, "attributes": {"brand": text, "knobs": "3"}}
        for text in ("LG", "Sony")
    ]
    (tmp_path / "prompt.json").write_text(json.dumps({"demonstrations": shown}))
    row = {"category": "gadget", "text": "Sony", "attributes": {"brand": "Sony", "size": "8"}}
    labels = jsonl(tmp_path / "labels.jsonl", [row])
    result = run("evaluate", labels, "--prompt", "prompt.json")
    assert result.exit_code == 0, result.output
    assert f"also in {labels}, left out of the prompt: 1 document of prompt.json: " in result.stderr
    assert "demonstrations[1]" in result.stderr
    assert "annotated in prompt.json and not asked for: gadget > knobs" in result.stderr.casefold()
    schema = {"title": "gadget", "type": "object", "properties": {"brand": {"type": "string"}}}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    args = ("--prompt", "prompt.json", "--schemas", "schema.json")
    jsonl(tmp_path / "labels.jsonl", [row | {"text": "TCL", "attributes": {"brand": "TCL"}}])
    refused(run("evaluate", labels, *args), "demonstrations[0] of", "no attribute 'knobs'")


@pytest.mark.slow
def test_every_verb_that_reads_takes_a_prompt(run: Run, tmp_path: Path) -> None:
    for verb in ("extract", "serve", "evaluate", "explain", "calibrate", "trace"):
        assert "--prompt" in run(verb, "--help").stdout, verb
    (tmp_path / "bad.json").write_text("{")
    source = jsonl(tmp_path / "in.jsonl", ["LG"])
    labels = jsonl(tmp_path / "labels.jsonl", [ROW])
    for command in (
        ("extract", "shop.py:Small", source),
        ("evaluate", labels),
        ("trace", "shop.py:Small", "LG"),
        ("serve",),
        ("calibrate", labels, "--model", str(tmp_path.parent)),
    ):
        refused(run(*command, "--prompt", "bad.json"), "bad.json", "cannot be used")
