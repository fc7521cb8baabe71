"""What should have been written into slots, by the logits of the doctor's oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from extractive import Copied
from torch import Tensor

from schemax.config import DecodingConfig
from schemax.evaluation.diagnosis.agreement import oracle_logits
from schemax.runtime.engine.decode import Model
from schemax.runtime.sampling.draw import draw, largest
from schemax.runtime.sampling.loops import is_loop
from schemax.runtime.slots.requests import seeded_digest
from schemax.tokens import DONE, FinishReason, Grammar, PromptIds, SlotOutput, SlotSpec, StopTable


@torch.inference_mode()
def oracle_outputs(
    model: Model,
    prompt: PromptIds,
    stop: StopTable,
    config: DecodingConfig,
    outputs: Sequence[SlotOutput],
    budgets: Sequence[int] | None = None,
    copied: Sequence[Copied] = (),
) -> tuple[SlotOutput, ...]:
    """(S,) what should have been written into a prompt's slots, given what was.

    Equal to `outputs` if these are right; else a slot ends with the first token that differs.
    budgets: (S,) tokens, retries included; None for the prompt's own.
    copied: (S,) the documents of slots, for those that copy; () if none does.
    """
    width = len(prompt.k_max)
    numbers, specs = prompt.numbers or range(width), prompt.slots or (SlotSpec(),) * width
    found = []
    for place, logits in enumerate(oracle_logits(model, prompt, config, outputs)):
        j, n = divmod(place, width)
        key = torch.tensor([[prompt.sampling_keys[j], numbers[n]]])
        spec, budget = specs[n], prompt.k_max[n] if budgets is None else budgets[place]
        written: list[int] = []
        reason: FinishReason | None = None
        for row, actual in zip(logits, outputs[place].ids, strict=True):
            document = copied[place] if copied else None
            written.append(next_token(row, spec, written, stop, config, key, document))
            reason = finish_reason(written, budget, stop)
            if reason is None and ends_loops(config, spec):
                seen = _documents(prompt, config, j)
                reason = "length" if is_loop(written, seen) else None
            if reason is not None or written[-1] != actual:
                break
        found.append(SlotOutput(tuple(written), reason or "length"))
    return tuple(found)


def next_token(
    logits: Tensor,
    spec: SlotSpec,
    written: Sequence[int],
    stop: StopTable,
    config: DecodingConfig,
    key: Tensor,
    copied: Copied | None = None,
) -> int:
    """(V,) logits -> the token chosen among all that the slot's grammar allows.

    key: (1, 2) for random numbers, without the seed. copied: the slot's document, of which
    texts have to be runs; None where they need not.
    """
    if (grammar := spec.grammar) is not None:
        if (token := forced_token(grammar, written, stop)) is not None:
            return token
        allowed = allowed_tokens(grammar, written, len(logits))
        if copied is not None and spec.copying is not None:
            before = [
                allowed_tokens(grammar, written[:n], len(logits)) for n in range(len(written))
            ]
            allowed = copied.narrowed(written, [*before, allowed], spec, stop)
        if spec.prior is not None:
            ids = np.flatnonzero(allowed)
            taken = spec.prior.logprobs(tuple(written), tuple(ids.tolist()))
            logits = logits.clone()
            logits[ids] -= torch.from_numpy(taken).to(logits)
        logits = logits.masked_fill(~torch.from_numpy(allowed).to(logits.device), -torch.inf)
    return int(chosen(logits[None], key, len(written), config))


def chosen(logits: Tensor, keys: Tensor, step: int, config: DecodingConfig) -> Tensor:
    """(S, V) logits -> (S,) tokens. keys: (S, 2) for random numbers, without the seed."""
    if config.temperature == 0:
        return largest(logits)
    digests = [seeded_digest(digest, config.seed) for digest in keys[:, 0].tolist()]
    keyed = torch.stack([torch.tensor(digests), keys[:, 1]], dim=1)
    settings = (torch.full((len(keys),), one) for one in (config.temperature, config.top_p))
    return draw(logits, keyed, step, *settings)


def forced_token(grammar: Grammar, written: Sequence[int], stop: StopTable) -> int | None:
    """The next token, if some earlier one left no other way; else None."""
    if not grammar.strict:
        return None
    step = 1
    while step <= len(written):
        data = _matcher(grammar, written[:step]).compute_ff_bytes()
        ids = list(grammar.encode(data)) if data else []
        reasons = [
            finish_reason([*written[:step], *ids[:n]], 1 << 30, stop) for n in range(len(ids))
        ]
        last = finish_reason([*written[:step], *ids], 1 << 30, stop)
        if last is None or "stop" in reasons:
            ids = ids[: reasons.index("stop") if "stop" in reasons else -1]
        if step + len(ids) > len(written):
            return ids[len(written) - step]
        step += len(ids) + 1
    return None


def ends_loops(config: DecodingConfig, spec: SlotSpec) -> bool:
    """Whether a slot that goes round in circles ends early."""
    return config.max_retries > 0 and (spec.grammar is None or not spec.grammar.strict)


def _documents(prompt: PromptIds, config: DecodingConfig, place: int) -> list[int]:
    """Tokens of the documents that a slot sees."""
    stacked = config.documents == "stacked"
    seen = prompt.documents if stacked else prompt.documents[place : place + 1]
    return [token for ids in seen for token in ids]


def finish_reason(written: Sequence[int], budget: int, stop: StopTable) -> FinishReason | None:
    """Why a slot with these tokens ends; None if it goes on."""
    if written[-1] in stop.eos_ids:
        return "eos"
    state = 0
    for token in written:
        state = int(stop.next_state[state, token])
        if state == DONE:
            return "stop"
    return "length" if len(written) >= budget else None


def allowed_tokens(grammar: Grammar, written: Sequence[int], vocab_size: int) -> Any:
    bits = np.frombuffer(_matcher(grammar, written).compute_bitmask(), np.uint8)
    allowed = np.unpackbits(bits, bitorder="little")[:vocab_size].astype(bool)
    if not written:
        allowed[[*grammar.not_first()]] = False
    return allowed


def _matcher(grammar: Grammar, written: Sequence[int]) -> Any:
    matcher = grammar.new_matcher()
    assert matcher.consume_tokens(list(written))
    return matcher
