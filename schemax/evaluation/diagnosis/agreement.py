"""Agreement: compares every way to decode with an oracle without caches, batches or pruning.

Both see the same tokens: `oracle` is given the decoder's output, and returns the logits of every
place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from schemax.attributes import attr
from schemax.compiler import as_codec, compile_schema
from schemax.config import DecodingConfig
from schemax.evaluation.diagnosis.oracle import oracle_logits
from schemax.evaluation.diagnosis.report import Agreement
from schemax.extraction.schema import AttrSchema
from schemax.runtime.engine.decode import Model, decode
from schemax.runtime.slots.plan import plan_prompt
from schemax.tokens import SlotOutput

TEMPLATE = "Read the attributes of the text.\n{% for d in documents %}{{ d.text }}\n{% endfor %}"
TEXTS = [
    "Sony Bravia XR 65 inch television, 120 Hz, black",
    "Tea, 20 bags",
    "Kids' rain jacket “Duck” – yellow, size 104, waterproof, with hood \U0001f986",
    "x",
]
# A whole output of the autoregressive layout would take longer than everything else.
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
    """Yields an `Agreement` per way to decode; first the way that equals plain requests."""
    plain: list[SlotOutput] = []
    as_codec(tokenizer).check_vocabulary(model.vocab_size)
    # Only then do the same tokens give the same logits, however they are cut into passes.
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
        if misfit := next(filter(None, map(model.misfit, plans)), None):
            yield replace(way, refused=f"a short example {misfit}")
            continue
        trace: dict[tuple[int, int], Tensor] = {}
        outputs = decode(model, prompts, compiled.stop, config, partial(_keep, trace))
        slots = [slot for row in outputs for slot in row]
        plain = plain or slots
        expected = [
            logits
            for prompt, row in zip(prompts, outputs, strict=True)
            for logits in oracle_logits(model, prompt, config, row)
        ]
        alike = [a.ids == b.ids for a, b in zip(slots, plain, strict=False)]
        yield replace(
            _compare(way, slots, trace, expected, can_be_exact),
            oracle="one pass" if config.layout == "gapped" else "plain requests",
            like_plain=sum(alike) / len(slots) if len(slots) == len(plain) else 0.0,
        )


def _keep(
    trace: dict[tuple[int, int], Tensor], index: Tensor, step: Tensor, logits: Tensor
) -> None:
    """Keeps the (V,) logits by which the decoder chose, by slot and step."""
    places = zip(index.tolist(), step.tolist(), logits.float().cpu(), strict=True)
    trace.update(((place, k), row) for place, k, row in places)


def _compare(
    way: Agreement,
    slots: Sequence[SlotOutput],
    trace: Mapping[tuple[int, int], Tensor],
    expected: Sequence[Tensor],
    precise: bool,
) -> Agreement:
    tokens = sum(len(slot.ids) for slot in slots)
    agreeing, largest, spread = 0, 0.0, 1e-6
    for place, (slot, oracle) in enumerate(zip(slots, expected, strict=True)):
        got = torch.stack([trace[place, k] for k in range(len(slot.ids))])
        agreeing += int((oracle.argmax(dim=-1) == torch.tensor(slot.ids)).sum())
        largest = max(largest, float((got - oracle).abs().max()))
        spread = max(spread, float(oracle.std()))
    difference = largest / spread
    exact = agreeing == tokens and difference <= _EXACT if precise else None
    return replace(way, tokens=tokens, agreeing=agreeing, difference=difference, exact=exact)
