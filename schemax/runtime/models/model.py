"""`DecoderModel`: a model that decodes in sequence, with masks and positions as planned."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from cachetools import LRUCache
from torch import Tensor

from schemax.config import DecodingConfig
from schemax.errors import ModelError
from schemax.runtime.attention import segments
from schemax.runtime.attention.batch import Batch, prefix_batch
from schemax.runtime.attention.kv_pool import KVPool
from schemax.runtime.attention.visibility import TokenInfo, block_mask, visible
from schemax.runtime.models.architecture import takes_masks_by_type, windows_by_kind
from schemax.runtime.models.language_model import LanguageModel
from schemax.runtime.models.packed import num_bytes
from schemax.runtime.models.pointwise import is_compiled

# A prefix's ids, the ids before it, and a fingerprint of the weights.
PrefixKey = tuple[tuple[int, ...], tuple[int, ...], int]
# Keys and values of every layer, (1, Hk, I, D).
PrefixKV = tuple[tuple[Tensor, Tensor], ...]

# The most bytes of prefixes' keys and values that are kept from one call to the next.
_KEPT_BYTES = 1 << 30
# The most bytes that a server keeps of them, if half of its weights' bytes are not more.
_SERVED_BYTES = 32 << 20


_locks: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()


class DecoderModel(LanguageModel):
    """A model whose layers all respect position ids and masks, so that slots share one sequence.

    bytes_per_token: bytes of a token's keys and values; 0 before the model was proved.
    Raises ModelError for models that in-sequence decoding cannot serve.
    """

    def __init__(self, model: Any) -> None:
        # transformers reads the attention's name off the configuration, which all threads share.
        self._lock = _locks.setdefault(model, threading.RLock())
        with self._lock:
            super().__init__(model)
            backend = self.config._attn_implementation
        if self.architecture.obstacle:
            raise ModelError(f"{self.name} {self.architecture.obstacle}")
        if backend not in ("sdpa", "eager", "flex_attention"):
            raise ModelError(
                f"attention implementation {backend!r} takes no custom mask; load the model with "
                'attn_implementation="sdpa", "eager" or "flex_attention"'
            )
        self.num_layers: int = self.config.num_hidden_layers
        self._by_type = takes_masks_by_type(model)
        self._cache_name = self.architecture.state_name or "past_key_values"
        self.bytes_per_token = 0
        self._prefixes = _prefixes(_KEPT_BYTES)
        self._chains = segments.compiled_chains() if is_compiled(model) else None
        self._by_kind = windows_by_kind(self.config, self._layers_windows())

    def refusal(self, config: DecodingConfig) -> str | None:
        return None

    def forward(
        self,
        input_ids: Tensor,
        tokens: TokenInfo,
        selection: tuple[Tensor, Tensor],
        config: DecodingConfig,
    ) -> Tensor:
        """Runs whole prompts in one pass, without a cache, for training and the oracle.

        (B, L) ids -> (S, V) logits at the S places of `selection` (rows, columns).
        tokens: describes the ids; masks are computed from it.
        """
        with self._lock:
            output = self._run(
                selection,
                input_ids=input_ids,
                position_ids=tokens.position_ids,
                attention_mask=self._masks(tokens, config),
                use_cache=False,
            )
        logits: Tensor = output.logits[0].to(self.device)
        return logits

    @property
    def windows(self) -> tuple[int | None, ...]:
        """The windows of the kinds of layers, in the order of a pass's masks; None for none."""
        return tuple(self._by_kind.values())

    def run_batch(self, batch: Batch, cache: KVPool) -> Tensor:
        """Runs a packed pass: (S, V) logits at its selection; keys and values go to the cache."""
        cache.begin(batch, self.windows)
        batch, _ = cache.on(self.device)
        rows = torch.zeros_like(batch.selection)
        with self._lock, self._over_segments(cache):
            output = self._run(
                (rows, batch.selection),
                input_ids=batch.input_ids[None],
                position_ids=batch.position_ids[None],
                attention_mask=self._stand_ins(),
                use_cache=True,
                **{self._cache_name: cache},
            )
        logits: Tensor = output.logits[0].to(self.device)
        return logits

    def read_prefix(self, ids: tuple[int, ...], behind: tuple[int, ...] = ()) -> PrefixKV:
        """The keys and values of a prefix, computed once and kept for later calls.

        behind: the prefix that the ids follow and see; () for none.
        """
        key = (ids, behind, self._fingerprint())
        with self._lock:
            if (known := self._prefixes.get(key)) is not None:
                return known
            cache = self.new_cache()
            if behind:
                before = self.read_prefix(behind)
                for layer, pair in zip(cache.kv_layers, before, strict=True):
                    layer.prefixes[0] = pair
            self.run_batch(prefix_batch(ids, 1, behind=len(behind)), cache)
            prefix = tuple(layer.prefixes[1] for layer in cache.kv_layers)
            self._prefixes[key] = prefix
            return prefix

    def _fingerprint(self) -> int:
        """A number that changes when the weights are trained, loaded or replaced."""
        weights = self.model.parameters()
        return hash(tuple((w.data_ptr(), 0 if w.is_inference() else w._version) for w in weights))

    def forget_prefixes(self) -> None:
        """Drops the prefixes kept from earlier calls."""
        with self._lock:
            self._prefixes.clear()

    def serve_strangers(self) -> None:
        """Keeps fewer prefixes from now on, since clients of a server send ever new schemas."""
        weights = num_bytes(self.model)
        self._prefixes = _prefixes(min(_KEPT_BYTES, max(_SERVED_BYTES, weights // 2)))

    def new_cache(self) -> KVPool:
        return KVPool(self.num_layers)

    @torch.inference_mode()
    def _layers_windows(self) -> list[int | None]:
        """The sliding windows that layers call their attention with; [] if the model fails."""
        windows: list[int | None] = []
        segments.under_way.windows = windows
        ids = torch.zeros(1, 1, dtype=torch.int64, device=self.device)
        try:
            with self._lock, self._over_segments(None):
                self._run((ids[0], ids[0]), input_ids=ids, use_cache=False)
        except Exception:  # the proof of packed passes will say why
            return []
        finally:
            segments.under_way.windows = None
        return windows

    @contextmanager
    def _over_segments(self, cache: KVPool | None) -> Iterator[None]:
        """Makes the model attend segments on this thread, for as long as the context lasts."""
        before = self.config._attn_implementation
        segments.replaced[id(self.config)] = before
        self.config._attn_implementation = segments.NAME
        segments.under_way.cache, segments.under_way.chains = cache, self._chains
        try:
            yield
        finally:
            segments.under_way.cache = None
            self.config._attn_implementation = before
            segments.replaced.pop(id(self.config), None)

    def _stand_ins(self) -> Any:
        """Stand-ins for masks, which tell attention over segments the type of a layer."""
        marks = segments.markers(len(self._by_kind), self.device)
        return dict(zip(self._by_kind, marks, strict=True)) if self._by_type else marks[0]

    def _masks(self, tokens: TokenInfo, config: DecodingConfig) -> Any:
        masks = {kind: self._mask(tokens, config, own) for kind, own in self._by_kind.items()}
        return masks if self._by_type else next(iter(masks.values()))

    def _mask(self, tokens: TokenInfo, config: DecodingConfig, window: int | None) -> Any:
        """(B, 1, L, L): boolean for sdpa, additive for eager; a `BlockMask` for FlexAttention."""
        if self.config._attn_implementation == "flex_attention":
            return block_mask(tokens, config, window)
        allowed = visible(tokens, tokens, config, window)[:, None]
        if self.config._attn_implementation == "sdpa":
            return allowed
        lowest = torch.finfo(self.dtype).min
        return torch.zeros_like(allowed, dtype=self.dtype).masked_fill_(~allowed, lowest)


def _prefixes(most: int) -> LRUCache[PrefixKey, PrefixKV]:
    """A cache of prefixes. most: bytes of all; a prefix that has more stays until the next."""
    return LRUCache(most, lambda layers: min(most, sum(x.nbytes for kv in layers for x in kv)))
