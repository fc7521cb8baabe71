"""The slow twin of decoding: no cache, no batch, no pruning, no scheduler.

The oracle is given what the decoder wrote and runs it through the model as plain inputs
(teacher-forced), one pass for a whole value, to ask at every place what should have been written.
The decoder is right where every token is the answer; since it is right up to every place, that is
what decoding token by token would have given.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from schemax.config import DecodingConfig
from schemax.runtime.engine import Model
from schemax.runtime.model import DecoderModel
from schemax.runtime.plan import Plan, WrittenValue, plan_prompt, with_values
from schemax.runtime.sampling import choose
from schemax.runtime.visibility import TokenInfo
from schemax.tokens import DONE, FinishReason, Grammar, PromptIds, SlotOutput, SlotSpec, StopTable


@torch.inference_mode()
def oracle_outputs(
    model: Model,
    prompt: PromptIds,
    stop: StopTable,
    config: DecodingConfig,
    outputs: Sequence[SlotOutput],
    budgets: Sequence[int] | None = None,
) -> tuple[SlotOutput, ...]:
    """(S,) what should have been written into a prompt's slots, given what was.

    Equal to `outputs` if these are right; else a slot ends with the first token that differs.
    budgets: (S,) tokens, retries included; None for the prompt's own.
    """
    plan = plan_prompt(prompt, config)
    found = []
    for place, logits in enumerate(oracle_logits(model, prompt, config, outputs)):
        key = torch.from_numpy(plan.sampling_keys[place : place + 1])
        budget = int(plan.k_max[place] if budgets is None else budgets[place])
        written: list[int] = []
        reason: FinishReason | None = None
        for row, actual in zip(logits, outputs[place].ids, strict=True):
            spec = plan.specs[place]
            written.append(next_token(row, spec, written, stop, config, key))
            reason = finish_reason(written, budget, stop)
            if reason is not None or written[-1] != actual:
                break
        found.append(SlotOutput(tuple(written), reason or "length"))
    return tuple(found)


@torch.inference_mode()
def oracle_logits(
    model: Model, prompt: PromptIds, config: DecodingConfig, outputs: Sequence[SlotOutput]
) -> Iterator[Tensor]:
    """(K, V) float32 logits of each slot, on the CPU, by which its K tokens are to be chosen.

    `branched` and `autoregressive` slots are plain requests: transformers' own forward pass over
    the same token ids, without any mask of ours. Of `gapped` ones a whole prompt is one pass under
    the rule of visibility.
    """
    if config.layout != "gapped":
        yield from _plain_requests(model, prompt, config, outputs)
        return
    assert isinstance(model, DecoderModel)
    plan = plan_prompt(prompt, config)
    values = [
        WrittenValue(int(slot), int(document), int(position), output.ids[:-1])
        for slot, document, position, output in zip(
            plan.slot_ids, plan.slot_document, plan.last_position, outputs, strict=True
        )
    ]
    # What goes beyond a slot's gap, in a retry, is seen by no other slot.
    within = [
        replace(value, ids=value.ids[: int(k_max) - 1])
        for value, k_max in zip(values, plan.k_max, strict=True)
    ]
    together = _one_pass(model, config, plan, within, range(len(values)))
    for place, logits in enumerate(together):
        if len(values[place].ids) == len(within[place].ids):
            yield logits
            continue
        # By itself: later keys, whose positions it reaches, are not there.
        end = int(plan.last_index[place]) + 1
        alone = [*within[:place], values[place]]
        yield from _one_pass(model, config, _cut(plan, end), alone, [place])


def next_token(
    logits: Tensor,
    spec: SlotSpec,
    written: Sequence[int],
    stop: StopTable,
    config: DecodingConfig,
    key: Tensor,
) -> int:
    """(V,) logits -> the token chosen among all that the slot's grammar allows.

    key: (1, 2) for random numbers, see `sampling.choose`.
    """
    if (grammar := spec.grammar) is not None:
        if (token := forced_token(grammar, written, stop)) is not None:
            return token
        bits = np.frombuffer(_matcher(grammar, written).compute_bitmask(), np.uint8)
        allowed = np.unpackbits(bits, bitorder="little")[: len(logits)].astype(bool)
        logits = logits.masked_fill(~torch.from_numpy(allowed).to(logits.device), -torch.inf)
    return int(choose(logits[None], key, len(written), config))


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


def _matcher(grammar: Grammar, written: Sequence[int]) -> Any:
    matcher = grammar.new_matcher()
    assert matcher.consume_tokens(list(written))
    return matcher


def _plain_requests(
    model: Model, prompt: PromptIds, config: DecodingConfig, outputs: Sequence[SlotOutput]
) -> Iterator[Tensor]:
    values = iter(outputs)
    for j, keys in enumerate(prompt.keys):
        seen = prompt.documents if config.documents == "stacked" else prompt.documents[j : j + 1]
        head = [*prompt.instruction, *(i for ids in seen for i in ids), *prompt.opening]
        for key in keys:
            value = next(values).ids
            ids = torch.tensor([[*head, *key, *value[:-1]]], device=model.device)
            logits = model.model(input_ids=ids, use_cache=False).logits[0, -len(value) :]
            yield logits.float().cpu()


def _one_pass(
    model: DecoderModel,
    config: DecodingConfig,
    plan: Plan,
    values: Sequence[WrittenValue],
    wanted: Sequence[int],
) -> Iterator[Tensor]:
    filled = with_values(plan, values)
    names = ("position_ids", "document", "slot", "step")
    row = {n: torch.from_numpy(getattr(filled, n))[None].to(model.device) for n in names}
    tokens = TokenInfo(**row, real=torch.ones_like(row["slot"], dtype=torch.bool))
    starts = len(plan.input_ids) + np.cumsum([0, *(len(value.ids) for value in values)])
    columns = [
        [int(plan.last_index[place]), *range(starts[place], starts[place + 1])] for place in wanted
    ]
    places = torch.tensor([c for some in columns for c in some], device=model.device)
    logits = model.forward(
        torch.from_numpy(filled.input_ids)[None].to(model.device),
        tokens,
        (torch.zeros_like(places), places),
        config,
        model.uses_long_rope(plan),
    )
    yield from torch.split(logits.float().cpu(), list(map(len, columns)))


def _cut(plan: Plan, end: int) -> Plan:
    """The plan's first tokens."""
    names = ("input_ids", "position_ids", "document", "slot", "step")
    return replace(plan, **{name: getattr(plan, name)[:end] for name in names})
