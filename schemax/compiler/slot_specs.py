"""Slots as the runtime needs them, known before a document is read: specs, budgets, follow-ups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from schemax.attributes import Attribute
from schemax.compiler.automata import TokenGrammar, text_before_stop
from schemax.compiler.choices import (
    Branches,
    ChoiceTexts,
    choices_of,
    free_text_of,
    named_choices,
    with_key,
)
from schemax.compiler.extractive import copying_of
from schemax.compiler.grammars import check_grammar, free_text_form, slot_grammar
from schemax.compiler.skeleton import Lead, Segment, key_behind, leaves_of_item, slot_attribute
from schemax.compiler.tokenizer import TextCodec
from schemax.config import DecodingConfig
from schemax.formats import OutputFormat, Path, StopRule, Writable
from schemax.formats.base import count_in
from schemax.reading.kinds import SCALARS
from schemax.tokens import ChildSlot, Ids, SlotOutput, SlotSpec

_DEFAULT_K_MAX = 30
# The number of items that the budget of a list in one piece provides for.
_LIST_ITEMS = 8


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """(N,) fields side by side: the attributes, or the leaves of an item.

    specs, k_max: of their slots; the keys of specs are not known yet, see `with_key`.
    choices: the choices of slots whose grammar allows nothing else, else None.
    paths: from the root, or from the item on.
    after: (N,) the places of the fields that a field looks at.
    first: the places of fields that look at no other field.
    items: (N,) the leaves of an item, for lists in two phases.
    """

    segments: tuple[Segment, ...]
    specs: tuple[SlotSpec, ...]
    k_max: tuple[int, ...]
    choices: tuple[ChoiceTexts | None, ...]
    paths: tuple[Path, ...]
    after: tuple[tuple[int, ...], ...]
    first: tuple[int, ...]
    items: tuple[Fields | None, ...]


@dataclass(frozen=True, slots=True, eq=False)
class SlotCompiler:
    """Compiles slots for one schema, format, decoding and tokenizer."""

    schema: str
    format: OutputFormat
    config: DecodingConfig
    codec: TextCodec
    vocab_size: int
    eos_ids: Ids
    stop_rule: StopRule

    def fields(
        self, segments: tuple[Segment, ...], paths: tuple[Path, ...] | None = None
    ) -> Fields:
        """Compiles fields; counts are followed by the slots of items.

        paths: None takes the attributes' own.

        Raises SchemaError for conditions that no value meets, or that no grammar can express.
        """
        declared = [segment.declared for segment in segments]
        paths = tuple(attribute.path for attribute in declared) if paths is None else paths
        place = {path: n for n, path in enumerate(paths)}
        after = tuple(tuple(place[path] for path in attribute.after) for attribute in declared)
        specs: list[SlotSpec] = []
        choices: list[ChoiceTexts | None] = []
        items: list[Fields | None] = []
        for segment in segments:
            attribute, tails = segment.attribute, segment.tails
            spec, inner, known = self._spec(attribute, tails), None, None
            if spec.grammar is not None and spec.grammar.choices:
                known = choices_of(attribute, tails, self.format)
                spec = self._with_branches(spec, segment, known)
            if segment.items:
                # The specs of the first item serve all items: only tails of grammars hold numbers.
                below = tuple(leaf.path for leaf in segment.declared.fields) or ((),)
                inner = self.fields(segment.items, below)
                follow_ups = Items(segment.declared, inner, self)
                spec = replace(spec, follow_ups=follow_ups, is_count=True)
            specs.append(spec)
            choices.append(known)
            items.append(inner)
        return Fields(
            segments,
            tuple(specs),
            tuple(map(self.budget, declared)),
            tuple(choices),
            paths,
            after,
            first=tuple(n for n, places in enumerate(after) if not places),
            items=tuple(items),
        )

    def _spec(self, attribute: Attribute, tails: Sequence[str]) -> SlotSpec:
        null = self.codec.encode(self.format.escape(None) + tails[0])
        null_id = null[0] if attribute.may_be_null else -1
        text = None
        if self.config.constrain != "nothing":
            text = slot_grammar(attribute, self.format, tails)
        if text is None:
            return SlotSpec(null_id)
        check_grammar(text, schema=self.schema, attribute=attribute)
        if attribute.omittable and attribute.constraints:
            # A value, not only null, has to meet the conditions.
            of_values = slot_grammar(replace(attribute, omittable=False), self.format, tails)
            check_grammar(of_values or text, schema=self.schema, attribute=attribute)
        if not attribute.strict:
            text = slot_grammar(attribute, self.format, tails, literals=False) or text
        grammar = TokenGrammar(
            text,
            attribute.is_typed and not attribute.takes_texts,
            attribute.is_sure and not attribute.is_list,
            self.codec,
            self.eos_ids,
            self.vocab_size,
            free_text_form(attribute, self.format),
        )
        copying = copying_of(
            attribute, self.format, tails, self.config, self.codec, self.vocab_size
        )
        return SlotSpec(null_id, grammar, copying=copying)

    def _with_branches(self, spec: SlotSpec, segment: Segment, choices: ChoiceTexts) -> SlotSpec:
        """The spec of a slot with choices: other choices follow, and the choice as free text."""
        grammar = spec.grammar
        if not self.config.is_branched or not isinstance(grammar, TokenGrammar):
            return spec
        branches = Branches(choices, grammar)
        text = free_text_of(segment.attribute)
        if text is not None:
            branches = replace(
                branches,
                free_text=self._spec(text, segment.tails),
                names=named_choices(segment.attribute),
            )
        return replace(spec, follow_ups=branches)

    def budget(self, attribute: Attribute) -> int:
        """`k_max` of a slot: the attribute's, else the config's, else the type's, else 30.

        Declared budgets are those of items, not of a count.
        """
        if attribute.two_phase:
            return max(map(self._num_tokens, (None, attribute.num_items[1]))) + 1
        if attribute.fields:
            # A list of nested models in one piece, where the model writes the whole output.
            keys = (self.format.key(leaf.labels, None) for leaf in attribute.fields)
            tokens = sum(len(self.codec.encode(key)) for key in keys)
            return _LIST_ITEMS * (tokens + sum(map(self.budget, attribute.fields)))
        declared = attribute.k_max or self.config.k_max
        if declared is not None:
            return declared
        if attribute.members:
            return max(map(self.budget, attribute.variants))
        forms: Sequence[str] = attribute.choices
        if not forms:
            forms = SCALARS[attribute.kind].widest[: 1 if attribute.strict else 2]
        if not forms:
            return _DEFAULT_K_MAX * (2 if attribute.is_list else 1)
        item = max(map(self._num_tokens, forms))
        return max(item * (_LIST_ITEMS if attribute.is_list else 1), self._num_tokens(None)) + 1

    def _num_tokens(self, value: Writable) -> int:
        """Counts the tokens of a value and the delimiter behind it."""
        return len(self.codec.encode(self.format.escape(value) + self.format.delimiter))

    def key(self, lead: Lead, labels: Path) -> Ids:
        """The ids of a branch's key, with the keys and values before it."""
        return tuple(self.codec.encode(key_behind(lead, labels, self.format)))

    def text(self, ids: Ids) -> tuple[str, bool]:
        """The text of a slot without its delimiter, and whether the stop rule was met."""
        return text_before_stop(self.stop_rule, self.codec, ids)


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """The slots that follow a count, item by item; see `tokens.FollowUps`.

    Leaves that look at other leaves come with a later wave. fields: the leaves of an item.
    lead: keys and values before all keys of items.
    """

    attribute: Attribute
    fields: Fields
    compiler: SlotCompiler
    lead: Lead = ()

    def behind(self, lead: Lead) -> Items:
        """Returns the same slots with keys and values before their keys."""
        specs = tuple(spec_behind(spec, lead) for spec in self.fields.specs)
        return replace(self, fields=replace(self.fields, specs=specs), lead=lead)

    @property
    def extent(self) -> int:
        last = _slots_of_item(self, self.attribute.num_items[1])
        specs = self.fields.specs
        inner = (spec.follow_ups.extent for spec in specs if spec.follow_ups is not None)
        return max((*(len(slot.key) + (slot.k_max or 0) for slot in last), *inner), default=0)

    def after(self, output: SlotOutput) -> tuple[ChildSlot, ...]:
        text, _ = self.compiler.text(output.ids)
        try:
            count = count_in(text, self.compiler.format) or 0
        except Exception:  # no number, which results report; a format may be the user's own
            count = 0
        numbers = range(1, min(count, self.attribute.num_items[1]) + 1)
        # Slots behind a lead serve one document alone, so they are not cached.
        slots_of = _slots_of_item if self.lead else _cached_slots_of_item
        return tuple(slot for number in numbers for slot in slots_of(self, number))


def spec_behind(spec: SlotSpec, lead: Lead) -> SlotSpec:
    """The spec of a slot behind keys and values; they also precede the keys of its items."""
    if not lead or not isinstance(spec.follow_ups, Items):
        return spec
    return replace(spec, follow_ups=spec.follow_ups.behind(lead))


def _slots_of_item(items: Items, number: int) -> tuple[ChildSlot, ...]:
    slots, fields = [], items.fields
    leaves = leaves_of_item(items.attribute, number)
    for n in fields.first:
        key = items.compiler.key(items.lead, slot_attribute(leaves[n]).labels)
        slots.append(ChildSlot(key, fields.k_max[n], with_key(fields.specs[n], key), "item"))
    return tuple(slots)


_cached_slots_of_item = lru_cache(maxsize=4096)(_slots_of_item)
