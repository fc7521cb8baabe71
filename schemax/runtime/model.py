"""The seam to transformers: masks in the form each backend wants, logits where they are needed."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from schemax.config import DecodingConfig
from schemax.errors import ModelError
from schemax.runtime.kvcache import SlotCache
from schemax.runtime.visibility import TokenInfo, visible

_RECURRENT = ("linear_attention", "mamba", "recurrent", "conv", "moe_mamba", "hybrid")
_LENGTH_DEPENDENT_ROPE = ("dynamic", "longrope")


class DecoderModel:
    """A causal language model of transformers, for out-of-order decoding.

    Raises ModelError for models that in-sequence decoding cannot serve.
    """

    def __init__(self, model: Any) -> None:
        self.model: Any = model.eval()
        self.config: Any = model.config.get_text_config()
        _refuse_unfit(model, self.config)
        self.device: torch.device = next(model.parameters()).device
        self.dtype: torch.dtype = next(model.parameters()).dtype
        head = model.get_output_embeddings()
        self.vocab_size: int = head.weight.shape[0]
        self.max_positions: int | None = getattr(self.config, "max_position_embeddings", None)
        self.num_layers: int = self.config.num_hidden_layers
        self._selection: tuple[Tensor, Tensor] | None = None
        head.register_forward_pre_hook(self._select_hidden)

    def fits(self, position: int) -> bool:
        """Whether a position id lies within the model's context."""
        return self.max_positions is None or position < self.max_positions

    def new_cache(self) -> SlotCache:
        return SlotCache(self.num_layers)

    def forward(
        self,
        input_ids: Tensor,
        tokens: TokenInfo,
        context: TokenInfo,
        cache: SlotCache | None,
        selection: tuple[Tensor, Tensor],
        config: DecodingConfig,
    ) -> Tensor:
        """One step. (B, Q) ids -> (S, V) logits at the S places of `selection` (rows, columns).

        tokens describes the Q tokens, context all tokens in the cache, these included; without a
        cache, as in training, both are the same.
        """
        self._selection = selection
        try:
            output = self.model(
                input_ids=input_ids,
                position_ids=tokens.position_ids,
                attention_mask=self._masks(tokens, context, config),
                past_key_values=cache,
                use_cache=cache is not None,
            )
        finally:
            self._selection = None
        logits: Tensor = output.logits[0]
        return logits

    def _select_hidden(self, _head: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Before the output head: (B, Q, H) -> (1, S, H), so that only S rows meet the vocabulary.

        Done here and not by `logits_to_keep`, which means different things in different releases;
        whatever a model does to its logits afterwards (softcap, scaling) still happens.
        """
        if self._selection is None:
            return args
        rows, columns = self._selection
        return (args[0][rows, columns][None], *args[1:])

    def _masks(
        self, tokens: TokenInfo, context: TokenInfo, config: DecodingConfig
    ) -> Tensor | dict[str, Tensor]:
        layer_types = set(getattr(self.config, "layer_types", None) or ())
        window = getattr(self.config, "sliding_window", None)
        if not getattr(self.config, "use_sliding_window", True):
            window = None
        if not layer_types:
            return self._mask(visible(tokens, context, config, window))
        if layer_types <= {"full_attention"}:
            mask = self._mask(visible(tokens, context, config))
            return {"full_attention": mask} if _takes_mapping(self.model) else mask
        masks = {
            kind: self._mask(
                visible(tokens, context, config, window if kind != "full_attention" else None)
            )
            for kind in layer_types
        }
        return masks if _takes_mapping(self.model) else next(iter(masks.values()))

    def _mask(self, allowed: Tensor) -> Tensor:
        """(B, Q, K) -> (B, 1, Q, K): boolean for sdpa; additive for eager, which only adds."""
        allowed = allowed[:, None]
        if self.config._attn_implementation == "sdpa":
            return allowed
        lowest = torch.finfo(self.dtype).min
        return torch.zeros_like(allowed, dtype=self.dtype).masked_fill_(~allowed, lowest)


def _takes_mapping(model: Any) -> bool:
    """Whether the decoder picks its masks by layer type out of a dict."""
    base: Any = model.get_decoder() if hasattr(model, "get_decoder") else model.base_model
    try:
        return "causal_mask_mapping" in inspect.getsource(type(base).forward)
    except (OSError, TypeError):
        return False


def _refuse_unfit(model: Any, config: Any) -> None:
    name = type(model).__name__
    if not hasattr(model, "get_output_embeddings") or model.get_output_embeddings() is None:
        raise ModelError(f"{name} has no language-model head; a causal language model is needed")
    base: Any = model.get_decoder() if hasattr(model, "get_decoder") else model.base_model
    if "position_ids" not in inspect.signature(type(base).forward).parameters:
        raise ModelError(
            f"{name} takes no position ids, so tokens cannot be placed out of order in it; "
            "choose a model with rotary or learned positions"
        )
    layer_types = getattr(config, "layer_types", None) or ()
    recurrent = sorted({kind for kind in layer_types if any(word in kind for word in _RECURRENT)})
    if recurrent:
        raise ModelError(
            f"{name} has recurrent layers ({', '.join(recurrent)}), which read tokens in order of "
            "arrival; choose a model whose layers are all attention"
        )
    rope = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    kind = rope.get("rope_type", rope.get("type")) if isinstance(rope, dict) else None
    if kind in _LENGTH_DEPENDENT_ROPE:
        raise ModelError(
            f"{name} uses {kind!r} rotary embeddings, whose frequencies depend on the longest "
            "batch-mate, so outputs would too; choose a model with plain, linear, yarn or llama3 "
            "scaling"
        )
    if config._attn_implementation not in ("sdpa", "eager"):
        raise ModelError(
            f"attention implementation {config._attn_implementation!r} takes no custom mask; "
            'load the model with attn_implementation="sdpa"'
        )
