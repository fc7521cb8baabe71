"""Reads the runtime's output for a document: texts of slots, values, instances."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import exp, isnan
from typing import TYPE_CHECKING, Any

from schemax.base.calibration import Calibration, per_item
from schemax.compiler import CompiledSchema
from schemax.compiler.byte_codec import ByteCodec
from schemax.compiler.slot_specs import is_typed
from schemax.extraction.documents import Document
from schemax.extraction.slot_kinds import SlotKind, kinds_of
from schemax.formats import DocumentKey, OutputFormat
from schemax.results import Extraction, FieldError, SlotText, build
from schemax.results.confidence import distribution, mean_probability, tree_of
from schemax.results.fields import part_of
from schemax.results.list_results import with_items
from schemax.results.repairs import refusals, settled
from schemax.runtime.sampling.loops import run_at_end
from schemax.servers.extraction import ServedSlots, read_slots
from schemax.tokens import SlotOutput

if TYPE_CHECKING:
    from schemax.runtime.slots.outputs import DocumentOutput


def read_out(
    document: Document,
    output: DocumentOutput,
    compiled: CompiledSchema,
    calibration: Calibration,
) -> Extraction[Any]:
    """An extraction of a document that was run: every slot's text, its value, the instance."""
    slots: Sequence[SlotText | None]
    nothing: tuple[FieldError, ...] = ()
    if isinstance(served := output.slots[0], ServedSlots):
        place: Any = {"index": document.index, "document_id": document.id, "texts": document.texts}
        return read_slots(served, compiled, **place)
    if compiled.decoding.layout == "autoregressive":
        whole = _plain_text(output.slots[0], compiled)
        slots = _parsed(whole, compiled, output.document)
        if all(slot is None for slot in slots):
            nothing = (FieldError(None, "the output holds none of the keys", whole.raw),)
        if isinstance(compiled.codec, ByteCodec) and output.slots[0].logprobs:
            slots = list(_told(slots, output.slots[0], compiled))
        pairs_of_lists = zip(slots, compiled.attributes, strict=True)
        slots = [with_items(slot, item, compiled.format) for slot, item in pairs_of_lists]
    else:
        slots = _slot_texts(output.slots, compiled, calibration)
    if compiled.decoding.max_repairs:
        refused = partial(_refusals, document, compiled)
        slots = settled(compiled.attributes, slots, refused, _null_text(compiled.format))
    found = build(
        compiled.schema,
        compiled.attributes,
        slots,
        compiled.format,
        index=document.index,
        document_id=document.id,
        steps=output.steps,
        texts=document.texts,
        prompt=prompt_of(compiled),
    )
    return replace(found, errors=(*nothing, *found.errors)) if nothing else found


@lru_cache(maxsize=128)
def prompt_of(compiled: CompiledSchema) -> str:
    """The text that a model reads before a document, examples included."""
    return compiled.codec.decode_bytes(compiled.instruction).decode("utf-8", "replace")


def read_part(
    name: str,
    document: Document,
    slots: Mapping[int, SlotOutput],
    compiled: CompiledSchema,
    calibration: Calibration,
) -> Extraction[Any] | None:
    """Reads one of the schema's own fields before the others are done; None while it is not done.

    slots: those that are done, by place. Validators that see the whole instance have not seen it.
    """
    places = [n for n, item in enumerate(compiled.attributes) if item.path[0] == name]
    if not places or not slots.keys() >= set(places):
        return None
    kinds = kinds_of(compiled)
    schema: Any = compiled.schema
    return build(
        part_of(schema, name),
        [compiled.attributes[n] for n in places],
        [_slot_text(slots[n], kinds[n], compiled, calibration) for n in places],
        compiled.format,
        index=document.index,
        document_id=document.id,
        texts=document.texts,
        prompt=prompt_of(compiled),
    )


def review(
    document: Document,
    compiled: CompiledSchema,
    calibration: Calibration,
    outputs: Sequence[SlotOutput],
) -> dict[tuple[str, ...], str]:
    """The reasons why values are refused; see `compiler.waves.Review`."""
    return _refusals(document, compiled, _slot_texts(outputs, compiled, calibration))


def _refusals(
    document: Document, compiled: CompiledSchema, slots: Sequence[SlotText | None]
) -> dict[tuple[str, ...], str]:
    asked = compiled.schema, compiled.attributes
    return refusals(*asked, slots, compiled.format, document.texts)


def _slot_texts(
    outputs: Sequence[SlotOutput], compiled: CompiledSchema, calibration: Calibration
) -> list[SlotText]:
    pairs = zip(outputs, kinds_of(compiled), strict=True)
    return [_slot_text(slot, kind, compiled, calibration) for slot, kind in pairs]


def _plain_text(slot: SlotOutput, compiled: CompiledSchema) -> SlotText:
    raw, complete = compiled.decode_slot(slot.ids)
    return SlotText(
        raw, slot.finish_reason, len(slot.ids), complete, is_loop=_is_loop(slot, complete)
    )


def _is_loop(slot: SlotOutput, complete: bool) -> bool:
    """True if a value that was cut off ends in a loop."""
    is_cut = slot.finish_reason == "length" and not complete
    return is_cut and run_at_end(slot.ids) is not None


def _slot_text(
    slot: SlotOutput, kind: SlotKind, compiled: CompiledSchema, calibration: Calibration
) -> SlotText:
    if slot.repaired is not None:
        first = _slot_text(replace(slot, repaired=None), kind, compiled, calibration)
        again = _slot_text(slot.repaired, kind, compiled, calibration)
        return replace(first, repaired=again)
    if kind.branches is not None and (free_text := slot.free_text) is not None:
        # Written by a model that would rather not have kept to the choices.
        free = replace(kind, is_typed=False, choices=None)
        text = _slot_text(free_text, free, compiled, calibration)
        named = kind.branches.named(text.raw, compiled.format)
        if text.complete and named is not None:
            return replace(text, tokens=len(slot.ids) + text.tokens)
    raw, complete = compiled.decode_slot(slot.ids)
    items = None
    if kind.items is not None:
        width = len(kind.items)
        inner = [
            _slot_text(child, kind.items[place % width], compiled, calibration)
            for place, child in enumerate(slot.items)
        ]
        items = tuple(tuple(inner[at : at + width]) for at in range(0, len(inner), width))
    if not slot.logprobs:  # of a server that does not tell them
        return replace(_plain_text(slot, compiled), items=items)
    legal_at_start, legal = map(exp, slot.legal_logprobs)
    probability = exp(sum(slot.logprobs))
    confidence = probability if kind.is_typed else mean_probability(slot.logprobs)
    alternatives: dict[Any, float] = {}
    if (choices := kind.choices) is not None:
        left_behind = partial(choices.left_behind, compiled.codec)
        alternatives = distribution(choices.values, left_behind, tree_of(slot))
        chosen = choices.left_by(compiled.codec, slot.ids)
        if len(chosen) == 1:
            # Over all ways to cut it into tokens, not just the one that was written.
            confidence = probability = alternatives[chosen[0]]
    if kind.is_typed:
        # Among what the type allows, so far; what it forbids the model may have thought likelier.
        confidence, probability = confidence * legal, probability * legal
    left_out = False
    if raw.strip() != _null_text(compiled.format):
        # A null is no value: neither a mistake about one nor a threshold says anything of it.
        confidence = calibration.confidence(confidence)
        least = compiled.decoding.min_probability
        least = calibration.min_probability if least is None else least
        left_out = kind.optional and probability < least
        if left_out and kind.is_list:
            left_out = per_item(probability, _num_items(raw, compiled.format)) < least
    null = slot.null_logprob
    return SlotText(
        raw,
        slot.finish_reason,
        len(slot.ids),
        complete,
        confidence,
        probability,
        None if null is None else exp(null),
        legal,
        legal_at_start,
        alternatives,
        left_out,
        items,
        is_loop=_is_loop(slot, complete),
    )


def _num_items(raw: str, output_format: OutputFormat) -> int:
    """Counts the items of a list that is one literal; 1 where it cannot be read."""
    try:
        items = output_format.unescape(raw, is_list=True)
    except Exception:  # cut off; and a format may be the user's own
        return 1
    return len(items) if isinstance(items, list) else 1


@lru_cache(maxsize=64)
def _null_text(output_format: OutputFormat) -> str:
    return output_format.escape(None).strip()


def _parsed(whole: SlotText, compiled: CompiledSchema, document: int) -> list[SlotText | None]:
    """The fields of an output that the model wrote itself, parsed leniently.

    In an output that was cut off, missing fields ran out of budget, and so did a field whose value
    differs with one more character.

    document: its place among those of its prompt, which share the output if they are stacked.
    """
    heads: list[tuple[str, ...]] = [()]
    if compiled.decoding.documents == "stacked":
        count = compiled.decoding.documents_per_prompt
        heads = [(DocumentKey(str(place + 1)),) for place in range(count)]
    paths = [(*head, *item.labels) for head in heads for item in compiled.attributes]
    found = compiled.format.parse(whole.raw, paths)
    cut = whole.finish_reason == "length" and not whole.complete
    seen = "" if found else whole.raw
    truncated = SlotText(seen, "length", whole.tokens, complete=False, is_loop=whole.is_loop)
    if cut:
        further = compiled.format.parse(f"{whole.raw}x", paths)
        found = {path: text for path, text in found.items() if further.get(path) == text}
    width = len(compiled.attributes)
    return [
        (truncated if cut else None)
        if path not in found
        else SlotText(found[path], "stop", whole.tokens, complete=True)
        for path in paths[document * width : (document + 1) * width]
    ]


def _told(
    slots: Sequence[SlotText | None], whole: SlotOutput, compiled: CompiledSchema
) -> Iterator[SlotText | None]:
    """The fields of a chat's answer with their confidences, where they are found in it.

    whole: its bytes, with the log-probability of a token at its first one, NaN at the others.
    """
    text, place = bytes(whole.ids), 0
    for slot, attribute in zip(slots, compiled.attributes, strict=True):
        key = text.find(json.dumps(attribute.labels[-1], ensure_ascii=False).encode(), place)
        literal = b"" if slot is None else slot.raw.strip().encode()
        start = text.find(literal, key + 1) if key >= 0 and literal else -1
        if slot is None or start < 0:
            yield slot
            continue
        place = start + len(literal)
        # The token that the literal begins in may begin before it.
        while isnan(whole.logprobs[start]) and start:
            start -= 1
        told = [value for value in whole.logprobs[start:place] if not isnan(value)]
        probability = exp(sum(told))
        is_sure = is_typed(attribute)
        yield replace(
            slot,
            confidence=probability if is_sure else mean_probability(told),
            probability=probability,
            tokens=len(told),
        )
