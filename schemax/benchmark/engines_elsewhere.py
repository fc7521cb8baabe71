"""Rivals that live in packages of their own, and take part only where these are installed."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from schemax.benchmark.engine import Emitted, Kind, Unavailable
from schemax.benchmark.work import Work, Writes


@dataclass
class Elsewhere:
    """A rival that cannot run here: it says what it needs.

    packages: what has to be installed; reason: what stands in the way even then.
    """

    name: str
    title: str
    packages: tuple[str, ...]
    reason: str
    kind: Kind = "rival"
    writes: Writes = "output"
    batch_sizes: tuple[int, ...] = ()
    batch_size: int | None = None
    note: str = ""
    module: Any = None

    def setup(self, work: Work) -> None:
        missing = [name for name in self.packages if find_spec(name) is None]
        if missing:
            raise Unavailable(f"not installed: {', '.join(missing)}")
        raise Unavailable(self.reason)

    def reset(self, work: Work) -> None: ...

    def run(self, work: Work) -> Emitted:
        raise AssertionError("never set up")

    def teardown(self) -> None: ...
