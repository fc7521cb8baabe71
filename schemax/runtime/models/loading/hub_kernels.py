"""Guards against kernels from the Hub: code of others, which runs only if the user allows it.

With the package `kernels` installed, transformers fetches some by itself, for recurrent layers or
quantized weights.
"""

from __future__ import annotations

import os
from typing import Any

from transformers.integrations import hub_kernels

ALLOWED = "SCHEMAX_HUB_KERNELS"
"""The environment variable that allows kernels: repositories, separated by commas."""

_fetch = hub_kernels.get_kernel


def guard_hub_kernels() -> None:
    """Makes transformers fetch allowed kernels alone, and do without others where it can.

    This holds for the whole process, since a model's first pass fetches some kernels.
    """
    hub_kernels.get_kernel = _get_kernel


def _get_kernel(kernel_name: str, *arguments: Any, **options: Any) -> Any:
    """Fetches a kernel if it is allowed.

    Raises FileNotFoundError for others, which makes transformers take its own code if it has any.
    """
    if kernel_name not in [name.strip() for name in os.environ.get(ALLOWED, "").split(",")]:
        raise FileNotFoundError(
            f"the kernel {kernel_name!r} is code on the Hub, which is not run here; to allow it, "
            f"set {ALLOWED}={kernel_name}"
        )
    return _fetch(kernel_name, *arguments, **options)
