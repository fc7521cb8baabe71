"""llama.cpp as an engine of `schemax bench`: the converted model is the same model."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import tiny_model
from families import FAMILIES

from benchmarks.generated import Sizes, generate_work
from benchmarks.rivals import ALL
from benchmarks.rivals.llama_cpp import cells_needed
from benchmarks.rivals.llama_model import LlamaModel, write_gguf
from schemax.compiler import TextCodec
from schemax.evaluation.benchmark.compare import build_engines
from schemax.evaluation.benchmark.engines import EngineOptions, Unavailable
from schemax.evaluation.benchmark.measure import Rules, measure_engines
from schemax.evaluation.benchmark.workload import Workload, annotated_work
from schemax.evaluation.examples import Example

CPU = torch.device("cpu")
SMALL = Sizes(documents=5, document_tokens=24, attributes=3, instruction_tokens=20, jitter=0.3)
needs_llama = pytest.mark.skipif(
    find_spec("llama_cpp") is None or find_spec("gguf") is None,
    reason="llama-cpp-python or gguf is not installed",
)


def model(codec: TextCodec, family: str = "qwen3", **changes: Any) -> Any:
    return tiny_model(family, codec.vocab_size, **changes)


def two_categories(codec: TextCodec) -> Workload:
    rows = [
        *(Example("Tea", f"Tazo Zen {n} ct", {"Brand": "Tazo", "Count": str(n)}) for n in range(4)),
        *(Example("Shoes", f"Crocs Clog {n}", {"Brand": "Crocs"}) for n in range(3)),
    ]
    return annotated_work(rows, codec, codec.vocab_size)


def close(found: Any, right: torch.Tensor, tolerance: float) -> bool:
    wanted = right.float().numpy()
    return bool(np.abs(found - wanted).max() <= tolerance * np.abs(wanted).max())


@needs_llama
@pytest.mark.parametrize(("family", "tied"), [("qwen3", True), ("qwen3", False), ("llama", True)])
@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    [(torch.float32, 1e-2), (torch.float16, 2e-2), (torch.bfloat16, 8e-2)],
)
def test_logits_are_those_of_transformers(
    codec: TextCodec,
    tmp_path: Path,
    family: str,
    tied: bool,
    dtype: torch.dtype,
    tolerance: float,
) -> None:
    torch_model = model(codec, family, tie_word_embeddings=tied).to(dtype)
    write_gguf(torch_model, tmp_path / "m.gguf")
    made = LlamaModel(tmp_path / "m.gguf", CPU)
    ids = [5, 17, 200, 33, 8, 61, 301, 44, 12]
    with torch.inference_mode():
        right = torch_model(input_ids=torch.tensor([ids])).logits[0]
    made.open(64, len(ids))  # as many logits as sequences
    found = made(ids, range(len(ids)), [0] * len(ids), [1] * len(ids))
    assert close(found, right, tolerance)
    # Two documents behind one instruction, one of them a token behind the other.
    made.open(64, 3)
    made(ids[:4], range(4), [2] * 4, [0] * 4)
    made.share(2, 0)
    made.share(2, 1)
    made.forget(2)
    made([*ids[4:], 9], [*range(4, 9), 4], [0] * 5 + [1], [0] * 6)
    with torch.inference_mode():
        rows = [[*ids, 3], [*ids[:4], 9, 7]]
        wanted = [torch_model(input_ids=torch.tensor([row])).logits[0, -1] for row in rows]
    found = made([3, 7], [9, 5], [0, 1], [1, 1])
    assert close(found, torch.stack(wanted), tolerance)
    made.free()


@needs_llama
@pytest.mark.parametrize("kind", ["generated", "annotated"])
@pytest.mark.parametrize("size", [1, 2, 8])
def test_it_writes_the_given_answers(codec: TextCodec, kind: str, size: int) -> None:
    work = two_categories(codec)
    if kind == "generated":
        work = generate_work(SMALL, codec.vocab_size)
    (engine,) = build_engines(["llama.cpp"], model(codec), EngineOptions(), ALL)
    engine.batch_sizes, engine.batch_size = (), size
    (outcome,) = measure_engines([engine], work, Rules(repeats=2), CPU)
    assert outcome.skipped is None
    assert len(outcome.seconds) == 2
    assert "llama-cpp-python" in engine.note
    assert engine.module is None
    outputs = [len(work.output(listing)) for listing in work.listings]
    assert outcome.passes is not None
    assert max(outputs) < outcome.passes <= len(work.categories) + sum(outputs)


@needs_llama
@pytest.mark.parametrize("width", [1024, 16])
def test_every_token_is_passed_once(
    codec: TextCodec, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    monkeypatch.setattr("benchmarks.rivals.llama_model.PASS", width)
    work = two_categories(codec)
    (engine,) = build_engines(["llama.cpp"], model(codec), EngineOptions(), ALL)
    engine.setup(work)
    engine.batch_size = 3
    read: list[int] = []
    engine.module.register_forward_pre_hook(lambda _, args: read.append(len(args[0])))
    for _ in range(2):
        read.clear()
        engine.reset(work)
        assert list(engine.run(work)) == work.expected("output")
        counts = work.counts()
        prompts = counts["instructions"] + counts["documents"] + counts["openings"]
        assert sum(read) == prompts + counts["outputs"] - len(work)  # nothing follows an EOS token
        assert max(read) <= width
    engine.teardown()


def test_cells_suffice_for_what_is_in_flight(codec: TextCodec) -> None:
    work = two_categories(codec)
    one = max(len(work.stem(listing)) + len(work.output(listing)) for listing in work.listings)
    assert cells_needed(work, 1) >= one
    everything = sum(len(work.stem(x)) + len(work.output(x)) for x in work.listings)
    assert cells_needed(work, 1) < cells_needed(work, 3) < cells_needed(work, 100) < everything


def test_other_models_are_not_converted(codec: TextCodec, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    with pytest.raises(Unavailable, match="only Llama and Qwen3 are converted, not gpt_neox"):
        write_gguf(FAMILIES["gpt_neox"].model(codec.vocab_size), path)
    scaled = {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}
    with pytest.raises(Unavailable, match="plain rotary"):
        write_gguf(model(codec, rope_parameters=scaled), path)
    with pytest.raises(Unavailable, match="only models without biases"):
        write_gguf(model(codec, attention_bias=True), path)


def test_it_says_what_is_not_installed(codec: TextCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.rivals.llama_cpp.find_spec", lambda _: None)
    (engine,) = build_engines(["llama.cpp"], model(codec), EngineOptions(), ALL)
    work = generate_work(SMALL, codec.vocab_size)
    (outcome,) = measure_engines([engine], work, Rules(), CPU)
    assert outcome.skipped == "not installed: llama-cpp-python, gguf"
