"""Contextual calibration: how probable choices are in documents that say nothing.

After Zhao et al., Calibrate Before Use, 2021, and Holtzman et al., Surface Form Competition, 2021:
a prompt makes some choices likely whatever a document says, such as the one that it shows last. So
choices are scored by how much likelier a document makes them than documents without content do.

Null is not scored so: of a document without content it is right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from schemax.compiler.choices import Branches, Choices, choices_of
from schemax.compiler.compiled_schema import CompiledSchema
from schemax.compiler.slot_specs import slot_tails
from schemax.compiler.tokenizer import TextCodec
from schemax.tokens import PromptIds, SlotOutput, SlotSpec

Ids = tuple[int, ...]

CONTENT_FREE = ("N/A", "[MASK]", "")
"""The documents, over which probabilities are averaged; those of Zhao et al."""

SMOOTHING = 0.1
"""The share of a prior that all choices have in equal parts, so that a choice which the prompt
makes improbable does not win by that alone."""

MOST_CHOICES = 64
"""Every choice costs a short prompt, so that slots with more of them are not calibrated."""


@dataclass(frozen=True, slots=True, eq=False)
class ChoicePrior:
    """See `tokens.Prior`.

    begun: the beginnings of all choices, token by token, as the tokenizer cuts them -> the
        probability that a value begins like this, over the documents without content.
    """

    choices: Choices
    codec: TextCodec
    begun: Mapping[bytes, float]

    def logprobs(self, written: Ids, ids: Ids) -> npt.NDArray[np.float64]:
        return _logprobs(self, written, ids)


@lru_cache(maxsize=16_384)
def _logprobs(prior: ChoicePrior, written: Ids, ids: Ids) -> npt.NDArray[np.float64]:
    """Relative to equal shares, so that null and equally probable choices stay as they are. Tokens
    that lead to the same choices share what these have."""
    texts = [prior.codec.decode_bytes((*written, one)) for one in ids]
    behind = {*prior.choices.begun_by(prior.codec.decode_bytes(written))} - {None}
    ways = [frozenset(prior.choices.begun_by(text)) for text in texts]
    found: dict[frozenset[Any], float] = {}
    for text, way in zip(texts, ways, strict=True):
        if None not in way and way < behind:
            found[way] = max(found.get(way, 0.0), _probability(prior, text))
    apart = [way for way in found if not any(other < way for other in found)]
    total = sum(found[way] for way in apart)
    shares = np.zeros(len(ids))
    for place, way in enumerate(ways):
        if way in found and total:
            share = (1 - SMOOTHING) * found[way] / total * len(behind)
            shares[place] = np.log(share / len(way) + SMOOTHING)
    return shares


def _probability(prior: ChoicePrior, text: bytes) -> float:
    """The probability that a value begins like this; beyond a choice, that of the choice."""
    first: list[bytes] = []
    for other in sorted(other for other in prior.begun if other.startswith(text)):
        if not (first and other.startswith(first[-1])):
            first.append(other)
    if not first:
        first = sorted((other for other in prior.begun if text.startswith(other)), key=len)[-1:]
    return sum(prior.begun[other] for other in first)


def content_free_prompts(compiled: CompiledSchema) -> list[PromptIds]:
    """Prompts of the documents without content, whose slots are given what they write.

    Turn by turn, and in each of all documents: slots with choices write one after another, and
    others null. () of a schema that has none to calibrate.
    """
    stacked = compiled.decoding.documents == "stacked"
    size = compiled.decoding.documents_per_prompt if stacked else 1
    groups = [CONTENT_FREE[at : at + size] for at in range(0, len(CONTENT_FREE), size)]
    # What slots are held to might not let them write what they are given.
    slots = (SlotSpec(),) * len(compiled.slots)
    prompts = []
    for row in _turns(compiled):
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
    """The schema whose slots know how probable their choices are in documents without content.

    outputs: (turns * documents, N) of `content_free_prompts`.
    """
    priors = []
    for n, choices in enumerate(_choices(compiled)):
        written = [slots[n] for slots in outputs]
        priors.append(None if choices is None else _prior(choices, written, compiled.codec))
    slots = tuple(map(_with, compiled.slots, priors))
    waves = compiled.waves
    if waves is not None:
        specs = tuple(map(_with, waves.fields.specs, priors))
        waves = replace(waves, fields=replace(waves.fields, specs=specs))
    return replace(compiled, slots=slots, waves=waves)


def _with(spec: SlotSpec, prior: ChoicePrior | None) -> SlotSpec:
    if prior is None:
        return spec
    follow_ups = spec.follow_ups
    if isinstance(follow_ups, Branches):
        # A text that names a choice would be written by the model as it is.
        follow_ups = replace(follow_ups, prior=prior, free_text=None)
    return replace(spec, prior=prior, follow_ups=follow_ups)


def _prior(choices: Choices, written: Sequence[SlotOutput], codec: TextCodec) -> ChoicePrior:
    """written: (turns * documents,) choices first."""
    count = len(CONTENT_FREE)
    begun: dict[bytes, float] = {}
    for turn in range(len(_values(choices))):
        same = written[turn * count : (turn + 1) * count]
        shares = np.exp(np.cumsum([one.logprobs for one in same], axis=1)).mean(axis=0)
        for end, share in enumerate(shares.tolist(), 1):
            begun.setdefault(codec.decode_bytes(same[0].ids[:end]), share)
    return ChoicePrior(choices, codec, begun)


def _values(choices: Choices) -> list[Any]:
    return [value for value in choices.values if value is not None]


def _choices(compiled: CompiledSchema) -> list[Choices | None]:
    """(N,) of slots that are calibrated."""
    found: list[Choices | None] = []
    for place, spec in enumerate(compiled.slots):
        choices = None
        if spec.grammar is not None and spec.grammar.choices:
            choices = choices_of(compiled.asked, place, compiled.format, compiled.decoding)
            if not 1 < len(_values(choices)) <= MOST_CHOICES:
                choices = None
        found.append(choices)
    return found


def _turns(compiled: CompiledSchema) -> list[tuple[Ids, ...]]:
    """(turns, N) what slots are given; of those with fewer choices the last one again."""
    choices = _choices(compiled)
    if not any(choices):
        return []
    rows: list[list[Ids]] = []
    for place, mine in enumerate(choices):
        tail = slot_tails(compiled.asked, place, compiled.format, compiled.decoding)[0]
        row = []
        for value in [None] if mine is None else _values(mine):
            ids = tuple(compiled.codec.encode(compiled.format.escape(value) + tail))
            row.append(ids[: compiled.stop.length(ids)])
        rows.append(row)
    most = max(map(len, rows))
    return [tuple(row[min(turn, len(row) - 1)] for row in rows) for turn in range(most)]
