"""A simulated CUDA device on a build of torch without CUDA.

A `GPUTensor` says that it lies on `cuda:N`, and holds a tensor of the CPU, or of the meta device
where only shapes and memory count. What a real device refuses is refused: tensors of two devices in
one operation, operators without a CUDA kernel, arrays made of its memory, and more memory than it
has. Kernels that only CUDA has (attention) are computed on the CPU, in float32.

What it cannot tell: how fast anything is, and how CUDA's kernels round.

    with simulated_gpu() as gpu:
        model.to("cuda")
        ...
    gpu.events  # launches, copies and waits, in order, with the lines that caused them
"""

from __future__ import annotations

import ctypes
import re
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
import torchgen
from simulated_guard import guard
from simulated_kernels import KERNELS, flex_attention
from torch import Tensor
from torch.nn.attention import flex_attention as flex_module
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten

# As many kernels as these take on CUDA; all others take one.
_LAUNCHES = {"logsumexp": 6, "sort": 2, "nonzero": 3, "_unique2": 5, "bincount": 3, "topk": 2}
# Neither views nor kernels.
_IDLE = {
    *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "detach", "alias"),
    *("_unsafe_view", "lift_fresh", "_reshape_alias", "view", "is_same_size", "resize_"),
}
_LOOKS_UP = {"embedding", "index", "index_select", "gather"}
_INDEXING = {"index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}
_INDEXING |= {"_unsafe_index_put", "index_add", "index_add_"}
_TAKES_CPU_SCALARS = {"where", "masked_fill", "masked_fill_", "fill_", "lerp", "lerp_", "clamp"}


@dataclass(frozen=True, slots=True)
class Event:
    """kind: "launch", "to_device", "to_host", "wait", or what `SimulatedGPU.mark` was given.

    size: bytes that are copied; kernels that are launched; kernels that the device still has to do
    when a wait ends. name: of the operator. line: of the package under test. moved: bytes that a
    kernel reads and writes; flops: of products.
    """

    kind: str
    name: str
    line: str
    size: int
    moved: int = 0
    flops: int = 0


class _Fused:
    """What a compiler would make of operations: those between products are one kernel.

    read: what comes from before, or out of a product, once; written: what goes to a product, or
    is given out.
    """

    def __init__(self) -> None:
        self.known: dict[Any, bool] = {}
        self.moved = 0
        self.names: list[str] = []

    def take(self, name: str, given: list[Tensor], made: list[Tensor]) -> None:
        self.names.append(name)
        if name in _LOOKS_UP:  # as much as is found
            given = [tensor for tensor in given[1:] if tensor.untyped_storage() not in self.known]
            self.moved += sum(map(_bytes, made))
        for tensor in given:
            if tensor.untyped_storage() not in self.known:  # from before
                self.known[tensor.untyped_storage()] = True
                self.moved += _bytes(tensor)
        for tensor in made:
            self.known.setdefault(tensor.untyped_storage(), False)

    def give(self, tensors: list[Tensor]) -> None:
        for tensor in tensors:
            if self.known.get(tensor.untyped_storage()) is False:
                self.known[tensor.untyped_storage()] = True
                self.moved += _bytes(tensor)


def _bytes(tensor: Tensor) -> int:
    """Of a tensor, no more than lie in memory."""
    return min(tensor.numel() * tensor.element_size(), tensor.untyped_storage().nbytes())


@dataclass
class SimulatedGPU:
    """What the devices were asked to do; memory: bytes of each; in_use, most: bytes, by device.

    has_numbers: whether they compute; else all is shapes, and what is read off them is 1.
    """

    memory: int = 139 << 30
    has_numbers: bool = True
    events: list[Event] = field(default_factory=list)
    in_use: dict[int, int] = field(default_factory=dict)
    most: dict[int, int] = field(default_factory=dict)
    _known: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    pinned: weakref.WeakSet[Any] = field(default_factory=weakref.WeakSet)
    fused: _Fused | None = None
    _coming: list[tuple[int, Tensor, Tensor]] = field(default_factory=list)

    def mark(self, kind: str) -> None:
        self.note(kind, "")

    def note(self, kind: str, name: str, size: int = 0, moved: int = 0, flops: int = 0) -> None:
        self.events.append(Event(kind, name, _line(), size, moved, flops))

    def launch(self, op: Any, name: str, args: Any, kwargs: Any, found: Any) -> None:
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        made = [x for x in tree_leaves(found) if isinstance(x, Tensor)]
        flops = 0
        if (formula := flop_registry.get(getattr(op, "overloadpacket", op))) is not None:
            flops = formula(*args[:2] if name == "bmm" else args, **kwargs, out_val=found)
        elif name == "_varlen_attn":
            flops = 4 * args[0].numel() * args[6]
        elif self.fused is not None:
            return self.fused.take(name, given, made)
        if self.fused is not None:
            self.fused.give(given)
            self.fused.known.update((tensor.untyped_storage(), True) for tensor in made)
        if name in _LOOKS_UP:  # as much as is found
            given = made
        elif name in ("index_put_", "_index_put_impl_"):  # as much as is put there
            given = made = [x for x in given[-1:] if x.dim()]
        self.note("launch", name, _LAUNCHES.get(name, 1), sum(map(_bytes, given + made)), flops)

    def send(self, target: Tensor, source: Tensor) -> None:
        """A copy to the host that is not waited for: its numbers come with the next wait."""
        self._coming.append((len(self.events), target, source.clone()))
        target.zero_()

    def wait(self, name: str, place: int | None = None) -> None:
        """Until the events up to a place are done; size: kernels behind that are still to come."""
        place = len(self.events) if place is None else place
        behind = sum(event.size for event in self.events[place:] if event.kind == "launch")
        self.note("wait", name, behind)
        for at, target, source in self._coming:
            if at <= place:
                target.copy_(source)
        self._coming = [item for item in self._coming if item[0] > place]

    def count(self, kind: str) -> int:
        return sum(event.kind == kind for event in self.events)

    def allocate(self, tensor: Tensor, device: int) -> None:
        """Counts a tensor's memory until it is freed. Raises where the device has no more."""
        storage = tensor.untyped_storage()
        if storage in self._known:
            return
        size = storage.nbytes()
        if self.in_use.get(device, 0) + size > self.memory:
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {size} bytes.")
        self._known.add(storage)
        self.in_use[device] = self.in_use.get(device, 0) + size
        self.most[device] = max(self.most.get(device, 0), self.in_use[device])
        weakref.finalize(storage, self._free, device, size)

    def _free(self, device: int, size: int) -> None:
        self.in_use[device] -= size


_gpu: SimulatedGPU | None = None


def _at_hand() -> SimulatedGPU:
    assert _gpu is not None, "a tensor of the simulated device has outlived it"
    return _gpu


class GPUTensor(Tensor):
    inner: Tensor

    @staticmethod
    def __new__(cls, inner: Tensor, index: int = 0, requires_grad: bool = False) -> GPUTensor:
        made: GPUTensor = Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=torch.device("cuda", index),
            requires_grad=requires_grad,
        )
        made.inner = inner
        _at_hand().allocate(inner, index)
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __repr__(self, **_: Any) -> str:
        return f"GPUTensor({self.inner!r}, device={self.device})"

    def data_ptr(self) -> int:
        return self.inner.data_ptr()

    def tolist(self) -> Any:
        return self.detach().cpu().tolist()

    def numpy(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"can't convert {self.device} device type tensor to numpy")

    __array__ = numpy

    def untyped_storage(self) -> Any:
        return self.inner.untyped_storage()

    @property
    def is_cuda(self) -> bool:
        return True

    def __getitem__(self, index: Any) -> Any:
        return Tensor.__getitem__(self, _placed(index, self.device))

    def __setitem__(self, index: Any, value: Any) -> None:
        Tensor.__setitem__(self, _placed(index, self.device), value)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            made: Any = GPUTensor(self.inner.detach().clone(), self.device.index)
            if isinstance(self, torch.nn.Parameter):
                made = torch.nn.Parameter(made, self.requires_grad)
            memo[id(self)] = made
        return memo[id(self)]

    def __reduce_ex__(self, _: Any) -> Any:
        return GPUTensor, (self.inner.detach(), self.device.index, self.requires_grad)

    @classmethod
    def __torch_dispatch__(cls, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(op, args, kwargs or {})


def _placed(index: Any, device: torch.device) -> Any:
    """torch makes tensors of the device of arrays and lists among indices."""

    def placed(part: Any) -> Any:
        is_list = isinstance(part, list | np.ndarray)
        return torch.as_tensor(part).to(device) if is_list else part

    return tuple(map(placed, index)) if isinstance(index, tuple) else placed(index)


# --- one operation -------------------------------------------------------------------------------


def _run(op: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    gpu, name = _at_hand(), op.overloadpacket.__name__
    tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
    mine = [x for x in tensors if isinstance(x, GPUTensor)]
    wanted = None if kwargs.get("device") is None else torch.device(kwargs["device"])
    named = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.device)]
    is_pinned = kwargs.pop("pin_memory", None) and (wanted is None or wanted.type == "cpu")
    if not mine and not any(device.type == "cuda" for device in [*named, wanted] if device):
        made = op(*args, **kwargs)
        if is_pinned:
            gpu.pinned.add(made.untyped_storage())
        return made
    if name == "_to_copy":
        return _copied(gpu, args[0], wanted, kwargs)
    if name == "copy_":
        return _copy_into(gpu, *args, **kwargs)
    if name == "_local_scalar_dense":
        gpu.note("to_host", name, 8)
        gpu.wait(name)
        return op(args[0].inner) if gpu.has_numbers else 1
    if gpu.has_numbers and (kernel := KERNELS.get(op.name())) is not None:
        index = mine[0].device.index
        made = tree_map(
            lambda x: GPUTensor(x, index) if isinstance(x, Tensor) else x,
            kernel(*tree_map(_inner, args), **tree_map(_inner, kwargs)),
        )
        gpu.note("launch", name, 1, sum(map(_bytes, mine + tree_leaves(made)[:1])))
        return made
    composite = torch._C._dispatch_has_kernel_for_dispatch_key(
        op.name(), "CompositeImplicitAutograd"
    )
    if composite and op._can_decompose():  # in inference mode these arrive whole
        with _Mode():
            return op.decompose(*args, **kwargs)
    if not _has_cuda(op):
        raise NotImplementedError(f"Could not run '{op}' with arguments from the 'CUDA' backend.")
    index = _device_of(op, name, args, mine, tensors, wanted)
    _count_waits(gpu, op, name, args, kwargs)
    if "device" in kwargs:
        place = (
            "cpu" if gpu.has_numbers or (wanted is not None and wanted.type == "cpu") else "meta"
        )
        kwargs = {**kwargs, "device": place}
    found = op(*tree_map(_inner, args), **tree_map(_inner, kwargs))
    if not op.is_view and name not in _IDLE:
        gpu.launch(op, name, tree_map(_inner, args), tree_map(_inner, kwargs), found)
    if wanted is not None and wanted.type == "cpu":
        return found
    return tree_map(lambda x: _outer(x, op, mine, index), found)


def _inner(value: Any) -> Any:
    return value.inner if isinstance(value, GPUTensor) else value


def _outer(value: Any, op: Any, mine: list[GPUTensor], index: int) -> Any:
    if not isinstance(value, Tensor):
        return value
    for own in mine:
        if own.inner is value:
            return own
    if op.is_view and torch.is_inference_mode_enabled() and mine and not mine[0].is_inference():
        with torch.inference_mode(False):  # a view of a normal tensor is one there, too
            return GPUTensor(value, index)
    return GPUTensor(value, index)


def _device_of(
    op: Any, name: str, args: Any, mine: list[GPUTensor], tensors: list[Tensor], wanted: Any
) -> int:
    """Where an operation runs. Raises for tensors of several devices."""
    devices = {x.device for x in mine}
    like = name.startswith("new_") or name.endswith("_like")
    if wanted is not None and wanted.type == "cuda":
        if like:
            return int(wanted.index or 0)
        devices.add(torch.device("cuda", wanted.index or 0))
    for other in (x for x in tensors if not isinstance(x, GPUTensor)):
        indexes = name in _INDEXING and isinstance(args[0], GPUTensor)
        if indexes and not (len(args) > 2 and other is args[2] and other.dim()):
            continue
        takes = torch.Tag.pointwise in op.tags or name in (_TAKES_CPU_SCALARS | _INDEXING)
        if other.dim() or not takes or name in _INDEXING:
            devices.add(other.device)
    if len(devices) > 1 or (wanted is not None and wanted.type == "cpu" and not like):
        found = " and ".join(sorted(map(str, devices)))
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{found}! ({op} at {_line()})"
        )
    return int(next(iter(devices)).index or 0)


def _count_waits(gpu: SimulatedGPU, op: Any, name: str, args: Any, kwargs: Any) -> None:
    """Of results whose shape depends on data, and of indices that lie on the host."""
    if name in _INDEXING:
        for part in (x for x in tree_leaves(args[1:2]) if isinstance(x, Tensor)):
            if part.dtype in (torch.bool, torch.uint8):
                gpu.wait(f"boolean {name}")
            if not isinstance(part, GPUTensor) and part.dim():
                gpu.note("to_device", f"indices of {name}", part.nbytes)
                gpu.wait(f"indices of {name}")
        return
    depends = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & set(op.tags)
    if depends and not (name == "repeat_interleave" and kwargs.get("output_size") is not None):
        gpu.wait(name)


def _copied(gpu: SimulatedGPU, source: Tensor, wanted: Any, kwargs: dict[str, Any]) -> Tensor:
    rest = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory", "non_blocking")}
    if not isinstance(source, GPUTensor):
        is_free = bool(kwargs.get("non_blocking")) and source.untyped_storage() in gpu.pinned
        gpu.note("to_device", "to", source.nbytes)
        if not is_free:
            gpu.wait("to")
        if not gpu.has_numbers:
            rest["device"] = torch.device("meta")
        return GPUTensor(aten._to_copy(source, **rest), wanted.index or 0)
    found = aten._to_copy(source.inner, **rest)
    if wanted is not None and wanted.type != "cuda":
        gpu.note("to_host", "to", found.nbytes)
        if not kwargs.get("non_blocking"):
            gpu.wait("to")
        return found if gpu.has_numbers else torch.ones_like(found, device="cpu")
    gpu.launch(aten._to_copy, "_to_copy", (source.inner,), {}, found)
    return GPUTensor(found, source.device.index if wanted is None else wanted.index or 0)


def _copy_into(
    gpu: SimulatedGPU, target: Tensor, source: Tensor, non_blocking: bool = False
) -> Any:
    to_device, to_host = isinstance(target, GPUTensor), isinstance(source, GPUTensor)
    host = source if to_device else target
    kind = "launch" if to_device and to_host else "to_device" if to_device else "to_host"
    gpu.note(kind, "copy_", 1 if kind == "launch" else host.nbytes)
    is_free = non_blocking and host.untyped_storage() in gpu.pinned
    if is_free and kind == "to_host" and gpu.has_numbers:
        gpu.send(target, _inner(source))
        return target
    if kind != "launch" and not is_free and not (to_device and not source.dim()):
        gpu.wait("copy_")
    if gpu.has_numbers or kind == "launch":
        _inner(target).copy_(_inner(source))
    elif kind == "to_host":
        target.fill_(1)
    return target


@cache
def _operators() -> dict[str, tuple[str, str]]:
    """Of every operator of torch, the one it is made of, and what follows `dispatch`."""
    folder = Path(torchgen.__file__).parent / "packaged" / "ATen" / "native"
    entries = (folder / "native_functions.yaml").read_text("utf-8").split("\n- func: ")[1:]
    found = {}
    for entry in entries:
        delegate = re.search(r"structured_delegate: ([\w.]+)", entry)
        keys = re.search(r"\n  dispatch:\n((?:    .*\n?)+)", entry)
        ufunc = "CUDA: " if "ufunc_inner_loop" in entry else ""
        of = delegate.group(1) if delegate else ""
        found[entry.split("(")[0]] = of, ufunc + (keys.group(1) if keys else "")
    return found


def _has_cuda(op: Any) -> bool:
    name = op.name().removeprefix("aten::")
    if op.namespace != "aten" or name not in _operators():
        return True  # derived from another
    delegate, keys = _operators()[name]
    if delegate:
        keys = _operators()[delegate][1]
    return not keys or "CUDA" in keys or "CompositeExplicit" in keys or "CompositeImpl" in keys


def _line() -> str:
    """The innermost line of the package under test, or of transformers."""
    frame: Any = sys._getframe(2)
    other = ""
    while frame is not None:
        path = frame.f_code.co_filename
        # Of the copies, those who ask for them.
        if (
            "/schemax/" in path
            and not path.endswith("staging.py")
            and "/site-packages/" not in path
        ):
            return f"{path[path.rindex('/schemax/') + 9 :]}:{frame.f_lineno}"
        if not other and "/transformers/" in path:
            other = f"{path[path.rindex('/transformers/') + 1 :]}:{frame.f_lineno}"
        frame = frame.f_back
    return other


# --- what says that there is a device ------------------------------------------------------------


class _Mode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return _run(op, args, kwargs or {})


def _compile(function: Any = None, **_: Any) -> Any:
    """`torch.compile`: runs what it is given, and counts it as compiled."""

    @wraps(function)
    def compiled(*args: Any, **kwargs: Any) -> Any:
        gpu = _at_hand()
        if gpu.fused is not None:
            return function(*args, **kwargs)
        gpu.fused = _Fused()
        try:
            found = function(*args, **kwargs)
            leaves = tree_leaves(found)
            gpu.fused.give([x.inner for x in leaves if isinstance(x, GPUTensor)])
            fused = gpu.fused
        finally:
            gpu.fused = None
        if fused.names:
            gpu.note("launch", "compiled", 1, fused.moved)
        return found

    return compiled


class _CUDAEvent:
    def record(self, stream: Any = None) -> None:
        self.place = len(_at_hand().events)

    def synchronize(self) -> None:
        _at_hand().wait("event", self.place)


@contextmanager
def simulated_gpu(
    devices: int = 1, memory: int = 139 << 30, has_numbers: bool = True
) -> Iterator[SimulatedGPU]:
    """CUDA devices of so many bytes each, for this thread and those that it starts.

    Tensors of the device do not outlive the context.
    """
    global _gpu
    ctypes.CDLL(str(guard()))
    gpu = SimulatedGPU(memory, has_numbers)
    run = threading.Thread.run

    def run_with_device(thread: threading.Thread) -> None:
        with _Mode():
            run(thread)

    def free(device: Any = None) -> tuple[int, int]:
        index = device if isinstance(device, int) else torch.device(device or "cuda").index or 0
        return gpu.memory - gpu.in_use.get(index, 0), gpu.memory

    def pin(tensor: Tensor, *_: Any) -> Tensor:
        pinned = tensor.clone()
        gpu.pinned.add(pinned.untyped_storage())
        return pinned

    properties = SimpleNamespace(name="simulated", total_memory=memory, multi_processor_count=132)
    properties.major, properties.minor = 9, 0
    said = {
        **dict.fromkeys(("_lazy_init", "init", "set_device", "empty_cache", "synchronize")),
        **dict.fromkeys(("ipc_collect", "manual_seed_all", "manual_seed", "set_rng_state_all")),
        **dict.fromkeys(("reset_peak_memory_stats", "current_stream")),
        **dict.fromkeys(("is_available", "is_initialized", "is_bf16_supported"), True),
        "device_count": devices,
        "current_device": 0,
        "get_device_name": "simulated",
        "get_device_capability": (9, 0),
        "get_device_properties": properties,
        "memory_reserved": 0,
        "memory_allocated": 0,
        "get_rng_state_all": [],
    }
    with ExitStack() as stack:
        for name, value in said.items():
            answer = lambda *_, value=value, **__: value  # noqa: E731
            stack.enter_context(patch.object(torch.cuda, name, answer))
        stack.enter_context(patch.object(torch.cuda, "mem_get_info", free))
        stack.enter_context(patch.object(torch.cuda, "Event", _CUDAEvent))
        stack.enter_context(patch.object(torch, "compile", _compile))
        stack.enter_context(patch.object(flex_module, "flex_attention", flex_attention))
        peak = lambda device=0: gpu.most.get(torch.device(device).index or 0, 0)  # noqa: E731
        stack.enter_context(patch.object(torch.cuda, "max_memory_allocated", peak))
        for name in ("is_available", "empty_cache"):
            answer = lambda *_, **__: True  # noqa: E731
            stack.enter_context(patch.object(torch.accelerator, name, answer))
        stack.enter_context(patch.object(torch.Tensor, "pin_memory", pin))
        stack.enter_context(patch.object(threading.Thread, "run", run_with_device))
        swaps = torch.__future__.get_swap_module_params_on_conversion()
        torch.__future__.set_swap_module_params_on_conversion(True)
        stack.callback(torch.__future__.set_swap_module_params_on_conversion, swaps)
        torch._C._set_only_lift_cpu_tensors(True)
        stack.callback(torch._C._set_only_lift_cpu_tensors, False)
        _gpu = gpu
        stack.enter_context(_Mode())
        yield gpu
