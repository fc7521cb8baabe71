"""Counts a pass's transfers between host and device, and the operations that it launches.

Counts are taken on a CPU, where both sides share memory, so that a tensor's origin tells its side.
Tensors made of numpy arrays, or of Python numbers without a device, are the host's until sent.
Tensors made of the host's tensors alone stay there. All others are the device's.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.weak import WeakTensorKeyDictionary

import schemax

_PACKAGE = str(Path(schemax.__file__).resolve().parent)
_OURS = str(Path(_PACKAGE) / "benchmark")
_SENDS = ("to", "cuda")
_SENT_NUMBERS = ("tensor", "as_tensor")  # with a device
_FETCHES = (
    *("cpu", "numpy", "tolist", "item", "__array__"),
    *("__bool__", "__int__", "__float__", "__index__", "__complex__"),
)
_INDEXES = ("__getitem__", "__setitem__", "index_put_", "index_select", "take_along_dim")
# Operations that launch nothing: they allocate memory, or alias a tensor.
_IDLE = (
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "_unsafe_view"),
    *("_reshape_alias", "lift_fresh", "set_", "resize_", "_local_scalar_dense"),
)


@dataclass(slots=True)
class PassCount:
    """Counts from the start of a forward pass to the start of the next.

    tokens: passed; slots: whose next tokens are chosen.
    to_device, to_host: copies, by the line that causes them; reading a tensor's value is a copy.
    waits: operations whose result's shape depends on data, so that the host waits for the device.
    layer_ops, model_ops, other_ops: launched operations, without views, in the decoder layers, in
        the rest of the forward pass, and after it.
    """

    CAUSES: ClassVar = ("to_device", "to_host", "waits")

    tokens: int = 0
    slots: int = 0
    to_device: Counter[str] = field(default_factory=Counter)
    to_host: Counter[str] = field(default_factory=Counter)
    waits: Counter[str] = field(default_factory=Counter)
    layer_ops: int = 0
    model_ops: int = 0
    other_ops: int = 0

    def total(self, cause: str) -> int:
        """Returns the count of one of `CAUSES`, over all lines."""
        lines: Counter[str] = getattr(self, cause)
        return lines.total()


class TransferCounter:
    """A context that counts transfers on the thread that enters it; see `PassCount`.

    module: a transformers model with its decoder layers in `base_model.layers`.
    passes: one per forward pass begun. Nothing before the first pass is counted.
    """

    def __init__(self, module: nn.Module) -> None:
        self.passes: list[PassCount] = []
        self.num_layers = len(module.base_model.layers)  # type: ignore[union-attr, arg-type]
        self._module = module
        self._host = WeakTensorKeyDictionary()
        self._in_model, self._in_layer, self._unseen = False, False, False
        self._stack = ExitStack()

    def __enter__(self) -> TransferCounter:
        module, layers = self._module, self._module.base_model.layers  # type: ignore[union-attr]
        hooks = [
            module.register_forward_pre_hook(self._begin, with_kwargs=True),
            module.register_forward_hook(self._end),
        ]
        for layer in layers:  # type: ignore[union-attr]
            hooks.append(layer.register_forward_pre_hook(partial(self._layer, True)))
            hooks.append(layer.register_forward_hook(partial(self._layer, False)))
        for hook in hooks:
            self._stack.callback(hook.remove)
        # Modes do not see `from_numpy`.
        from_numpy = torch.from_numpy
        self._stack.callback(setattr, torch, "from_numpy", from_numpy)
        torch.from_numpy = lambda ndarray: self._mark(from_numpy(ndarray))
        self._stack.enter_context(_Calls(self))
        self._stack.enter_context(_Operations(self))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # --- passes ----------------------------------------------------------------------------------

    def _begin(self, _module: nn.Module, _args: Any, kwargs: Mapping[str, Any]) -> None:
        self._in_model = True
        self.passes.append(PassCount(tokens=kwargs["input_ids"].numel()))

    def _end(self, _module: nn.Module, _args: Any, output: Any) -> None:
        self._in_model = False
        self.passes[-1].slots = output.logits.shape[-2]

    def _layer(self, entered: bool, *_: Any) -> None:
        self._in_layer = entered

    # --- sides -----------------------------------------------------------------------------------

    def _mark(self, tensor: Tensor) -> Tensor:
        self._host[tensor] = True
        return tensor

    def _is_host(self, value: Any) -> bool:
        return isinstance(value, Tensor) and value in self._host

    # --- what was called -------------------------------------------------------------------------

    def called(self, name: str, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Calls a function of torch, and counts its transfers."""
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        first = args[0] if args else None
        on_host = bool(tensors) and all(map(self._is_host, tensors))
        device = _named_device(args[1:], kwargs)
        fetches = name in _FETCHES or (name in _SENDS and device == "cpu")
        numbers = not tensors and (device is None or name in _SENT_NUMBERS)
        # Making a tensor of numbers, or copying one, launches nothing on a device.
        result = self._call(func, args, kwargs, unseen=fetches or numbers)
        if fetches:
            if not on_host:
                self._count("to_host", name)
            return self._mark(result.view_as(result)) if isinstance(result, Tensor) else result
        if name in _SENDS and on_host and (device or name == "cuda"):
            self._count("to_device", name)
            return result.view_as(result)  # on a CPU it would be the host's tensor itself
        if name == "copy_":
            source = args[1]
            if self._is_host(source) != self._is_host(first):
                self._count("to_device" if self._is_host(source) else "to_host", name)
            return result
        if name in _INDEXES and not self._is_host(first) and self._is_sent(args[1:]):
            self._count("to_device", "index")
        if on_host or not (tensors or device):
            for made in tree_leaves(result):
                if isinstance(made, Tensor):
                    self._mark(made)
        elif not tensors and name in _SENT_NUMBERS:
            self._count("to_device", name)
        return result

    def _call(self, func: Callable[..., Any], args: Any, kwargs: Any, unseen: bool) -> Any:
        before, self._unseen = self._unseen, self._unseen or unseen
        try:
            return func(*args, **kwargs)
        finally:
            self._unseen = before

    def _is_sent(self, index: Any) -> bool:
        """True if an index of a device tensor must be sent to the device."""
        leaves = [x for x in tree_leaves(index) if not isinstance(x, slice)]
        return any(isinstance(x, np.ndarray) or (self._is_host(x) and x.dim()) for x in leaves)

    def ran(self, op: Any, args: Any, kwargs: Any) -> None:
        """Counts an operation that reaches a backend."""
        if not self.passes or self._unseen:
            return
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if tensors and all(map(self._is_host, tensors)):
            return
        name, count = op.overloadpacket.__name__, self.passes[-1]
        if _waits(op, name, args):
            count.waits[f"{name} {_line()}"] += 1
        if op.is_view or name in _IDLE:
            return
        if self._in_layer:
            count.layer_ops += 1
        elif self._in_model:
            count.model_ops += 1
        else:
            count.other_ops += 1

    def _count(self, what: str, name: str) -> None:
        if self.passes and not self._unseen:
            getattr(self.passes[-1], what)[f"{name} {_line()}"] += 1


class _Calls(TorchFunctionMode):
    def __init__(self, counter: TransferCounter) -> None:
        super().__init__()
        self._counter = counter

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        name = getattr(func, "__name__", "")
        if name in ("__get__", "__set__"):
            return func(*args, **(kwargs or {}))
        return self._counter.called(name, func, args, kwargs or {})


class _Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, counter: TransferCounter) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._counter = counter

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        self._counter.ran(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _named_device(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Returns the device that a call names: "cpu" if named as a string, else "device"."""
    for value in (*args, kwargs.get("device"), kwargs.get("other")):
        if isinstance(value, torch.device | Tensor):
            return "device"
        if isinstance(value, str):
            return "cpu" if value == "cpu" else "device"
    return None


def _waits(op: Any, name: str, args: Sequence[Any]) -> bool:
    if (
        torch.Tag.dynamic_output_shape not in op.tags
        and torch.Tag.data_dependent_output not in op.tags
    ):
        return False
    if name in ("index", "index_put", "index_put_"):
        masks = (x for x in args[1] if x is not None)
        return any(x.dtype in (torch.bool, torch.uint8) for x in masks)
    return True


def _line() -> str:
    """Returns the current line of the package, and up to two of its callers."""
    return " < ".join(_lines())


def _lines() -> Iterator[str]:
    frame, found = sys._getframe(1), 0
    while frame is not None and found < 3:
        name = frame.f_code.co_filename
        if name.startswith(_PACKAGE) and not name.startswith(_OURS):
            found += 1
            yield f"{Path(name).relative_to(_PACKAGE)}:{frame.f_lineno}"
        elif found:
            return
        frame = frame.f_back  # type: ignore[assignment]
