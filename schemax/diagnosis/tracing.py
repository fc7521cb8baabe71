"""What every pass wrote for one document: tokens, their probabilities, what else was likely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from math import exp
from typing import Any

import torch
from pydantic import BaseModel
from torch import Tensor

from schemax.compiler import CompiledSchema
from schemax.documents import Shown, read_documents
from schemax.errors import InputError, ModelError
from schemax.extractor import Extractor
from schemax.readout import read_out
from schemax.results import Extraction
from schemax.runtime.engine import decode
from schemax.runtime.fork import ForkModel
from schemax.runtime.model import DecoderModel
from schemax.runtime.outputs import DocumentOutput, passes_of
from schemax.tokens import PromptIds, SlotOutput

# Tokens that are kept of every choice, the likeliest first.
_RIVALS = 5


@dataclass(frozen=True, slots=True)
class Written:
    """What a pass wrote into a slot.

    field: dotted name; "output" where one slot holds all of it.
    text: of the token that was chosen, and of those behind it that followed without a choice.
    token_ids: of these. probability: of the chosen one.
    rivals: (text, probability) of the likeliest tokens, before the grammar rules any out.
    """

    field: str
    text: str
    token_ids: tuple[int, ...]
    probability: float
    rivals: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """One document, pass by pass.

    passes: what each wrote, of the fields themselves; others: how many tokens each chose for lists'
        items, in later waves and for alternatives of choices. prompt_tokens: of the first pass.
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
    recorder = _Recorder(compiled)
    try:
        (slots,) = decode(model, [prompt], compiled.stop, compiled.decoding, recorder)
    except ValueError as error:
        raise InputError(str(error)) from error
    output = DocumentOutput(slots, passes_of(slots))
    written = sum(len(slot.ids) for slot in _all_of(slots))
    return Trace(
        read.text,
        tuple(recorder.passes(prompt, slots)),
        tuple(recorder.others),
        len(prompt.instruction) + sum(map(len, prompt.documents)) + len(prompt.opening),
        written + sum(len(key) for key in prompt.keys[0]),
        read_out(read, output, compiled, extractor.calibration),
    )


def _all_of(slots: tuple[SlotOutput, ...]) -> list[SlotOutput]:
    return [one for slot in slots for one in (slot, *_all_of(slot.children))]


@dataclass(slots=True)
class _Recorder:
    """Called with the logits that a pass chooses by; others: see `Trace`."""

    compiled: CompiledSchema
    others: list[int] = field(default_factory=list)
    _seen: list[dict[int, tuple[int, list[int], list[float]]]] = field(default_factory=list)

    def __call__(self, index: Tensor, step: Tensor, logits: Tensor) -> None:
        shares, ids = torch.softmax(logits.float(), dim=-1).topk(_RIVALS)
        rows = zip(index.tolist(), step.tolist(), ids.tolist(), shares.tolist(), strict=True)
        found = {slot: (at, near, likely) for slot, at, near, likely in rows}
        self.others.append(sum(slot < 0 for slot in index.tolist()))
        found.pop(-1, None)
        self._seen.append(found)

    def passes(self, prompt: PromptIds, slots: tuple[SlotOutput, ...]) -> list[tuple[Written, ...]]:
        """What each pass wrote, now that it is known."""
        codec, names = self.compiled.codec, [item.name for item in self.compiled.attributes]
        if len(slots) != len(names):
            names = ["output"]
        if self.compiled.waves is not None:  # later ones are among the others
            first = self.compiled.waves.fields.first
            names, slots = [names[n] for n in first], tuple(slots[n] for n in first)
        begun = [len(spec.begun) for spec in prompt.slots] or [0] * len(slots)
        steps: dict[int, list[int]] = {}
        for one in self._seen:
            for slot, (step, _, _) in one.items():
                steps.setdefault(slot, []).append(step + begun[slot])

        def text_of(ids: tuple[int, ...] | list[int]) -> str:
            return codec.decode_bytes(ids).decode("utf-8", "replace")

        made = []
        for one in self._seen:
            row = []
            for slot, (step, ids, shares) in sorted(one.items()):
                output, at = slots[slot], step + begun[slot]
                end = min((x for x in steps[slot] if x > at), default=len(output.ids))
                # What was begun already comes with the first.
                start = 0 if at == begun[slot] else at
                rivals = tuple(zip(([text_of([id]) for id in ids]), shares, strict=True))
                mine = output.ids[start:end]
                row.append(
                    Written(names[slot], text_of(mine), mine, exp(output.logprobs[at]), rivals)
                )
            made.append(tuple(row))
        return made
