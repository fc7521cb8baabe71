"""The doctor says whether a model runs, and is right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import tiny_model
from families import FAMILIES
from tokenizers import Tokenizer
from typer.testing import CliRunner

from schemax import Diagnosis, Extractor, ModelError, doctor
from schemax.base.resources import resource_dir
from schemax.commands.cli import app
from schemax.compiler import TextCodec
from schemax.evaluation.diagnosis.checks import tokenizer_checks


def run(*arguments: str) -> Any:
    return CliRunner().invoke(app, list(arguments))


def by_name(diagnosis: Diagnosis) -> dict[str, Any]:
    return {found.name: found for found in diagnosis.agreements}


@pytest.mark.slow
def test_every_way_to_decode_is_compared(codec: TextCodec) -> None:
    diagnosis = doctor(tiny_model("qwen3", codec.vocab_size), tokenizer=codec)
    found = by_name(diagnosis)
    assert diagnosis.ok, str(diagnosis)
    assert len(found) == 7
    assert all(item.exact and item.tokens == item.agreeing > 0 for item in found.values())
    assert found["branched, isolated, independent"].oracle == "plain requests"
    assert found["branched, isolated, independent"].like_plain == 1.0
    assert found["gapped, stacked, causal"].like_plain < 1.0
    assert diagnosis.recommended["decoding"] == "isolated"
    assert json.loads(json.dumps(diagnosis.to_dict()))["ok"] is True


@pytest.mark.slow
def test_facts_about_the_model(codec: TextCodec) -> None:
    model = FAMILIES["gemma2"].model(codec.vocab_size)
    facts = {fact.name: fact.found for fact in doctor(model, tokenizer=codec).facts}
    assert facts["layers"] == "1 sliding_attention, 1 full_attention"
    assert facts["attention heads"] == "GQA 4/2"
    assert facts["positions"] == "rotary; context 4096"
    assert facts["attention backend"].startswith("eager")
    assert "read as text" in facts["special tokens in text"]
    assert "products in bfloat16 take " in facts["processor"]
    assert facts["dtype auto"] == "float32: exact; the model's schemax.json names no other"


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ("<a><final>", "answers begin behind '</u><a><final>'"),
        ("{{ raise('no') }}", "shows no answer: behind '</u><a>' the model may think first"),
    ],
)
def test_the_opening_of_answers_is_told(backend: Tokenizer, answer: str, told: str) -> None:
    chat = (
        "{% for m in messages %}{% if m.role == 'user' %}<u>{{ m.content }}</u>{% else %}"
        f"{answer}{{{{ m.content }}}}{{% endif %}}{{% endfor %}}<a>"
    )
    codec = TextCodec(backend, chat_template=chat)
    facts = {fact.name: fact.found for fact in tokenizer_checks(codec)}
    assert told in facts["chat template"]


@pytest.mark.slow
def test_models_that_fork(codec: TextCodec) -> None:
    model = FAMILIES["jamba"].model(codec.vocab_size)
    diagnosis = doctor(model, tokenizer=codec)
    found = by_name(diagnosis)
    assert diagnosis.ok, str(diagnosis)
    assert found["branched, isolated, independent"].exact
    assert found["autoregressive"].exact
    assert "one row per slot" in found["gapped, stacked, causal"].refused
    assert "one row per slot" in str(diagnosis)


@pytest.mark.slow
def test_agreement_outside_float32(codec: TextCodec) -> None:
    model = tiny_model("qwen3", codec.vocab_size, initializer_range=0.1).to(torch.bfloat16)
    diagnosis = doctor(model, tokenizer=codec)
    assert all(found.exact is None for found in diagnosis.agreements)
    assert "agree" in str(diagnosis)


@pytest.mark.slow
def test_an_extractor_is_left_as_it_is(codec: TextCodec) -> None:
    model = tiny_model("llama", codec.vocab_size).to(torch.bfloat16)
    extractor = Extractor(model, codec, eos_ids=(0,))
    doctor(extractor)
    assert extractor.model.model.dtype == torch.bfloat16


@pytest.mark.slow
def test_a_named_model_is_examined_in_float32(tmp_path: Path, backend: Tokenizer) -> None:
    folder = tmp_path / "model"
    tiny_model("qwen3", 512).to(torch.bfloat16).save_pretrained(folder)
    backend.save(str(folder / "tokenizer.json"))
    diagnosis = doctor(folder, dtype="bfloat16")
    assert all(found.exact for found in diagnosis.agreements), str(diagnosis)
    assert diagnosis.recommended["dtype"] == "bfloat16"


def test_wrong_arguments(codec: TextCodec) -> None:
    with pytest.raises(ModelError, match="without its tokenizer"):
        doctor(tiny_model("qwen3", codec.vocab_size))


@pytest.mark.slow
def test_command_line() -> None:
    done = run("doctor", str(resource_dir("embedded")))
    assert done.exit_code == 0, done.output
    assert "ready" in done.stdout
    assert "exact" in done.stdout
    assert "WRONG" not in done.stdout


def test_command_line_as_json(tmp_path: Path, backend: Tokenizer) -> None:
    """A model without an exact way to decode: exit status 1, and the reason."""
    folder = tmp_path / "model"
    FAMILIES["recurrent_gemma"].model(512).save_pretrained(folder)
    backend.save(str(folder / "tokenizer.json"))
    done = run("doctor", str(folder), "--json")
    assert done.exit_code == 1, done.output
    found = json.loads(done.stdout)
    assert not found["ok"]
    assert "keeps what it has read to itself" in found["problems"][0]


def test_command_line_without_a_model(tmp_path: Path) -> None:
    done = run("doctor", str(tmp_path / "nowhere"))
    assert done.exit_code == 2
    assert "nowhere" in done.stderr
