"""Loading a causal language model: local folder or Hub id, safetensors only, no remote code."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils.hub import cached_file

from schemax.errors import ModelError


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model, its tokenizer, and the prompt template that came along."""

    model: Any
    tokenizer: Any
    template: str | None


def load(
    name: str | Path,
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    attn_implementation: str | None = None,
    revision: str | None = None,
) -> Loaded:
    """Loads weights and tokenizer.

    device: "auto" takes CUDA or MPS where there is one.
    dtype: "auto" takes the model's own on an accelerator and float32 on a CPU.

    Raises ModelError for a folder without config, safetensors weights or tokenizer, and for
    models that transformers cannot load without remote code.
    """
    name = str(name)
    if Path(name).is_dir():
        _check_folder(Path(name))
    place = pick_device(device)
    options: dict[str, Any] = {"revision": revision, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(name, **options)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            name,
            config=config,
            dtype=_pick_dtype(dtype, place, config),
            attn_implementation=attn_implementation,
            use_safetensors=True,
            output_loading_info=True,
            **options,
        )
        tokenizer = AutoTokenizer.from_pretrained(name, **options)
    except Exception as error:  # damaged files raise whatever their readers raise
        raise ModelError(f"{name}: {_first_line(error)}") from error
    model, report = loaded
    if missing := sorted(report["missing_keys"]):
        shown = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise ModelError(
            f"{name}: the weights lack {len(missing)} of the model's tensors ({shown}); "
            "they belong to another model, or are only a part of this one"
        )
    return Loaded(
        model=model.to(place),
        tokenizer=tokenizer,
        template=_own_template(name, revision),
    )


def pick_device(device: str | torch.device) -> torch.device:
    """Raises ModelError for a device that this machine lacks."""
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        place = torch.device(device)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(f"device {str(device)!r} cannot be used: {_first_line(error)}") from error
    return place


def _pick_dtype(dtype: str | torch.dtype, device: torch.device, config: Any) -> torch.dtype:
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype == "auto":
        own = getattr(config, "dtype", None)
        return torch.float32 if device.type == "cpu" or own is None else own
    found = getattr(torch, dtype, None)
    if not isinstance(found, torch.dtype) or not found.is_floating_point:
        raise ModelError(f"dtype {dtype!r} is none; use float32, bfloat16 or float16")
    return found


def _check_folder(folder: Path) -> None:
    for name, remedy in (
        ("config.json", "it is not a model folder of transformers"),
        ("tokenizer.json", "save a fast tokenizer into it"),
    ):
        if not (folder / name).is_file():
            raise ModelError(f"{folder} has no {name}: {remedy}")
    if not any(folder.glob("*.safetensors")):
        raise ModelError(
            f"{folder} holds no weights in safetensors format; other formats can run code when "
            "loaded and are not read"
        )


def all_eos_ids(model: Any, tokenizer: Any) -> tuple[int, ...]:
    """Ids that end an output, by the model's generation config and by its tokenizer."""
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ids = [
        *(named if isinstance(named, (list, tuple)) else [named]),
        getattr(tokenizer, "eos_token_id", None),
    ]
    return tuple(sorted({int(i) for i in ids if i is not None}))


def _own_template(name: str, revision: str | None) -> str | None:
    """The text of `prompt.jinja` beside the weights, local or on the Hub."""
    path = cached_file(
        name,
        "prompt.jinja",
        revision=revision,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return Path(path).read_text("utf-8") if path else None


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
