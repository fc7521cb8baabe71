"""The oracle, the slow twin of decoding: no cache, no batch, no pruning, no scheduler.

The oracle is given the decoder's output and runs it through the model as plain inputs
(teacher-forced), one pass per value, which gives the right next token at every place. The decoder
is right if every token is the right one; by induction, decoding token by token would have written
the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from schemax.config import DecodingConfig
from schemax.runtime.attention.visibility import TokenInfo
from schemax.runtime.engine.decode import Model
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.plan import Plan, plan_prompt, with_values
from schemax.tokens import PromptIds, SlotOutput

_INFO = ("position_ids", "document", "slot", "step")


@torch.inference_mode()
def oracle_logits(
    model: Model, prompt: PromptIds, config: DecodingConfig, outputs: Sequence[SlotOutput]
) -> Iterator[Tensor]:
    """Yields (K, V) float32 logits of each slot, on the CPU, by which its K tokens are chosen.

    `branched` and `autoregressive` slots are plain requests: transformers' own forward pass over
    the same token ids, without masks of ours. For `gapped` slots, and for documents with their own
    demonstrations, a whole prompt is one pass under the rule of visibility.
    """
    if config.layout != "gapped" and not prompt.demonstrations:
        yield from _plain_requests(model, prompt, config, outputs)
        return
    assert isinstance(model, DecoderModel)
    plan = plan_prompt(prompt, config)
    values = [output.ids[:-1] for output in outputs]
    # Tokens beyond a slot's gap, as in a retry, are not seen by other slots.
    within = [ids[: int(k_max) - 1] for ids, k_max in zip(values, plan.k_max, strict=True)]
    together = _one_pass(model, config, plan, within, range(len(values)))
    for place, logits in enumerate(together):
        if len(values[place]) == len(within[place]):
            yield logits
            continue
        # Alone, without later keys, whose positions the value reaches.
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
    places = torch.tensor([c for some in columns for c in some], device=model.device)
    logits = model.forward(
        torch.from_numpy(filled.input_ids)[None].to(model.device),
        tokens,
        (torch.zeros_like(places), places),
        config,
        model.uses_long_rope(plan),
    )
    yield from torch.split(logits.float().cpu(), list(map(len, columns)))
