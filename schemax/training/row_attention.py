"""Attention of packed rows: a document attends to its row's instruction and to itself alone.

A dense mask computes the scores between all documents of a row, and masks nearly all.
Here they are never computed: N documents of M tokens behind an instruction of P tokens take
N * M * (P + M) scores instead of (P + N * M)². `visibility.visible` still defines visibility; the
dense mask over the same tokens is the slow twin.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

from schemax.config import DecodingConfig
from schemax.runtime.attention.visibility import TokenInfo, visible

NAME = "schemax-rows"
"""The name of this attention in transformers."""


@dataclass(frozen=True, slots=True, eq=False)
class RowParts:
    """A row's tokens, split into the shared tokens and the documents.

    shared: (P,) places of tokens outside documents.
    documents: (N, M) places of each document's tokens, padded with place 0.
    back: (L,) the index of each place of the row in the (P + N * M) results; 0 for padding.
    masks: by type of layer, the masks added to scores of shared tokens, (P, P), and to scores of
        documents' tokens over shared tokens and their own, (N, M, P + M).
    """

    shared: Tensor
    documents: Tensor
    back: Tensor
    masks: tuple[tuple[Tensor, Tensor], ...]


def parts_of(
    tokens: TokenInfo, config: DecodingConfig, windows: Sequence[int | None]
) -> list[RowParts] | None:
    """Splits a batch's rows into parts; None if a document sees other documents.

    tokens: (B, L).
    """
    if config.documents != "isolated" or bool((tokens.document < -1).any()):
        return None
    return [_parts(tokens[row : row + 1], config, windows) for row in range(len(tokens.real))]


def _parts(row: TokenInfo, config: DecodingConfig, windows: Sequence[int | None]) -> RowParts:
    real, document = row.real[0], row.document[0]
    shared = (real & (document == -1)).nonzero()[:, 0]
    runs = [(real & (document == j)).nonzero()[:, 0] for j in torch.unique(document) if j >= 0]
    places = torch.nn.utils.rnn.pad_sequence(runs, batch_first=True) if runs else shared[:0][None]
    filled = torch.zeros_like(places, dtype=torch.bool)
    for number, run in enumerate(runs):
        filled[number, : len(run)] = True
    real_places = torch.cat([shared, places[filled]])
    within = len(shared) + filled.flatten().nonzero()[:, 0]
    back = torch.zeros_like(document)
    back[real_places] = torch.cat([torch.arange(len(shared)), within])
    common = row[:, shared]
    queries = row[0, places]
    queries.real = queries.real & filled
    keys = TokenInfo(
        *(
            torch.cat([getattr(common, name).expand(len(places), -1), getattr(queries, name)], 1)
            for name in ("position_ids", "document", "slot", "step", "real")
        )
    )
    masks = tuple(
        (
            _additive_mask(visible(common, common, config, window)[0]),
            _additive_mask(visible(queries, keys, config, window)),
        )
        for window in windows
    )
    return RowParts(shared, places, back, masks)


def _additive_mask(seen: Tensor) -> Tensor:
    """Returns the additive mask. -3e4 fits half precision."""
    return torch.zeros_like(seen, dtype=torch.float32).masked_fill_(~seen, -3e4)


def attend_row(
    query: Tensor, key: Tensor, value: Tensor, parts: RowParts, layer_type: int, scale: float
) -> Tensor:
    """Attends one row: (H, L, D) queries, (Hk, L, D) keys, (Hk, L, Dv) values -> (H, L, Dv)."""
    kv_heads, length = key.shape[0], len(parts.shared)
    groups = query.shape[0] // kv_heads
    count, longest = parts.documents.shape
    places = parts.documents.flatten()
    of_shared, of_documents = (mask.to(query.dtype) for mask in parts.masks[layer_type])
    grouped = (query * scale).view(kv_heads, groups, *query.shape[1:])
    shared_key, shared_value = key[:, parts.shared], value[:, parts.shared]

    # (Hk, G * P, D) on (Hk, P, D)
    queries = grouped[:, :, parts.shared].flatten(1, 2)
    scores = (queries @ shared_key.mT).view(kv_heads, groups, length, length).add_(of_shared)
    shared_output = scores.softmax(-1).flatten(1, 2) @ shared_value

    # (Hk, N, G, M, D): documents attend to the shared keys together, to their own keys one by one.
    shape = (kv_heads, count, groups, longest)
    queries = grouped[:, :, places].view(kv_heads, groups, count, longest, -1)
    queries = queries.transpose(1, 2).contiguous()
    own_key, own_value = (
        part[:, places].reshape(kv_heads * count, longest, -1) for part in (key, value)
    )
    over_shared = queries.flatten(1, 3) @ shared_key.mT
    over_own = queries.flatten(2, 3).flatten(0, 1) @ own_key.mT
    scores = torch.cat([over_shared.view(*shape, length), over_own.view(*shape, longest)], -1)
    weights = scores.add_(of_documents[:, None]).softmax(-1)
    from_shared, from_own = weights[..., :length], weights[..., length:]
    attended = (from_shared.flatten(1, 3) @ shared_value).view(*shape, -1)
    attended = attended + (from_own.flatten(2, 3).flatten(0, 1) @ own_value).view(*shape, -1)

    shared_output = shared_output.view(len(query), length, value.shape[-1])
    document_output = attended.transpose(1, 2).reshape(len(query), count * longest, -1)
    return torch.cat([shared_output, document_output], 1)[:, parts.back]


# The rows of the pass under way, by thread.
_under_way = threading.local()


@contextmanager
def over_rows(config: Any, rows: Sequence[RowParts]) -> Iterator[None]:
    """Makes models with this configuration attend by rows, on this thread, for the context."""
    before = config._attn_implementation
    config._attn_implementation, _under_way.rows = NAME, rows
    try:
        yield
    finally:
        config._attn_implementation, _under_way.rows = before, None


@torch.compiler.disable  # type: ignore[untyped-decorator]
def row_attention(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """Attends rows, as an attention function of transformers. The mask's width: the layer type."""
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer_type = attention_mask.shape[-1] - 1
    outputs = [
        attend_row(query[at], key[at], value[at], parts, layer_type, scale)
        for at, parts in enumerate(_under_way.rows)
    ]
    return torch.stack(outputs).transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, row_attention)
AttentionMaskInterface.register(NAME, eager_mask)
