"""What the runtime wrote for a document, read as the schema says."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache
from math import exp
from typing import TYPE_CHECKING, Any

from schemax.compiler import CompiledSchema
from schemax.compiler.slots import choice_texts, is_typed
from schemax.documents import Document
from schemax.results import Extraction, SlotText, build
from schemax.results.confidence import Choices, Step, mean_probability
from schemax.tokens import SlotOutput

if TYPE_CHECKING:
    from schemax.runtime.outputs import DocumentOutput


def read_out(
    document: Document, output: DocumentOutput, compiled: CompiledSchema
) -> Extraction[Any]:
    """An extraction of a document that was run: every slot's text, its value, the instance."""
    slots: list[SlotText | None] = [
        _slot_text(slot, n, compiled) for n, slot in enumerate(output.slots)
    ]
    if compiled.decoding.layout == "autoregressive":
        slots = _parsed(slots[0], compiled)
    return build(
        compiled.schema,
        compiled.attributes,
        slots,
        compiled.format,
        index=document.index,
        document_id=document.id,
        steps=output.steps,
        texts=document.texts,
    )


def _slot_text(slot: SlotOutput, n: int, compiled: CompiledSchema) -> SlotText:
    raw, complete = compiled.decode_slot(slot.ids)
    text = SlotText(raw, slot.finish_reason, len(slot.ids), complete)
    if not compiled.slots:
        return text
    probability = exp(sum(slot.logprobs))
    confidence = (
        probability if is_typed(compiled.attributes[n]) else mean_probability(slot.logprobs)
    )
    alternatives = {}
    if (choices := _choices(compiled)[n]) is not None:
        alternatives = choices.distribution(_steps(slot, compiled))
        chosen = choices.chosen(compiled.codec.decode_bytes(slot.ids))
        if len(chosen) == 1:
            # Over all ways to cut it into tokens, not just the one that was written.
            confidence = probability = alternatives[chosen[0]]
    null = slot.null_logprob
    return replace(
        text,
        confidence=confidence,
        probability=probability,
        null_probability=None if null is None else exp(null),
        alternatives=alternatives,
    )


def _steps(slot: SlotOutput, compiled: CompiledSchema) -> list[Step]:
    codec = compiled.codec
    return [
        Step(
            codec.decode_bytes(slot.ids[: found.step]),
            tuple(codec.token_bytes[token] for token in found.ids),
            found.probabilities,
        )
        for found in slot.alternatives
    ]


@lru_cache(maxsize=128)
def _choices(compiled: CompiledSchema) -> tuple[Choices | None, ...]:
    """(N,) choices of the attributes that have any, where decoding keeps to them."""
    return tuple(
        Choices(choice_texts(compiled.attributes, n, compiled.format, compiled.decoding))
        if slot.grammar is not None and slot.grammar.choices
        else None
        for n, slot in enumerate(compiled.slots)
    )


def _parsed(whole: SlotText | None, compiled: CompiledSchema) -> list[SlotText | None]:
    """The fields of an output that the model wrote itself, parsed leniently.

    Of an output that was cut off, a field that is missing ran out of budget, and so did the one
    that was being written: it is not taken for complete.
    """
    assert whole is not None
    paths = [attribute.labels for attribute in compiled.attributes]
    found = compiled.format.parse(whole.raw, paths)
    cut = whole.finish_reason == "length" and not whole.complete
    truncated = SlotText("", "length", whole.tokens, complete=False)
    last = next((path for path in reversed(paths) if path in found), None)
    return [
        (truncated if cut else None)
        if path not in found or (cut and path == last)
        else SlotText(found[path], "stop", whole.tokens, complete=True)
        for path in paths
    ]
