"""Limits: documents in flight, tokens of a pass, tokens kept in memory."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import torch

from schemax.config import DecodingConfig
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.memory import free_bytes

logger = logging.getLogger(__name__)

# Tokens of a pass: on a CPU the best size for matrix products, on a GPU well beyond that.
_PASS_TOKENS = {"cpu": 1_024, "cuda": 8_192}
# Shares of free memory: for keys and values, after a pass has its share; and for a pass. The rest
# is for copies while stores grow, for prefixes, and for other programs.
_SHARE = {"cpu": 0.25, "cuda": 0.7}
_PASS_SHARE = 0.3
_FEWEST_TOKENS = 64
# On a device apart from the host, the host prepares one flight while the other's pass runs.
_FLIGHTS = {"cuda": 2}
# Raise the limits again after this many full batches without running out of memory.
_BACKOFF, _LONGEST_BACKOFF = 16, 1024


@dataclass(frozen=True, slots=True)
class DecodingLimits:
    """Limits of decoding.

    documents: the most in flight.
    pass_tokens: the most tokens of a forward pass.
    capacity: the most tokens kept.
    flights: groups of documents that take turns, a pass each.
    """

    documents: int
    pass_tokens: int
    capacity: int
    flights: int = 1

    @classmethod
    def of(cls, model: DecoderModel, config: DecodingConfig) -> DecodingLimits:
        """The limits that free memory sets; `batch_size`, unless it is auto, bounds documents."""
        kind = model.device.type
        free = min(int(free_bytes(device) / share) for device, share in model.shares.items())
        tokens = _PASS_TOKENS.get(kind, _PASS_TOKENS["cpu"])
        # The tensors of a pass are on one device at a time.
        room = int(_PASS_SHARE * min(map(free_bytes, model.shares)))
        tokens = max(_FEWEST_TOKENS, min(tokens, room // model.pass_bytes))
        documents = 1 << 30 if config.batch_size == "auto" else config.batch_size
        share = _SHARE.get(kind, _SHARE["cpu"])
        capacity = int(share * (free - tokens * model.pass_bytes)) // max(1, model.bytes_per_token)
        if model.is_sharded:
            least = torch.tensor([tokens, capacity], device=model.device)
            torch.distributed.all_reduce(least, torch.distributed.ReduceOp.MIN)
            tokens, capacity = least.tolist()
        return cls(documents, tokens, max(capacity, 1), _FLIGHTS.get(kind, 1))

    def of_flight(self, place: int) -> DecodingLimits:
        """The share of one flight; 0 documents if the other flights have them all."""
        documents = -((place - self.documents) // self.flights)
        return replace(self, documents=documents, capacity=max(1, self.capacity // self.flights))

    def halved(self, in_flight: int) -> DecodingLimits:
        """The limits after memory ran out. in_flight: the documents in flight then."""
        return replace(
            self,
            documents=max(1, in_flight // 2),
            pass_tokens=max(_FEWEST_TOKENS, self.pass_tokens // 2),
        )

    def doubled(self, usual: DecodingLimits) -> DecodingLimits:
        return replace(
            self,
            documents=min(usual.documents, 2 * self.documents),
            pass_tokens=min(usual.pass_tokens, 2 * self.pass_tokens),
        )


class AdmissionControl:
    """The limits of a stream: halved when memory runs out, doubled again after many documents.

    Other programs may have taken the memory for a while. If it runs out again, twice as many
    documents must pass before the next doubling: where the usual limits are too high, trying them
    gets rare.
    """

    def __init__(self, usual: DecodingLimits) -> None:
        self._usual = self.now = usual
        self._backoff, self._done, self._anew = _BACKOFF, 0, False

    def halve(self, in_flight: int) -> None:
        """Halves the limits, after memory ran out. in_flight: the documents in flight then."""
        self.now = self.now.halved(in_flight)
        fewer = self.now.documents
        logger.warning("out of memory with %d documents; going on with %d", in_flight, fewer)
        if self._anew:  # documents have passed since it ran out before
            self._backoff = min(2 * self._backoff, _LONGEST_BACKOFF)
        self._done, self._anew = 0, False

    def restore(self) -> None:
        """Restores the usual limits, after one document alone was the cause."""
        self.now, self._backoff, self._done, self._anew = self._usual, _BACKOFF, 0, False

    def count(self, documents: int) -> None:
        """Counts documents that went well, and doubles the limits after enough of them."""
        if self.now == self._usual:
            return
        self._done += documents
        self._anew = self._anew or documents > 0
        if self._done >= self._backoff * self.now.documents:
            self.now, self._done = self.now.doubled(self._usual), 0
