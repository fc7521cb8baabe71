"""Contextual calibration: scores choices relative to documents without content.

After Zhao et al., Calibrate Before Use, 2021, and Holtzman et al., Surface Form Competition, 2021:
a prompt makes some choices likely whatever a document says, such as the choice that it shows last.
So the score of a choice is its probability for the document relative to its probability for
documents without content.

Null is not calibrated: for a document without content it is the right answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from schemax.compiler.choices import Branches, ChoiceTexts
from schemax.compiler.compiled_schema import CompiledSchema
from schemax.compiler.tokenizer import TextCodec
from schemax.tokens import Ids, PromptIds, SlotOutput, SlotSpec

CONTENT_FREE = ("N/A", "[MASK]", "")
"""The documents without content, over which probabilities are averaged (Zhao et al.)."""

SMOOTHING = 0.1
"""The weight of equal shares in a prior: a choice does not win only because the prompt makes it
improbable."""

MOST_CHOICES = 64
"""Slots with more choices are not calibrated: every choice costs a short prompt."""


@dataclass(frozen=True, slots=True, eq=False)
class ChoicePrior:
    """See `tokens.Prior`.

    begun: every beginning of a choice, token by token -> the probability that a value begins so,
        averaged over the documents without content.
    """

    choices: ChoiceTexts
    codec: TextCodec
    begun: Mapping[bytes, float]

    def logprobs(self, written: Ids, ids: Ids) -> npt.NDArray[np.float64]:
        return _logprobs(self, written, ids)


@lru_cache(maxsize=16_384)
def _logprobs(prior: ChoicePrior, written: Ids, ids: Ids) -> npt.NDArray[np.float64]:
    """(n,) logarithms relative to equal shares: 0 for null and for equally probable choices.

    Tokens that lead to the same choices have the same value.
    """
    texts = [prior.codec.decode_bytes((*written, token)) for token in ids]
    behind = {*prior.choices.begun_by(prior.codec.decode_bytes(written))} - {None}
    ways = [frozenset(prior.choices.begun_by(text)) for text in texts]
    probabilities: dict[frozenset[Any], float] = {}
    for text, way in zip(texts, ways, strict=True):
        if None not in way and way < behind:
            probabilities[way] = max(probabilities.get(way, 0.0), _probability(prior, text))
    apart = [way for way in probabilities if not any(less < way for less in probabilities)]
    total = sum(probabilities[way] for way in apart)
    shares = np.zeros(len(ids))
    for place, way in enumerate(ways):
        if way in probabilities and total:
            share = (1 - SMOOTHING) * probabilities[way] / total * len(behind)
            shares[place] = np.log(share / len(way) + SMOOTHING)
    return shares


def _probability(prior: ChoicePrior, text: bytes) -> float:
    """The probability that a value begins with `text`; beyond a choice, that of the choice."""
    first: list[bytes] = []
    for begun in sorted(begun for begun in prior.begun if begun.startswith(text)):
        if not (first and begun.startswith(first[-1])):
            first.append(begun)
    if not first:
        first = sorted(filter(text.startswith, prior.begun), key=len)[-1:]
    return sum(prior.begun[begun] for begun in first)


def content_free_prompts(
    compiled: CompiledSchema, *, choices_alone: bool = False
) -> list[PromptIds]:
    """Prompts of the documents without content, whose slots write given answers.

    In each turn every document is asked once: a slot with choices writes its next choice, any other
    slot null, or has the answer () with `choices_alone`. [] for a schema with nothing to calibrate.
    """
    stacked = compiled.decoding.documents == "stacked"
    size = compiled.decoding.documents_per_prompt if stacked else 1
    groups = [CONTENT_FREE[at : at + size] for at in range(0, len(CONTENT_FREE), size)]
    # Without grammars, which might not allow the given answers.
    slots = (SlotSpec(),) * len(compiled.slots)
    prompts = []
    for row in _turns(compiled):
        if choices_alone:
            pairs = zip(row, _choices(compiled), strict=True)
            row = tuple(() if choices is None else answer for answer, choices in pairs)
        for group in groups:
            keys = (compiled.keys if stacked else compiled.keys * len(group))[: len(group)]
            documents = [tuple(compiled.codec.encode(text)) for text in group]
            prompt = compiled.assemble(documents, keys=keys)
            if compiled.nearest is not None:
                prompt = replace(prompt, demonstrations=compiled.nearest.of(group[0]))
            answers = (row,) * len(group)
            prompts.append(replace(prompt, slots=slots, answers=answers, sources=()))
    return prompts


def calibrated(compiled: CompiledSchema, outputs: Sequence[Sequence[SlotOutput]]) -> CompiledSchema:
    """The schema with a prior for every slot with choices.

    outputs: (turns * documents, N) of `content_free_prompts`.
    """
    priors = []
    for n, choices in enumerate(_choices(compiled)):
        written = [slots[n] for slots in outputs]
        priors.append(None if choices is None else _prior(choices, written, compiled.codec))
    slots = tuple(map(_with, compiled.slots, priors))
    fields, waves = compiled.fields, compiled.waves
    if fields is not None:
        fields = replace(fields, specs=tuple(map(_with, fields.specs, priors)))
        waves = waves and replace(waves, fields=fields)
    return replace(compiled, slots=slots, waves=waves, fields=fields)


def _with(spec: SlotSpec, prior: ChoicePrior | None) -> SlotSpec:
    if prior is None:
        return spec
    follow_ups = spec.follow_ups
    if isinstance(follow_ups, Branches):
        # Free text is not calibrated, so a choice is not asked for as free text.
        follow_ups = replace(follow_ups, prior=prior, free_text=None)
    return replace(spec, prior=prior, follow_ups=follow_ups)


def _prior(choices: ChoiceTexts, written: Sequence[SlotOutput], codec: TextCodec) -> ChoicePrior:
    """The prior of a slot. written: (turns * documents,) outputs, one choice per turn."""
    count = len(CONTENT_FREE)
    begun: dict[bytes, float] = {}
    for turn in range(len(_values(choices))):
        same = written[turn * count : (turn + 1) * count]
        shares = np.exp(np.cumsum([slot.logprobs for slot in same], axis=1)).mean(axis=0)
        for end, share in enumerate(shares.tolist(), 1):
            begun.setdefault(codec.decode_bytes(same[0].ids[:end]), share)
    return ChoicePrior(choices, codec, begun)


def _values(choices: ChoiceTexts) -> list[Any]:
    return [value for value in choices.values if value is not None]


def _choices(compiled: CompiledSchema) -> list[ChoiceTexts | None]:
    """(N,) the choices of slots that are calibrated, else None."""
    if compiled.fields is None:
        return [None] * len(compiled.slots)
    return [
        choices if choices is not None and 1 < len(_values(choices)) <= MOST_CHOICES else None
        for choices in compiled.fields.choices
    ]


def _turns(compiled: CompiledSchema) -> list[tuple[Ids, ...]]:
    """(turns, N) the given answers; a slot with fewer choices repeats its last one."""
    if not any(_choices(compiled)) or compiled.fields is None:
        return []
    rows: list[list[Ids]] = []
    for segment, choices in zip(compiled.fields.segments, _choices(compiled), strict=True):
        row = []
        for value in [None] if choices is None else _values(choices):
            text = compiled.format.escape(value) + segment.tails[0]
            ids = tuple(compiled.codec.encode(text))
            row.append(ids[: compiled.stop.length(ids)])
        rows.append(row)
    most = max(map(len, rows))
    return [tuple(row[min(turn, len(row) - 1)] for row in rows) for turn in range(most)]
