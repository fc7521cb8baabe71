"""How much to do at once: documents in flight, tokens of a pass, tokens kept in memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from schemax.config import DecodingConfig

_CGROUP = Path("/sys/fs/cgroup")
# Tokens of a pass. On a CPU, where a matrix product is at its best; on a GPU, well beyond that.
_PASS_TOKENS = {"cpu": 1_024, "cuda": 8_192}
# Of the memory that is free. The rest is for activations, logits and everybody else.
_SHARE = {"cpu": 0.25, "cuda": 0.6}
OUT_OF_MEMORY = "out of memory with %d documents; going on with %d"
# Raise the limits again after this many full batches without running out of memory.
_BACKOFF, _LONGEST_BACKOFF = 16, 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """documents: in flight; pass_tokens: of a forward pass; capacity: tokens kept."""

    documents: int
    pass_tokens: int
    capacity: int

    @classmethod
    def of(
        cls,
        device: torch.device,
        bytes_per_token: int,
        most_tokens: int | None,
        config: DecodingConfig,
    ) -> Limits:
        """What a device can do; `batch_size` bounds the documents, unless it is auto.

        bytes_per_token: of keys and values; most_tokens: of one pass, None without a bound.
        """
        tokens = _PASS_TOKENS.get(device.type, _PASS_TOKENS["cpu"])
        if most_tokens is not None:
            tokens = min(tokens, most_tokens)
        documents = 1 << 30 if config.batch_size == "auto" else config.batch_size
        share = _SHARE.get(device.type, _SHARE["cpu"])
        capacity = int(share * free_bytes(device)) // max(1, bytes_per_token)
        return cls(documents, tokens, max(capacity, 1))

    def halved(self, in_flight: int) -> Limits:
        """After memory ran out with so many documents in flight."""
        return replace(
            self, documents=max(1, in_flight // 2), pass_tokens=max(64, self.pass_tokens // 2)
        )

    def doubled(self, usual: Limits) -> Limits:
        return replace(
            self,
            documents=min(usual.documents, 2 * self.documents),
            pass_tokens=min(usual.pass_tokens, 2 * self.pass_tokens),
        )


class AdmissionControl:
    """The limits of a stream: halved where memory runs out, since others may have taken it, and
    doubled again after many times as many documents as are in flight went well.

    Each time that memory runs out anew, twice as many are waited for: where the usual limits are
    simply too high, ever less is tried and lost.
    """

    def __init__(self, usual: Limits) -> None:
        self._usual = self.now = usual
        self._backoff, self._done, self._anew = _BACKOFF, 0, False

    def halve(self, in_flight: int) -> None:
        """After memory ran out with so many documents in flight."""
        self.now = self.now.halved(in_flight)
        if self._anew:  # not still for the same reason
            self._backoff = min(2 * self._backoff, _LONGEST_BACKOFF)
        self._done, self._anew = 0, False

    def restore(self) -> None:
        """After what went wrong was one document's fault."""
        self.now, self._backoff, self._done, self._anew = self._usual, _BACKOFF, 0, False

    def count(self, documents: int) -> None:
        """After so many more went well."""
        if self.now == self._usual:
            return
        self._done += documents
        self._anew = self._anew or documents > 0
        if self._done >= self._backoff * self.now.documents:
            self.now, self._done = self.now.doubled(self._usual), 0


def is_out_of_memory(error: Exception) -> bool:
    """Accelerators and numpy raise classes of their own; torch's CPU allocator only says so."""
    known = isinstance(error, (torch.OutOfMemoryError, MemoryError))
    return known or "can't allocate memory" in str(error)


def free_bytes(device: torch.device) -> int:
    """Memory that is free for keys and values: of an accelerator, or of this machine."""
    if device.type == "cuda":
        # What torch holds and does not use is as good as free.
        held = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + held
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
        found = {name: rest.split()[0] for name, _, rest in (x.partition(":") for x in lines)}
        free = 1024 * int(found["MemAvailable"])
    except (OSError, KeyError):
        return 4 << 30  # not Linux: a modest guess
    try:  # a container may have less than its host
        bound = int((_CGROUP / "memory.max").read_text("ascii"))
        return max(0, min(free, bound - int((_CGROUP / "memory.current").read_text("ascii"))))
    except (OSError, ValueError):
        return free
