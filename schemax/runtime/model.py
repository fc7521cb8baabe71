"""The seam to transformers: masks in the form each backend wants, logits where they are needed."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from schemax.config import DecodingConfig
from schemax.errors import ModelError
from schemax.runtime.kvcache import SlotCache
from schemax.runtime.visibility import TokenInfo, visible

_ATTENTION = {"full_attention", "sliding_attention"}
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
        self._windows = _windows(self.config)
        self._takes_mapping = _takes_mapping(model)
        # One extractor may serve several threads; what a forward pass selects is its own affair.
        self._local = threading.local()
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
        self._local.selection = selection
        try:
            output = self.model(
                input_ids=input_ids,
                position_ids=tokens.position_ids,
                attention_mask=self._masks(tokens, context, config),
                past_key_values=cache,
                use_cache=cache is not None,
            )
        finally:
            self._local.selection = None
        logits: Tensor = output.logits[0]
        return logits

    def _select_hidden(self, _head: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Before the output head: (B, Q, H) -> (1, S, H), so that only S rows meet the vocabulary.

        Done here and not by `logits_to_keep`, which means different things in different releases;
        whatever a model does to its logits afterwards (softcap, scaling) still happens.
        """
        selection = getattr(self._local, "selection", None)
        if selection is None:
            return args
        rows, columns = selection
        return (args[0][rows, columns][None], *args[1:])

    def _masks(
        self, tokens: TokenInfo, context: TokenInfo, config: DecodingConfig
    ) -> Tensor | dict[str, Tensor]:
        masks = {
            kind: self._mask(visible(tokens, context, config, window))
            for kind, window in self._windows.items()
        }
        return masks if self._takes_mapping else next(iter(masks.values()))

    def _mask(self, allowed: Tensor) -> Tensor:
        """(B, Q, K) -> (B, 1, Q, K): boolean for sdpa; additive for eager, which only adds."""
        allowed = allowed[:, None]
        if self.config._attn_implementation == "sdpa":
            return allowed
        lowest = torch.finfo(self.dtype).min
        return torch.zeros_like(allowed, dtype=self.dtype).masked_fill_(~allowed, lowest)


def _windows(config: Any) -> dict[str, int | None]:
    """Layer types and their sliding windows, in position ids; None where there is no window."""
    window = getattr(config, "sliding_window", None)
    if not getattr(config, "use_sliding_window", True):
        window = None
    kinds = set(getattr(config, "layer_types", None) or ())
    if not kinds:
        return {"sliding_attention" if window else "full_attention": window}
    return {kind: window if kind == "sliding_attention" else None for kind in sorted(kinds)}


def _takes_mapping(model: Any) -> bool:
    """Whether the decoder picks its masks by layer type out of a dict."""
    base = _base(model)
    try:
        return "causal_mask_mapping" in inspect.getsource(type(base).forward)
    except (OSError, TypeError):
        return False


def _base(model: Any) -> Any:
    return model.get_decoder() if hasattr(model, "get_decoder") else model.base_model


def _refuse_unfit(model: Any, config: Any) -> None:
    name = type(model).__name__
    if not hasattr(model, "get_output_embeddings") or model.get_output_embeddings() is None:
        raise ModelError(f"{name} has no language-model head; a causal language model is needed")
    if "position_ids" not in inspect.signature(type(_base(model)).forward).parameters:
        raise ModelError(
            f"{name} takes no position ids, so tokens cannot be placed out of order in it; "
            "choose a model with rotary or learned positions"
        )
    if getattr(config, "alibi", False):
        raise ModelError(
            f"{name} uses ALiBi, which goes by the order of arrival; choose a model with rotary or "
            "learned positions"
        )
    kinds = set(getattr(config, "layer_types", None) or ())
    # GPT-Neo names its layers elsewhere, and cuts windows by order of arrival.
    kinds |= {"local attention"} & {
        f"{x} attention" for x in getattr(config, "attention_layers", ())
    }
    if odd := sorted(kinds - _ATTENTION):
        raise ModelError(
            f"{name} has layers of the kind {', '.join(odd)}, which do not go by position ids; "
            "choose a model with plain or sliding-window attention in all layers"
        )
    if len(kinds) > 1 and not _takes_mapping(model):
        raise ModelError(
            f"{name} mixes layer types but takes one mask for all; choose a model with one type"
        )
    for kind in _rope_types(getattr(config, "rope_parameters", None)):
        if kind in _LENGTH_DEPENDENT_ROPE:
            raise ModelError(
                f"{name} uses {kind!r} rotary embeddings, whose frequencies depend on the longest "
                "batch-mate, so outputs would too; choose a model with plain, linear, yarn or "
                "llama3 scaling"
            )
    if config._attn_implementation not in ("sdpa", "eager"):
        raise ModelError(
            f"attention implementation {config._attn_implementation!r} takes no custom mask; "
            'load the model with attn_implementation="sdpa"'
        )


def _rope_types(parameters: Any) -> Iterator[str]:
    """All scaling types in use; some models keep one set of parameters per layer type."""
    if isinstance(parameters, dict):
        for key, value in parameters.items():
            if key in ("rope_type", "type") and isinstance(value, str):
                yield value
            yield from _rope_types(value)
