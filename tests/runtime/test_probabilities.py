"""How sure slots are: log-probabilities and alternatives, beside plain forward passes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from conftest import TITLES, combinations
from constrained import (
    LOOPS,
    TEMPLATE,
    Everything,
    Forced,
    allowed_after,
    forked,
    head_of,
    teacher_forced,
)
from oracle import forced_token

from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.runtime.models.model import DecoderModel
from schemax.tokens import SlotOutput

Model = Callable[..., DecoderModel]


def expected_logprobs(
    compiled: CompiledSchema, model: Any, text: str, n: int, slot: SlotOutput
) -> tuple[list[float], float | None, list[float]]:
    """Of a slot's tokens, of null as its first one, and of all that its grammar allows, by one
    plain forward pass."""
    (prompt,) = compiled.encode([text])
    spec = compiled.slots[n]
    logits = teacher_forced(model, head_of(prompt, n), slot.ids)
    strict = spec.grammar is not None and spec.grammar.strict
    sampled = compiled.decoding.temperature > 0
    found, null, legal = [], None, []
    for step, token in enumerate(slot.ids):
        row = logits[step]
        legal.append(0.0)
        if spec.grammar is not None:
            allowed = allowed_after(spec, slot.ids[:step])
            if strict or sampled or int(row.argmax()) not in allowed:
                legal[-1] = float(row[allowed].logsumexp(-1) - row.logsumexp(-1))
        if strict:
            mask = torch.full_like(row, -torch.inf)
            mask[allowed] = 0
            row = row + mask
        logprobs = row.log_softmax(dim=-1)
        if step == 0 and spec.null_id >= 0:
            null = float(logprobs[spec.null_id])
        forced = spec.grammar and forced_token(spec.grammar, list(slot.ids[:step]), compiled.stop)
        found.append(float(logprobs[token]) if forced is None else 0.0)
        legal[-1] = legal[-1] if forced is None else 0.0
    return found, null, legal


@combinations(
    "config, loop",
    [{}, {"temperature": 1.7}, {"temperature": 0.7, "top_p": 0.8}, {"constrain": "nothing"}],
    [*LOOPS],
)
def test_log_probabilities_are_the_models(
    decoder_model: Model, codec: TextCodec, loop: str, config: dict[str, Any]
) -> None:
    """Not those of sampling; of a strict grammar, among what it allows."""
    settings = DecodingConfig(**config, k_max=8, max_retries=0)
    texts = TITLES[:1] if loop == "forks" else TITLES[:2]
    model = forked(codec) if loop == "forks" else decoder_model()
    for schema in (Forced, Everything):
        compiled = compile_schema(schema, codec, template=TEMPLATE, decoding=settings)
        for text, row in zip(texts, LOOPS[loop](model, compiled, texts), strict=True):
            for n, slot in enumerate(row):
                logprobs, null, legal = expected_logprobs(compiled, model, text, n, slot)
                assert slot.logprobs == pytest.approx(logprobs, abs=1e-3)
                assert (slot.null_logprob is None) == (null is None)
                assert null is None or slot.null_logprob == pytest.approx(null, abs=1e-3)
                assert slot.legal_logprobs == pytest.approx((legal[0], sum(legal)), abs=5e-3)
