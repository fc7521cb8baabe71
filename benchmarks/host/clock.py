"""Clocks the CPU time of an accelerator's work: forward passes, and operations on their logits."""

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
        torch operations on logits and on their results, on the host or not.
    passes: the number of passes; slots: live slots, summed over passes; most_slots: the most in a
        pass.
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
    """Clocks a transformers model, on any thread, for as long as the context lasts.

    Logits become a subclass of Tensor that clocks every operation on them, and so do the results:
    the code that uses them need not be known.
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
            if counts := getattr(func, "__name__", "") != "__get__":  # a property, such as shape
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
