"""The processors of a flight, where a CPU computes the passes of several flights beside each other.

Processors that share a pass wait for each other at every operation; those with passes of their own
do not.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec

import torch

from schemax.runtime.models.model import DecoderModel

P = ParamSpec("P")


class Processors:
    """A share of the processors, and the thread that computes passes on it.

    count: processors of the share; 0 where a device computes passes, or there is one flight.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._thread: ThreadPoolExecutor | None = None

    @classmethod
    def of(cls, model: DecoderModel, flights: int) -> Processors:
        """The share of one of several flights."""
        is_alone = flights == 1 or model.device.type != "cpu"
        return cls(0 if is_alone else torch.get_num_threads() // flights)

    @property
    def are_shared(self) -> bool:
        return self._count > 0

    def run(
        self, compute: Callable[P, torch.Tensor], *args: P.args, **options: P.kwargs
    ) -> Future[torch.Tensor]:
        """Computes on the share, beside the thread that calls."""
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "schemax-pass")
            usual = torch.get_num_threads()
            # A thread that first asks for its number gets the one that any thread set last.
            self._thread.submit(torch.get_num_threads).result()
            self._thread.submit(torch.set_num_threads, self._count).result()
            torch.set_num_threads(usual)
        return self._thread.submit(torch.inference_mode()(compute), *args, **options)

    def close(self) -> None:
        """Waits for the pass under way, and ends the thread."""
        if self._thread is not None:
            self._thread.shutdown()
