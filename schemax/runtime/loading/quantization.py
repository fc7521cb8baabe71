"""Arguments for transformers that set devices and quantization."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Literal

import torch
from transformers import BitsAndBytesConfig, TorchAoConfig

from schemax.errors import ModelError
from schemax.runtime.loading.refusals import need, refusing

Quantization = Literal["nf4", "int8"]
DeviceMap = str | int | torch.device | Mapping[str, Any]


def placement(
    name: str,
    config: Any,
    place: torch.device,
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
    if quantization:
        options["quantization_config"] = _quantizer(name, quantization, place, dtype)
    if device_map is not None:
        need("accelerate", name, "a device_map", "accelerate")
        options["device_map"] = device_map
    elif stored or (quantization and place.type != "cpu"):
        need("accelerate", name, "a quantized model", "accelerate")
        options["device_map"] = {"": _number(place)}
    return options


def _number(place: torch.device) -> int | str:
    """A device as device maps name it: CUDA devices by number."""
    if place.type != "cuda":
        return str(place)
    return torch.cuda.current_device() if place.index is None else place.index


def _quantizer(
    name: str, quantization: Quantization, place: torch.device, dtype: torch.dtype
) -> BitsAndBytesConfig | TorchAoConfig:
    """The quantization config. Raises ModelError if the device or a package is missing."""
    if quantization == "int8" and place.type in ("cpu", "cuda"):
        # Not LLM.int8: its outliers, and so a prompt's results, depend on the whole batch.
        need("torchao", name, "int8", "'.[int8]' in a checkout of schemax")
        with refusing(name):
            return TorchAoConfig(import_module("torchao.quantization").Int8WeightOnlyConfig())
    if place.type != "cuda":
        other = 'or take "int8", which runs on a CPU' if quantization == "nf4" else "or on a CPU"
        raise ModelError(
            f"{name}: {quantization} needs a CUDA device, and the model was to run on "
            f"{str(place)!r}; load it without `quantization`, {other}"
        )
    need("bitsandbytes", name, "nf4", "'.[bitsandbytes]' in a checkout of schemax")
    with refusing(name):
        return BitsAndBytesConfig(  # type: ignore[no-untyped-call]
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=dtype,
        )
