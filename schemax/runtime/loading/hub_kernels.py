"""Kernels that transformers would fetch from the Hub: code of others, so none is run unasked.

transformers fetches some by itself where the package `kernels` is installed, for recurrent layers
or for quantized weights.
"""

from __future__ import annotations

import os
from typing import Any

from transformers.integrations import hub_kernels

ALLOWED = "SCHEMAX_HUB_KERNELS"
"""The environment names what may be fetched: repositories, with commas between them."""

_fetch = hub_kernels.get_kernel


def guard_hub_kernels() -> None:
    """From now on transformers fetches allowed kernels alone, and goes on without others if it can.

    For all of the process: some are fetched by a model's first pass.
    """
    hub_kernels.get_kernel = _get_kernel


def _get_kernel(kernel_name: str, *arguments: Any, **options: Any) -> Any:
    """Raises FileNotFoundError, which makes transformers take its own code where it has some."""
    if kernel_name not in [name.strip() for name in os.environ.get(ALLOWED, "").split(",")]:
        raise FileNotFoundError(
            f"the kernel {kernel_name!r} is code on the Hub, which is not run here; to allow it, "
            f"set {ALLOWED}={kernel_name}"
        )
    return _fetch(kernel_name, *arguments, **options)
