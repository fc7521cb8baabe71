"""Lists in two phases: a slot for the number of items, then slots for all items.

After PaDeLLM-NER (Lu et al. 2024, arXiv 2402.04838). "colors (count)" stands in the place of the
list, and "colors 1", "colors 2", ... follow once it is known; in lists of nested models, every leaf
of every item has a slot of its own, "items 1" > "price". Counts and items are attributes like any
other, with the keys, budgets and grammars of scalars.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from schemax.attributes import Attribute
from schemax.attributes.field_type import LIST_KEYWORDS
from schemax.compiler.choices import Branches, choices_of, free_text_of, named_choices, with_key
from schemax.compiler.grammars import may_be_null
from schemax.compiler.slot_specs import LIST_ITEMS, Compiling, TokenGrammar, slot_budget
from schemax.compiler.stops import text_before_stop
from schemax.config import DecodingConfig
from schemax.errors import SchemaError
from schemax.formats import OutputFormat, Path, Writable, count_in
from schemax.tokens import ChildSlot, SlotOutput, SlotSpec

Lead = tuple[tuple[Path, str], ...]
"""The keys' paths, and literals as written, that stand before a key in its branch."""

Rows = Sequence[Sequence["Writable | Rows"]]
"""The items of a list of nested models, each as the values of its leaves."""

# The most items of a list without max_length, and of one with it.
MOST_ITEMS, _MOST_DECLARED = 64, 10_000
# The most keys of all items of all lists: they multiply in lists within lists.
_MOST_KEYS = 500_000


def as_decoded(
    schema: str, attributes: Sequence[Attribute], config: DecodingConfig, form: OutputFormat
) -> tuple[Attribute, ...]:
    """The attributes as a decoding reads them: without branches, every list in one slot.

    Lists in two phases require branches: an item's key comes after the count, so it must depend on
    nothing but the tokens before all keys. Raises SchemaError for a list of nested models without
    branches, unless the model writes the whole output as JSON; and for a field that looks at others
    that are not read before it.
    """
    if config.is_branched:
        return tuple(attributes)
    is_whole = (config.layout, config.documents) == ("autoregressive", "isolated")
    read: set[Path] = set()
    for attribute in attributes:
        # A model that writes the whole output sees what it wrote before.
        if attribute.after and not (
            config.layout == "autoregressive" and read >= {*attribute.after}
        ):
            raise SchemaError(
                schema,
                attribute.name,
                "after requires isolated documents in the layout 'branched' (the preset "
                "'isolated'; of a model that a server runs, with its tokenizer), not "
                f"{config.documents} ones in {config.layout!r}; or, where the model writes the "
                "whole output, a place behind the fields that it names",
            )
        read.add(attribute.path)
        if attribute.fields and not (is_whole and form.name == "json"):
            raise SchemaError(
                schema,
                attribute.name,
                "a list of nested models requires isolated documents, and the layout 'branched' "
                "(the preset 'isolated'), or 'autoregressive' in the format 'json'; not "
                f"{config.documents} ones in {config.layout!r} and {form.name!r}",
            )
    return tuple(map(_inline, attributes))


def _inline(attribute: Attribute) -> Attribute:
    return replace(attribute, two_phase=False, fields=tuple(map(_inline, attribute.fields)))


def limits_of(attribute: Attribute) -> tuple[int, int]:
    """The fewest and the most items: min_length and max_length, by default 0 and 64."""
    least = [value for keyword, value in attribute.constraints if keyword == "minItems"]
    most = [value for keyword, value in attribute.constraints if keyword == "maxItems"]
    fewest = max(least, default=0)
    return fewest, min(most, default=max(fewest, MOST_ITEMS))


def asked_of(attribute: Attribute) -> Attribute:
    """The attribute that a slot asks for: the given one, or the count of a list in two phases."""
    if not attribute.two_phase:
        return attribute
    fewest, most = limits_of(attribute)
    return replace(
        attribute,
        labels=(*attribute.labels[:-1], f"{attribute.label} (count)"),
        examples=(),
        kind="integer",
        choices=(),
        choice_values=(),
        is_list=False,
        k_max=None,
        omittable=may_be_null(attribute),
        constraints=(("minimum", fewest), ("maximum", most)),
        two_phase=False,
        fields=(),
        unit=None,
        strict=True,
    )


def leaves_of_item(attribute: Attribute, number: int | str) -> tuple[Attribute, ...]:
    """The attributes of an item: itself, or a model's leaves. number: from 1 on."""
    head = (*attribute.labels[:-1], f"{attribute.label} {number}")
    if attribute.fields:
        return tuple(
            replace(leaf, path=(*attribute.path, *leaf.path), labels=(*head, *leaf.labels))
            for leaf in attribute.fields
        )
    return (
        replace(
            attribute,
            labels=head,
            is_list=False,
            nullable=False,
            required=True,
            omittable=False,
            constraints=tuple(c for c in attribute.constraints if c[0] not in LIST_KEYWORDS),
            two_phase=False,
            after=(),
        ),
    )


def check_sizes(schema: str, attributes: Sequence[Attribute]) -> int:
    """Counts the keys that an output may have.

    Raises SchemaError for lists in two phases that may have too many items or keys.
    """
    total = 0
    for attribute in attributes:
        if attribute.two_phase:
            most = limits_of(attribute)[1]
            keys = most * check_sizes(schema, leaves_of_item(attribute, 1))
            if most > _MOST_DECLARED or keys > _MOST_KEYS:
                raise SchemaError(
                    schema,
                    attribute.name,
                    f"may have {most:,} items, and {keys:,} keys in all; a list in two phases has "
                    f"at most {_MOST_DECLARED:,} items and {_MOST_KEYS:,} keys, those of lists in "
                    "it included: declare a smaller max_length",
                )
            total += keys
        total += 1
    return total


def all_labels(attributes: Sequence[Attribute]) -> Iterator[Path]:
    """The paths of all keys that an output may have, in order."""
    for attribute in attributes:
        yield asked_of(attribute).labels
        if attribute.two_phase:
            for number in range(1, limits_of(attribute)[1] + 1):
                yield from all_labels(leaves_of_item(attribute, number))


def asked_of_items(attributes: Sequence[Attribute]) -> Iterator[Attribute]:
    """Yields the attributes that the slots of every list's first item ask for."""
    for attribute in attributes:
        if attribute.two_phase:
            leaves = leaves_of_item(attribute, 1)
            yield from map(asked_of, leaves)
            yield from asked_of_items(leaves)


def key_behind(lead: Lead, labels: Path, output_format: OutputFormat) -> str:
    """The text of a branch's key, with the keys and values before it."""
    parts, previous = [], None
    for path, literal in lead:
        parts += [output_format.key(path, previous), literal]
        previous = path
    return "".join([*parts, output_format.key(labels, previous)])


def written(attribute: Attribute, value: Writable | Rows) -> Iterator[tuple[Path, Writable]]:
    """Yields a value as outputs hold it: the paths of keys, and the value behind each."""
    if not attribute.two_phase:
        yield attribute.labels, value  # type: ignore[misc]  # no rows
        return
    items: Sequence[object] = value or ()  # type: ignore[assignment]
    yield asked_of(attribute).labels, None if value is None else len(items)
    for number, item in enumerate(items, 1):
        leaves = leaves_of_item(attribute, number)
        for leaf, part in zip(leaves, item if attribute.fields else (item,), strict=True):  # type: ignore[call-overload]
            yield from written(leaf, part)


def budget_of(attribute: Attribute, compiling: Compiling) -> int:
    """`k_max` of the attribute's own slot; a count's budget ignores declared ones."""
    if attribute.two_phase:
        return max(map(compiling.num_tokens, (None, limits_of(attribute)[1]))) + 1
    if not attribute.fields:
        return slot_budget(attribute, compiling)
    # A list of nested models in one piece, where the model writes the whole output.
    keys = (compiling.format.key(leaf.labels, None) for leaf in attribute.fields)
    tokens = sum(len(compiling.codec.encode(key)) for key in keys)
    return LIST_ITEMS * (tokens + sum(budget_of(leaf, compiling) for leaf in attribute.fields))


@dataclass(frozen=True, slots=True, eq=False)
class Fields:
    """(N,) fields side by side: the attributes, or the leaves of an item.

    specs, k_max: of their slots; the keys of specs are not known yet, see `with_key`.
    paths: from the root, or from the item on. after: (N,) the places of the fields that a field
    looks at. first: the places of fields that look at none. items: (N,) the leaves of an item, for
    lists in two phases.
    """

    attributes: tuple[Attribute, ...]
    specs: tuple[SlotSpec, ...]
    k_max: tuple[int, ...]
    paths: tuple[Path, ...]
    after: tuple[tuple[int, ...], ...]
    first: tuple[int, ...]
    items: tuple[Fields | None, ...]


def fields_of(
    attributes: tuple[Attribute, ...],
    compiling: Compiling,
    paths: tuple[Path, ...] | None = None,
) -> Fields:
    """Compiles fields; counts are followed by the slots of items. Raises SchemaError.

    paths: None takes the attributes' own.
    """
    paths = tuple(attribute.path for attribute in attributes) if paths is None else paths
    place = {path: n for n, path in enumerate(paths)}
    after = tuple(tuple(place[path] for path in attribute.after) for attribute in attributes)
    asked = [asked_of(attribute) for attribute in attributes]
    specs: list[SlotSpec] = []
    items: list[Fields | None] = []
    for n, attribute in enumerate(attributes):
        spec, inner = compiling.spec(asked, n), None
        if attribute.two_phase:
            # The specs of the first item serve all items: only tails of grammars hold numbers.
            below = tuple(leaf.path for leaf in attribute.fields) or ((),)
            inner = fields_of(leaves_of_item(attribute, 1), compiling, below)
            spec = replace(spec, follow_ups=Items(attribute, inner, compiling), is_count=True)
        else:
            spec = replace(spec, follow_ups=_branches(asked, n, spec, compiling))
        specs.append(spec)
        items.append(inner)
    return Fields(
        attributes,
        tuple(specs),
        tuple(budget_of(attribute, compiling) for attribute in attributes),
        paths,
        after,
        first=tuple(n for n, others in enumerate(after) if not others),
        items=tuple(items),
    )


def _branches(
    asked: Sequence[Attribute], place: int, spec: SlotSpec, compiling: Compiling
) -> Branches | None:
    config, grammar = compiling.config, spec.grammar
    if not config.is_branched or not isinstance(grammar, TokenGrammar) or not grammar.choices:
        return None
    choices = choices_of(asked, place, compiling.format, config)
    found = Branches(choices, grammar)
    if (text := free_text_of(asked[place])) is None:
        return found
    spec = compiling.spec([*asked[:place], text, *asked[place + 1 :]], place)
    return replace(found, free_text=spec, names=named_choices(asked[place]))


@dataclass(frozen=True, slots=True, eq=False)
class Items:
    """The slots that follow a count, item by item; see `tokens.FollowUps`.

    Leaves that look at others come with a later wave. fields: the leaves of an item.
    lead: keys and values before all keys of items.
    """

    attribute: Attribute
    fields: Fields
    compiling: Compiling
    lead: Lead = ()

    def behind(self, lead: Lead) -> Items:
        """Returns the same slots with keys and values before their keys."""
        specs = tuple(spec_behind(spec, lead) for spec in self.fields.specs)
        return replace(self, fields=replace(self.fields, specs=specs), lead=lead)

    @property
    def extent(self) -> int:
        last = _slots_of_item(self, limits_of(self.attribute)[1])
        specs = self.fields.specs
        inner = (spec.follow_ups.extent for spec in specs if spec.follow_ups is not None)
        return max((*(len(slot.key) + (slot.k_max or 0) for slot in last), *inner), default=0)

    def after(self, output: SlotOutput) -> tuple[ChildSlot, ...]:
        compiling = self.compiling
        text, _ = text_before_stop(compiling.stop_rule, compiling.codec, output.ids)
        try:
            count = count_in(text, compiling.format) or 0
        except Exception:  # no number, which results report; a format may be the user's own
            count = 0
        numbers = range(1, min(count, limits_of(self.attribute)[1]) + 1)
        # Slots behind a lead serve one document alone, so they are not cached.
        slots_of = _slots_of_item if self.lead else _known_slots_of_item
        return tuple(slot for number in numbers for slot in slots_of(self, number))


def spec_behind(spec: SlotSpec, lead: Lead) -> SlotSpec:
    """The spec of a slot behind keys and values, which its items stand behind, too."""
    if not lead or not isinstance(spec.follow_ups, Items):
        return spec
    return replace(spec, follow_ups=spec.follow_ups.behind(lead))


def _slots_of_item(items: Items, number: int) -> tuple[ChildSlot, ...]:
    slots, fields, compiling = [], items.fields, items.compiling
    leaves = leaves_of_item(items.attribute, number)
    for n in fields.first:
        text = key_behind(items.lead, asked_of(leaves[n]).labels, compiling.format)
        key = tuple(compiling.codec.encode(text))
        slots.append(ChildSlot(key, fields.k_max[n], with_key(fields.specs[n], key), "item"))
    return tuple(slots)


_known_slots_of_item = lru_cache(maxsize=4096)(_slots_of_item)
