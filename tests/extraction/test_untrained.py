"""How models that schemax did not train are decoded where nobody says how."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from command_line import Run, runner
from conftest import tiny_model

from schemax import AttrSchema, DecodingConfig, Extractor, attr, load_schema
from schemax.attributes.ready_made import demonstrations_of
from schemax.compiler import TextCodec
from schemax.compiler.prompt import Conversation, template_source
from schemax.config import PRESETS, resolve_decoding
from schemax.extraction.defaults import as_untrained
from schemax.extraction.prompt_file import PromptFile
from schemax.io.task import Task


class Shoe(AttrSchema):
    brand: str | None = None
    told: str | None = attr(extractive=False)


@pytest.fixture(scope="module")
def extractor(backend: tokenizers.Tokenizer) -> Extractor:
    return Extractor(tiny_model("qwen3", backend.get_vocab_size()), backend)


def copied(extractor: Extractor, schema: type[Any] = Shoe, **settings: Any) -> list[bool]:
    """Field by field, whether its texts have to stand in the document."""
    compiled = extractor.compile(schema, **settings)
    return [spec.copying is not None for spec in compiled.slots]


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
def test_texts_are_copied(extractor: Extractor, format: str) -> None:
    assert copied(extractor, format=format) == [True, False]
    for template in ("verbatim", template_source("verbatim")):
        assert copied(extractor, format=format, template=template) == [True, False]
    assert copied(extractor, decoding="isolated:layout=gapped") == [True, False]
    assert copied(extractor, format=format, template=Conversation()) == [True, False]


@pytest.mark.parametrize(
    "settings",
    [
        {"decoding": "isolated:constrain=types"},
        {"decoding": "isolated:constrain=nothing"},
        {"decoding": "paper"},
        {"template": "standard"},
        {"template": "generic"},
        {"template": "{{ documents[0].text }}\n"},
    ],
)
def test_what_switches_it_off(extractor: Extractor, settings: dict[str, Any]) -> None:
    assert not any(copied(extractor, **settings))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, True),
        ({"template": "verbatim"}, True),
        ({"config": resolve_decoding("isolated:layout=gapped")}, True),
        ({"template": "standard"}, None),
        ({"template": Conversation()}, False),
        ({"config": resolve_decoding("isolated:constrain=nothing")}, None),
        ({"config": resolve_decoding("isolated:contextual_calibration=false")}, False),
    ],
)
def test_choices_are_scored_without_what_the_prompt_makes_likely(
    extractor: Extractor, settings: dict[str, Any], expected: bool | None
) -> None:
    config, _ = extractor.defaults.decoding_and_template(Shoe, **settings)
    assert config.contextual_calibration is expected


def test_a_class_with_a_template_of_its_own(extractor: Extractor) -> None:
    class Note(AttrSchema, template="generic"):
        title: str | None = None

    assert not any(copied(extractor, Note))
    assert all(copied(extractor, Note, template="verbatim"))


def test_autoregressive_outputs_are_as_before() -> None:
    config = PRESETS["autoregressive"]
    assert as_untrained(config, "verbatim") is config


def test_models_with_a_prompt_of_their_own(folder: Path) -> None:
    extractor = Extractor.from_pretrained(folder)
    assert copied(extractor) == [True, False]
    assert copied(extractor.with_prompt(PromptFile(decoding=DecodingConfig()))) == [True, False]
    free = PromptFile(decoding=DecodingConfig(constrain="types"))
    assert not any(copied(extractor.with_prompt(free)))
    (folder / "prompt.jinja").write_text(template_source("verbatim"))
    assert not any(copied(Extractor.from_pretrained(folder)))


def test_runs_know_it(extractor: Extractor) -> None:
    def told(schemas: Any, **options: Any) -> Any:
        task = Task(schemas, options, lambda: extractor, None)  # type: ignore[arg-type]
        return task.model_fingerprint(extractor)["decoding constrain"]

    class Note(AttrSchema, template="generic"):
        title: str | None = None

    off = resolve_decoding("isolated:constrain=types")
    assert told(Shoe) == "document"
    assert told(Shoe, template="standard") is None
    assert told(Shoe, decoding=off) == "types"
    assert told({"shoe": Shoe, "note": Note}) == {"shoe": "document", "note": None}


@pytest.fixture
def run(tmp_path: Path, saved_model: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(tmp_path, saved_model, monkeypatch)


def test_explain_shows_what_a_model_gets_that_nobody_named_anything_for(
    run: Run, folder: Path
) -> None:
    def explained(*options: Any) -> Any:
        return json.loads(run("explain", "shoes", "--json", "--model", folder, *options).stdout)

    texts = [text for text, _ in demonstrations_of("shoes")]
    shown = explained()
    assert shown["decoding"]["constrain"] == "document"
    assert any(slot["extractive"] for slot in shown["slots"])
    places = [shown["prompt"].index(text) for text in texts]
    assert places == sorted(places)
    assert places[-1] < shown["prompt"].index("«text»")
    none = explained("--examples", "none", "--decoding", "isolated:constrain=types")
    assert none["decoding"]["constrain"] == "types"
    assert not any(text in none["prompt"] for text in texts)
    (folder / "schemax.json").write_text('{"format": "json"}')
    trained = explained()
    assert trained["decoding"]["constrain"] is None
    assert not any(text in trained["prompt"] for text in texts)


CHAT = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% endfor %}<|assistant|>"


class Flute(AttrSchema, category="nose flute"):
    """Nobody has demonstrations of it."""

    maker: str | None = None
    key: str | None = None


@pytest.fixture(scope="module")
def chatting(backend: tokenizers.Tokenizer) -> Extractor:
    codec = TextCodec(backend, chat_template=CHAT)
    return Extractor(tiny_model("qwen3", codec.vocab_size), codec, eos_ids=codec.eos_ids or (0,))


@pytest.mark.parametrize(
    ("format", "first", "last"),
    [
        ("json", '"maker": "Wellbrook",', "}"),
        ("yaml", "maker: Wellbrook", "warranty: null"),
        ("xml", "<maker> Wellbrook</maker>", "</result>"),
    ],
)
def test_a_demonstration_of_another_category(
    chatting: Extractor, format: str, first: str, last: str
) -> None:
    """In turns of its own, with attributes of its own, written as the format writes them."""
    compiled = chatting.compile(Flute, format=format)
    (asks, question), (answers, output) = compiled.prompt.chat.turns
    assert (asks, answers) == ("<|user|>", "<|assistant|>")
    assert "garden hose" in question
    assert "- warranty" in question
    assert f"Answer in {format.upper()}." in question
    assert "nose flute" not in question
    assert first in output
    assert output.endswith(last)
    assert "nose flute" in compiled.prompt.instruction
    assert "Wellbrook" not in compiled.prompt.instruction


@pytest.mark.parametrize(
    "settings",
    [
        {"examples": ()},
        {"examples": [("A flute by Hall", {"maker": "Hall"})]},
        {"template": "generic"},
        {"decoding": "paper"},
        {"decoding": "autoregressive"},
    ],
)
def test_where_it_is_not_shown(chatting: Extractor, settings: dict[str, Any]) -> None:
    compiled = chatting.compile(Flute, **settings)
    assert not any("hose" in text for _, text in compiled.prompt.chat.turns)
    assert "hose" not in compiled.prompt.instruction


def test_who_is_not_shown_it(
    chatting: Extractor, extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models without turns, schemas with demonstrations, and models with a prompt."""
    assert not extractor.compile(Flute).prompt.chat.turns
    shown = chatting.compile(load_schema("shoes")).prompt.chat.turns
    assert shown
    assert not any("hose" in text for _, text in shown)
    trained = replace(chatting.defaults, is_trained=True)
    monkeypatch.setattr(chatting, "defaults", trained)
    assert not chatting.compile(Flute).prompt.chat.turns
