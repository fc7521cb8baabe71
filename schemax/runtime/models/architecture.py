"""The architecture of a model: its layers, its positions, and any obstacle to in-sequence decoding.

It is read off the configuration and the code, without running the model; `self_test` runs it.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from schemax.errors import ModelError

# Layer kinds that mix no tokens: they see one token at a time.
_POINTWISE = {"moe", "mlp", "dense", "sparse"}
_ATTENTION = {"full_attention", "attention", "sliding_attention"}


@dataclass(frozen=True, slots=True)
class Architecture:
    """A causal language model's parts.

    layer_counts: the number of layers by kind.
    heads: such as "GQA 16/8".
    position_encoding: such as "rotary (llama3)".
    max_positions: the position ids that the model takes; None without a bound. With longrope, those
        that its short factors serve: transformers would choose for all prompts of a pass at once.
    state_name: the argument that carries the cache or recurrent state.
    takes_positions: whether the model takes position ids.
    uneven_steps: whether recurrent layers clamp time steps when they read several tokens, but not
        when they read one, as some do in transformers; results then depend slightly on how a text
        is cut into passes.
    obstacle: why the model cannot decode in sequence, as "it ..."; None if it can.
    """

    layer_counts: dict[str, int]
    heads: str
    position_encoding: str
    max_positions: int | None
    state_name: str | None
    takes_positions: bool
    uneven_steps: bool
    obstacle: str | None


def examine(model: Any) -> Architecture:
    """Reads the architecture off a transformers model's configuration and signatures.

    Raises ModelError for a configuration whose context has no positions.
    """
    config = model.config.get_text_config()
    parameters = inspect.signature(type(model).forward).parameters
    kinds = _layer_counts(config)
    return Architecture(
        layer_counts=kinds,
        heads=_heads(config, kinds),
        position_encoding=_position_encoding(model, config),
        max_positions=_max_positions(config),
        state_name=state_name(model),
        takes_positions="position_ids" in parameters,
        uneven_steps=any(
            getattr(module, "time_step_limit", (0.0,))[0] > 0 for module in model.modules()
        ),
        obstacle=_obstacle(model, config, kinds),
    )


def state_name(model: Any) -> str | None:
    """The name, as argument and in the output, of the cache or recurrent state; None without one.

    From transformers 5.24 on most models call it `cache`; models differed before.
    """
    parameters = inspect.signature(type(model).forward).parameters
    names = ("cache", "past_key_values", "cache_params", "state")
    return next((name for name in names if name in parameters), None)


def decoder_of(model: Any) -> Any:
    """The part of a model below the output head."""
    decoder = model.get_decoder() if hasattr(model, "get_decoder") else model.base_model
    # Llama 4's text model names itself as its decoder.
    return getattr(model, "model", model.base_model) if decoder is model else decoder


def takes_masks_by_type(model: Any) -> bool:
    """True if the decoder picks its masks by layer kind out of a dict."""
    try:
        return "causal_mask_mapping" in inspect.getsource(type(decoder_of(model)).forward)
    except (OSError, TypeError):
        return False


def windows_by_kind(config: Any, windows: Sequence[int | None]) -> dict[str, int | None]:
    """The windows of attention layers, by kind, named as the keys of masks.

    windows: those that layers call their attention with; a config may give one without any use.
    """
    kinds = [kind for kind in getattr(config, "layer_types", None) or () if kind in _ATTENTION]
    kinds = kinds or ["attention"] * len(windows)
    return dict(zip(kinds, windows, strict=False)) or {"attention": None}


def _layer_counts(config: Any) -> dict[str, int]:
    kinds = getattr(config, "layer_types", None) or getattr(config, "block_types", None)
    # GPT-Neo names its layers elsewhere.
    kinds = kinds or [f"{kind}_attention" for kind in getattr(config, "attention_layers", ())]
    kinds = kinds or ["attention"] * config.num_hidden_layers
    return {kind: list(kinds).count(kind) for kind in dict.fromkeys(kinds)}


def _obstacle(model: Any, config: Any, kinds: dict[str, int]) -> str | None:
    if "position_ids" not in inspect.signature(type(decoder_of(model)).forward).parameters:
        return "takes no position ids, so that tokens cannot be placed out of order"
    if getattr(config, "alibi", False):
        return "uses ALiBi, which goes by the order of arrival"
    if odd := [
        kind for kind in kinds if kind not in _ATTENTION | _POINTWISE | {"global_attention"}
    ]:
        return f"has layers of the kind {', '.join(odd)}, which go by the order of arrival"
    attention = [kind for kind in kinds if kind in _ATTENTION]
    if len(attention) > 1 and not takes_masks_by_type(model):
        return f"mixes {' and '.join(attention)} but takes one mask for all"
    return None


def _max_positions(config: Any) -> int | None:
    for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
        if isinstance(bound := getattr(config, name, None), int):
            if bound < 1:
                raise ModelError(
                    f"the model's config gives {name} as {bound}, so no text would fit into its "
                    "context; correct config.json"
                )
            return _scaled(config, bound)
    return None


def _scaled(config: Any, bound: int) -> int:
    """The context under RoPE scaling; configs may give the trained or the extended one."""
    parameters = getattr(config, "rope_parameters", None) or {}
    trained = parameters.get("original_max_position_embeddings")
    if "longrope" in _rope_types(parameters):
        own: int | None = trained or getattr(config, "original_max_position_embeddings", None)
        return min(bound, own or bound)
    if parameters.get("rope_type") not in ("linear", "yarn"):
        return bound
    return max(bound, int((trained or bound) * (parameters.get("factor") or 1)))


def _heads(config: Any, kinds: dict[str, int]) -> str:
    if not any("attention" in kind or kind == "hybrid" for kind in kinds):
        return "no attention"
    heads = getattr(config, "num_attention_heads", None) or getattr(config, "n_head", None)
    if not isinstance(heads, int):
        return "no attention"
    if getattr(config, "kv_lora_rank", None):
        return f"MLA {heads}"
    kv = getattr(config, "num_key_value_heads", None) or heads
    if getattr(config, "multi_query", False) and not getattr(
        config, "new_decoder_architecture", False
    ):
        kv = 1
    kind = "MHA" if kv == heads else "MQA" if kv == 1 else "GQA"
    return f"{kind} {heads}/{kv}"


def _position_encoding(model: Any, config: Any) -> str:
    if getattr(config, "alibi", False) or getattr(config, "model_type", "") in ("bloom", "mpt"):
        return "ALiBi"
    if "position_ids" not in inspect.signature(type(decoder_of(model)).forward).parameters:
        return "order of arrival"
    types = dict.fromkeys(_rope_types(getattr(config, "rope_parameters", None)))
    if types:
        scaled = [kind for kind in types if kind != "default"]
        return f"rotary ({', '.join(scaled)})" if scaled else "rotary"
    names = [name for name, _ in model.named_modules()]
    if any("rotary" in name for name in names) or getattr(config, "rotary_dim", None):
        return "rotary"
    learned = any(name.endswith(("wpe", "embed_positions")) for name in names)
    return "learned" if learned else "order of arrival"


def _rope_types(parameters: Any) -> Iterator[str]:
    """Yields all scaling types; some models have parameters for each layer kind."""
    if isinstance(parameters, dict):
        for key, value in parameters.items():
            if key in ("rope_type", "type") and isinstance(value, str):
                yield value
            yield from _rope_types(value)
