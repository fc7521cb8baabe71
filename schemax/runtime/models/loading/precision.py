"""Numbers that weights are loaded as: dtypes that this processor computes fast, quantization."""

from __future__ import annotations

import time
from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

import torch
from transformers import BitsAndBytesConfig, TorchAoConfig

from schemax.errors import ModelError
from schemax.runtime.models.loading.refusals import need, refusing

# The least speedup that is worth the rounding. Processors without instructions for bfloat16 (AMX,
# AVX512-BF16, Arm's BF16) have less than 1, those with them more than 1.7.
_WORTH_IT = 1.3

# Instructions for matrix products, by torch's names.
_INSTRUCTIONS = {
    "AVX2": ("avx2",),
    "AVX-512": ("avx512_f",),
    "VNNI": ("avx512_vnni", "avx_vnni"),
    "AVX512-BF16": ("avx512_bf16",),
    "AMX": ("amx_tile",),
}


def instructions() -> dict[str, bool]:
    """Instructions, and whether this processor has them; {} if torch does not tell."""
    known = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    if known.get("architecture") != "x86_64":
        return {}
    return {
        name: any(known.get(flag, False) for flag in flags) for name, flags in _INSTRUCTIONS.items()
    }


def automatic_dtype(trained: str | None) -> tuple[torch.dtype, str]:
    """The dtype of a model on this processor, and the reason.

    trained: the dtype that the model's schemax.json names; see `TrainedWith`.
    """
    if trained is None:
        return torch.float32, "exact; the model's schemax.json names no other"
    speedup = bfloat16_speedup()
    reason = (
        f"the model's schemax.json names it, and its products take {1 / speedup:.2g} of the time"
    )
    if speedup > _WORTH_IT:
        return torch.bfloat16, reason
    return (
        torch.float32,
        f"products in {trained}, which the model's schemax.json names, gain nothing",
    )


def bfloat16_speedup() -> float:
    """The speedup of bfloat16 over float32 on this processor, for (256, 1024) by (1024, 1024).

    The best of several products each, in turn, so that a busy machine changes little.
    """
    left, right = torch.ones(256, 1024), torch.ones(1024, 1024)
    pairs = {dtype: (left.to(dtype), right.to(dtype)) for dtype in (torch.float32, torch.bfloat16)}
    shortest = dict.fromkeys(pairs, float("inf"))
    for number in range(6):  # the first sets up the kernels
        for dtype, (a, b) in pairs.items():
            started = time.perf_counter()
            torch.mm(a, b)
            shortest[dtype] = min(shortest[dtype], time.perf_counter() - started)
        if number and shortest[torch.bfloat16] > 2 * shortest[torch.float32]:
            break  # a third of a second each, without instructions for it
    return shortest[torch.float32] / shortest[torch.bfloat16]


Quantization = Literal["nf4", "int8", "int4"]
DeviceMap = str | int | torch.device | Mapping[str, Any]


def placement(
    name: str,
    config: Any,
    device: torch.device,
    dtype: torch.dtype,
    device_map: DeviceMap | None,
    quantization: Quantization | None,
) -> dict[str, Any]:
    """Arguments for `from_pretrained`; {} for a plain model, which is moved afterwards.

    dtype: the dtype that quantized weights compute in.

    Raises ModelError for a model that is quantized already, and if the device or a package is
    missing.
    """
    stored = getattr(config, "quantization_config", None)
    if stored and quantization:
        raise ModelError(f"{name} is stored quantized already; leave `quantization` out")
    options: dict[str, Any] = {}
    if quantization == "int4":  # packed once it is loaded
        if device.type != "cpu" or device_map is not None:
            raise ModelError(
                f"{name}: int4 runs on a CPU alone, without a device_map; on a CUDA device take "
                '"nf4"'
            )
    elif quantization:
        options["quantization_config"] = _quantizer(name, quantization, device, dtype)
    if device_map is not None:
        need("accelerate", name, "a device_map", "accelerate")
        options["device_map"] = device_map
    elif stored or (quantization and device.type != "cpu"):
        need("accelerate", name, "a quantized model", "accelerate")
        options["device_map"] = {"": _number(device)}
    return options


def _number(device: torch.device) -> int | str:
    """A device as device maps name it: CUDA devices by number."""
    if device.type != "cuda":
        return str(device)
    return torch.cuda.current_device() if device.index is None else device.index


def _quantizer(
    name: str, quantization: Quantization, device: torch.device, dtype: torch.dtype
) -> BitsAndBytesConfig | TorchAoConfig:
    """The quantization config. Raises ModelError if the device or a package is missing."""
    if quantization == "int8" and device.type in ("cpu", "cuda"):
        # Not LLM.int8: its outliers, and so a prompt's results, depend on the whole batch.
        need("torchao", name, "int8", "'.[int8]' in a checkout of schemax")
        with refusing(name):
            return TorchAoConfig(import_module("torchao.quantization").Int8WeightOnlyConfig())
    if device.type != "cuda":
        remedy = 'or take "int8", which runs on a CPU' if quantization == "nf4" else "or on a CPU"
        raise ModelError(
            f"{name}: {quantization} needs a CUDA device, and the model was to run on "
            f"{str(device)!r}; load it without `quantization`, {remedy}"
        )
    need("bitsandbytes", name, "nf4", "'.[bitsandbytes]' in a checkout of schemax")
    with refusing(name):
        return BitsAndBytesConfig(  # type: ignore[no-untyped-call]
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
