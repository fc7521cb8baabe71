"""Passes of the sizes they have on CUDA, on a CPU: what the host does for these needs no GPU.

No other module of the benchmark of the host knows anything of the runtime's insides.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from schemax.runtime import limits, sampling, staging


@contextmanager
def sizes_of_cuda(pass_tokens: int = 0) -> Iterator[None]:
    """As many tokens a pass, as many slots whose next tokens are chosen at once, and copies.

    pass_tokens: at least so many tokens a pass.
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
