"""What a pass takes on an H200, by arithmetic: the kernels that really run, at their true shapes.

A kernel takes its products at 45 % of the card's peak, or its bytes at 3.8 TB/s, and 3 us at least.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import torch
from conftest import TITLES
from decoding import limited, run
from pydantic import create_model
from simulated_gpu import Event, simulated_gpu
from simulated_guard import HAS_COMPILER
from transformers import Qwen3Config, Qwen3ForCausalLM
from transformers.models.qwen3 import modeling_qwen3

from schemax import AttrSchema
from schemax.compiler import TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.models.pointwise import compile_chains

pytestmark = [
    pytest.mark.skipif(not HAS_COMPILER, reason="a simulated device requires g++"),
    pytest.mark.slow,
]

FLOPS, BYTES, LEAST = 445e12, 3.8e12, 3e-6
# Hidden size, of the MLP, layers, heads; and how many times its products a pass may take.
SHAPES = {
    "8b": (4096, 12_288, 36, 32, 1.2),
    "0.6b": (1024, 3072, 28, 16, 2.0),
}
TEMPLATE = "Read the attributes. " * 40 + "{% for d in documents %}{{ d.text }}\n{% endfor %}"
FIELDS: Any = {f"field_{place}": (str | None, None) for place in range(16)}


def seconds(event: Event) -> float:
    return max(event.flops / FLOPS, event.moved / BYTES, event.size * LEAST)


def kind_of(event: Event) -> str:
    if event.name in ("mm", "addmm"):
        return "products"
    if event.line.startswith(("runtime/kernels", "runtime/kv_pool")):
        return "attention"
    return "merging" if event.line.startswith("runtime/attention") else "pointwise"


def passes_of(shape: str, codec: TextCodec, *, compiled: bool) -> list[list[Event]]:
    """The kernels of each pass over 256 documents of 16 slots, the choice of tokens included.

    One layer is run, and counted as often as the model has it.
    """
    hidden, inner, layers, heads, _ = SHAPES[shape]
    config = Qwen3Config(
        vocab_size=151_936, hidden_size=hidden, intermediate_size=inner, num_hidden_layers=1,
        num_attention_heads=heads, num_key_value_heads=8, head_dim=128, attn_implementation="sdpa",
    )  # fmt: skip
    schema = create_model("Sixteen", __base__=AttrSchema, **FIELDS)
    decoding = DecodingConfig(constrain="nothing", max_retries=0, k_max=6)
    task = compile_schema(schema, codec, template=TEMPLATE, decoding=decoding)
    texts = [(f"{place:3} " + " ".join(TITLES * 9))[:480] for place in range(256)]
    with torch.device("meta"):
        module = Qwen3ForCausalLM(config).to(torch.bfloat16).eval()
    with simulated_gpu(has_numbers=False) as gpu:
        module = module.to("cuda")
        if compiled:
            compile_chains(module)
        model = DecoderModel(module)
        model.bytes_per_token = 1
        module.register_forward_pre_hook(lambda *_: gpu.mark("pass"))
        (layer,) = module.model.layers
        layer.register_forward_pre_hook(lambda *_: gpu.mark("layer"))
        layer.register_forward_hook(lambda *_: gpu.mark("rest"))
        run(model, task, texts)
        found: list[list[Event]] = []
        times = 1
        for event in gpu.events:
            if event.kind == "pass":
                found.append([])
            times = {"layer": layers, "rest": 1}.get(event.kind, times)
            if event.kind == "launch" and found:
                # Layers of one kind share their masks.
                found[-1] += [event] * (1 if event.line.startswith("runtime/masks") else times)
        del model, module, layer
    return found


@pytest.mark.release
@pytest.mark.parametrize("shape", SHAPES)
def test_a_pass_of_256_documents(
    shape: str, codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that decodes, with chains compiled; `-s` shows its parts."""
    rotary = modeling_qwen3.apply_rotary_pos_emb
    monkeypatch.setattr(modeling_qwen3, "apply_rotary_pos_emb", rotary)  # put back at the end
    limited(monkeypatch, pass_tokens=1 << 30, capacity=1 << 30, flights=1)
    layers, most = SHAPES[shape][2], SHAPES[shape][4]
    for compiled in (False, True):
        events = passes_of(shape, codec, compiled=compiled)[4]
        times: Counter[str] = Counter()
        launches: Counter[str] = Counter()
        for event in events:
            times[kind_of(event)] += 1000 * seconds(event)
            launches[kind_of(event)] += event.size
        ratio = times.total() / times["products"]
        parts = ", ".join(f"{kind} {time:.1f} ms" for kind, time in times.items())
        print(
            f"\n{shape}: {ratio:.2f} times its products ({parts}; compiled: {compiled}; "
            f"{launches.total() / layers:.0f} launches a layer)"
        )
    assert ratio <= most
