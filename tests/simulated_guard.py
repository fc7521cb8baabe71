"""What torch asks of every kind of device in C++, answered for CUDA by a build that has none."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch

_GUARD = """
#include <c10/core/impl/DeviceGuardImplInterface.h>
namespace {
using namespace c10;
struct Guard final : public impl::NoOpDeviceGuardImpl<DeviceType::CUDA> {
  Device getDevice() const override { return Device(DeviceType::CUDA, 0); }
  Device exchangeDevice(Device) const override { return Device(DeviceType::CUDA, 0); }
  DeviceIndex deviceCount() const noexcept override { return 2; }
  static Stream plain() { return Stream(Stream::DEFAULT, Device(DeviceType::CUDA, 0)); }
  Stream getStream(Device) const noexcept override { return plain(); }
  Stream getNewStream(Device, int = 0) const override { return plain(); }
  Stream exchangeStream(Stream) const noexcept override { return plain(); }
  void record(void**, const Stream&, const DeviceIndex, const EventFlag) const override {}
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
};
C10_REGISTER_GUARD_IMPL(CUDA, Guard)
}
#ifdef GRADIENTS
#include <ATen/detail/CUDAHooksInterface.h>
struct Hooks : public at::CUDAHooksInterface {
  Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(at::DeviceIndex) const override { return true; }
  at::DeviceIndex deviceCount() const override { return 2; }
  at::DeviceIndex getCurrentDevice() const override { return 0; }
  int getNumGPUs() const override { return 2; }
  at::DeviceIndex current_device() const override { return 0; }
};
namespace at {
C10_REGISTER_TYPED_CLASS(CUDAHooksRegistry, "CUDAHooks", Hooks)
}
#endif
"""
HAS_COMPILER = shutil.which("g++") is not None


@cache
def guard(*, gradients: bool = False) -> Path:
    """The library that answers for the device, built once for every installation of torch.

    gradients: whether autograd finds the device; such a library is loaded before torch is imported,
    in a process of its own.
    """
    root = Path(torch.__file__).parent
    # The library names the folder of the torch that it was built with, which another environment
    # may have at another place, or no more.
    built_with = hashlib.sha256(f"{root} {torch.__version__} {_GUARD}".encode()).hexdigest()[:16]
    name = f"simulated-gpu-{built_with}{'-gradients' if gradients else ''}.so"
    built = Path(tempfile.gettempdir()) / name
    if not built.exists():
        with tempfile.TemporaryDirectory() as folder:
            source, made = Path(folder, "guard.cpp"), Path(folder, "guard.so")
            source.write_text(_GUARD, "ascii")
            command = ["g++", "-std=c++20", "-fPIC", "-shared", f"-I{root / 'include'}"]
            command += ["-DGRADIENTS"] if gradients else []
            command += [str(source), "-o", str(made), f"-L{root / 'lib'}", "-lc10", "-ltorch_cpu"]
            subprocess.run([*command, f"-Wl,-rpath,{root / 'lib'}"], check=True)
            shutil.move(made, built)
    return built
