"""The slow oracle: no cache, no batch, no tensors in the rule. Tests compare the decoder with it.

Independent slots are decoded one at a time: what a slot can see is put into logical order, which
makes it an ordinary causal sequence, and that is run from its first token at every step. Causal
slots see each other, so there the whole prompt is run at every step, under a mask built token by
token from the rule as it is written in the architecture notes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from schemax.config import DecodingConfig
from schemax.runtime.model import DecoderModel
from schemax.runtime.plan import Plan
from schemax.runtime.sampling import choose
from schemax.tokens import DONE, FinishReason, Grammar, SlotOutput, StopTable


@dataclass(frozen=True, slots=True)
class Token:
    """An id and the four integers that say what it sees."""

    input_id: int
    position_id: int
    document: int
    slot: int
    step: int


def sees(query: Token, key: Token, config: DecodingConfig) -> bool:
    """The rule of visibility, for one pair of tokens."""
    if key.position_id > query.position_id:
        return False
    if config.documents == "isolated" and key.document not in (-1, query.document):
        return False
    if key.slot in (-1, query.slot):
        return True
    return config.slots == "causal" and key.step <= query.step


@torch.inference_mode()
def decode_reference(
    model: DecoderModel, plan: Plan, stop: StopTable, config: DecodingConfig
) -> list[SlotOutput]:
    """Fills the slots of one prompt; the same outputs as `decoder.decode`, far more slowly."""
    prompt = [
        Token(*map(int, numbers))
        for numbers in zip(
            plan.input_ids, plan.position_ids, plan.document, plan.slot, plan.step, strict=True
        )
    ]
    if config.slots == "causal":
        return _all_slots_together(model, plan, prompt, stop, config)
    return [
        _one_slot(model, plan, prompt, place, stop, config) for place in range(len(plan.slot_ids))
    ]


def _one_slot(
    model: DecoderModel,
    plan: Plan,
    prompt: list[Token],
    place: int,
    stop: StopTable,
    config: DecodingConfig,
) -> SlotOutput:
    # Stands for any token of this slot, however late: what it sees is all that the slot sees.
    probe = _value_token(plan, place, 0, int(plan.k_max[place]))
    known = sorted((t for t in prompt if sees(probe, t, config)), key=lambda t: t.position_id)
    known = [t for t in known if t.position_id <= int(plan.last_position[place])]
    written: list[int] = []
    while True:
        tokens = known + [
            _value_token(plan, place, token, step) for step, token in enumerate(written, 1)
        ]
        allowed = torch.ones(len(tokens), len(tokens)).tril().bool()
        logits = _run(model, tokens, allowed)[-1]
        written.append(_next(logits, plan, place, written, stop, config))
        reason = _finished(written, int(plan.k_max[place]), stop)
        if reason:
            return SlotOutput(tuple(written), reason)


def _all_slots_together(
    model: DecoderModel,
    plan: Plan,
    prompt: list[Token],
    stop: StopTable,
    config: DecodingConfig,
) -> list[SlotOutput]:
    written: list[list[int]] = [[] for _ in plan.slot_ids]
    reasons: list[FinishReason | None] = [None] * len(written)
    while None in reasons:
        tokens = list(prompt)
        ends = [int(index) for index in plan.last_index]
        for place, ids in enumerate(written):
            # A finished slot's last token is never an input.
            inputs = ids if reasons[place] is None else ids[:-1]
            for step, token in enumerate(inputs, 1):
                ends[place] = len(tokens)
                tokens.append(_value_token(plan, place, token, step))
        allowed = torch.tensor([[sees(q, k, config) for k in tokens] for q in tokens])
        logits = _run(model, tokens, allowed)
        for place, ids in enumerate(written):
            if reasons[place] is None:
                ids.append(_next(logits[ends[place]], plan, place, ids, stop, config))
                reasons[place] = _finished(ids, int(plan.k_max[place]), stop)
    return [
        SlotOutput(tuple(ids), reason)
        for ids, reason in zip(written, reasons, strict=True)
        if reason is not None
    ]


def _next(
    logits: torch.Tensor,
    plan: Plan,
    place: int,
    written: list[int],
    stop: StopTable,
    config: DecodingConfig,
) -> int:
    """(V,) logits -> the token chosen among all that the slot's grammar allows."""
    grammar = plan.specs[place].grammar
    if grammar is not None:
        if (token := _forced(grammar, written, stop)) is not None:
            return token
        matcher = _matcher(grammar, written)
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        allowed = np.unpackbits(bits, bitorder="little")[: len(logits)].astype(bool)
        logits = logits.masked_fill(~torch.from_numpy(allowed).to(logits.device), -torch.inf)
    keys = torch.from_numpy(plan.sampling_keys[place : place + 1])
    return int(choose(logits[None], keys, len(written), config))


def _matcher(grammar: Grammar, written: list[int]) -> Any:
    matcher = grammar.new_matcher()
    assert matcher.consume_tokens(written)
    return matcher


def _forced(grammar: Grammar, written: list[int], stop: StopTable) -> int | None:
    """The next token, if some earlier one left no other way; else None."""
    if not grammar.strict:
        return None
    step = 1
    while step <= len(written):
        data = _matcher(grammar, written[:step]).compute_ff_bytes()
        ids = list(grammar.encode(data)) if data else []
        reasons = [_finished([*written[:step], *ids[:n]], 1 << 30, stop) for n in range(len(ids))]
        last = _finished([*written[:step], *ids], 1 << 30, stop)
        if last is None or "stop" in reasons:
            ids = ids[: reasons.index("stop") if "stop" in reasons else -1]
        if step + len(ids) > len(written):
            return ids[len(written) - step]
        step += len(ids) + 1
    return None


def _value_token(plan: Plan, place: int, token: int, step: int) -> Token:
    return Token(
        input_id=token,
        position_id=int(plan.last_position[place]) + step,
        document=int(plan.slot_document[place]),
        slot=int(plan.slot_ids[place]),
        step=step,
    )


def _run(model: DecoderModel, tokens: list[Token], allowed: torch.Tensor) -> torch.Tensor:
    """(L, V) logits of a whole sequence, under an explicit additive mask and without a cache."""
    lowest = torch.finfo(model.dtype).min
    mask = torch.zeros(allowed.shape, dtype=model.dtype).masked_fill(~allowed, lowest)
    logits: torch.Tensor = model.model(
        input_ids=torch.tensor([[t.input_id for t in tokens]], device=model.device),
        position_ids=torch.tensor([[t.position_id for t in tokens]], device=model.device),
        attention_mask=mask[None, None].to(model.device),
        use_cache=False,
    ).logits[0]
    return logits


def _finished(written: list[int], k_max: int, stop: StopTable) -> FinishReason | None:
    if written[-1] in stop.eos_ids:
        return "eos"
    state = 0
    for token in written:
        state = int(stop.next_state[state, token])
        if state == DONE:
            return "stop"
    return "length" if len(written) >= k_max else None
