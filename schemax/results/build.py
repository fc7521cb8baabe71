"""Builds a validated instance from the raw text of slots, with a result for every field.

`Row` fills the instance; this module reports the result of each field.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from schemax.attributes import Attribute
from schemax.formats import OutputFormat
from schemax.reading.markup import plain_text
from schemax.results.copies import leave_out_copies
from schemax.results.echoes import echo_note, is_echo
from schemax.results.extraction import Extraction, FieldResult, LaterResults, SlotText, Span
from schemax.results.fields import Fallback, Leaf, field_tree_of
from schemax.results.instance import MOVED, final, instance_of, of_other_members, partial_of
from schemax.results.list_results import taken_together
from schemax.results.row import Row
from schemax.results.spans import SpanFinder

T = TypeVar("T")


def build(
    schema: type[T],
    attributes: Sequence[Attribute],
    slots: Sequence[SlotText | None],
    format: OutputFormat,
    *,
    index: int,
    document_id: str | None,
    steps: int = 0,
    texts: Mapping[str, str] | None = None,
    strict: bool = False,
    prompt: str = "",
) -> Extraction[T]:
    """Builds an instance of `schema` from a document's slots, or a failed row with the reason.

    slots: aligned with `attributes`; None for a field that the output did not mention, which counts
        as null.
    texts: of the document, by field; without texts no result has spans.
    strict: reads literals alone, whatever the fields declare.
    prompt: the text before the document; values that stand there, but not in the document, are
        noted.

    Errors of slots' texts or of the schema's validators are reported, never raised. Raises
    ValueError only if the slots do not match the attributes, or the attributes the schema.
    """
    row = row_of(schema, attributes, slots, format, texts, strict)
    if texts and row.lists:
        leave_out_copies(row, SpanFinder(texts))
    instance = instance_of(row, schema)

    def results() -> dict[str, FieldResult]:
        finder = SpanFinder(texts) if texts else None
        aside = frozenset(of_other_members(row, row.tree.root))
        return {
            name: result
            for attribute, slot in zip(attributes, slots, strict=True)
            for name, result in _results(
                row, finder, row.tree.leaves[attribute.path], slot, instance, aside, prompt
            )
        }

    return Extraction(
        instance,
        index,
        document_id,
        errors=tuple(row.errors),
        fields=LaterResults(results),
        steps=steps,
        texts=texts or {},
        partial=partial_of(row, schema) if instance is None else {},
        slots=tuple(slots),
    )


def row_of(
    schema: type[Any],
    attributes: Sequence[Attribute],
    slots: Sequence[SlotText | None],
    format: OutputFormat,
    texts: Mapping[str, str] | None,
    strict: bool,
) -> Row:
    """Reads the slots into a `Row`; see `build`."""
    if len(slots) != len(attributes):
        raise ValueError(f"{len(slots)} slots for {len(attributes)} attributes")
    row = Row(field_tree_of(schema), strict, [*map(plain_text, (texts or {}).values())])
    for attribute, slot in zip(attributes, slots, strict=True):
        leaf = row.tree.leaves.get(attribute.path)
        if leaf is None:
            raise ValueError(f"{schema.__name__} has no attribute {attribute.name!r}")
        if slot is not None:
            row.read(leaf, slot, format)
    return row


def _results(
    row: Row,
    finder: SpanFinder | None,
    leaf: Leaf,
    slot: SlotText | None,
    instance: Any,
    aside: Collection[int],
    prompt: str,
) -> Iterator[tuple[str, FieldResult]]:
    """Yields the results of a leaf and, for a list of nested models, of the items' leaves.

    aside: indices of leaves of kinds that were not chosen.
    """
    result = _result(row, finder, leaf, slot, instance, leaf.index in aside, prompt)
    yield leaf.attribute.name, result
    for inner, one in row.items.get(leaf.index, ()):
        if inner.number is None:
            yield from _results(row, finder, inner, one, instance, aside, prompt)


def _result(
    row: Row,
    finder: SpanFinder | None,
    leaf: Leaf,
    slot: SlotText | None,
    instance: Any,
    is_aside: bool,
    prompt: str,
) -> FieldResult:
    path = leaf.attribute.path
    value = MOVED if instance is None else final(row, instance, path)
    if leaf.attribute.is_discriminator and instance is not None:
        value = None if final(row, instance, path[:-1]) is None else MOVED
    if value is MOVED:
        value = _read_value(row, leaf)
    note = row.notes.get(leaf.index)
    if is_aside:
        value, note = None, "left out: of another kind" if row.stated[leaf.index] else None
    if slot is None:
        return FieldResult(raw=None, value=value, finish_reason="eos", tokens=0)
    spans = () if value is None else _spans(row, finder, leaf, instance)
    slot = taken_together(slot)
    if echoed := echo_note(_echoes(row, leaf, spans, prompt)):
        note = f"{note}; {echoed}" if note else echoed
    return FieldResult(
        raw=slot.raw,
        value=value,
        confidence=slot.confidence,
        probability=slot.probability,
        left_out=slot.left_out,
        null_probability=slot.null_probability,
        legal_probability=slot.legal_probability,
        legal_at_start=slot.legal_at_start,
        alternatives=slot.alternatives,
        spans=spans,
        locations=() if finder is None else finder.locations(spans),
        note=note,
        finish_reason=slot.finish_reason,
        tokens=slot.tokens,
    )


def _echoes(row: Row, leaf: Leaf, spans: Sequence[Span | None], prompt: str) -> list[str]:
    """The texts of a leaf's value that stand in the prompt alone; [] for choices, which all do."""
    is_text = any(one.is_text for one in leaf.attribute.variants)
    if not prompt or not is_text or leaf.choices is not None:
        return []
    stated = zip(row.stated[leaf.index], spans, strict=False)
    return [text for text, span in stated if span is None and is_echo(text, prompt)]


def _spans(
    row: Row, finder: SpanFinder | None, leaf: Leaf, instance: Any
) -> tuple[Span | None, ...]:
    """The places of the texts of a leaf's value; () if the value is not made of the texts."""
    path = leaf.attribute.path
    around = (row.taken.get(path[:depth], Fallback.BUILD) for depth in range(1, len(path) + 1))
    if (
        finder is None
        or not (leaf.attribute.scalar is None or leaf.attribute.scalar.is_placed)
        or isinstance(row.chosen[leaf.index], Fallback)
        or (instance is not None and any(fallback is not Fallback.BUILD for fallback in around))
    ):
        return ()
    return tuple(finder.locate(text) for text in row.stated[leaf.index])


def _read_value(row: Row, leaf: Leaf) -> Any:
    """The value that was read, before validation by Pydantic."""
    group = row.lists.get(leaf.index)
    chosen = row.chosen[leaf.index] if group is None else row.filling(group)
    return None if isinstance(chosen, Fallback) else chosen
