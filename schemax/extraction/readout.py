"""Reads the runtime's output for a document: texts of slots, values, instances."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from math import exp, inf, isnan
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from schemax.attributes import Attribute
from schemax.attributes.settings import settings_of
from schemax.base.calibration import Calibration, Promise, per_item
from schemax.compiler import CompiledSchema
from schemax.compiler.choices import Branches
from schemax.compiler.slot_specs import Fields
from schemax.compiler.tokenizer import ByteCodec
from schemax.errors import ServerError
from schemax.extraction.documents import Document
from schemax.formats import DocumentKey, OutputFormat
from schemax.formats.base import answer_in
from schemax.results import Extraction, FieldError, SlotText, build
from schemax.results.fields import field_tree_of, part_of
from schemax.results.list_results import with_items
from schemax.results.repairs import refusals, repaired_slots
from schemax.runtime.sampling.loops import run_at_end
from schemax.servers.extraction import ServedSlots, read_slots
from schemax.tokens import Ids, SlotOutput


class SlotKind(NamedTuple):
    """A field's slot before a document is read. optional: whether it may go without a value.

    slot_index: among the slots of `fields`.
    """

    fields: Fields
    slot_index: int
    optional: bool


@lru_cache(maxsize=128)
def kinds_of(compiled: CompiledSchema) -> tuple[SlotKind, ...]:
    """(N,) kinds of slots. A field that a nested model requires is not optional, since its null
    would cost the values beside it."""
    assert compiled.fields is not None  # else the model writes the keys
    return _kinds_of(compiled.fields, optional_fields(compiled.schema, compiled.attributes))


def optional_fields(schema: type[Any], attributes: Sequence[Attribute]) -> list[bool]:
    """Whether attributes may go without a value, so that an improbable one can be left out."""
    leaves = field_tree_of(schema).leaves
    return [
        bool(leaves[a.path].when_null) and a.may_be_null and not a.two_phase for a in attributes
    ]


def _kinds_of(fields: Fields, optional: Sequence[bool]) -> tuple[SlotKind, ...]:
    return tuple(SlotKind(fields, slot_index, may_go) for slot_index, may_go in enumerate(optional))


def _kinds_of_items(attribute: Attribute, items: Fields) -> tuple[SlotKind, ...]:
    """The kinds of an item's slots; an item that is no model is optional if the list may shrink."""
    optional = [leaf.omittable and not leaf.two_phase for leaf in attribute.fields]
    return _kinds_of(items, optional or [attribute.num_items[0] == 0])


if TYPE_CHECKING:
    from schemax.runtime.slots.outputs import DocumentOutput


def read_out(
    document: Document,
    output: DocumentOutput,
    compiled: CompiledSchema,
    calibration: Calibration,
) -> Extraction[Any]:
    """The extraction of a document from the runtime's output."""
    slots: Sequence[SlotText | None]
    nothing: tuple[FieldError, ...] = ()
    answered, output_format, prompt = document.answered, compiled.format, prompt_of(compiled)
    if isinstance(served := output.slots[0], ServedSlots):
        try:
            slots, output_format, prompt = read_slots(served, compiled)
        except ServerError as error:
            return document.failed(str(error), steps=output.steps)
    elif compiled.decoding.layout == "autoregressive":
        whole = _plain_text(output.slots[0], compiled)
        slots = _parsed(whole, compiled, output.document)
        if all(slot is None for slot in slots):
            nothing = (
                FieldError(
                    None, "the output holds none of the keys, or several answers", whole.raw
                ),
            )
        if isinstance(compiled.codec, ByteCodec) and output.slots[0].logprobs:
            slots = list(_with_confidences(slots, output.slots[0], compiled))
        pairs_of_lists = zip(slots, compiled.attributes, strict=True)
        slots = [with_items(slot, item, compiled.format) for slot, item in pairs_of_lists]
    else:
        places = None if answered is None else compiled.asked_alone(answered.places)
        slots = _slot_texts(output.slots, compiled, calibration, places)
    if compiled.decoding.max_repairs:
        refused = partial(_refusals, document, compiled)
        slots = repaired_slots(compiled.attributes, slots, refused, null_text(compiled.format))
    steps = output.steps
    if answered is not None:
        slots, steps = answered.completed(slots), steps + answered.item.steps
    extraction = build(
        compiled.schema,
        compiled.attributes,
        slots,
        output_format,
        index=document.index,
        document_id=document.id,
        steps=steps,
        texts=document.texts,
        prompt=document.prompts(prompt),
    )
    return replace(extraction, errors=(*nothing, *extraction.errors)) if nothing else extraction


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
    """Reads a top-level field before other fields are done; None until its slots are done.

    slots: the finished slots, by index. Validators of the whole instance have not run.
    """
    places = [n for n, item in enumerate(compiled.attributes) if item.path[0] == name]
    if not places or not slots.keys() >= set(places):
        return None
    schema: Any = compiled.schema
    attributes = [compiled.attributes[n] for n in places]
    kinds = kinds_of(compiled)
    texts = [_field_text(n, slots[n], kinds[n], compiled, calibration) for n in places]
    return build(
        part_of(schema, name),
        attributes,
        texts,
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
    own = compiled.schema, compiled.attributes
    return refusals(*own, slots, compiled.format, document.texts)


def _slot_texts(
    outputs: Sequence[SlotOutput],
    compiled: CompiledSchema,
    calibration: Calibration,
    places: Sequence[int] | None = None,
) -> list[SlotText | None]:
    """(N,) slots. places: of the outputs, if they are not all."""
    kinds = kinds_of(compiled)
    slots: list[SlotText | None] = [None] * len(kinds)
    for n, slot in zip(range(len(kinds)) if places is None else places, outputs, strict=True):
        slots[n] = _field_text(n, slot, kinds[n], compiled, calibration)
    return slots


def _field_text(
    slot_index: int,
    output: SlotOutput,
    kind: SlotKind,
    compiled: CompiledSchema,
    calibration: Calibration,
) -> SlotText:
    """The text of a field, left out if it is less sure than the calibration's promise requires."""
    text = _slot_text(output, kind, compiled, calibration)
    if (promise := calibration.promise) is None or not kind.optional:
        return text
    name = compiled.attributes[slot_index].name
    least = promise.min_confidence(settings_of(compiled.schema).category, name)
    if text.repaired is not None:
        text = replace(text, repaired=_promised(text.repaired, least, promise, compiled))
    return _promised(text, least, promise, compiled)


def _promised(text: SlotText, least: float, promise: Promise, compiled: CompiledSchema) -> SlotText:
    is_null = text.raw.strip() == null_text(compiled.format)
    if is_null or text.confidence is None or text.confidence >= least:
        return text
    below = f"the confidence {text.confidence:.3f} is below {least:.3f}, the threshold"
    reason = "no confidence is high enough" if least == inf else below
    note = f"left out: {reason} for a precision of {promise.precision:g}"
    return replace(text, left_out=True, note=note)


def _plain_text(slot: SlotOutput, compiled: CompiledSchema) -> SlotText:
    raw, complete = compiled.decode_slot(slot.ids)
    text = SlotText(raw, slot.finish_reason, len(slot.ids), complete)
    is_loop = text.is_cut and run_at_end(slot.ids) is not None
    return replace(text, is_loop=True) if is_loop else text


def _slot_text(
    slot: SlotOutput, kind: SlotKind, compiled: CompiledSchema, calibration: Calibration
) -> SlotText:
    if slot.repaired is not None:
        first = _slot_text(replace(slot, repaired=None), kind, compiled, calibration)
        again = _slot_text(slot.repaired, kind, compiled, calibration)
        return replace(first, repaired=again)
    fields, slot_index, is_optional = kind
    segment, branches = fields.segments[slot_index], fields.specs[slot_index].follow_ups
    if isinstance(branches, Branches) and (free_text := slot.free_text) is not None:
        # The model preferred a text that is no choice.
        text = _slot_text(free_text, kind, compiled, calibration)
        named = branches.named(text.raw, compiled.format)
        if text.complete and named is not None:
            return replace(text, tokens=len(slot.ids) + text.tokens)
    plain = _plain_text(slot, compiled)
    items = None
    if (leaves := fields.items[slot_index]) is not None:
        kinds = _kinds_of_items(segment.declared, leaves)
        width = len(kinds)
        inner = [
            _slot_text(child, kinds[at % width], compiled, calibration)
            for at, child in enumerate(slot.items)
        ]
        items = tuple(tuple(inner[at : at + width]) for at in range(0, len(inner), width))
    if not slot.logprobs:  # a server without probabilities
        return replace(plain, items=items)
    is_free_text = slot.role == "free_text"
    is_typed = segment.attribute.is_typed and not is_free_text
    legal_at_start, legal = map(exp, slot.legal_logprobs)
    probability = exp(sum(slot.logprobs))
    confidence = probability if is_typed else mean_probability(slot.logprobs)
    alternatives: dict[Any, float] = {}
    if (choices := fields.choices[slot_index]) is not None and not is_free_text:
        left_by = partial(choices.left_by, compiled.codec)
        alternatives = distribution(choices.values, left_by, tree_of(slot))
        chosen = left_by(slot.ids)
        if len(chosen) == 1:
            # The sum over all ways to cut the choice into tokens.
            confidence = probability = alternatives[chosen[0]]
    if is_typed:
        # Relative to all texts; so far, relative to texts that the type allows.
        confidence, probability = confidence * legal, probability * legal
    left_out = False
    if plain.raw.strip() != null_text(compiled.format):
        # Null is no value, so neither calibration nor the threshold applies.
        confidence = calibration.confidence(confidence)
        least = compiled.decoding.min_probability
        least = calibration.min_probability if least is None else least
        left_out = is_optional and probability < least
        if left_out and segment.attribute.is_list:
            left_out = per_item(probability, _num_items(plain.raw, compiled.format)) < least
    null = slot.null_logprob
    return replace(
        plain,
        confidence=confidence,
        probability=probability,
        null_probability=None if null is None else exp(null),
        legal_probability=legal,
        legal_at_start=legal_at_start,
        alternatives=alternatives,
        left_out=left_out,
        items=items,
    )


def _num_items(raw: str, output_format: OutputFormat) -> int:
    """Counts the items of a list that is one literal; 1 for a literal that cannot be read."""
    try:
        items = output_format.unescape(raw, is_list=True)
    except Exception:  # cut off; and a format may be the user's own
        return 1
    return len(items) if isinstance(items, list) else 1


def null_text(output_format: OutputFormat) -> str:
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
    literals = compiled.format.parse(whole.raw, paths)
    cut = whole.finish_reason == "length" and not whole.complete
    seen = "" if literals else whole.raw
    truncated = SlotText(seen, "length", whole.tokens, complete=False, is_loop=whole.is_loop)
    if cut:
        further = compiled.format.parse(f"{whole.raw}x", paths)
        literals = {path: text for path, text in literals.items() if further.get(path) == text}
    width = len(compiled.attributes)
    return [
        (truncated if cut else None)
        if path not in literals
        else SlotText(literals[path], "stop", whole.tokens, complete=True)
        for path in paths[document * width : (document + 1) * width]
    ]


def _with_confidences(
    slots: Sequence[SlotText | None], whole: SlotOutput, compiled: CompiledSchema
) -> Iterator[SlotText | None]:
    """The fields of a chat's answer, with confidences if the answer holds their literals.

    whole: the answer's bytes; the log-probability of a token stands at its first byte, NaN at its
        other bytes.
    """
    text = bytes(whole.ids)
    answer = answer_in(text.decode("utf-8", "replace"))
    place = max(0, text.rfind(answer.encode()))  # thoughts state values as well
    for slot, attribute in zip(slots, compiled.attributes, strict=True):
        key = text.find(json.dumps(attribute.labels[-1], ensure_ascii=False).encode(), place)
        literal = b"" if slot is None else slot.raw.strip().encode()
        start = text.find(literal, key + 1) if key >= 0 and literal else -1
        if slot is None or start < 0:
            yield slot
            continue
        place = start + len(literal)
        # The literal's first token may begin before the literal.
        while isnan(whole.logprobs[start]) and start:
            start -= 1
        logprobs = [value for value in whole.logprobs[start:place] if not isnan(value)]
        probability = exp(sum(logprobs))
        yield replace(
            slot,
            confidence=probability if attribute.is_typed else mean_probability(logprobs),
            probability=probability,
            tokens=len(logprobs),
        )


_NOTHING = -1  # the token before the first token
_SURE = (1.0,)

Fork: TypeAlias = tuple[Sequence[int], Sequence[float], dict[int, "Fork"]]
"""The possible next tokens, their probabilities, and the known forks behind some of the tokens."""


def mean_probability(logprobs: Sequence[float]) -> float:
    """The geometric mean of the probabilities of a value's tokens."""
    return exp(sum(logprobs) / len(logprobs))


def tree_of(output: SlotOutput) -> Fork:
    """The tree of known alternatives of a slot, from its own output and its branches."""
    top: dict[int, Fork] = {}
    outputs = [output]
    while outputs:
        output = outputs.pop()
        choices = {step.step: step for step in output.alternatives}
        onward, before = top, _NOTHING
        for place, token in enumerate(output.ids):
            # A branch does not replace the alternatives before it that are known already.
            if before not in onward:
                step = choices.get(place)
                known = (step.ids, step.probabilities) if step else ((token,), _SURE)
                onward[before] = (*known, {})
            onward, before = onward[before][2], token
        outputs += output.branches
    return top[_NOTHING]


def distribution(
    values: Sequence[Any],
    left_by: Callable[[Ids], Sequence[Any]],
    root: Fork,
) -> dict[Any, float]:
    """The probability of every value: the sum over all paths from the root to the value.

    left_by: tokens -> the values still possible behind them; they share the last token's
        probability equally where no fork is known.
    """
    if len(values) == 1:
        return {values[0]: 1.0}
    probabilities = dict.fromkeys(values, 0.0)
    ways: list[tuple[Ids, Fork, float]] = [((), root, 1.0)]
    while ways:
        written, (tokens, shares, onward), probability = ways.pop()
        for token, share in zip(tokens, shares, strict=True):
            if token in onward:
                ways.append(((*written, token), onward[token], probability * share))
                continue
            reached = left_by((*written, token))
            for value in reached:
                probabilities[value] += probability * share / len(reached)
    return probabilities
