"""Choosing a token: greedy, or nucleus sampling that batch-mates cannot disturb.

`Draw` chooses on the device, among the whole vocabulary. Where a slot may write few tokens, the
host reads their logits alone: `FewTokens`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from schemax.runtime.slots.arrays import Ints
from schemax.runtime.slots.staging import as_floats, as_ints, stage

# Logits whose maximum is found at once.
_BLOCK = 512
# Logits that are worked on at once, in float32: as many as a CPU's caches hold; on an accelerator,
# as memory has room for beside all else. And slots, at least.
_AT_ONCE, _FEWEST_ROWS = {"cpu": 1 << 18, "cuda": 1 << 26}, 8
# Choices that are checked and made once more on the device, at most: so many, or one of so many.
_AGAIN, _ONE_OF = 64, 16


def draw(
    logits: Tensor, keys: Tensor, step: int | Tensor, temperature: Tensor, top_p: Tensor
) -> Tensor:
    """(S, V) logits -> (S,) token ids, drawn by nucleus sampling.

    keys: (S, 2) the document's digest with the seed in it, and the slot's number; with the step
        they determine the random number, wherever and with whomever the slot is decoded.
    step: how many tokens the value has so far; one for all, or (S,).
    temperature, top_p: (S,), above 0.
    """
    scaled = logits.float() / temperature.float()[:, None]
    probabilities = scaled.softmax(dim=-1)
    bounds = top_p.float()[:, None]
    probabilities = probabilities.where(bounds >= 1, _nucleus(probabilities, bounds))
    # In the order of ids: sorted by probability, rounding could exchange neighbours.
    cumulative = probabilities.cumsum(dim=-1)
    drawn = uniform(keys, step).to(cumulative.device) * cumulative[:, -1]
    return (cumulative <= drawn[:, None]).sum(dim=-1).clamp(max=logits.shape[-1] - 1)


def largest(logits: Tensor) -> Tensor:
    """(S, V) -> (S,) places of the first largest: argmax, at the speed of memory.

    torch's argmax goes number by number on a CPU. Its maximum does not, so each block's maximum
    comes first, then the block, then the place in it.
    """
    count, size = logits.shape
    whole = size - size % _BLOCK
    if logits.device.type != "cpu" or not whole:
        return logits.argmax(dim=-1)
    blocks = logits[:, :whole].view(count, -1, _BLOCK)
    tops = blocks.amax(dim=-1)
    best = tops.argmax(dim=-1)
    every = torch.arange(count, device=logits.device)
    place = best * _BLOCK + blocks[every, best].argmax(dim=-1)
    if whole == size:
        return place
    behind = logits[:, whole:].argmax(dim=-1) + whole
    return torch.where(logits[every, behind] > tops[every, best], behind, place)


@dataclass(frozen=True, slots=True, eq=False)
class Masks:
    """Masks of (n,) places, in order: each has the mask `which`, among masks of
    (ceil(V / 32),) words, 32 tokens a word."""

    places: Ints
    which: Ints
    masks: Sequence[npt.NDArray[np.int32]]


@dataclass(frozen=True, slots=True)
class Draw:
    """A choice for each of n rows of logits, over the whole vocabulary. All that it needs, staged.

    rows: (n,) of the logits; None for all of them.
    given: (n,) tokens to be taken, -1 where one is chosen. null_ids: (n,) at least 0.
    keys: (n, 2), steps: (n,) for random numbers, see `draw`.
    drawn: (d,) places, in order, whose token is drawn; the others take the most probable one.
        drawn_places: the same on the device; temperature, top_p: (d,).
    bits: (masks, words) what masks allow; None without any. Of places that have a mask, their
        numbers and those of their masks:
    bound: (m,) these choose among allowed tokens; bound_places, bound_masks: on the device.
        is_strict, strict: (m,) whether probabilities are among these, or among all; greedily, what
        is allowed is then told only where it changed the choice.
    checked_places, checked_masks: these choose freely, and only what is refused then is chosen once
        more: a few at most, since the host does not wait to learn how many; who uses the choice
        looks for the others.
    """

    given: Tensor
    null_ids: Tensor
    keys: Tensor
    steps: Tensor
    bound: Ints
    bound_places: Tensor
    bound_masks: Tensor
    is_strict: npt.NDArray[np.bool_]
    strict: Tensor
    checked_places: Tensor
    checked_masks: Tensor
    drawn: Ints
    drawn_places: Tensor
    temperature: Tensor
    top_p: Tensor
    rows: Tensor | None = None
    bits: Tensor | None = None

    @classmethod
    def of(
        cls,
        rows: Ints | None,
        given: Ints,
        null_ids: Ints,
        keys: Ints,
        steps: Ints,
        bound: Masks,
        is_strict: npt.NDArray[np.bool_],
        checked: Masks,
        temperature: npt.NDArray[np.float64],
        top_p: npt.NDArray[np.float64],
        device: torch.device,
        others: Sequence[Ints] = (),
    ) -> tuple[Draw, list[Tensor]]:
        """A draw, and other arrays, all of which go to the device in one copy.

        temperature: (n,), 0 for the most probable token; top_p: (n,).
        """
        (drawn,) = np.nonzero(temperature)
        arrays = {
            "given": given,
            "null_ids": np.maximum(null_ids, 0),
            "keys": keys,
            "steps": steps,
            "bound_places": bound.places,
            "bound_masks": bound.which,
            "strict": is_strict.astype(np.int64),
            "checked_places": checked.places,
            "checked_masks": checked.which + len(bound.masks),
            "drawn_places": drawn,
            "temperature": as_ints(temperature[drawn]),
            "top_p": as_ints(top_p[drawn]),
        }
        if rows is not None:
            arrays["rows"] = rows
        if masks := [*bound.masks, *checked.masks]:
            arrays["bits"] = _as_int64(np.stack(masks))
        staged = stage([*arrays.values(), *others], device)
        found = dict(zip(arrays, staged, strict=False))
        found |= {name: as_floats(found[name]) for name in ("temperature", "top_p")}
        if masks:
            found["bits"] = found["bits"].view(torch.int32)
        made = cls(bound=bound.places, is_strict=is_strict, drawn=drawn, **found)
        return made, staged[len(arrays) :]

    def run(self, logits: Tensor) -> Tensor:
        """(S, V) logits -> (4, n) float32: tokens, their log-probabilities, nulls', and those of
        all that is allowed.

        In parts of a few rows, because float32 copies of all logits may be larger than all else.
        """
        count, step = len(self.given), _rows_at_once(logits)
        found = torch.empty(4, count, dtype=torch.float32, device=logits.device)
        for first in range(0, count, step):
            some = slice(first, min(first + step, count))
            part = logits[some] if self.rows is None else logits[self.rows[some]]
            found[:, some] = self._run(part, some)
        if len(self.checked_places):
            self._choose_again(logits, found)
        return found

    def _run(self, part: Tensor, some: slice) -> Tensor:
        begin, end = np.searchsorted(self.bound, [some.start, some.stop])
        source, free = part, None
        legal = torch.zeros(1, len(part), device=part.device)
        if self.bits is not None and begin < end:
            places = self.bound_places[begin:end] - some.start
            found = _ruled_out(part[places], self.bits, self.bound_masks[begin:end])
            source = part.index_put((places,), found)
            legal[0, places] = log_totals(source, places) - log_totals(part, places)
            if self.is_strict[begin:end].all():
                part = source
            else:
                strict = torch.zeros(len(part), dtype=torch.bool, device=part.device)
                strict[places] = self.strict[begin:end] > 0
                if len(self.drawn) < len(self.given):
                    free = largest(part)
                if self.is_strict[begin:end].any():
                    part = source.where(strict[:, None], part)
        given = self.given[some]
        ids, is_drawn = self._chosen(source, some)
        ids = torch.where(given >= 0, given, ids)
        if free is not None:
            legal = legal.where(strict | is_drawn | (free != ids), 0.0)
        wanted = torch.stack([ids, self.null_ids[some]], dim=1)
        # One kernel, which reads the logits once while they are in the cache.
        logprobs = part.log_softmax(dim=-1, dtype=torch.float32).gather(1, wanted)
        return torch.cat([ids[None].float(), logprobs.T, legal])

    def _chosen(self, logits: Tensor, some: slice) -> tuple[Tensor, Tensor]:
        """(s, V) logits of some rows -> (s,) tokens, and which of these were drawn."""
        is_drawn = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
        begin, end = np.searchsorted(self.drawn, [some.start, some.stop])
        if begin == end:
            return largest(logits), is_drawn
        places = self.drawn_places[begin:end] - some.start
        keys, steps = self.keys[some][places], self.steps[some][places]
        found = draw(
            logits[places], keys, steps, self.temperature[begin:end], self.top_p[begin:end]
        )
        is_drawn[places] = True
        if len(places) == len(logits):
            return found, is_drawn
        return largest(logits).index_put((places,), found), is_drawn

    def _choose_again(self, logits: Tensor, found: Tensor) -> None:
        """Has some of the places whose choice is refused choose once more, in place."""
        assert self.bits is not None
        places, masks = self.checked_places, self.checked_masks
        own = found[0, places].long()
        allowed = (self.bits[masks, own >> 5] >> (own & 31)) & 1
        most = min(max(_AGAIN, len(places) // _ONE_OF), _rows_at_once(logits), len(places))
        some = allowed.topk(most, largest=False).indices
        again = places[some]
        part = logits[again if self.rows is None else self.rows[again]]
        # One of those whose choice is allowed makes the same one.
        bound = _ruled_out(part, self.bits, masks[some])
        ids = largest(bound)
        logprobs = part.log_softmax(dim=-1, dtype=torch.float32).gather(1, ids[:, None])
        legal = bound.float().logsumexp(dim=-1) - part.float().logsumexp(dim=-1)
        found[0, again], found[1, again] = ids.float(), logprobs[:, 0]
        found[3, again] = legal.where(allowed[some] == 0, 0.0)


def log_totals(logits: Tensor, rows: Tensor) -> Tensor:
    """(S, V) logits -> (n,) float32 log-sum-exps of some rows."""
    parts = torch.split(rows, _rows_at_once(logits))
    return torch.cat([logits[part].float().logsumexp(dim=-1) for part in parts])


def _as_int64(bits: npt.NDArray[np.int32]) -> Ints:
    """(m, words) -> (m, words / 2), so that bits can go to the device with all else."""
    even = np.pad(bits, ((0, 0), (0, bits.shape[1] % 2)))
    found: Ints = even.view(np.int64)
    return found


def _rows_at_once(logits: Tensor) -> int:
    most = _AT_ONCE.get(logits.device.type, _AT_ONCE["cuda"])
    return max(_FEWEST_ROWS, most // logits.shape[1])


def _ruled_out(logits: Tensor, bits: Tensor, which: Tensor) -> Tensor:
    """(n, V) logits with minus infinity for what masks do not allow: of (masks, words) bits, those
    that the (n,) rows have."""
    shifts = torch.arange(32, dtype=torch.int32, device=logits.device)
    are_few = len(bits) <= len(which)
    taken = bits if are_few else bits[which]
    refused = ((taken[:, :, None] >> shifts) & 1).flatten(1)[:, : logits.shape[1]] == 0
    return logits.masked_fill(refused[which] if are_few else refused, -torch.inf)


def _nucleus(probabilities: Tensor, top_p: Tensor) -> Tensor:
    """Zero outside the smallest set of tokens whose probability reaches top_p, (S, 1)."""
    ordered = probabilities.sort(dim=-1, descending=True).values
    before = ordered.cumsum(dim=-1) - ordered
    # The likeliest token is always in it, however small top_p is in single precision.
    last = ((before < top_p).sum(dim=-1, keepdim=True) - 1).clamp(min=0)
    return probabilities * (probabilities >= ordered.gather(1, last))


def uniform(keys: Tensor, step: int | Tensor) -> Tensor:
    """(S, 2) int64 -> (S,) float32 in [0, 1), counter-based (the finalizer of splitmix64)."""
    state = _mix(keys[:, 0])
    state = _mix(state + keys[:, 1] * _signed(0xD1B54A32D192ED03) + 1)
    state = _mix(state + torch.as_tensor(step, device=keys.device) * _signed(0x8CB92BA72F3D8DD7))
    return _shift(state, 40).float() / (1 << 24)


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shift(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Logical shift to the right: int64's own shift drags the sign along."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value


Floats = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class FewTokens:
    """The F allowed tokens of n slots, slot by slot.

    ids, owner, logits: (F,) the tokens, the place of each one's slot, and its logit.
    starts: (n,) the place of each slot's first token.
    totals: (n,) log-sum-exps over all logits of a slot.
    """

    ids: Ints
    owner: Ints
    starts: Ints
    logits: Floats
    totals: Floats


def flattened(ids: Sequence[Ints]) -> tuple[Ints, Ints, Ints]:
    """Flattens n rows of tokens: (F,) tokens, (F,) the row of each, (n,) the start of each row."""
    counts = np.array([len(some) for some in ids], np.int64)
    none = np.zeros(0, np.int64)
    return (
        np.concatenate([none, *ids]),
        np.repeat(np.arange(len(ids)), counts),
        counts.cumsum() - counts,
    )


def normalised(few: FewTokens) -> tuple[Ints, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(n,) the place of each row's best token, (F,) log-probabilities among the allowed tokens, and
    (n,) log-sum-exps of their logits."""
    picked, top = best_of(few.logits, few.owner, few.starts)
    shifted = few.logits.astype(np.float64) - top[few.owner]
    mass = np.log(np.add.reduceat(np.exp(shifted), few.starts))
    return picked, shifted - mass[few.owner], mass + top


def best_of(logits: Floats, owner: Ints, starts: Ints) -> tuple[Ints, Floats]:
    """(n,) the place of each row's first largest logit, and (n,) these logits."""
    top = np.maximum.reduceat(logits, starts)
    best = np.flatnonzero(logits == top[owner])
    picked = np.zeros(len(starts), np.int64)
    picked[owner[best][::-1]] = best[::-1]
    return picked, top
