"""A quick proof, on the model's own weights, that it does what decoding relies on.

Two forward passes over a few tokens: in plain order, and the way the decoder would present them.
A model whose code ignores position ids or masks, or whose state cannot be copied, differs grossly.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from schemax.config import DecodingConfig
from schemax.errors import ModelError
from schemax.runtime.choosing import Chooser, Chosen
from schemax.runtime.flight import Flight
from schemax.runtime.fork import ForkModel, select_rows
from schemax.runtime.limits import Limits, Throttle
from schemax.runtime.model import DecoderModel
from schemax.runtime.packing import pack
from schemax.runtime.requests import Request
from schemax.runtime.visibility import TokenInfo
from schemax.tokens import SlotSpec, StopTable

# Differences of logits, relative to their spread: the largest in float32; the root of their mean
# square elsewhere, where single ones may be rounded far. Errors are near 1.
_TOLERANCE, _ROUGH_TOLERANCE = 1e-3, 0.2
# Of layers that step unevenly: as much as one pass or several make a difference.
_UNEVEN_TOLERANCE = 0.1


@torch.inference_mode()
def prove(model: DecoderModel | ForkModel) -> None:
    """Raises ModelError for a model that gives other logits than a plain pass."""
    got, expected = _fork(model) if isinstance(model, ForkModel) else _shuffle(model)
    if (difference := _close(model, got, expected)) is not None:
        forked = isinstance(model, ForkModel)
        how = "copied states" if forked else "tokens in another order"
        why = "its cache does not hold what it read" if forked else "it ignores positions or masks"
        raise ModelError(
            f"{model.name} computes something else from {how} (its logits are off by "
            f"{difference:.2g} of their spread), so its outputs would be wrong: {why}; choose "
            "another model, or another release of transformers"
        )


@torch.inference_mode()
def prove_packing(model: DecoderModel) -> bool:
    """Whether the model goes along with passes that pack documents and slots of all kinds.

    Three branches behind one stem and an instruction, in two passes, beside plain texts. Models
    with an attention of their own, outside transformers' interface, do not.
    """
    stem, branches = _ids(model, 8), _ids(model, 15).view(3, 5)
    request = Request(
        instruction=tuple(stem[:3].tolist()),
        stem=stem[3:].numpy(),
        stem_positions=np.arange(3, 8),
        branch=branches[:, :4].flatten().numpy(),
        branch_positions=np.tile(np.arange(8, 12), 3),
        branch_lengths=np.full(3, 4),
        visible=np.full(3, 5),
        last_position=np.full(3, 11),
        budgets=np.full(3, 2),
        sampling_keys=np.zeros((3, 2), np.int64),
        specs=(SlotSpec(),) * 3,
        answers=None,
        places=[0],
        index=np.arange(3),
        long=False,
    )
    stop = StopTable(np.zeros((1, model.vocab_size), np.int8), ())
    chooser = Chooser(stop, DecodingConfig())
    limits = Limits(documents=1, pass_tokens=1 << 20, capacity=1 << 20)
    flight = Flight(stop, chooser, Throttle(limits))
    cache, unknown = model.new_block_cache(), np.full(3, np.nan, np.float32)
    flight.extend(*(flight.room_for(request) or (0, 0)))
    flight.admit(request, instruction=0)
    try:
        block = model.read_instruction(request.instruction, long=False)
        for layer, both in zip(cache.block_layers, block, strict=True):
            layer.instructions[0] = both
        for column in (4, None):
            work = pack(flight, model.spans, {0: 3}, model.device)
            got = model.run_pass(work, cache)
            if column is not None:
                list(flight.advance(Chosen(branches[:, column].numpy(), unknown, unknown)))
    except torch.OutOfMemoryError:
        raise
    except Exception:  # model code of any kind, run as it was not written for
        return False
    finally:
        model.forget_instructions()
    expected = _plain(model, stem, branches)
    model.bytes_per_token = cache.bytes_per_token
    return _close(model, got, expected) is None


def _is_quantized(model: DecoderModel | ForkModel) -> bool:
    return bool(getattr(model.model, "is_quantized", False))


def _close(model: DecoderModel | ForkModel, got: Tensor, expected: Tensor) -> float | None:
    """None where logits agree; else how far they are off, relative to their spread."""
    error = (got.float() - expected.float()).abs() / expected.float().std().clamp(min=1e-6)
    precise = model.dtype in (torch.float32, torch.float64) and not _is_quantized(model)
    difference = float(error.max() if precise else error.square().mean().sqrt())
    tolerance = _UNEVEN_TOLERANCE if model.anatomy.uneven_steps else _TOLERANCE
    # Not `>`, since NaN must not pass.
    return None if difference <= (tolerance if precise else _ROUGH_TOLERANCE) else difference


def _shuffle(model: DecoderModel) -> tuple[Tensor, Tensor]:
    """Three branches behind one stem, interleaved in memory, beside each branch as a plain text."""
    stem, branches = _ids(model, 8), _ids(model, 15).view(3, 5)
    config = DecodingConfig()
    order = torch.arange(15).view(3, 5).T.flatten()  # token by token, as decoding appends them
    slot = torch.arange(3).repeat_interleave(5)[order]
    position = (torch.arange(5) + 8).repeat(3)[order]
    none = torch.full((8,), -1)
    tokens = TokenInfo(
        position_ids=torch.cat([torch.arange(8), position])[None],
        document=torch.cat([none, torch.zeros_like(slot)])[None],
        slot=torch.cat([none, slot])[None],
        step=torch.zeros(1, 23, dtype=torch.int64),
        real=torch.ones(1, 23, dtype=torch.bool),
    )
    tokens = TokenInfo(*(getattr(tokens, name).to(model.device) for name in TokenInfo.__slots__))
    ids = torch.cat([stem, branches.flatten()[order]])[None].to(model.device)
    (last,) = torch.nonzero(position == position.max(), as_tuple=True)
    columns = (last + 8).to(model.device)
    # Through the cache in two passes, so that what lies in memory is out of order as well.
    cache = model.new_cache()
    head, tail = tokens[:, :18], tokens[:, 18:]
    for part, piece, seen in ((ids[:, :18], head, head), (ids[:, 18:], tail, tokens)):
        width, length = part.shape[1], seen.real.shape[1]
        cache.write_to(torch.arange(length - width, length, device=model.device)[None], length)
        places = torch.arange(width, device=model.device)
        selection = torch.zeros_like(places), places
        logits = model.forward(part, piece, seen, cache, selection, config)
    return logits[columns - 18], _plain(model, stem, branches)


def _fork(model: ForkModel) -> tuple[Tensor, Tensor]:
    """One stem whose state goes on in three rows, beside each as a plain text."""
    stem, branches = _ids(model, 8), _ids(model, 15).view(3, 5)
    logits, state = model.forward(stem[None].to(model.device), None, read=0)
    state = select_rows(state, torch.zeros(3, dtype=torch.int64, device=model.device))
    for read, column in enumerate(branches.T, len(stem)):
        logits, state = model.forward(column[:, None].to(model.device), state, read)
    return logits, _plain(model, stem, branches)


def _plain(model: DecoderModel | ForkModel, stem: Tensor, branches: Tensor) -> Tensor:
    """(3, V) last logits of plain passes, by none of our code."""
    texts = torch.stack([torch.cat([stem, branch]) for branch in branches]).to(model.device)
    logits: Tensor = model.model(input_ids=texts, use_cache=False).logits[:, -1]
    return logits.to(model.device)


def _ids(model: DecoderModel | ForkModel, count: int) -> Tensor:
    """Some ids, spread over the vocabulary, the same every time."""
    return (torch.arange(1, count + 1) * 7919 + count) % model.vocab_size
