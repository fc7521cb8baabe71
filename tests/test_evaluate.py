"""`schemax evaluate`, on annotated products and on broken ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from conftest import tiny_model
from tokenizers import Tokenizer
from typer.testing import CliRunner

from schemax.cli import app
from schemax.compiler import TextCodec
from schemax.errors import InputError
from schemax.evaluation.examples import read_examples, schemas_of

ROWS = [
    {"id": "1", "category": "Tea", "text": "Tazo Zen 24 ct", "attributes": {"Brand": "Tazo"}},
    {"id": "2", "category": "Tea", "text": "Twinings", "attributes": {"Net content": "20"}},
    {"id": "3", "category": "Shoes", "text": "Crocs Clog", "attributes": {"Brand": "Crocs"}},
]


@pytest.fixture
def folder(codec: TextCodec, backend: Tokenizer, tmp_path: Path) -> Path:
    tiny_model("qwen3", codec.vocab_size).save_pretrained(tmp_path / "model")
    backend.save(str(tmp_path / "model" / "tokenizer.json"))
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"}
    (tmp_path / "model" / "tokenizer_config.json").write_text(json.dumps(config))
    return tmp_path / "model"


def test_all_settings_in_one_run(folder: Path, tmp_path: Path) -> None:
    data = tmp_path / "gold.jsonl"
    data.write_text("\n".join(map(json.dumps, ROWS)) + "\n")
    names = "isolated,paper,autoregressive"
    command = ["evaluate", str(data), "--model", str(folder), "--decoding", names]
    done = CliRunner().invoke(app, [*command, "--json"])
    assert done.exit_code == 0, done.output
    reports = json.loads(done.stdout)
    assert [report["decoding"] for report in reports] == names.split(",")
    for report in reports:
        assert 0 <= report["f1"] <= 1
        assert report["passes_per_product"] >= 1
        assert set(report["f1_by_category"]) == {"Tea", "Shoes"}
    shown = CliRunner().invoke(app, command)
    assert "3 products; Qwen3ForCausalLM" in shown.stdout


def test_schemas_hold_every_annotated_attribute(tmp_path: Path) -> None:
    data = tmp_path / "gold.jsonl"
    data.write_text("\n".join(map(json.dumps, ROWS)))
    schemas = schemas_of(read_examples(data))
    assert [f.title for f in schemas["Tea"].model_fields.values()] == ["Brand", "Net content"]


def test_broken_lines_are_named(tmp_path: Path) -> None:
    data = tmp_path / "gold.jsonl"
    data.write_text(json.dumps(ROWS[0]) + '\n{"text": 3}\n')
    with pytest.raises(InputError, match=r"line 2.*category"):
        read_examples(data)
    done = CliRunner().invoke(app, ["evaluate", str(data)])
    assert done.exit_code == 2
