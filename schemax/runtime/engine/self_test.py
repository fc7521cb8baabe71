"""A quick test, on the model's own weights, that the model computes what decoding relies on.

It compares forward passes over a few tokens in plain order with passes as decoding runs them. A
model that ignores position ids or masks, or whose state cannot be copied, differs grossly.
"""

from __future__ import annotations

import logging
from math import isnan
from typing import Any

import numpy as np
import torch
from torch import Tensor

from schemax.config import DecodingConfig
from schemax.errors import ModelError
from schemax.runtime.engine.fork import ForkModel, select_rows
from schemax.runtime.engine.limits import AdmissionControl, DecodingLimits
from schemax.runtime.engine.packing import make_batch
from schemax.runtime.engine.scheduler import Scheduler
from schemax.runtime.models.architecture import examine
from schemax.runtime.models.language_model import head_of
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.sampling.sampler import Chosen, Sampler
from schemax.runtime.slots.memory import is_out_of_memory
from schemax.runtime.slots.requests import new_request
from schemax.runtime.slots.slot_table import SlotTable
from schemax.tokens import Ids, PromptIds, StopTable

logger = logging.getLogger(__name__)

# Tolerances of logits' differences, relative to their spread: of the largest in float32; elsewhere,
# where rounding may be large in places, of the root mean square. Real errors are near 1.
_TOLERANCE, _ROUGH_TOLERANCE = 1e-3, 0.2
# For layers with uneven steps: one pass or several differ by as much.
_UNEVEN_TOLERANCE = 0.1


def prepare(model: Any) -> DecoderModel | ForkModel:
    """Wraps a transformers model in the best way of decoding that it is tested to support.

    It decodes in one sequence if it can, else one row per slot. Raises ModelError, naming the
    cause, for a model that supports neither.
    """
    if hasattr(model, "get_base_model"):
        model = model.get_base_model()  # peft's wrapper hides the model's signature
    head_of(model)
    try:
        obstacle = examine(model).obstacle
        if obstacle is None:
            packed = DecoderModel(model)
            if (obstacle := why_not_packed(packed)) is None:
                return packed
            logger.warning("%s %s, so it decodes one row per slot", packed.name, obstacle)
        forked = ForkModel(model, obstacle)
        prove_forks(forked)
        return forked
    except ModelError:
        raise
    except Exception as error:  # model code of any kind, run as it was not written for
        if is_out_of_memory(error):
            raise
        raise ModelError(
            f"{type(model).__name__} fails when it is run as schemax runs it "
            f"({_first_line(error)}); choose another model, or another release of transformers"
        ) from error


@torch.inference_mode()
def prove_forks(model: ForkModel) -> None:
    """Raises ModelError for a model whose forks give other logits than a plain pass."""
    if (difference := _close(model, *_fork(model))) is not None:
        raise ModelError(
            f"{model.name} computes something else from copied states (its logits are "
            f"{_off(difference)}), so its outputs would be wrong: its cache does not hold what it "
            "read; choose another model, or another release of transformers"
        )


@torch.inference_mode()
def why_not_packed(model: DecoderModel) -> str | None:
    """The reason why a model does not support packed passes, as "it ..."; None if it does.

    Compares three branches behind a prefix and a stem, in two packed passes, with plain texts.
    Models whose attention bypasses transformers' interface, or that ignore positions, fail.
    """
    try:
        got, expected = _logits_of_branches(model)
    except Exception as error:  # model code of any kind, run as it was not written for
        if is_out_of_memory(error):
            raise
        return f"fails in packed passes ({_first_line(error)})"
    finally:
        model.forget_prefixes()
    difference = _close(model, got, expected)
    if difference is None:
        return None
    return f"gives other logits in packed passes ({_off(difference)})"


def _logits_of_branches(model: DecoderModel) -> tuple[Tensor, Tensor]:
    """Logits of three branches' last tokens: of packed passes, and of plain passes."""
    stem, branches = _ids(model, 25), _ids(model, 15).view(3, 5)
    keys: tuple[Ids, ...] = tuple(tuple(branch[:4].tolist()) for branch in branches)
    prompt = PromptIds(
        instruction=tuple(stem[:20].tolist()),
        documents=(tuple(stem[20:].tolist()),),
        opening=(),
        keys=(keys,),
        k_max=(2,) * 3,
        sampling_keys=(0,),
    )
    config = DecodingConfig(constrain="nothing")
    stop = StopTable(np.zeros((1, model.vocab_size), np.int8), ())
    request = new_request(prompt, stop, config)
    table = SlotTable()
    sampler = Sampler(table, model.vocab_size)
    limits = DecodingLimits(documents=1, pass_tokens=1 << 20, capacity=1 << 20)
    scheduler = Scheduler(table, sampler, AdmissionControl(limits))
    cache, certain = model.new_cache(), np.zeros(3, np.float32)
    scheduler.resize(*(scheduler.room_for(request) or (0, 0)))
    scheduler.admit(request, prefixes=(0,))
    pairs = model.read_prefix(request.prefix)
    for layer, pair in zip(cache.kv_layers, pairs, strict=True):
        layer.prefixes[0] = pair
    scheduler.begin_pass()
    lengths = {0: len(request.prefix)}
    for column in (4, None):
        batch = make_batch(scheduler, scheduler.allot(), lengths, model.windows)
        got = model.run_batch(batch, cache)
        if column is not None:
            chosen = Chosen(branches[:, column].numpy(), certain, certain, certain)
            list(scheduler.advance(chosen, model.not_finite))
    model.bytes_per_token = cache.bytes_per_token
    return got, _plain(model, stem.expand(3, -1), branches)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _is_quantized(model: DecoderModel | ForkModel) -> bool:
    return bool(getattr(model.model, "is_quantized", False))


def _close(model: DecoderModel | ForkModel, got: Tensor, expected: Tensor) -> float | None:
    """The difference of logits relative to their spread; None if they agree.

    Raises ModelError for a model whose logits of a plain pass are not finite.
    """
    _check_finite(model, expected)
    error = (got.float() - expected.float()).abs() / expected.float().std().clamp(min=1e-6)
    precise = model.dtype in (torch.float32, torch.float64) and not _is_quantized(model)
    difference = float(error.max() if precise else error.square().mean().sqrt())
    tolerance = _UNEVEN_TOLERANCE if model.architecture.uneven_steps else _TOLERANCE
    # Not `>`, since NaN must not pass.
    return None if difference <= (tolerance if precise else _ROUGH_TOLERANCE) else difference


def _off(difference: float) -> str:
    return "not finite" if isnan(difference) else f"off by {difference:.2g} of their spread"


def _check_finite(model: DecoderModel | ForkModel, expected: Tensor) -> None:
    """Raises ModelError for logits that are not finite, and for weights that float16 cannot hold:
    broken weights, or too narrow a dtype."""
    is_narrow = model.dtype == torch.float16 and not _is_quantized(model)
    are_finite = bool(expected.isfinite().all())
    if are_finite and not is_narrow:
        return
    parameters = model.model.named_parameters()
    if broken := [name for name, weights in parameters if not weights.isfinite().all()]:
        remedy = "download or train it again"
        if is_narrow:
            remedy = "float16 ends at 65,504, so load it with dtype bfloat16 or float32"
        raise ModelError(
            f"{model.name}: {len(broken)} of its tensors hold NaN or infinity "
            f"({', '.join(broken[:3])}{', ...' if len(broken) > 3 else ''}); {remedy}"
        )
    if not are_finite:
        raise ModelError(f"its weights are finite, but {model.not_finite.problem}")


def _fork(model: ForkModel) -> tuple[Tensor, Tensor]:
    """Logits of three branches of two stems: from copies of their states, and of plain passes.

    A single stem would not do: its state, not copied, would be broadcast to all branches.
    """
    stems, branches = _ids(model, 16).view(2, 8), _ids(model, 15).view(3, 5)
    owner = torch.tensor([1, 0, 1])
    logits, state = model.forward(stems.to(model.device), None, read=0)
    state = select_rows(state, owner.to(model.device))
    for read, column in enumerate(branches.T, stems.shape[1]):
        logits, state = model.forward(column[:, None].to(model.device), state, read)
    return logits, _plain(model, stems[owner], branches)


def _plain(model: DecoderModel | ForkModel, stems: Tensor, branches: Tensor) -> Tensor:
    """(3, V) last logits of plain passes by the model alone, without our code."""
    texts = torch.cat([stems, branches], dim=1).to(model.device)
    logits: Tensor = model.model(input_ids=texts, use_cache=False).logits[:, -1]
    return logits.to(model.device)


def _ids(model: DecoderModel | ForkModel, count: int) -> Tensor:
    """Fixed ids, spread over the vocabulary."""
    return (torch.arange(1, count + 1) * 7919 + count) % model.vocab_size
