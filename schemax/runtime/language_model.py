"""What both ways of decoding need of a model of transformers."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn

from schemax.config import DecodingConfig
from schemax.errors import ModelError
from schemax.runtime.anatomy import examine
from schemax.runtime.plan import Plan


class LanguageModel(ABC):
    """A causal language model whose output head is only computed where it is needed.

    Raises ModelError for a model without such a head.
    """

    def __init__(self, model: Any) -> None:
        self.model: Any = model.eval()
        self.name = type(model).__name__
        head = head_of(model)
        self.config: Any = model.config.get_text_config()
        self.anatomy = examine(model)
        weights = next(model.parameters())
        self.device: torch.device = weights.device
        self.dtype: torch.dtype = model.dtype
        self.vocab_size: int = head.weight.shape[0]
        self.max_positions = self.anatomy.max_positions
        # One extractor may serve several threads; what a forward pass selects is its own affair.
        self._local = threading.local()
        head.register_forward_pre_hook(self._select_hidden)

    @abstractmethod
    def refusal(self, config: DecodingConfig) -> str | None:
        """Why the model cannot decode with these settings; None if it can."""

    @abstractmethod
    def cache_tokens(self, plan: Plan) -> int:
        """How many tokens the cache comes to hold for one prompt, by a generous guess."""

    @abstractmethod
    def passes(self, key_tokens: int, value_tokens: int) -> int:
        """Forward passes, prefill included, that a slot takes part in."""

    def fits(self, plan: Plan) -> bool:
        """Whether a prompt, with its gaps and budgets, lies within the model's context."""
        if self.max_positions is not None and plan.max_position >= self.max_positions:
            return False
        limit = self.anatomy.max_tokens
        return limit is None or len(plan.input_ids) + int((plan.k_max + 1).sum()) < limit

    def is_long(self, plan: Plan) -> bool:
        """Whether the prompt gets longrope's long factors, by its largest possible position id.

        Prompts that differ in this never share a batch.
        """
        switch = self.anatomy.switch
        return switch is not None and plan.max_position >= switch

    def _run(self, selection: tuple[Tensor, Tensor], **inputs: Any) -> Any:
        """The model's output, with (1, S, V) logits at S places (rows, columns)."""
        self._local.selection = selection
        try:
            return self.model(**inputs)
        finally:
            self._local.selection = None

    def _select_hidden(self, _head: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Before the output head: (B, Q, H) -> (1, S, H), so that only S rows meet the vocabulary.

        Done here and not by `logits_to_keep`, which means different things in different releases;
        whatever a model does to its logits afterwards (softcap, scaling) still happens.
        """
        selection = getattr(self._local, "selection", None)
        if selection is None:
            return args
        rows, columns = (index.to(args[0].device) for index in selection)
        return (args[0][rows, columns][None], *args[1:])


def head_of(model: Any) -> Any:
    """The output head. Raises ModelError where there is none, or where an encoder comes first."""
    head = model.get_output_embeddings() if hasattr(model, "get_output_embeddings") else None
    if head is None or getattr(model.config, "is_encoder_decoder", False):
        raise ModelError(
            f"{type(model).__name__} has no language-model head; a causal language model is needed"
        )
    return head
