"""One model over two simulated devices: packed passes, and outputs as on one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TITLES, slow_but
from decoding import WAYS, compiled_in, run
from simulated_gpu import simulated_gpu
from simulated_guard import HAS_COMPILER
from test_gpu import Typed, assert_alike
from transformers import modeling_utils
from transformers.integrations import accelerate as placing

from schemax import Extractor
from schemax.compiler import TextCodec
from schemax.runtime.attention.kv_pool import KVPool
from schemax.runtime.models.model import DecoderModel

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="a simulated device requires g++")

SPREAD = {
    **dict.fromkeys(("model.embed_tokens", "model.layers.0"), "cuda:0"),
    **dict.fromkeys(("model.layers.1", "model.norm", "model.rotary_emb", "lm_head"), "cuda:1"),
}


@pytest.mark.release
@pytest.mark.parametrize("way", slow_but({"branched"}, WAYS))
@pytest.mark.parametrize("device_map", [SPREAD, "auto"], ids=["as named", "as accelerate has it"])
def test_layers_on_two_devices_equal_one(
    way: str, device_map: Any, saved_model: Path, codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = compiled_in(way, Typed, codec, k_max=4)
    expected = run(Extractor.from_pretrained(saved_model).model, compiled, TITLES[:4], 2)
    # By number, as accelerate has them, no device of a simulated accelerator is found.
    memory = {0: 1 << 30, 1: 1 << 30, "cpu": 1 << 30}
    monkeypatch.setattr(placing, "accelerate_max_memory", lambda _: dict(memory))
    place = modeling_utils._get_device_map

    def named(*given: Any) -> dict[str, str]:
        found = place(*given)
        return {name: f"cuda:{at}" if isinstance(at, int) else at for name, at in found.items()}

    monkeypatch.setattr(modeling_utils, "_get_device_map", named)
    with simulated_gpu(devices=2):
        loading: dict[str, Any] = {"device_map": device_map, "dtype": "float32"}
        model = Extractor.from_pretrained(saved_model, **loading).model
        assert isinstance(model, DecoderModel)
        assert [str(device) for device in model.shares] == ["cuda:0", "cuda:1"]
        assert 0.2 < model.shares[torch.device("cuda:1")] < 0.8
        rows, resize = [], KVPool.resize
        monkeypatch.setattr(KVPool, "resize", lambda *given: rows.append(1) or resize(*given))
        assert_alike(run(model, compiled, TITLES[:4], 2), expected)
        assert rows
        del model
