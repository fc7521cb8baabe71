"""`LanguageModel`: a model of transformers, the base of in-sequence decoding and forks."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from schemax.config import DecodingConfig
from schemax.errors import ModelError
from schemax.runtime.models.architecture import examine
from schemax.runtime.models.packed import num_rows
from schemax.runtime.slots.memory import bytes_of_pass
from schemax.runtime.slots.outputs import DocumentOutput


class LanguageModel(ABC):
    """A causal language model that computes its output head only at selected places.

    shares: the share of its layers by device. is_sharded: whether other processes hold parts of it,
    and so must run the same passes.
    Raises ModelError for a model without an output head, and for an attention implementation that
    would leave out the model's cap on scores.
    """

    def __init__(self, model: Any) -> None:
        self.model: Any = model.eval()
        self.name = type(model).__name__
        head = head_of(model)
        self.config: Any = model.config.get_text_config()
        self.architecture = examine(model)
        softcap = getattr(self.config, "attn_logit_softcapping", None)
        if softcap and self.config._attn_implementation not in ("eager", "flex_attention"):
            raise ModelError(
                f"{self.name} caps its attention scores, which "
                f"{self.config._attn_implementation!r} does not; load it with "
                'attn_implementation="eager" or "flex_attention"'
            )
        weights = next(model.parameters())
        self.device: torch.device = weights.device
        self.dtype: torch.dtype = model.dtype
        self.shares: Mapping[torch.device, float] = _shares(model)
        self.is_sharded = any(hasattr(part, "device_mesh") for part in model.parameters())
        self.vocab_size = num_rows(head)
        self.max_positions = self.architecture.max_positions
        self._selection = HeadSelection.of(head)

    @property
    def pass_bytes(self) -> int:
        """The most bytes that one more token of a pass takes."""
        return bytes_of_pass(self.config, self.dtype)

    @property
    def not_finite(self) -> DocumentOutput:
        """The output of a document whose logits are not finite."""
        problem = f"{self.name} computes NaN or infinity in {self.dtype}"
        return DocumentOutput((), 0, f"{problem}; load it with another dtype, such as float32")

    @abstractmethod
    def refusal(self, config: DecodingConfig) -> str | None:
        """The reason why the model cannot decode with these settings; None if it can."""

    def _run(self, places: tuple[Tensor, Tensor], **inputs: Any) -> Any:
        """Runs the model; its output has (1, S, V) logits at S places (rows, columns)."""
        self._selection.local.places = places
        try:
            return self.model(**inputs)
        finally:
            self._selection.local.places = None


class HeadSelection:
    """A hook before the output head: (B, Q, H) -> (1, S, H), so that it computes S rows only.

    It replaces `logits_to_keep`, whose meaning changes between releases. Softcaps and scaling of
    logits behind the head still apply.
    """

    def __init__(self) -> None:
        # By thread: several threads may share an extractor.
        self.local = threading.local()

    @classmethod
    def of(cls, head: nn.Module) -> HeadSelection:
        """The hook of a head; the existing one if the model was wrapped before."""
        for hook in head._forward_pre_hooks.values():
            if isinstance(hook, HeadSelection):
                return hook
        selection = cls()
        head.register_forward_pre_hook(selection)
        return selection

    def __call__(self, _head: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        places = getattr(self.local, "places", None)
        if places is None:
            return args
        rows, columns = (index.to(args[0].device) for index in places)
        return (args[0][rows, columns][None], *args[1:])

    def __reduce__(self) -> Any:
        return HeadSelection, ()  # models are copied and pickled with their hooks


def _shares(model: Any) -> dict[torch.device, float]:
    """The share of a model's weights on each accelerator; without any, on the CPU."""
    sizes = {next(model.parameters()).device: 1}
    for weights in model.parameters():
        sizes[weights.device] = sizes.get(weights.device, 0) + weights.numel()
    fast = {device: n for device, n in sizes.items() if device.type not in ("cpu", "meta")}
    chosen = fast or {device: n for device, n in sizes.items() if device.type == "cpu"} or sizes
    return {device: size / sum(chosen.values()) for device, size in chosen.items()}


def head_of(model: Any) -> Any:
    """The output head. Raises ModelError for a model without one, or with an encoder."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is None or getattr(model.config, "is_encoder_decoder", False):
        raise ModelError(
            f"{type(model).__name__} has no language-model head; a causal language model is needed"
        )
    return head
