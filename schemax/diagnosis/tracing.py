"""What every pass wrote for one document: tokens, their probabilities, what else was likely."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import exp
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from schemax.compiler import TextCodec
from schemax.compiler.waves import Waves
from schemax.documents import Shown, read_documents
from schemax.errors import InputError, ModelError
from schemax.extractor import Extractor
from schemax.readout import read_out
from schemax.results import Extraction
from schemax.runtime.engine import decode
from schemax.runtime.fork import ForkModel
from schemax.runtime.model import DecoderModel
from schemax.runtime.outputs import DocumentOutput, passes_of, place_of
from schemax.tokens import ChildSlot, SlotOutput

# Tokens that are kept of every choice, the likeliest first.
_RIVALS = 5


@dataclass(frozen=True, slots=True)
class Written:
    """What a pass wrote into a slot.

    field: dotted name; "output" where one slot holds all of it.
    text: of the token that was chosen, and of those behind it that followed without a choice.
    token_ids: of these. probability: of the chosen one.
    rivals: (text, probability) of the likeliest tokens, before the grammar rules any out.
    as_text: whether a choice is written once more, held to no choices.
    """

    field: str
    text: str
    token_ids: tuple[int, ...]
    probability: float
    rivals: tuple[tuple[str, float], ...]
    as_text: bool = False


@dataclass(frozen=True, slots=True)
class Trace:
    """One document, pass by pass.

    passes: what each wrote, of the fields themselves, later waves included; others: how many tokens
        each chose for lists' items and for alternatives of choices.
    prompt_tokens: of the document with its instruction.
    one_by_one: passes that the same output takes where every token is written, keys included.
    """

    text: str
    passes: tuple[tuple[Written, ...], ...]
    others: tuple[int, ...]
    prompt_tokens: int
    one_by_one: int
    extraction: Extraction[Any]

    def to_dict(self) -> dict[str, Any]:
        """Of JSON types only."""
        return {
            "text": self.text,
            "field": next(iter(self.extraction.texts), "text"),  # whose places spans are
            "prompt_tokens": self.prompt_tokens,
            "one_by_one": self.one_by_one,
            "passes": [[asdict(written) for written in one] for one in self.passes],
            "others": list(self.others),
            "row": self.extraction.to_row(details=True),
        }


def trace(
    extractor: Extractor, document: str | Mapping[str, Any], schema: type[BaseModel], **options: Any
) -> Trace:
    """Reads one document, and keeps what every pass wrote.

    options: format, template, decoding, examples, as of `Extractor.compile`. The document has the
    model for itself, so passes are as many as it takes alone.
    Raises what compiling raises, InputError for a document that cannot be read, and ModelError for
    models of servers, whose passes nobody sees.
    """
    model = extractor.model
    if not isinstance(model, DecoderModel | ForkModel):
        raise ModelError("a server does not tell its passes; trace a model of this process")
    compiled = extractor.compile(schema, **options)
    (read,) = read_documents([document], Shown())
    if read.text is None:
        raise InputError(str(read.problem))
    (prompt,) = compiled.encode([read.text])
    names = [item.name for item in compiled.attributes]
    noted = None
    if compiled.waves is not None:
        names = list(map(".".join, compiled.waves.next_paths(())))
        noted = _Noted(compiled.waves, names)
    elif compiled.decoding.layout == "autoregressive":
        names = ["output"]
    begun = [len(spec.begun) for spec in prompt.slots] or [0] * len(names)
    recorder = _Recorder(compiled.codec)
    try:
        asked = replace(prompt, waves=noted)
        (slots,) = decode(model, [asked], compiled.stop, compiled.decoding, recorder)
    except ValueError as error:
        raise InputError(str(error)) from error
    output = DocumentOutput(slots, passes_of(slots))
    written = sum(len(slot.ids) for slot in _all_of(slots))
    found = slots if noted is None else noted.outputs
    begun += [0] * (len(found) - len(begun))
    return Trace(
        read.text,
        tuple(recorder.passes(names, found, begun)),
        tuple(recorder.others),
        len(prompt.instruction) + sum(map(len, prompt.documents)) + len(prompt.opening),
        written + sum(map(len, compiled.keys[0])),
        read_out(read, output, compiled, extractor.calibration),
    )


def _all_of(slots: tuple[SlotOutput, ...]) -> list[SlotOutput]:
    return [one for slot in slots for one in (slot, *_all_of(slot.children))]


@dataclass(slots=True)
class _Noted:
    """Waves, and what was asked in them: names and outputs of all slots, in that order."""

    waves: Waves
    names: list[str]
    outputs: tuple[SlotOutput, ...] = ()

    @property
    def extent(self) -> int:
        return self.waves.extent

    def next_wave(self, outputs: tuple[SlotOutput, ...], room: int | None) -> tuple[ChildSlot, ...]:
        self.names[len(outputs) :] = map(".".join, self.waves.next_paths(outputs))
        return self.waves.next_wave(outputs, room)

    def settled(self, outputs: tuple[SlotOutput, ...]) -> tuple[SlotOutput, ...]:
        self.outputs = outputs
        return self.waves.settled(outputs)


_Slot = tuple[int, bool]
"""A place among all slots that were asked for, and whether it is filled once more as a text."""


@dataclass(slots=True)
class _Recorder:
    """Called with the logits that a pass chooses by; others: see `Trace`."""

    codec: TextCodec
    others: list[int] = field(default_factory=list)
    _seen: list[dict[_Slot, tuple[int, list[int], list[float]]]] = field(default_factory=list)

    def __call__(self, index: Tensor, step: Tensor, logits: Tensor) -> None:
        shares, ids = torch.softmax(logits.float(), dim=-1).topk(_RIVALS)
        places = list(map(place_of, index.tolist()))
        rows = zip(places, step.tolist(), ids.tolist(), shares.tolist(), strict=True)
        self.others.append(places.count(None))
        self._seen.append({slot: (*rest,) for slot, *rest in rows if slot is not None})

    def passes(
        self, names: Sequence[str], slots: Sequence[SlotOutput], begun: Sequence[int]
    ) -> list[tuple[Written, ...]]:
        """What each pass wrote, now that it is known. begun: tokens that stood there before."""
        steps: dict[_Slot, list[int]] = {}
        for one in self._seen:
            for slot, (step, _, _) in one.items():
                steps.setdefault(slot, []).append(step + begun[slot[0]])

        def text_of(ids: tuple[int, ...] | list[int]) -> str:
            return self.codec.decode_bytes(ids).decode("utf-8", "replace")

        made = []
        for one in self._seen:
            row = []
            for slot, (step, ids, shares) in sorted(one.items()):
                place, is_text = slot
                output, start = slots[place], begun[place]
                if is_text and output.as_text is not None:
                    output = output.as_text
                at = step + start
                end = min((x for x in steps[slot] if x > at), default=len(output.ids))
                rivals = tuple(zip(([text_of([id]) for id in ids]), shares, strict=True))
                # What was begun already comes with the first.
                mine = output.ids[0 if at == start else at : end]
                told = exp(output.logprobs[at])
                row.append(Written(names[place], text_of(mine), mine, told, rivals, is_text))
            made.append(tuple(row))
        return made
