"""Folders of models that are damaged or hostile: one error, which says what is wrong and where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import SCHEMA, jsonl, refused, runner
from conftest import tiny_model
from safetensors.torch import load_file, save_file

from schemax import Extractor, ModelError
from schemax.compiler import TextCodec


def change(folder: Path, file: str, **settings: Any) -> None:
    path = folder / file
    written = json.loads(path.read_text("utf-8"))
    path.unlink()  # it is a link to one that others use
    path.write_text(json.dumps({**written, **settings}), "utf-8")


@pytest.mark.parametrize("number", ["x", -1, 10**6, 1.5, True, [0, "x"], [[0]], {"a": 1}])
@pytest.mark.parametrize("verb", ["extract", "explain"])
def test_ends_of_outputs_that_are_no_ids(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: Any, verb: str
) -> None:
    change(folder, "generation_config.json", eos_token_id=number)
    run = runner(tmp_path, folder, monkeypatch)
    if verb == "explain":
        refused(run("explain", SCHEMA, "--model", str(folder)), "eos_token_id is")
    else:
        products = jsonl(tmp_path / "in.jsonl", [{"id": "a", "t": "LG"}])
        refused(run("extract", SCHEMA, products), "eos_token_id")
        with pytest.raises(ModelError, match="eos_token_id"):
            Extractor.from_pretrained(folder)


def test_ids_that_a_caller_names_are_checked(folder: Path) -> None:
    loaded = Extractor.from_pretrained(folder)
    with pytest.raises(ModelError, match="eos_token_id is 1000000, which is no id"):
        Extractor(loaded.model.model, loaded.tokenizer, eos_ids=(10**6,))


def test_weights_of_other_shapes_name_the_tensor_and_both_shapes(folder: Path) -> None:
    change(folder, "config.json", intermediate_size=64)
    with pytest.raises(ModelError) as caught:
        Extractor.from_pretrained(folder)
    message = str(caught.value)
    assert "6 of the tensors have other shapes than config.json says" in message
    assert "model.layers.0.mlp.down_proj.weight is stored as 32 x 48, and should be 32 x 64" in (
        message
    )
    assert "above report" not in message


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_weights_that_are_no_numbers_name_the_tensors(folder: Path, number: float) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    tensors["model.layers.1.mlp.up_proj.weight"][3, 5] = number
    path.unlink()
    save_file(tensors, path, metadata={"format": "pt"})
    with pytest.raises(
        ModelError, match=r"1 of its tensors hold NaN or infinity \(model\.layers\.1"
    ):
        Extractor.from_pretrained(folder)


def test_weights_that_overflow_name_the_dtype(codec: TextCodec) -> None:
    model = tiny_model("qwen3", codec.vocab_size)
    with torch.no_grad():
        model.model.norm.weight.mul_(1e38)
        model.lm_head.weight.mul_(1e38)
    with pytest.raises(
        ModelError,
        match=r"weights are finite, but .* NaN or infinity in torch\.float32",
    ):
        Extractor(model, codec)


@pytest.mark.parametrize("context", [-1, 0])
def test_contexts_of_no_positions_are_refused(folder: Path, context: int) -> None:
    change(folder, "config.json", max_position_embeddings=context)
    with pytest.raises(ModelError, match=f"max_position_embeddings.* {context}"):
        Extractor.from_pretrained(folder)
