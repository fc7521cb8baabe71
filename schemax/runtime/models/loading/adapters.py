"""LoRA adapters: fetched, checked, and put on a model by peft."""

from __future__ import annotations

import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import nn

from schemax.base.resources import fetched
from schemax.errors import ModelError
from schemax.runtime.models.loading.refusals import need, read_object, refusing, some
from schemax.runtime.models.loading.rounding import merge_adapters

ADAPTER_CONFIG = "adapter_config.json"
ADAPTER_WEIGHTS = "adapter_model.safetensors"

# Settings of adapters that do more than change the weights of the base model's own layers; for
# Megatron, peft would import whatever module the file names.
_MORE_THAN_WEIGHTS = (
    *("layer_replication", "trainable_token_indices", "alora_invocation_tokens"),
    *("arrow_config", "megatron_config"),
)


def fetch_adapter(name: str, revision: str | None = None) -> Path:
    """The folder of an adapter, fetched if it is on the Hub.

    Raises ModelError without peft, for adapters that cannot be read, and for adapters other than
    LoRA of causal language models.
    """
    need("peft", name, "an adapter", "'.[peft]' in a checkout of schemax")
    folder = fetched(name, revision, ADAPTER_WEIGHTS)
    for file in (ADAPTER_CONFIG, ADAPTER_WEIGHTS):
        if not (folder / file).is_file():
            raise ModelError(
                f"{name} has no {file}, so it is not an adapter that peft saved as safetensors; "
                "other formats can run code when loaded and are not read"
            )
    _check_kind(name, adapter_settings(folder))
    return folder


def adapter_settings(folder: Path) -> dict[str, Any]:
    """Reads an adapter's own settings. Raises ModelError for settings that cannot be read."""
    with refusing(str(folder)):
        return read_object(folder / ADAPTER_CONFIG)


def put_adapter(model: Any, folder: Path) -> Any:
    """The model with the adapter merged, or beside the weights if these are quantized.

    Raises ModelError for an adapter of another model, and for weights offloaded to memory or disk.
    """
    if any(weight.is_meta for weight in model.parameters()):
        raise ModelError(
            f"{folder}: the device_map offloads weights to memory or disk, where no adapter can be "
            "merged into them; choose a device_map without offloading, or merge the adapter first"
        )
    with refusing(str(folder)), warnings.catch_warnings():
        # peft warns of shared embeddings, which `_untie` handles, and of matters of training.
        warnings.simplefilter("ignore")
        peft = import_module("peft")
        settings = peft.PeftConfig.from_pretrained(str(folder))
        settings.inference_mode = True
        tuned = peft.PeftModelForCausalLM(model, settings).eval()
        tensors = peft.load_peft_weights(str(folder), device=str(model.device))
        _check_complete(folder, peft.set_peft_model_state_dict(tuned, tensors))
        if getattr(model, "is_quantized", False):
            return tuned.get_base_model()
        _untie(model)
        return merge_adapters(tuned)


def _check_kind(name: str, settings: dict[str, Any]) -> None:
    kind, task = settings.get("peft_type"), settings.get("task_type")
    if kind != "LORA":
        raise ModelError(f"{name} is an adapter of the kind {kind}; only LORA is supported")
    if task not in (None, "CAUSAL_LM"):
        raise ModelError(f"{name} was trained for {task}; an adapter for CAUSAL_LM is needed")
    if more := [setting for setting in _MORE_THAN_WEIGHTS if settings.get(setting)]:
        raise ModelError(
            f"{name} has {more[0]} in its {ADAPTER_CONFIG}, so it does more than change weights of "
            "the base model's own layers; merge it with peft, and name the result"
        )


def _check_complete(folder: Path, result: Any) -> None:
    # The adapter's file lacks all tensors of the base model, so only its own count.
    missing = [key for key in result.missing_keys if ".default" in key]
    if odd := missing or result.unexpected_keys:
        what = "lacks" if missing else "holds too many"
        raise ModelError(
            f"{folder} {what} tensors for this model ({some(odd)}); it belongs to another one"
        )


def _untie(model: Any) -> None:
    """Gives the output head weights of its own if the adapter changes it or the embeddings.

    Otherwise merging into one of them would change the other, too.
    """
    head, embeddings = model.get_output_embeddings(), model.get_input_embeddings()
    inner = head.get_base_layer() if hasattr(head, "get_base_layer") else head
    if inner is not head or hasattr(embeddings, "get_base_layer"):
        inner.weight = nn.Parameter(inner.weight.detach().clone(), requires_grad=False)
        model.config.tie_word_embeddings = False
