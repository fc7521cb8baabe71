"""Passes of the sizes they have on CUDA, on a CPU: what the host does for these needs no GPU.

No other module of the benchmark of the host knows anything of the runtime's insides.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from schemax.runtime import limits, sampling


@contextmanager
def sizes_of_cuda(pass_tokens: int = 0) -> Iterator[None]:
    """As many tokens a pass, and as many slots whose next tokens are chosen at once.

    pass_tokens: at least so many tokens a pass.
    """
    tables = (limits._PASS_TOKENS, sampling._ROWS)
    before = [table["cpu"] for table in tables]
    limits._PASS_TOKENS["cpu"] = max(limits._PASS_TOKENS["cuda"], pass_tokens)
    sampling._ROWS["cpu"] = sampling._ROWS["cuda"]
    try:
        yield
    finally:
        for table, value in zip(tables, before, strict=True):
            table["cpu"] = value
