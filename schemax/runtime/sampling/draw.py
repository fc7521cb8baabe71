"""Choosing a token: greedy, or nucleus sampling that batch-mates cannot disturb.

`Draw` chooses on the device, among the whole vocabulary. Where a slot may write few tokens, the
host reads their logits alone: `FewTokens`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from schemax.runtime.slots.arrays import Ints
from schemax.runtime.slots.slot_table import SlotTable
from schemax.runtime.slots.staging import as_floats, as_ints, stage

# Logits whose maximum is found at once.
_BLOCK = 512
# Logits that are worked on at once, in float32: as many as a CPU's caches hold; on an accelerator,
# as memory has room for beside all else. And slots, at least.
_AT_ONCE, _FEWEST_ROWS = {"cpu": 1 << 18, "cuda": 1 << 26}, 8
# Refused choices repeated per pass, at most: 64, or a sixteenth of the checked rows if more.
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
    """Masks of tokens at (n,) places, in order.

    which: (n,) the number of each place's mask.
    masks: each (ceil(V / 32),) words of 32 tokens.
    """

    places: Ints
    which: Ints
    masks: Sequence[npt.NDArray[np.int32]]

    def where(self, is_kept: npt.NDArray[np.bool_]) -> Masks:
        """The masks of some of the (n,) places."""
        if is_kept.all():
            return self
        if not is_kept.any():
            return NO_MASKS
        return replace(self, places=self.places[is_kept], which=self.which[is_kept])

    def merged(self, masks: Masks) -> Masks:
        """These masks and those of other places."""
        if not len(masks.places):
            return self
        places = np.concatenate([self.places, masks.places])
        which = np.concatenate([self.which, masks.which + len(self.masks)])
        order = places.argsort()
        return Masks(places[order], which[order], [*self.masks, *masks.masks])

    def within(self, rows: Ints) -> Masks:
        """The same masks at places among these rows, which ascend, in the place of row numbers."""
        return replace(self, places=np.searchsorted(rows, self.places))


NO_MASKS = Masks(np.zeros(0, np.int64), np.zeros(0, np.int64), ())


@dataclass(frozen=True, slots=True)
class Draw:
    """A choice among the whole vocabulary, for each of n rows of logits: its arguments, staged.

    Tensors lie on the device. Arrays are on the host, which never waits for the device to learn
    which rows a part of the logits contains.

    rows: (n,) of the logits; None for all of them.
    given: (n,) tokens that the slots write whatever the model says; -1: one is chosen.
    null_ids: (n,) at least 0.
    drawn: (d,) places, in order, whose token is drawn; others take the most probable token.
    drawn_places: the same.
    random: (d,) arguments of `draw`: keys, steps, temperature, top_p.
    bits: (masks, words) of all masks; None if there is none.
    bound: (m,) places, in order, that choose among the tokens of their masks.
    bound_places: the same.
    bound_masks: (m,) the number of each mask.
    is_strict: (m,) True: probabilities are shares of the mask's tokens. False: they are shares of
        all tokens, and a greedy choice reports its mask's probability only if the mask changed it.
    strict: the same, as integers.
    checked_places, checked_masks: places that choose freely. Choices that their masks refuse are
        made again, a few at most, since the host does not learn how many there are. The caller
        finds the others.
    """

    given: Tensor
    null_ids: Tensor
    drawn: Ints
    drawn_places: Tensor
    random: Sequence[Tensor]
    bound: Ints
    bound_places: Tensor
    bound_masks: Tensor
    is_strict: npt.NDArray[np.bool_]
    strict: Tensor
    checked_places: Tensor
    checked_masks: Tensor
    rows: Tensor | None = None
    bits: Tensor | None = None

    @classmethod
    def staged(
        cls,
        table: SlotTable,
        slots: Ints,
        rows: Ints,
        given: Ints,
        bound: Masks,
        is_strict: npt.NDArray[np.bool_],
        checked: Masks,
        device: torch.device,
        few: Sequence[Ints],
    ) -> tuple[Draw, Sequence[Tensor]]:
        """Stages a draw for n rows of (S,) slots, and other arrays, in one copy to the device.

        bound, is_strict, checked: see `Draw`; their places count among the rows.
        few: the other arrays.
        """
        chosen = slots[rows]
        (drawn,) = np.nonzero(table.temperature[chosen])
        slots_drawn = chosen[drawn]
        arrays = {
            "given": given,
            "null_ids": np.maximum(table.null_id[chosen], 0),
            "drawn_places": drawn,
            "bound_places": bound.places,
            "bound_masks": bound.which,
            "strict": is_strict.astype(np.int64),
            "checked_places": checked.places,
            "checked_masks": checked.which + len(bound.masks),
        }
        if len(rows) < len(slots):
            arrays["rows"] = rows
        if masks := [*bound.masks, *checked.masks]:
            arrays["bits"] = _as_int64(np.stack(masks))
        random = [
            np.stack([table.digest[slots_drawn], table.number[slots_drawn]], axis=1),
            table.step[slots_drawn],
            as_ints(table.temperature[slots_drawn]),
            as_ints(table.top_p[slots_drawn]),
        ]
        tensors = stage([*few, *random, *arrays.values()], device)
        keys, steps, *floats = tensors[len(few) : len(few) + 4]
        columns = dict(zip(arrays, tensors[len(few) + 4 :], strict=True))
        if masks:
            columns["bits"] = columns["bits"].view(torch.int32)
        staged = cls(
            drawn=drawn,
            random=(keys, steps, *map(as_floats, floats)),
            bound=bound.places,
            is_strict=is_strict,
            **columns,
        )
        return staged, tensors[: len(few)]

    def run(self, logits: Tensor) -> Tensor:
        """(S, V) logits -> (4, n) float32: tokens, their log-probabilities, the log-probabilities
        of null tokens, and those of all tokens that masks allow.

        In parts of a few rows, because float32 copies of all logits may be larger than all else.
        """
        count, step = len(self.given), _rows_at_once(logits)
        choices = torch.empty(4, count, dtype=torch.float32, device=logits.device)
        for first in range(0, count, step):
            part = slice(first, min(first + step, count))
            choices[:, part] = self._run(
                logits[part] if self.rows is None else logits[self.rows[part]], part
            )
        if len(self.checked_places):
            self._choose_again(logits, choices)
        return choices

    def _run(self, logits: Tensor, part: slice) -> Tensor:
        """(s, V) logits of a part of the rows -> (4, s); see `run`."""
        begin, end = np.searchsorted(self.bound, [part.start, part.stop])
        allowed, unbound_ids = logits, None
        legal = torch.zeros(1, len(logits), device=logits.device)
        if self.bits is not None and begin < end:
            places = self.bound_places[begin:end] - part.start
            masked = _ruled_out(logits[places], self.bits, self.bound_masks[begin:end])
            allowed = logits.index_put((places,), masked)
            legal[0, places] = log_totals(allowed, places) - log_totals(logits, places)
            if self.is_strict[begin:end].all():
                logits = allowed
            else:
                strict = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
                strict[places] = self.strict[begin:end] > 0
                if len(self.drawn) < len(self.given):
                    unbound_ids = largest(logits)
                if self.is_strict[begin:end].any():
                    logits = allowed.where(strict[:, None], logits)
        given = self.given[part]
        ids, is_drawn = self._chosen_tokens(allowed, part)
        ids = torch.where(given >= 0, given, ids)
        if unbound_ids is not None:
            legal = legal.where(strict | is_drawn | (unbound_ids != ids), 0.0)
        wanted = torch.stack([ids, self.null_ids[part]], dim=1)
        # One kernel, which reads the logits once while they are in the cache.
        logprobs = logits.log_softmax(dim=-1, dtype=torch.float32).gather(1, wanted)
        return torch.cat([ids[None].float(), logprobs.T, legal])

    def _chosen_tokens(self, logits: Tensor, part: slice) -> tuple[Tensor, Tensor]:
        """(s, V) logits of a part of the rows -> (s,) tokens, and True for drawn tokens."""
        is_drawn = torch.zeros(len(logits), dtype=torch.bool, device=logits.device)
        begin, end = np.searchsorted(self.drawn, [part.start, part.stop])
        if begin == end:
            return largest(logits), is_drawn
        places = self.drawn_places[begin:end] - part.start
        ids = draw(logits[places], *(column[begin:end] for column in self.random))
        is_drawn[places] = True
        if len(places) == len(logits):
            return ids, is_drawn
        return largest(logits).index_put((places,), ids), is_drawn

    def _choose_again(self, logits: Tensor, choices: Tensor) -> None:
        """Repeats refused choices under their masks, in place, up to a bound."""
        assert self.bits is not None
        places, masks = self.checked_places, self.checked_masks
        ids = choices[0, places].long()
        is_allowed = (self.bits[masks, ids >> 5] >> (ids & 31)) & 1
        most = min(max(_AGAIN, len(places) // _ONE_OF), _rows_at_once(logits), len(places))
        # Refused choices come first. An allowed choice, made again, is the same.
        picked = is_allowed.topk(most, largest=False).indices
        again = places[picked]
        part = logits[again if self.rows is None else self.rows[again]]
        masked = _ruled_out(part, self.bits, masks[picked])
        ids = largest(masked)
        logprobs = part.log_softmax(dim=-1, dtype=torch.float32).gather(1, ids[:, None])
        legal = masked.float().logsumexp(dim=-1) - part.float().logsumexp(dim=-1)
        choices[0, again], choices[1, again] = ids.float(), logprobs[:, 0]
        choices[3, again] = legal.where(is_allowed[picked] == 0, 0.0)


def log_totals(logits: Tensor, rows: Tensor) -> Tensor:
    """(S, V) logits -> (n,) float32 log-sum-exps of n rows."""
    parts = torch.split(rows, _rows_at_once(logits))
    return torch.cat([logits[part].float().logsumexp(dim=-1) for part in parts])


def _as_int64(bits: npt.NDArray[np.int32]) -> Ints:
    """(m, words) -> (m, words / 2), so that bits can go to the device with all else."""
    even = np.pad(bits, ((0, 0), (0, bits.shape[1] % 2)))
    words: Ints = even.view(np.int64)
    return words


def _rows_at_once(logits: Tensor) -> int:
    most = _AT_ONCE.get(logits.device.type, _AT_ONCE["cuda"])
    return max(_FEWEST_ROWS, most // logits.shape[1])


def _ruled_out(logits: Tensor, bits: Tensor, which: Tensor) -> Tensor:
    """(n, V) logits, with minus infinity for tokens that masks do not allow.

    bits: (masks, words).
    which: (n,) the number of each row's mask.
    """
    shifts = torch.arange(32, dtype=torch.int32, device=logits.device)
    are_few = len(bits) <= len(which)
    masks = bits if are_few else bits[which]
    refused = ((masks[:, :, None] >> shifts) & 1).flatten(1)[:, : logits.shape[1]] == 0
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


def flattened_rows(ids: Sequence[Ints]) -> tuple[Ints, Ints, Ints]:
    """Flattens n rows of tokens: (F,) tokens, (F,) the row of each, (n,) the start of each row."""
    counts = np.array([len(row) for row in ids], np.int64)
    none = np.zeros(0, np.int64)
    return (
        np.concatenate([none, *ids]),
        np.repeat(np.arange(len(ids)), counts),
        counts.cumsum() - counts,
    )


def best_logprobs(
    few: FewTokens,
) -> tuple[Ints, npt.NDArray[np.float64], npt.NDArray[np.float64]]:
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
    picked = starts.copy()  # NaN equals nothing
    picked[owner[best][::-1]] = best[::-1]
    return picked, top
