"""Runs passes on a CPU with the sizes of CUDA, since measuring the host requires no GPU.

Only this module of the host's benchmark depends on internals of the runtime.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from schemax.runtime import limits, sampling, staging


@contextmanager
def sizes_of_cuda(pass_tokens: int = 0) -> Iterator[None]:
    """Sets CUDA's tokens per pass, slots that are sampled at once, and copies, in its context.

    pass_tokens: the least tokens per pass.
    """
    usual, at_once = limits._PASS_TOKENS["cpu"], sampling._AT_ONCE["cpu"]
    limits._PASS_TOKENS["cpu"] = max(limits._PASS_TOKENS["cuda"], pass_tokens)
    sampling._AT_ONCE["cpu"] = sampling._AT_ONCE["cuda"]
    staging.SHARED.remove("cpu")
    try:
        yield
    finally:
        limits._PASS_TOKENS["cpu"], sampling._AT_ONCE["cpu"] = usual, at_once
        staging.SHARED.add("cpu")
