"""GGUF files: read as what they are, with what lies beside them; everything else is refused."""

from __future__ import annotations

import json
import math
import pickle
import random
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TITLES, Small
from gguf_files import write_gguf
from test_load import logits, make_lora
from tokenizers import Tokenizer
from typer.testing import CliRunner

from schemax import Extractor, ModelError, doctor
from schemax.commands.cli import app
from schemax.compiler import as_codec, compile_schema
from schemax.runtime.models.loading import load, load_tokenizer

pytest.importorskip("gguf")


@pytest.fixture(scope="module")
def made(backend: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    """A file, and the model that it was made of."""
    file = tmp_path_factory.mktemp("gguf") / "tiny.gguf"
    return file, write_gguf(backend, file)


@pytest.fixture
def own(made: tuple[Path, Any], tmp_path: Path) -> Path:
    """A copy to damage, or to lay files beside."""
    file = tmp_path / "own.gguf"
    file.write_bytes(made[0].read_bytes())
    return file


def refused(name: Path, *said: str) -> None:
    with pytest.raises(ModelError) as caught:
        Extractor.from_pretrained(name, device="cpu")
    for text in (name.name, *said):
        assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_and_a_folder_of_one(made: tuple[Path, Any], capfd: Any) -> None:
    file, model = made
    for name in (file, file.parent):
        found = Extractor.from_pretrained(name, device="cpu")
        assert torch.equal(logits(found.model.model), logits(model))
        assert found.model.dtype == torch.float32
        assert found.eos_ids == (0,)
    assert capfd.readouterr().err == ""
    assert load(file, device="cpu", dtype="bfloat16").model.dtype == torch.bfloat16


def test_the_tokenizer_is_the_files(made: tuple[Path, Any], backend: Tokenizer) -> None:
    found = load_tokenizer(made[0]).tokenizer
    for text in (*TITLES, "<|endoftext|>", "é 24\n"):
        assert found.encode(text) == backend.encode(text).ids


@pytest.mark.slow
def test_extraction_equals_that_of_a_folder(
    made: tuple[Path, Any], backend: Tokenizer, tmp_path: Path
) -> None:
    file, model = made
    model.save_pretrained(tmp_path)
    backend.save(str(tmp_path / "tokenizer.json"))
    options: dict[str, Any] = {"on_error": "null"}
    found = Extractor.from_pretrained(file, device="cpu")
    other = Extractor.from_pretrained(tmp_path, device="cpu")
    expected = other.extract(TITLES, Small, **options)
    assert found.extract(TITLES, Small, **options) == expected
    again = pickle.loads(pickle.dumps(found))
    assert again.extract(TITLES, Small, **options) == expected
    compiled = compile_schema(Small, found.tokenizer)
    assert compiled.encode(TITLES[:1])


def test_what_lies_beside_it(own: Path) -> None:
    (own.parent / "prompt.jinja").write_text("Mine: {{ documents[0].text }}\n")
    (own.parent / "schemax.json").write_text(json.dumps({"format": "yaml"}))
    (own.parent / "calibration.json").write_text("{}")
    # Of another model: nothing of them is read.
    (own.parent / "config.json").write_text('{"model_type": "abacus"}')
    (own.parent / "tokenizer_config.json").write_text('{"auto_map": {"AutoTokenizer": "a.B"}}')
    (own.parent / "generation_config.json").write_text('{"eos_token_id": 9}')
    found = Extractor.from_pretrained(own, device="cpu")
    assert found.defaults.template == "Mine: {{ documents[0].text }}\n"
    assert found.defaults.format == "yaml"
    assert found.eos_ids == (0,)


def test_a_folder_of_several(own: Path) -> None:
    (own.parent / "other.gguf").write_bytes(b"")
    refused(own.parent, "2 GGUF files (other.gguf, own.gguf)", "name one")


def test_it_is_saved_as_a_plain_model(made: tuple[Path, Any], tmp_path: Path) -> None:
    found = Extractor.from_pretrained(made[0], device="cpu")
    found.model.model.save_pretrained(tmp_path)
    found.tokenizer.save_pretrained(tmp_path)
    again = Extractor.from_pretrained(tmp_path, device="cpu")
    assert torch.equal(logits(again.model.model), logits(made[1]))
    assert "quantization_config" not in json.loads((tmp_path / "config.json").read_text())


def test_an_adapter_upon_it(made: tuple[Path, Any], tmp_path: Path) -> None:
    adapter = make_lora(made[0], tmp_path / "lora")
    tuned = Extractor.from_pretrained(adapter, device="cpu")  # it names the file as its base
    assert not torch.allclose(logits(tuned.model.model), logits(made[1]), atol=0.1)


@pytest.mark.slow
def test_the_doctor_and_explain(made: tuple[Path, Any], tmp_path: Path) -> None:
    diagnosis = doctor(made[0])
    assert diagnosis.ok
    assert all(found.exact for found in diagnosis.agreements), str(diagnosis)
    schema = tmp_path / "shop.py"
    schema.write_text("from schemax import AttrSchema\nclass A(AttrSchema):\n    brand: str\n")
    done = CliRunner().invoke(app, ["explain", f"{schema}:A", "--model", str(made[0]), "--json"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["slots"][0]["name"] == "brand"
    missing = CliRunner().invoke(app, ["explain", f"{schema}:A", "--model", "nowhere.gguf"])
    assert missing.exit_code == 2
    assert "there is no file nowhere.gguf" in missing.stderr


def test_a_path_is_no_tokenizer_folder(made: tuple[Path, Any]) -> None:
    with pytest.raises(ModelError, match=r"is a file; load it by .* give its \.tokenizer"):
        as_codec(made[0])


@pytest.mark.parametrize("package", ["gguf", "accelerate"])
def test_without_the_packages(
    made: tuple[Path, Any], package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    refused(made[0], package, "pip install '.[gguf]'")


def test_it_is_quantized_already(made: tuple[Path, Any]) -> None:
    with pytest.raises(ModelError, match="stored quantized already"):
        Extractor.from_pretrained(made[0], device="cpu", quantization="int8")


# RoPE scaling


LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
LONGROPE = {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.2, 1.3],
    "long_factor": [1.0, 2.0, 4.0, 8.0],
    "original_max_position_embeddings": 64,
    "attention_factor": 1.5,
    "factor": 1.0,
}


def llama3_factors(size: int) -> torch.Tensor:
    """What converters divide Llama 3's frequencies by."""
    frequencies = 1 / 10000 ** (torch.arange(0, size, 2) / size)
    waves = 64 * frequencies / (2 * math.pi)  # in the trained context
    smooth = ((waves - 1) / 3).clamp(0, 1)
    return 1 / ((1 - smooth) / 8 + smooth)


@pytest.mark.parametrize(
    ("rope", "stored"),
    [
        ({"rope_type": "linear", "factor": 4.0}, {"type": "linear", "factor": 4.0}),
        ({"rope_type": "linear", "factor": 4.0}, {"factor": 4.0}),
        (YARN, {"type": "yarn", "factor": 4.0, "original_context_length": 512, "finetuned": 1}),
        (
            {**YARN, "beta_fast": 16.0},
            {
                "type": "yarn",
                "factor": 4.0,
                "original_context_length": 512,
                "yarn_beta_fast": 16.0,
            },
        ),
        (LONGROPE, {"attn_factor": 1.5, "original_context_length": 64}),
        (LLAMA3, {}),
        ({}, {"type": "none", "factor": 4.0}),
        ({}, {"original_context_length": 512}),
    ],
)
def test_rope_scaling_is_that_of_the_file(
    rope: dict[str, Any], stored: dict[str, Any], backend: Tokenizer, tmp_path: Path
) -> None:
    tensors = {
        "longrope": {
            f"rope_factors_{kind}.weight": torch.tensor(LONGROPE[f"{kind}_factor"])
            for kind in ("long", "short")
        },
        "llama3": {"rope_freqs.weight": llama3_factors(8)},
    }.get(rope.get("rope_type", ""))
    entries = {f"rope__scaling__{key}": value for key, value in stored.items()}
    file = tmp_path / "scaled.gguf"
    model = write_gguf(backend, file, tensors=tensors, rope=rope, **entries)
    loaded = Extractor.from_pretrained(file, device="cpu").model.model
    for length in (24, 100):
        ids = torch.arange(length)[None] % 256
        with torch.inference_mode():
            torch.testing.assert_close(loaded(ids).logits, model(ids).logits, atol=1e-5, rtol=1e-4)


# Files that are refused


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"without": ("tokenizer",)}, ["holds no tokenizer"]),
        ({"without": ("blk.1.ffn_up.weight",)}, ["lack 1", "up_proj"]),
        ({"architecture": "abacus"}, ["abacus", "not supported"]),
        ({"architecture": "t5"}, ["t5"]),
        ({"split": 3}, ["one of 3 parts", "llama-gguf-split"]),
        ({"block_count": 2**31}, ["block_count", "2,147,483,648"]),
        ({"embedding_length": 2**31}, ["embedding_length"]),
        ({"feed_forward_length": 2**24}, ["cannot be right", "weights"]),
        ({"feed_forward_length": 64}, ["shape"]),
        ({"attention__head_count": 0}, []),
        ({"expert_count": 2**30}, ["expert_count"]),
        ({"tensors": {"blk.0.attn_q.bias": torch.ones(32)}}, ["no place", "attn_q.bias"]),
        ({"tensors": {"blk.1.ffn_up_exps.weight": torch.ones(2, 3, 4)}}, ["no place for 1"]),
        ({"rope__scaling__type": "abacus", "rope__scaling__factor": 2.0}, ["RoPE", "abacus"]),
        (
            {"rope__scaling__factor": 2.0, "rope__scaling__yarn_log_multiplier": 0.1},
            ["RoPE", "yarn_log_multiplier"],
        ),
        (
            {"rope__scaling__factor": 2.0, "tensors": {"rope_freqs.weight": torch.ones(4)}},
            ["RoPE", "factor"],
        ),
        ({"tensors": {"rope_factors_long.weight": torch.ones(4)}}, []),
        ({"tensors": {"rope_freqs.weight": torch.ones(5)}}, []),
    ],
)
def test_models_that_cannot_be(
    changes: dict[str, Any], said: list[str], backend: Tokenizer, tmp_path: Path
) -> None:
    file = tmp_path / "odd.gguf"
    write_gguf(backend, file, **changes)
    refused(file, *said)


@pytest.mark.parametrize(
    ("at", "value", "said"),
    [
        (0, b"PK\x03\x04", "does not begin with GGUF"),
        (4, struct.pack("<I", 99), "version 99"),
        (8, struct.pack("<Q", 2**60), "1,152,921,504,606,846,976 tensors"),
        (16, struct.pack("<Q", 2**60), "entries"),
        (16, struct.pack("<Q", 10_000), ""),
        (24, struct.pack("<Q", 2**62), "bytes of one text"),
    ],
)
def test_damaged_headers(own: Path, at: int, value: bytes, said: str) -> None:
    raw = bytearray(own.read_bytes())
    raw[at : at + len(value)] = value
    own.write_bytes(raw)
    refused(own, said)


def test_files_that_are_cut_short(own: Path) -> None:
    raw = own.read_bytes()
    for size in [0, 3, 4, 20, *range(24, len(raw), len(raw) // 40), len(raw) - 1]:
        own.write_bytes(raw[:size])
        refused(own)


def test_arrays_in_arrays(own: Path) -> None:
    """Readers follow them as deep as they go."""
    nested = struct.pack("<IQ", 9, 1) * 100_000
    entry = struct.pack("<Q", 1) + b"a" + struct.pack("<I", 9) + nested
    own.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 1, 1) + entry)
    refused(own, "array of the type 9")


def test_bytes_that_were_changed(own: Path) -> None:
    """A model, or one line that says what is wrong; nothing else, and nothing large."""
    raw, numbers = own.read_bytes(), random.Random(5)
    header = raw.index(b"blk.1.") + 2_000
    outcomes, said = set(), []
    for _ in range(60):
        damaged = bytearray(raw)
        for _ in range(3):
            damaged[numbers.randrange(header)] = numbers.randrange(256)
        own.write_bytes(damaged)
        try:
            Extractor.from_pretrained(own, device="cpu")
            outcomes.add("loaded")
        except ModelError as error:
            said.append(str(error))
            outcomes.add("refused")
        except UserWarning:  # of a tokenizer whose way to cut texts has another name now
            outcomes.add("warned")
    assert "refused" in outcomes
    assert not any("\n" in text for text in said)
