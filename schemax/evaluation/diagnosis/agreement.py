"""Agreement: compares every way to decode with an oracle, its slow twin.

The oracle has no cache, no batch, no pruning and no scheduler. It is given the decoder's output and
runs it through the model as plain inputs (teacher-forced), one pass per value, which gives the
right next token at every place. The decoder is right if every token is the right one; by induction,
decoding token by token would have written the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from schemax.attributes import attr
from schemax.compiler import as_codec, compile_schema
from schemax.config import DecodingConfig
from schemax.evaluation.diagnosis.diagnosis import Agreement
from schemax.extraction.schema import AttrSchema
from schemax.runtime.attention.visibility import TokenInfo
from schemax.runtime.engine.decode import Model, decode
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.outputs import exceeds
from schemax.runtime.slots.plan import Plan, plan_prompt, with_values
from schemax.tokens import PromptIds, SlotOutput

_INFO = ("position_ids", "document", "slot", "step")


@torch.inference_mode()
def oracle_logits(
    model: Model, prompt: PromptIds, config: DecodingConfig, outputs: Sequence[SlotOutput]
) -> Iterator[Tensor]:
    """Yields (K, V) float32 logits of each slot, on the CPU, by which its K tokens are chosen.

    `branched` and `autoregressive` slots are plain requests: transformers' own forward pass over
    the same token ids, with its own mask. For `gapped` slots, and for documents with their own
    demonstrations, a whole prompt is one pass under the rule of visibility.
    """
    if not config.has_skeleton and not prompt.demonstrations:
        yield from _plain_requests(model, prompt, config, outputs)
        return
    assert isinstance(model, DecoderModel)
    plan = plan_prompt(prompt, config)
    values = [output.ids[:-1] for output in outputs]
    # Other slots do not see tokens beyond a slot's gap, which a retry writes.
    within = [ids[: int(k_max) - 1] for ids, k_max in zip(values, plan.k_max, strict=True)]
    together = _one_pass(model, config, plan, within, range(len(values)))
    for place, logits in enumerate(together):
        if len(values[place]) == len(within[place]):
            yield logits
            continue
        # Alone: the value reaches the positions of later keys.
        end = int(plan.last_index[place]) + 1
        cut = replace(plan, **{name: getattr(plan, name)[:end] for name in ("input_ids", *_INFO)})
        yield from _one_pass(model, config, cut, [*within[:place], values[place]], [place])


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
    values: Sequence[Sequence[int]],
    wanted: Sequence[int],
) -> Iterator[Tensor]:
    filled = with_values(plan, values)
    row = {n: torch.from_numpy(getattr(filled, n))[None].to(model.device) for n in _INFO}
    tokens = TokenInfo(**row, real=torch.ones_like(row["slot"], dtype=torch.bool))
    starts = len(plan.input_ids) + np.cumsum([0, *map(len, values)])
    columns = [
        [int(plan.last_index[place]), *range(starts[place], starts[place + 1])] for place in wanted
    ]
    places = torch.tensor([c for column in columns for c in column], device=model.device)
    logits = model.forward(
        torch.from_numpy(filled.input_ids)[None].to(model.device),
        tokens,
        (torch.zeros_like(places), places),
        config,
    )
    yield from torch.split(logits.float().cpu(), list(map(len, columns)))


TEMPLATE = "Read the attributes of the text.\n{% for d in documents %}{{ d.text }}\n{% endfor %}"
TEXTS = [
    "Sony Bravia XR 65 inch television, 120 Hz, black",
    "Tea, 20 bags",
    "Kids' rain jacket “Duck” – yellow, size 104, waterproof, with hood \U0001f986",
    "x",
]
# A whole output of the autoregressive layout would take most of the time.
_MOST_TOKENS = 12
_EXACT = 2e-3
_SETTINGS = [
    DecodingConfig(layout="branched", documents="isolated", documents_per_prompt=2),
    DecodingConfig(layout="branched", documents="stacked", documents_per_prompt=2),
    DecodingConfig(layout="gapped", documents="isolated", documents_per_prompt=2),
    DecodingConfig(layout="gapped", documents="isolated", slots="causal", documents_per_prompt=2),
    DecodingConfig(layout="gapped", documents="stacked", documents_per_prompt=2),
    DecodingConfig(layout="gapped", documents="stacked", slots="causal", documents_per_prompt=2),
    DecodingConfig(layout="autoregressive"),
]


class Probe(AttrSchema, category="product"):
    """A few attributes of several types, with short budgets."""

    brand: str | None = attr("Manufacturer", k_max=6)
    size: float | None = attr("Size as a number", k_max=4)
    waterproof: bool | None = attr(k_max=3)
    color: Literal["black", "yellow", "blue"] | None = attr(k_max=6)


@torch.inference_mode()
def agreements(model: Model, tokenizer: Any) -> Iterator[Agreement]:
    """Yields an `Agreement` per way to decode. The first way equals plain requests."""
    plain: list[SlotOutput] = []
    as_codec(tokenizer).check_vocabulary(model.vocab_size)
    # Only then do the same tokens give the same logits in any number of passes.
    can_be_exact = model.dtype == torch.float32 and not model.architecture.uneven_steps
    for config in _SETTINGS:
        config = replace(config, max_retries=0, constrain="nothing")
        way = Agreement(config.layout, config.documents, config.slots)
        if refusal := model.refusal(config):
            yield replace(way, refused=refusal)
            continue
        compiled = compile_schema(
            Probe, tokenizer, template=TEMPLATE, decoding=config, vocab_size=model.vocab_size
        )
        prompts = [
            replace(prompt, k_max=tuple(min(budget, _MOST_TOKENS) for budget in prompt.k_max))
            for prompt in compiled.encode(TEXTS)
        ]
        plans = [plan_prompt(prompt, config) for prompt in prompts]
        if reason := exceeds(max(plan.max_position for plan in plans), model.max_positions):
            yield replace(way, refused=f"a short example {reason}")
            continue
        outputs = decode(model, prompts, compiled.stop, config)
        slots = [slot for row in outputs for slot in row]
        plain = plain or slots
        expected = [
            logits
            for prompt, row in zip(prompts, outputs, strict=True)
            for logits in oracle_logits(model, prompt, config, row)
        ]
        alike = [a.ids == b.ids for a, b in zip(slots, plain, strict=False)]
        yield replace(
            _compare(way, slots, expected, can_be_exact),
            oracle="one pass" if config.has_skeleton else "plain requests",
            like_plain=sum(alike) / len(slots) if len(slots) == len(plain) else 0.0,
        )


def _compare(
    way: Agreement, slots: Sequence[SlotOutput], expected: Sequence[Tensor], precise: bool
) -> Agreement:
    tokens = sum(len(slot.ids) for slot in slots)
    agreeing, largest, spread = 0, 0.0, 1e-6
    for slot, oracle in zip(slots, expected, strict=True):
        ids = torch.tensor(slot.ids)
        agreeing += int((oracle.argmax(dim=-1) == ids).sum())
        logprobs = oracle.log_softmax(dim=-1)[range(len(ids)), ids]
        largest = max(largest, float((torch.tensor(slot.logprobs) - logprobs).abs().max()))
        spread = max(spread, float(oracle.std()))
    difference = largest / spread
    exact = agreeing == tokens and difference <= _EXACT if precise else None
    return replace(way, tokens=tokens, agreeing=agreeing, difference=difference, exact=exact)
