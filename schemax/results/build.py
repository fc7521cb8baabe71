"""Builds a validated instance from the raw text of slots, with a result for every field.

`RowBuilder` fills the instance; this module reports the result of each field.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from schemax.attributes import Attribute
from schemax.formats import OutputFormat
from schemax.reading.markup import plain_text
from schemax.results.echoes import echo_note, is_echo
from schemax.results.extraction import Extraction, FieldResult, LaterResults, Span
from schemax.results.fields import Fallback, Leaf, field_tree_of
from schemax.results.instance import MOVED, final_value, instance_of, of_other_members, partial_of
from schemax.results.list_results import leave_out_copies, taken_together
from schemax.results.row import RowBuilder
from schemax.results.slot_text import SlotText
from schemax.results.spans import Mentions, SpanFinder

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
    prompt: str = "",
) -> Extraction[T]:
    """Builds an instance of `schema` from a document's slots, or a failed row with the reason.

    slots: aligned with `attributes`; None for a field that the output did not mention, which counts
        as null.
    texts: of the document, by field; without texts no result has spans.
    prompt: the text before the document; values that stand there, but not in the document, are
        noted.

    Errors of slots' texts or of the schema's validators are reported, never raised. Raises
    ValueError only if the slots do not match the attributes, or the attributes the schema.
    """
    row = row_of(schema, attributes, slots, format, texts)
    if texts and row.lists:
        leave_out_copies(row, SpanFinder(texts))
    instance = instance_of(row, schema)

    def results() -> dict[str, FieldResult]:
        finder = SpanFinder(texts) if texts else None
        aside = frozenset(of_other_members(row, row.tree.root))
        report = _Report(row, finder, instance, aside, prompt)
        return {
            name: result
            for attribute, slot in zip(attributes, slots, strict=True)
            for name, result in report.results(row.tree.leaves[attribute.path], slot)
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
) -> RowBuilder:
    """Reads the slots into a `RowBuilder`; see `build`."""
    if len(slots) != len(attributes):
        raise ValueError(f"{len(slots)} slots for {len(attributes)} attributes")
    row = RowBuilder(field_tree_of(schema), [*map(plain_text, (texts or {}).values())])
    for attribute, slot in zip(attributes, slots, strict=True):
        leaf = row.tree.leaves.get(attribute.path)
        if leaf is None:
            raise ValueError(f"{schema.__name__} has no attribute {attribute.name!r}")
        if slot is not None:
            row.read(leaf, slot, format)
    return row


@dataclass(frozen=True, slots=True)
class _Report:
    """Tells the results of a row's leaves.

    finder: None without texts.
    instance: None for a failed row.
    aside: indices of leaves of kinds that were not chosen.
    prompt: see `build`.
    placed: per leaf located so far, its texts with their places.
    """

    row: RowBuilder
    finder: SpanFinder | None
    instance: Any
    aside: Collection[int]
    prompt: str
    placed: dict[int, tuple[tuple[str, Span | None], ...]] = field(default_factory=dict)

    def results(
        self, leaf: Leaf, slot: SlotText | None, mentions: Mentions | None = None
    ) -> Iterator[tuple[str, FieldResult]]:
        """Yields the results of a leaf and, for a list of nested models, of the items' leaves.

        mentions: of the list that the leaf belongs to.
        """
        if mentions is None and self.finder is not None:
            mentions = Mentions(self.finder)
        yield leaf.attribute.name, self._result(leaf, slot, mentions)
        for inner, inner_slot in self.row.items.get(leaf.index, ()):
            if inner.number is None:
                yield from self.results(inner, inner_slot, mentions)

    def _result(self, leaf: Leaf, slot: SlotText | None, mentions: Mentions | None) -> FieldResult:
        value, note = self._value(leaf), self.row.notes.get(leaf.index)
        if leaf.index in self.aside:
            is_stated = self.row.stated[leaf.index]
            value, note = None, "left out: of another kind" if is_stated else None
        if slot is None:
            return FieldResult(None, value)
        places = () if value is None or mentions is None else self._places(leaf, mentions)
        spans = tuple(span for _, span in places)
        if echoed := echo_note(self._echoes(leaf, places)):
            note = f"{note}; {echoed}" if note else echoed
        locations = () if self.finder is None else self.finder.locations(spans)
        return FieldResult(taken_together(slot), value, spans, locations, note)

    def _value(self, leaf: Leaf) -> Any:
        """The value in the instance; without one, as it was read, before validation by Pydantic."""
        row, path = self.row, leaf.attribute.path
        value = MOVED if self.instance is None else final_value(row, self.instance, path)
        if leaf.attribute.is_discriminator and self.instance is not None:
            value = None if final_value(row, self.instance, path[:-1]) is None else MOVED
        if value is not MOVED:
            return value
        group = row.lists.get(leaf.index)
        chosen = row.chosen[leaf.index] if group is None else row.filling(group)
        return None if isinstance(chosen, Fallback) else chosen

    def _echoes(self, leaf: Leaf, places: Sequence[tuple[str, Span | None]]) -> list[str]:
        """The texts of a value that stand in the prompt alone; [] for choices, which all do."""
        is_text = any(variant.is_text for variant in leaf.attribute.variants)
        if not self.prompt or not is_text or leaf.choices is not None:
            return []
        return [text for text, span in places if span is None and is_echo(text, self.prompt)]

    def _places(self, leaf: Leaf, mentions: Mentions) -> tuple[tuple[str, Span | None], ...]:
        """The texts of a value with their places; () if the value is not made of the texts."""
        if leaf.index not in self.placed:
            self.placed[leaf.index] = tuple(self._located_texts(leaf, mentions))
        return self.placed[leaf.index]

    def _located_texts(self, leaf: Leaf, mentions: Mentions) -> Iterator[tuple[str, Span | None]]:
        path, fallbacks = leaf.attribute.path, self.row.taken
        around = (fallbacks.get(path[:depth], Fallback.BUILD) for depth in range(1, len(path) + 1))
        if (
            not (leaf.attribute.scalar is None or leaf.attribute.scalar.is_placed)
            or isinstance(self.row.chosen[leaf.index], Fallback)
            or (self.instance is not None and any(step is not Fallback.BUILD for step in around))
        ):
            return
        if leaf.index in self.row.items:
            for inner, _ in self.row.items[leaf.index]:
                yield from self._places(inner, mentions)
        else:
            for text in self.row.stated[leaf.index]:
                yield text, mentions.locate(text)
