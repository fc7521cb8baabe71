"""The machine: memory per document, measured on the model's own cache, and threads of a CPU."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from schemax.diagnosis.report import Check
from schemax.processors import usable_processors
from schemax.runtime.fork import ForkModel
from schemax.runtime.limits import free_bytes
from schemax.runtime.model import DecoderModel

# A product with a description, under the usual instruction; and what is asked of it.
_TOKENS, _SLOTS, _SLOT_TOKENS = 512, 12, 10


@torch.inference_mode()
def memory_checks(model: DecoderModel | ForkModel) -> Iterator[Check]:
    fixed, per_token = _cache_bytes(model)
    if isinstance(model, ForkModel):
        document = _SLOTS * (fixed + per_token * (_TOKENS + _SLOT_TOKENS))
    else:
        document = per_token * (_TOKENS + _SLOTS * _SLOT_TOKENS)
    shape = f"{_TOKENS} tokens and {_SLOTS} slots"
    yield Check("memory per document", f"{document / 2**20:.2f} MiB for {shape}")
    # A good part goes to activations and logits.
    fits = int(0.6 * free_bytes(model.device) / max(1, document))
    yield Check("documents that fit", f"{fits:,} at once")


def _cache_bytes(model: DecoderModel | ForkModel) -> tuple[int, int]:
    """Bytes of one row, whatever its length; and bytes per token."""
    sizes = []
    for length in (8, 16):
        ids = torch.ones(1, length, dtype=torch.int64, device=model.device)
        state = model.model(input_ids=ids, use_cache=True)
        name = model.architecture.state_name or "past_key_values"
        sizes.append(_size(state.get(name)))
    per_token = (sizes[1] - sizes[0]) // 8
    return max(0, sizes[0] - 8 * per_token), per_token


def _size(part: Any) -> int:
    """Bytes of all tensors in a cache."""
    if hasattr(part, "layers"):
        part = [vars(layer) for layer in part.layers]
    return sum(leaf.nbytes for leaf in tree_leaves(part) if isinstance(leaf, torch.Tensor))


def thread_check() -> Check:
    """How many threads torch computes with, and what to do where others need the processors."""
    threads, usable = torch.get_num_threads(), usable_processors()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    found = f"{threads} on {usable} processors, load {load:.1f}"
    if threads > usable:
        found += f"; set OMP_NUM_THREADS={usable}, or passes take many times as long"
    elif threads > 1 and load + threads > usable + 1:
        free = max(1, min(threads - 1, usable - round(load)))
        found += f"; others are busy: OMP_NUM_THREADS={free} may be faster (docs/performance.md)"
    return Check("threads", found)
