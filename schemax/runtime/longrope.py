"""Longrope with one choice of factors for a whole prompt."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn


class Longrope:
    """Hooks that let the caller choose longrope's factors.

    transformers chooses by the largest position id of a forward pass, so that other prompts in the
    batch and later steps would change a prompt's frequencies. Here the caller chooses for a whole
    prompt: one more column with a position id beyond the switch selects the long factors, and is
    cut off again.
    """

    def __init__(self, switch: int) -> None:
        self._switch = switch
        self._long = False
        # transformers writes the factors into a buffer that all threads share.
        self._lock = threading.RLock()

    @classmethod
    def of(cls, model: Any, switch: int) -> Longrope:
        """The hooks of a model; the existing ones if the model was wrapped before."""
        modules = [m for name, m in model.named_modules() if name.endswith("rotary_emb")]
        for hook in (hook for module in modules for hook in module._forward_pre_hooks.values()):
            if isinstance(owner := getattr(hook, "__self__", None), Longrope):
                return owner
        made = cls(switch)
        for module in modules:
            module.register_forward_pre_hook(made._lengthen, with_kwargs=True)
            module.register_forward_hook(made._shorten)
        return made

    @contextmanager
    def chosen(self, long: bool) -> Iterator[None]:
        with self._lock:
            self._long = long
            try:
                yield
            finally:
                self._long = False

    def _lengthen(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._long:
            return None
        *others, position_ids = args if "position_ids" not in kwargs else (*args, None)
        position_ids = kwargs.pop("position_ids", position_ids)
        beyond = position_ids.new_full((len(position_ids), 1), self._switch)
        return tuple(others), {**kwargs, "position_ids": torch.cat([position_ids, beyond], 1)}

    def _shorten(self, _module: nn.Module, _args: Any, output: tuple[Tensor, Tensor]) -> Any:
        return tuple(part[:, :-1] for part in output) if self._long else None

    def __reduce__(self) -> Any:
        return Longrope, (self._switch,)  # models are copied and pickled with their hooks
