"""Choosing a token: greedy, or nucleus sampling that batch-mates cannot disturb."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from schemax.config import DecodingConfig

# Logits whose maximum is found at once.
_BLOCK = 512
# Slots whose whole vocabulary is worked on at once: as many as a CPU's caches hold.
_ROWS = {"cpu": 8, "cuda": 256}


def choose(logits: Tensor, keys: Tensor, step: int | Tensor, config: DecodingConfig) -> Tensor:
    """(S, V) logits -> (S,) token ids.

    keys: (S, 2) the document's digest and the slot's number; with the seed and the step they
        determine the random number, wherever and with whomever the slot is decoded.
    step: how many tokens the value has so far; one for all, or (S,).
    """
    if config.temperature == 0.0:
        return largest(logits)
    probabilities = (logits.float() / config.temperature).softmax(dim=-1)
    if config.top_p < 1.0:
        probabilities = _nucleus(probabilities, config.top_p)
    # In the order of ids: sorted by probability, rounding could exchange neighbours.
    cumulative = probabilities.cumsum(dim=-1)
    draw = uniform(keys, step, config.seed).to(cumulative.device) * cumulative[:, -1]
    return (cumulative <= draw[:, None]).sum(dim=-1).clamp(max=logits.shape[-1] - 1)


def largest(logits: Tensor) -> Tensor:
    """(S, V) -> (S,) places of the first largest: argmax, at the speed of memory.

    torch's argmax goes number by number on a CPU. Its maximum does not, so each block's maximum
    comes first, then the block, then the place in it.
    """
    count, size = logits.shape
    whole = size - size % _BLOCK
    if logits.device.type != "cpu" or not whole:
        return logits.argmax(dim=-1)
    blocks = logits[:, :whole].view(count, -1, _BLOCK)
    tops = blocks.amax(dim=-1)
    best = tops.argmax(dim=-1)
    every = torch.arange(count, device=logits.device)
    place = best * _BLOCK + blocks[every, best].argmax(dim=-1)
    if whole == size:
        return place
    behind = logits[:, whole:].argmax(dim=-1) + whole
    return torch.where(logits[every, behind] > tops[every, best], behind, place)


def log_probabilities(logits: Tensor, ids: Tensor) -> Tensor:
    """(S, V) logits, (S, K) ids -> (S, K) float32 log-probabilities of these."""
    found = torch.empty(ids.shape, dtype=torch.float32, device=logits.device)
    # In parts, because float32 copies of all logits may be larger than all else.
    for some in parts(len(ids), logits.device):
        part = logits[some].float()
        found[some] = part.gather(1, ids[some]) - part.logsumexp(dim=-1, keepdim=True)
    return found


def parts(count: int, device: torch.device) -> Iterator[slice]:
    """Slices of `count` slots that are worked on at once."""
    size = _ROWS.get(device.type, 64)
    return (slice(first, first + size) for first in range(0, count, size))


def _nucleus(probabilities: Tensor, top_p: float) -> Tensor:
    """Zero outside the smallest set of tokens whose probability reaches top_p."""
    ordered = probabilities.sort(dim=-1, descending=True).values
    before = ordered.cumsum(dim=-1) - ordered
    last = (before < top_p).sum(dim=-1, keepdim=True) - 1
    return probabilities * (probabilities >= ordered.gather(1, last))


def uniform(keys: Tensor, step: int | Tensor, seed: int) -> Tensor:
    """(S, 2) int64 -> (S,) float32 in [0, 1), counter-based (the finalizer of splitmix64)."""
    state = _mix(keys[:, 0] ^ _signed(seed * 0x9E3779B97F4A7C15))
    state = _mix(state + keys[:, 1] * _signed(0xD1B54A32D192ED03) + 1)
    state = _mix(state + torch.as_tensor(step, device=keys.device) * _signed(0x8CB92BA72F3D8DD7))
    return _shift(state, 40).float() / (1 << 24)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right: int64's own shift drags the sign along."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value
