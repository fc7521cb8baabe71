"""All that touches a device, on a simulated one: outputs as on the CPU, and what a pass costs."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from conftest import TITLES, slow_but, tiny_model
from decoding import TEMPLATE, WAYS, Outputs, compiled_in, counted, run
from families import FORK, IN_SEQUENCE, Family
from seams import replaced
from simulated_gpu import Event, simulated_gpu
from simulated_guard import HAS_COMPILER, guard
from transformers import Qwen3Config, Qwen3ForCausalLM

from schemax import AttrSchema, Extractor, attr, doctor
from schemax.compiler import TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.runtime.engine import limits as limits_module
from schemax.runtime.engine.limits import DecodingLimits
from schemax.runtime.engine.self_test import prepare
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.memory import is_out_of_memory

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="a simulated device requires g++")

# As CUDA, cuBLAS, cuDNN, Triton, MPS, XPU and torch's CPU allocator say it.
OUT_OF_MEMORY = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    torch.AcceleratorError("CUDA error: out of memory\nCUDA kernel errors might be"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("cuDNN error: CUDNN_STATUS_ALLOC_FAILED"),
    RuntimeError("cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED"),
    RuntimeError("Triton Error [CUDA]: out of memory"),
    RuntimeError("MPS backend out of memory (MPS allocated: 17.9 GB, other allocations: 1 GB)"),
    RuntimeError("level_zero backend failed with error: 39 (UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY)"),
    RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes."),
    MemoryError(),
]


class Typed(AttrSchema, category="television"):
    """Every kind of slot: free text, numbers, booleans, choices, lists read in two phases."""

    brand: str | None = attr("Manufacturer", k_max=6)
    size: float | None = attr("Diagonal, inches", k_max=4)
    smart: bool | None = None
    resolution: Literal["720p", "4K"] | None = None
    ports: list[str] = attr("Connectors", default_factory=list)


def written(outputs: Outputs) -> Any:
    return [
        [(slot.ids, slot.finish_reason, written([slot.items])) for slot in slots]
        for slots in outputs
    ]


def assert_alike(found: Outputs, expected: Outputs) -> None:
    """The same tokens, and their probabilities nearly."""
    assert written(found) == written(expected)
    for slots, others in zip(found, expected, strict=True):
        for slot, other in zip(slots, others, strict=True):
            assert slot.logprobs == pytest.approx(other.logprobs, abs=1e-3)


# Sampled once: tokens are drawn in one place for all layouts.
HOW = [("paper", True), *((way, False) for way in WAYS)]


@pytest.mark.slow
@pytest.mark.parametrize("how", slow_but({("paper", True)}, HOW), ids=str)
def test_every_way_to_decode_equals_the_cpu(how: tuple[str, bool], codec: TextCodec) -> None:
    way, sampled = how
    drawn = {"temperature": 0.8, "top_p": 0.9} if sampled else {}
    compiled = compiled_in(way, Typed, codec, k_max=4, **drawn)
    expected = run(prepare(tiny_model("qwen3", codec.vocab_size)), compiled, TITLES[:3], 2)
    with simulated_gpu():
        model = prepare(tiny_model("qwen3", codec.vocab_size).to("cuda"))
        assert model.device.type == "cuda"
        assert_alike(run(model, compiled, TITLES[:3], 2), expected)


# One of each kind of attention and of state: a device sees no other difference.
KINDS = {
    "qwen3",
    "gemma2",  # windows, soft caps
    "gpt_oss",  # sinks, experts
    "llama4",  # chunks
    "deepseek_v3",  # latent attention
    "falcon (ALiBi)",
    "mamba",
    "jamba",
    "qwen3_next",
}
FAMILIES = [family for family in (*IN_SEQUENCE, *FORK) if family.name in KINDS]


@pytest.mark.slow
@pytest.mark.parametrize(
    "family",
    slow_but({"gemma2"}, FAMILIES, lambda family: family.name),
    ids=lambda family: family.name,
)
def test_every_kind_of_family_equals_the_cpu(family: Family, codec: TextCodec) -> None:
    """Windows, sinks, soft caps and states of other kinds."""
    model = prepare(family.model(codec.vocab_size))
    config = DecodingConfig(k_max=4)
    compiled = compile_schema(
        Typed, codec, template=TEMPLATE, vocab_size=model.vocab_size, decoding=config
    )
    expected = run(model, compiled, TITLES[:3])
    with simulated_gpu():
        moved = prepare(family.model(codec.vocab_size).to("cuda"))
        assert type(moved) is type(model)
        assert_alike(run(moved, compiled, TITLES[:3]), expected)


@pytest.mark.slow
def test_what_users_do_equals_the_cpu(saved_model: Path) -> None:
    """Loading by default, examples in the instruction, typed values with their confidences."""
    loading: dict[str, Any] = {"name": saved_model, "dtype": "float32"}
    examples = [("Bosch drill 18 V", Typed(brand="Bosch"))]
    extractor = Extractor.from_pretrained(**loading, device="cpu")
    expected = list(extractor.stream(TITLES[:3], Typed, examples=examples))
    with simulated_gpu():
        extractor = Extractor.from_pretrained(**loading)
        assert extractor.model.device.type == "cuda"
        found = list(extractor.stream(TITLES[:3], Typed, examples=examples))
        found.sort(key=lambda item: item.index)
        del extractor
    for item, other in zip(found, sorted(expected, key=lambda item: item.index), strict=True):
        assert item.value == other.value
        for name, result in item.fields.items():
            assert result.raw == other.fields[name].raw
            assert result.confidence == pytest.approx(other.fields[name].confidence, abs=1e-3)


@pytest.mark.slow
def test_the_doctor_finds_the_device_exact(saved_model: Path) -> None:
    with simulated_gpu():
        diagnosis = doctor(Extractor.from_pretrained(saved_model, dtype="float32"))
        assert not diagnosis.problems
        assert all(item.exact for item in diagnosis.agreements)


def split(events: Sequence[Event]) -> list[tuple[list[Event], list[Event]]]:
    """The events of each pass, and those from its end to the next one's beginning."""
    found: list[tuple[list[Event], list[Event]]] = []
    inside = True
    for event in events:
        if event.kind == "begin":
            found.append(([], []))
            inside = True
        elif event.kind == "end":
            inside = False
        elif found:
            found[-1][not inside].append(event)
    return found[:-1]


TRAINS = """
import ctypes, sys
ctypes.CDLL(sys.argv[1])
sys.path[:0] = [sys.argv[2], f"{sys.argv[2]}/runtime"]
import torch
from conftest import TITLES, tiny_model
from decoding import compiled_in
from simulated_gpu import simulated_gpu
from benchmarks.host.settings import host_codec
from schemax.training.models import TrainableModel
from schemax.training.sequences import collate, training_sequence
from test_gpu import Typed

codec = host_codec()
compiled = compiled_in("branched", Typed, codec)
sequences = [
    training_sequence(compiled, prompt, [(4, 5, 6)] * compiled.num_slots)
    for prompt in compiled.encode(TITLES[:2])
]
input_ids, tokens, labels = collate(sequences, pad_id=0)
names = ("position_ids", "document", "slot", "step", "real")
batch = {name: getattr(tokens, name) for name in names}
batch |= {"input_ids": input_ids, "labels": labels}

def step(device):
    module = tiny_model("qwen3", codec.vocab_size).to(device)
    here = {name: part.to(device) for name, part in batch.items()}
    summed, count = TrainableModel(module).loss(module, here, compiled.decoding)
    (summed / count).backward()
    torch.optim.AdamW(module.parameters(), 1e-2).step()
    return [float(summed), *(weights.detach().cpu() for weights in module.parameters())]

expected = step("cpu")
with simulated_gpu():
    found = step("cuda")
assert abs(found[0] - expected[0]) < 1e-3 * expected[0]
for weights, others in zip(found[1:], expected[1:], strict=True):
    assert torch.allclose(weights, others, atol=2e-3), (weights - others).abs().max()
print("alike")
"""


@pytest.mark.release
def test_a_step_of_training_equals_the_cpu() -> None:
    """In a process of its own, where autograd finds the device."""
    tests = Path(__file__).parents[1]
    command = [sys.executable, "-c", TRAINS, str(guard(gradients=True)), str(tests)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tests.parent, check=False)
    assert done.stdout.strip().endswith("alike"), done.stderr


PARALLEL = """
import sys
sys.path[:0] = [sys.argv[2], f"{sys.argv[2]}/runtime"]
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.distributed import DistributedConfig
from conftest import TITLES
from schemax import Extractor
from schemax.runtime.models.model import DecoderModel
from test_gpu import Typed

def read(**loading):
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], **loading)
    extractor = Extractor(model, AutoTokenizer.from_pretrained(sys.argv[1]))
    assert isinstance(extractor.model, DecoderModel)
    assert extractor.model.is_sharded == bool(loading)
    items = sorted(extractor.stream(TITLES[:3], Typed), key=lambda item: item.index)
    return [{name: field.raw for name, field in item.fields.items()} for item in items]

expected = read()
assert read(distributed_config=DistributedConfig(tp_plan="auto")) == expected
print("alike")
"""


@pytest.mark.release
def test_tensor_parallel_processes_equal_one(saved_model: Path) -> None:
    """Two processes under torchrun, each with half of every layer; gloo carries what they share."""
    tests = Path(__file__).parents[1]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    script = saved_model.parent / "parallel.py"
    script.write_text(PARALLEL, "ascii")
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0"]
    command += [str(script), str(saved_model), str(tests)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tests.parent, check=False)
    assert done.stdout.count("alike") == 2, done.stderr


@pytest.mark.parametrize("error", OUT_OF_MEMORY)
def test_memory_that_runs_out_is_known_however_it_is_said(error: Exception) -> None:
    assert is_out_of_memory(error)
    assert not is_out_of_memory(RuntimeError("out of resource: shared memory, Required: 1"))
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access"))


@pytest.mark.release
def test_a_small_device_finishes_all(
    codec: TextCodec, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a device said that it had more memory than it has."""
    monkeypatch.setattr(limits_module, "free_bytes", lambda device: 1 << 30)
    compiled = compiled_in("branched", Typed, codec, k_max=4, constrain="nothing")
    texts = [f"{title} {number}" for number in range(4) for title in TITLES]
    expected = run(prepare(tiny_model("qwen3", codec.vocab_size)), compiled, texts)
    with simulated_gpu() as gpu:
        model = prepare(tiny_model("qwen3", codec.vocab_size).to("cuda"))
        gpu.memory = gpu.in_use[0] + (700 << 10)
        outputs = run(model, compiled, texts)
        assert "out of memory with" in caplog.text
        assert_alike(outputs, expected)
        del model


@pytest.mark.release
def test_a_card_of_24_gb_holds_8b_in_bfloat16(
    codec: TextCodec, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Weights, keys and values, and a full pass of documents and slots, by their shapes alone."""
    config = Qwen3Config(
        vocab_size=151_936, hidden_size=4096, intermediate_size=12_288, num_hidden_layers=36,
        num_attention_heads=32, num_key_value_heads=8, head_dim=128, attn_implementation="sdpa",
    )  # fmt: skip
    with torch.device("meta"):
        module = Qwen3ForCausalLM(config).to(torch.bfloat16).eval()
    compiled = compiled_in("branched", Typed, codec, k_max=3, constrain="nothing", max_retries=0)
    texts = [f"{place} {6 * TITLES[2]}" for place in range(110)]
    with simulated_gpu(memory=23 << 30, has_numbers=False) as gpu:  # CUDA itself takes some
        model = DecoderModel(module.to("cuda"))
        assert 15 < gpu.in_use[0] / 2**30 < 16
        model.bytes_per_token = 36 * 2 * 8 * 128 * 2
        tokens = counted(monkeypatch, model)
        limits = DecodingLimits.of(model, DecodingConfig())
        run(model, compiled, texts)
        assert "out of memory" not in caplog.text
        assert max(tokens) > 0.9 * limits.pass_tokens
        assert gpu.most[0] > 19 << 30
        del model, module


class Choices(AttrSchema, category="television"):
    """Slots of which all is known before the choice."""

    smart: bool | None = None
    resolution: Literal["720p", "4K"] | None = None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "constrain"),
    [
        pytest.param(Typed, "nothing", marks=pytest.mark.slow),
        (Choices, "types"),
        pytest.param(Typed, "types", marks=pytest.mark.slow),
    ],
    ids=["no grammars", "choices", "texts, which rule some tokens out"],
)
@pytest.mark.parametrize("documents", slow_but({30}, [2, 30]))
def test_what_a_pass_copies_and_waits_for(
    documents: int,
    schema: Any,
    constrain: str,
    codec: TextCodec,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As much for many slots as for few; nothing is waited for inside a forward pass."""
    # Random weights write texts of which most are refused.
    replaced(monkeypatch, "texts that a device checks again", 1000)
    compiled = compiled_in("branched", schema, codec, constrain=constrain, k_max=4, max_retries=0)
    with simulated_gpu() as gpu:
        module = tiny_model("qwen3", codec.vocab_size).to("cuda")
        model = prepare(module)
        module.register_forward_pre_hook(lambda *_: gpu.mark("begin"))
        module.register_forward_hook(lambda *_: gpu.mark("end"))
        texts = [f"{TITLES[place % len(TITLES)]} {place}" for place in range(documents)]
        run(model, compiled, texts, 200)  # kernels are tried
        gpu.events.clear()
        run(model, compiled, texts, 200)
        found = split(gpu.events)
    assert len(found) >= 3
    for inside, outside in found:
        kinds = Counter(event.kind for event in inside)
        assert not kinds.keys() & {"to_device", "to_host", "wait"}, inside
        assert kinds["launch"] <= 60 + 2 * 130  # 54 of a layer are the model's own
        moved = sum("kv_pool" in event.line for event in outside if event.kind == "to_device")
        kinds = Counter(event.kind for event in outside)
        assert kinds["to_device"] <= 2 + moved <= 3
        assert kinds["to_host"] == kinds["wait"] == 1
