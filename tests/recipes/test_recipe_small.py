"""The recipe of `small`: what it asks, what it learns, and the adapter that comes out."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import torch
from conftest import tiny_model
from safetensors.torch import load_file
from test_nearest_examples import CHAT
from tokenizers import Tokenizer

from recipes.embedded.data import read_data
from recipes.embedded.mixture import Reader, Variety
from recipes.embedded.prompts import ALONE
from recipes.embedded.shelves import About, Document, Library, Shelf
from recipes.small.__main__ import calibrate
from recipes.small.adapter import Adapted, adapt, come_near, save_adapters
from recipes.small.pages import AUTOREGRESSIVE, Asker, Asking, batches
from recipes.small.train import Recipe, Run
from schemax.base.resources import resource_dir
from schemax.compiler import TextCodec
from schemax.evaluation.examples import read_examples
from schemax.runtime.models.loading.adapters import put_adapter
from schemax.training.sequences import IGNORE

DOCUMENTS = [
    Document(f"Tazo {kind} tea {count} ct", {"Brand": "Tazo", "Kind": kind, "Count": str(count)})
    for kind in ("Zen", "Mint", "Chai", "Earl Grey")
    for count in (16, 20, 24)
]
ABOUT = {"Brand": About(("who makes the tea",)), "Kind": About(), "Count": About()}


@pytest.fixture
def asker(backend: Tokenizer) -> Asker:
    shelf = Shelf("Tea", DOCUMENTS, ABOUT, 1.0, "goods", "titles")
    plain = Variety(varied=0, foreign=0, featured=0, padded=0, columned=0)
    reader = Reader(Library({"titles": [shelf]}, {"titles": 1.0}), plain)
    return Asker(reader, TextCodec(backend, chat_template=CHAT), Asking())


@pytest.mark.slow
def test_pages_are_asked_in_every_way(asker: Asker, backend: Tokenizer) -> None:
    """In turns and without, behind demonstrations and without, in all templates."""
    codec, rng = TextCodec(backend, chat_template=CHAT), random.Random(0)
    prompts = []
    for _ in range(80):
        row = asker.draw(ALONE, rng)
        assert 1 <= row.document.max() < 8
        assert (row.labels != IGNORE).any()
        shared = row.input_ids[row.document == -1].tolist()
        prompts.append(codec.decode_bytes(shared).decode())
    shown = [text for text in prompts if " ct" in text]
    assert 10 < len(shown) < 50
    turns = [text for text in prompts if text.startswith("<|im|>user")]
    assert 40 < len(turns) < 80
    for words in ("fill in their attributes", "Fill in the fields", "standard form"):
        assert any(words in text for text in prompts)


@pytest.mark.release
def test_batches_hold_no_more_tokens_than_they_may(asker: Asker) -> None:
    stream = batches(asker, 700, random.Random(0))
    layouts = set()
    for layout, rows in (next(stream) for _ in range(15)):
        layouts.add(layout)
        assert sum(map(len, rows)) <= 700
    assert layouts <= {ALONE, AUTOREGRESSIVE}


def test_an_adapter_is_what_peft_reads(backend: Tokenizer, tmp_path: Path) -> None:
    vocab_size = backend.get_vocab_size()
    model, same = (tiny_model("llama", vocab_size) for _ in range(2))
    found = adapt(model, 4)
    assert {name.rpartition(".")[2] for name in found} == {
        *("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
    }
    ids = torch.arange(20)[None]
    with torch.no_grad():
        assert torch.equal(model(ids).logits, same(ids).logits)
        for layer in found.values():
            layer.second.copy_(torch.randn_like(layer.second).bfloat16() / 8)
            layer.first.copy_(layer.first.bfloat16())
        save_adapters(found, "someone/base", tmp_path)
        merged = put_adapter(same, tmp_path)
        torch.testing.assert_close(merged(ids).logits, model(ids).logits, rtol=1e-4, atol=1e-4)


def test_adapters_come_as_near_as_their_rank_lets_them(backend: Tokenizer, tmp_path: Path) -> None:
    vocab_size = backend.get_vocab_size()
    model, trained = (tiny_model("llama", vocab_size) for _ in range(2))
    torch.manual_seed(1)
    with torch.no_grad():
        for name, weight in trained.named_parameters():
            if name.endswith("_proj.weight"):  # of rank 3
                size = weight.shape
                weight += torch.randn(size[0], 3) @ torch.randn(3, size[1]) / 10
    trained.save_pretrained(tmp_path)
    assert come_near(adapt(model, 3), tmp_path) == pytest.approx(1, abs=1e-4)
    ids = torch.arange(20)[None]
    with torch.no_grad():
        torch.testing.assert_close(model(ids).logits, trained(ids).logits, rtol=1e-3, atol=1e-3)
    half = come_near(adapt(tiny_model("llama", vocab_size), 1), tmp_path)
    assert 0.3 < half < 0.8


@pytest.mark.release
def test_a_run_learns_and_goes_on_as_it_was(
    asker: Asker, backend: Tokenizer, tmp_path: Path
) -> None:
    recipe = Recipe(minutes=60, learning_rate=2e-2, rank=4)
    run = Run(tiny_model("llama", backend.get_vocab_size()), recipe)
    stream = batches(asker, 900, random.Random(0))
    pages = [next(stream) for _ in range(4)]
    losses = []
    for _ in range(12):
        for config, rows in pages:
            run.train_on(rows, config, 0)
        losses.append(run.recent_loss())
    assert losses[-1] < losses[0]
    run.save(tmp_path / "state.pt")
    other = Run(tiny_model("llama", backend.get_vocab_size()), recipe)
    other.load(tmp_path / "state.pt")
    assert (other.step, other.tokens) == (run.step, run.tokens)
    for name, layer in run.adapters.items():
        assert isinstance(layer, Adapted)
        assert torch.equal(layer.second, other.adapters[name].second)
    save_adapters(run.adapters, "someone/base", tmp_path / "adapter")
    tensors = load_file(tmp_path / "adapter" / "adapter_model.safetensors")
    assert len(tensors) == 2 * len(run.adapters)


@pytest.mark.release
def test_the_command_calibrates_what_it_trained(tmp_path: Path) -> None:
    """Once, on documents that are spread over what was set aside."""
    titles = [
        {"category": "Tea", "text": one.text, "attributes": dict(one.values)} for one in DOCUMENTS
    ]
    file = tmp_path / "titles.jsonl"
    file.write_text("".join(f"{json.dumps(title)}\n" for title in titles), "utf-8")
    data = read_data(file, None, None, held_out=4, titles_times=1, seed=0)
    shutil.copytree(resource_dir("embedded"), tmp_path / "adapter")
    (tmp_path / "adapter" / "calibration.json").unlink()
    calibrate(data, tmp_path, 60)
    assert len(read_examples(tmp_path / "set_aside.jsonl")) == 60
    calibration = tmp_path / "adapter" / "calibration.json"
    made = calibration.read_bytes()
    assert set(json.loads(made)) >= {"temperature", "bias"}
    calibrate(data, tmp_path, 30)
    assert calibration.read_bytes() == made
    assert len(read_examples(tmp_path / "set_aside.jsonl")) == 60
