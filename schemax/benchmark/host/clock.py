"""CPU time of what an accelerator would do: forward passes, and what is done to their logits."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn


@dataclass(slots=True)
class ModelTime:
    """Sums over the passes that read documents or wrote values.

    forward: CPU seconds of the model's forward passes, attention and cache included; logits: of
        torch operations on their logits and on what came of these, on the host or not.
    passes: how many; slots: live slots, over all passes; most_slots: of one pass.
    """

    forward: float = 0.0
    logits: float = 0.0
    passes: int = 0
    slots: int = 0
    most_slots: int = 0

    @property
    def seconds(self) -> float:
        return self.forward + self.logits


@contextmanager
def model_clock(module: nn.Module) -> Iterator[ModelTime]:
    """Clocks a transformers model for as long as the context lasts, on whichever thread it runs.

    The logits become a subclass of Tensor, which clocks every operation on them and passes itself
    on to the results: nothing has to be known of what is done to them, or where.
    """
    spent = ModelTime()
    started = 0.0

    class Clocked(Tensor):
        @classmethod
        def __torch_function__(
            cls,
            func: Callable[..., Any],
            types: Sequence[type],
            args: Sequence[Any] = (),
            kwargs: Mapping[str, Any] | None = None,
        ) -> Any:
            start = 0.0
            if counts := getattr(func, "__name__", "") != "__get__":  # a property, as the shape is
                start = time.thread_time()
            with torch._C.DisableTorchFunctionSubclass():
                result = func(*args, **(kwargs or {}))
                if type(result) is Tensor:
                    result = result.as_subclass(cls)
            if counts:
                spent.logits += time.thread_time() - start
            return result

    def begin(*_: Any) -> None:
        nonlocal started
        started = time.thread_time()

    def end(_module: nn.Module, _args: Any, output: Any) -> None:
        logits = output.logits
        output.logits = logits.as_subclass(Clocked)
        spent.forward += time.thread_time() - started
        spent.passes += 1
        spent.slots += logits.shape[-2]
        spent.most_slots = max(spent.most_slots, logits.shape[-2])

    hooks = [module.register_forward_pre_hook(begin), module.register_forward_hook(end)]
    try:
        yield spent
    finally:
        for hook in hooks:
            hook.remove()
