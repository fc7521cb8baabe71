"""RoPE scaling of GGUF files, as transformers' configs state it; transformers' reader drops it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from schemax.errors import ModelError
from schemax.runtime.models.loading.gguf_header import GGUFHeader
from schemax.runtime.models.loading.refusals import some

FREQS, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
"""The tensors that divide the frequencies: always, beyond the trained context, and within it."""

# What each kind of scaling has: names in a file, behind "rope.scaling.", and in a config.
_TRAINED = {"original_context_length": "original_max_position_embeddings"}
_YARN = {"yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}
_NAMES = {
    "linear": {"factor": "factor", **_TRAINED},
    "yarn": {"factor": "factor", **_YARN, **_TRAINED},
    "longrope": {"attn_factor": "attention_factor", **_TRAINED},
}


def scale_rope(path: Path, header: GGUFHeader, config: Any) -> None:
    """Puts a file's RoPE scaling into its config.

    Raises ModelError for scaling that transformers does not have.
    """
    prefix = f"{header.architecture}.rope.scaling."
    stated = {
        key.removeprefix(prefix): value
        for key, value in header.values.items()
        if key.startswith(prefix) and not key.endswith(".finetuned")
    }
    kind = stated.pop("type", "linear")  # llama.cpp's default
    if stated.get("factor") in (0, 1):
        del stated["factor"]
    factors = _factors(path, header)
    if factors:
        kind = "longrope"
    elif kind == "none" or "factor" not in stated:
        return
    if FREQS in factors:  # Llama 3: the same at every length
        factors = {LONG: factors[FREQS], SHORT: factors[FREQS]}
        stated["original_context_length"] = config.max_position_embeddings
    names = _NAMES.get(kind, {})
    if unknown := sorted(stated.keys() - names.keys()):
        raise ModelError(
            f"{path} scales its RoPE in a way that transformers does not have ({kind} with "
            f"{some(unknown)}); load the same model in safetensors format"
        )
    scaling = {"rope_type": kind, **{names[key]: value for key, value in stated.items()}}
    if factors:
        pair = {"long_factor": factors[LONG], "short_factor": factors[SHORT]}
        scaling = {"factor": 1.0, "attention_factor": 1.0, **pair, **scaling}
    # Of models with sliding windows, such as Gemma 3, only full attention is scaled.
    config.rope_parameters.get("full_attention", config.rope_parameters).update(scaling)
    if kind == "longrope" and hasattr(config, _TRAINED["original_context_length"]):  # as Phi-3 has
        config.original_max_position_embeddings = stated["original_context_length"]


def _factors(path: Path, header: GGUFHeader) -> dict[str, list[float]]:
    """The numbers of the tensors that scale RoPE."""
    if not {FREQS, LONG, SHORT} & header.shapes.keys():
        return {}
    gguf = import_module("gguf")
    return {
        tensor.name: gguf.dequantize(tensor.data, tensor.tensor_type).tolist()
        for tensor in gguf.GGUFReader(path).tensors
        if tensor.name in (FREQS, LONG, SHORT)
    }
