"""Decoding in sequence: masks in the form each backend wants, positions that stay as planned."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from schemax.config import DecodingConfig
from schemax.errors import ModelError
from schemax.runtime import attention
from schemax.runtime.anatomy import takes_masks_by_kind
from schemax.runtime.blocks import BlockCache
from schemax.runtime.kvcache import SlotCache
from schemax.runtime.language_model import SLACK, LanguageModel
from schemax.runtime.packing import Pass, pack_instruction
from schemax.runtime.plan import Ints, Plan, with_retries
from schemax.runtime.visibility import Span, TokenInfo, visible

# An instruction's ids, and whether longrope takes its long factors.
InstructionKey = tuple[tuple[int, ...], bool]
# The same, and what tells the weights apart that it was read with.
KeptKey = tuple[tuple[int, ...], bool, int]
# Keys and values of every layer, (1, Hk, I, D).
Block = tuple[tuple[Tensor, Tensor], ...]

# Instructions whose keys and values are kept from one call to the next.
_KEPT_INSTRUCTIONS = 16


_locks: WeakKeyDictionary[Any, threading.RLock] = WeakKeyDictionary()


class DecoderModel(LanguageModel):
    """A model all of whose layers go by position ids and masks: all slots share one sequence.

    Raises ModelError for models that in-sequence decoding cannot serve.
    """

    def __init__(self, model: Any) -> None:
        # transformers reads the attention's name off the configuration, which all threads share.
        self._lock = _locks.setdefault(model, threading.RLock())
        with self._lock:
            super().__init__(model)
            backend = self.config._attn_implementation
        if self.anatomy.obstacle:
            raise ModelError(f"{self.name} {self.anatomy.obstacle}")
        if backend not in ("sdpa", "eager"):
            raise ModelError(
                f"attention implementation {backend!r} takes no custom mask; "
                'load the model with attn_implementation="sdpa"'
            )
        self.num_layers: int = self.config.num_hidden_layers
        self._by_kind = takes_masks_by_kind(model)
        self.packs = False
        self.bytes_per_token = 0
        self._spans = tuple(self.anatomy.spans.items())
        self._instructions: OrderedDict[KeptKey, Block] = OrderedDict()
        self._longrope = None
        if self.anatomy.switch is not None:
            self._longrope = Longrope.of(model, self.anatomy.switch)

    def refusal(self, config: DecodingConfig) -> str | None:
        return None

    def cache_tokens(self, plan: Plan) -> int:
        # Every slot adds tokens; few come near their budgets.
        return len(plan.input_ids) + int(plan.k_max.sum()) // 3

    def passes(self, key_tokens: int, value_tokens: int) -> int:
        return value_tokens

    def new_cache(self) -> SlotCache:
        return SlotCache(self.num_layers)

    def forward(
        self,
        input_ids: Tensor,
        tokens: TokenInfo,
        context: TokenInfo,
        cache: SlotCache | None,
        selection: tuple[Tensor, Tensor],
        config: DecodingConfig,
        long: bool = False,
    ) -> Tensor:
        """One step. (B, Q) ids -> (S, V) logits at the S places of `selection` (rows, columns).

        tokens describes the Q tokens, context all tokens in the cache, these included; without a
        cache, as in training, both are the same.
        long: whether longrope takes its long factors; see `is_long`.
        """
        longrope = self._longrope.chosen(long) if self._longrope else nullcontext()
        with self._lock, longrope:
            output = self._run(
                selection,
                input_ids=input_ids,
                position_ids=tokens.position_ids,
                attention_mask=self._masks(tokens, context, config),
                past_key_values=cache,
                use_cache=cache is not None,
            )
        logits: Tensor = output.logits[0].to(self.device)
        return logits

    @property
    def spans(self) -> tuple[Span, ...]:
        """How far back each kind of layer sees, in the order of a pass's masks."""
        return tuple(span for _, span in self._spans)

    @property
    def most_tokens(self) -> int | None:
        """Of one pass, where the order of arrival matters from some length on."""
        limit = self.anatomy.max_tokens
        return None if limit is None else max(1, limit - SLACK)

    def budgets(self, plan: Plan, max_retries: int) -> Ints:
        """(S,) token budgets with retries: twice as much each, as far as positions reach.

        A slot that runs out of its budget just goes on: its own tokens are all that it adds to what
        it sees, so going on is what decoding it once more, by itself, would come to.
        """
        return with_retries(plan.k_max, plan.last_position, max_retries, self.bound(plan))

    def bound(self, plan: Plan) -> int | None:
        """Position ids that a prompt must stay below, retries included; None without a bound."""
        bounds = [self.max_positions]
        if self.anatomy.switch is not None and not self.is_long(plan):
            bounds.append(self.anatomy.switch)
        return min((bound for bound in bounds if bound is not None), default=None)

    def run_pass(self, work: Pass, cache: BlockCache) -> Tensor:
        """One packed pass -> (S, V) logits at its selection; keys and values go to the cache."""
        cache.write, cache.parts = work.write, work.parts
        stand_ins = attention.markers(len(self._spans), self.device)
        by_kind = {kind: mark for (kind, _), mark in zip(self._spans, stand_ins, strict=True)}
        rows = torch.zeros_like(work.selection)
        longrope = self._longrope.chosen(work.long) if self._longrope else nullcontext()
        with self._lock, longrope, self._in_parts(cache):
            output = self._run(
                (rows, work.selection),
                input_ids=work.input_ids,
                position_ids=work.position_ids,
                attention_mask=by_kind if self._by_kind else stand_ins[0],
                past_key_values=cache,
                use_cache=True,
            )
        logits: Tensor = output.logits[0].to(self.device)
        return logits

    def read_instruction(self, ids: tuple[int, ...], long: bool) -> Block:
        """An instruction's keys and values, computed once and kept for later calls."""
        key = (ids, long, self._fingerprint())
        with self._lock:
            if (known := self._instructions.get(key)) is not None:
                self._instructions.move_to_end(key)
                return known
            cache = self.new_block_cache()
            work = pack_instruction(ids, 0, self.spans, self.device)
            self.run_pass(replace(work, long=long), cache)
            block = tuple(layer.instructions[0] for layer in cache.block_layers)
            self._instructions[key] = block
            while len(self._instructions) > _KEPT_INSTRUCTIONS:
                self._instructions.popitem(last=False)
            return block

    def _fingerprint(self) -> int:
        """Another number once the weights were trained, loaded or replaced."""
        weights = self.model.parameters()
        return hash(tuple((w.data_ptr(), 0 if w.is_inference() else w._version) for w in weights))

    def forget_instructions(self) -> None:
        """Lets go of instructions kept from earlier calls."""
        with self._lock:
            self._instructions.clear()

    def new_block_cache(self) -> BlockCache:
        return BlockCache(self.num_layers)

    @contextmanager
    def _in_parts(self, cache: BlockCache) -> Iterator[None]:
        """Attention in parts, on this thread, for as long as the context lasts."""
        before = self.config._attn_implementation
        attention.replaced[id(self.config)] = before
        self.config._attn_implementation = attention.NAME
        attention.under_way.cache = cache
        try:
            yield
        finally:
            attention.under_way.cache = None
            self.config._attn_implementation = before
            attention.replaced.pop(id(self.config), None)

    def _masks(
        self, tokens: TokenInfo, context: TokenInfo, config: DecodingConfig
    ) -> Tensor | dict[str, Tensor]:
        masks = {
            kind: self._mask(visible(tokens, context, config, span))
            for kind, span in self.anatomy.spans.items()
        }
        return masks if self._by_kind else next(iter(masks.values()))

    def _mask(self, allowed: Tensor) -> Tensor:
        """(B, Q, K) -> (B, 1, Q, K): boolean for sdpa; additive for eager, which only adds."""
        allowed = allowed[:, None]
        if self.config._attn_implementation == "sdpa":
            return allowed
        lowest = torch.finfo(self.dtype).min
        return torch.zeros_like(allowed, dtype=self.dtype).masked_fill_(~allowed, lowest)


class Longrope:
    """Makes longrope's choice of factors the caller's.

    transformers chooses by the largest position id of a forward pass, so that batch-mates and later
    steps would change a prompt's frequencies. Here the choice is made for a whole prompt: one more
    column with a position id beyond the switch calls the long factors, and is cut off again.
    """

    def __init__(self, switch: int) -> None:
        self._switch = switch
        self._long = False
        # transformers writes the factors into a buffer that all threads share.
        self._lock = threading.RLock()

    @classmethod
    def of(cls, model: Any, switch: int) -> Longrope:
        """The one that a model has already, since it may be wrapped more than once."""
        modules = [m for name, m in model.named_modules() if name.endswith("rotary_emb")]
        for hook in (hook for module in modules for hook in module._forward_pre_hooks.values()):
            if isinstance(owner := getattr(hook, "__self__", None), Longrope):
                return owner
        made = cls(switch)
        for module in modules:
            module.register_forward_pre_hook(made._lengthen, with_kwargs=True)
            module.register_forward_hook(made._shorten)
        return made

    @contextmanager
    def chosen(self, long: bool) -> Iterator[None]:
        with self._lock:
            self._long = long
            try:
                yield
            finally:
                self._long = False

    def _lengthen(self, _module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if not self._long:
            return None
        *others, position_ids = args if "position_ids" not in kwargs else (*args, None)
        position_ids = kwargs.pop("position_ids", position_ids)
        beyond = position_ids.new_full((len(position_ids), 1), self._switch)
        return tuple(others), {**kwargs, "position_ids": torch.cat([position_ids, beyond], 1)}

    def _shorten(self, _module: nn.Module, _args: Any, output: tuple[Tensor, Tensor]) -> Any:
        return tuple(part[:, :-1] for part in output) if self._long else None

    def __reduce__(self) -> Any:
        return Longrope, (self._switch,)  # models are copied and pickled with their hooks
