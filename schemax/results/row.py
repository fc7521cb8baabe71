"""`RowBuilder`, a document on its way to an instance: values read, fallbacks taken, and errors.

Values are passed to Pydantic as text, in lax mode, so that `int`, `Decimal` or `date` fields,
constraints and validators keep their usual meaning. An unusable value costs as little as possible:
its field falls back to the default, else to None, with the reason in `Extraction.errors`; only if
neither is allowed does the row fail.

Strict models and fields are validated in lax mode, too: strictness concerns the types that programs
pass, and a document consists of text alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from schemax.attributes.classes import validated
from schemax.base.messages import joined, message_of, reason_of
from schemax.formats import OutputFormat
from schemax.reading import Reading
from schemax.reading.booleans import is_stray_literal, says_no_value
from schemax.results.extraction import FieldError
from schemax.results.fields import Fallback, FieldTree, Group, Leaf, items_of, one_or_several
from schemax.results.slot_text import SlotText
from schemax.results.values import count_of, is_text, readings_of, texts_of


class Misfit(Exception):
    """Data that Pydantic does not accept for the chosen model of a union."""

    def __init__(self, node: Leaf | Group, error: ValidationError) -> None:
        super().__init__(node, error)
        self.node, self.error = node, error


_NO_VALUE = "the text states no value, and the field is required"


class RowBuilder:
    """A document on its way to an instance.

    chosen: per leaf, the value that was read, or the fallback taken instead.
    stated: per leaf, the texts of the value that was read.
    notes: their interpretations.
    documents: the texts that the values were read from; empty if unknown.
    left: per faulty leaf, the fallbacks not tried yet.
    refused: per leaf whose own value was faulty, the reason.
    numbers: per list of which items were left out, the numbers of the items that are left, from 1.
    lists, items: per leaf that is a list in two phases, its group, and its items' leaves with their
        slots.
    kept: per list in two phases, by path: Pydantic's names of the items passed (places, keys of a
        dict, or None for an item that stands for the list) -> names of the items in the group.
    taken, tried: per group, the fallback of the latest attempt, and the failed fallbacks.
    """

    __slots__ = (
        *("chosen", "dated", "documents", "errors", "faulty", "items", "kept", "left", "lists"),
        *("notes", "numbers", "raws", "refused", "stated", "taken", "tree", "tried"),
    )

    def __init__(self, tree: FieldTree, documents: Collection[str] = ()) -> None:
        self.tree, self.documents = tree, documents
        self.chosen: list[Any] = []
        self.raws: list[str | None] = []
        self.stated: list[Sequence[str]] = []
        self.notes: dict[int, str] = {}
        self.dated: list[Leaf] = []
        self.begin(tree.root.leaves)
        self.lists: dict[int, Group] = {}
        self.items: dict[int, list[tuple[Leaf, SlotText]]] = {}
        self.kept: dict[tuple[str, ...], dict[int | str | None, str]] = {}
        self.errors: list[FieldError] = []
        self.faulty: set[int] = set()
        self.left: dict[int, tuple[Fallback, ...]] = {}
        self.refused: dict[int, str] = {}
        self.numbers: dict[int, Sequence[int]] = {}
        self.taken: dict[tuple[str, ...], Fallback] = {}
        self.tried: dict[tuple[str, ...], set[Fallback]] = {}

    def begin(self, leaves: Sequence[Leaf]) -> None:
        """Adds the leaves with the next numbers."""
        self.chosen += [leaf.when_null[0] if leaf.when_null else Fallback.LOST for leaf in leaves]
        self.raws += [None] * len(leaves)
        self.stated += [()] * len(leaves)
        self.dated += [
            leaf for leaf in leaves if (scalar := leaf.attribute.scalar) and scalar.seconds
        ]

    def read(self, leaf: Leaf, slot: SlotText, format: OutputFormat) -> None:
        self.raws[leaf.index] = slot.raw
        if slot.items is not None:
            self.read_items(leaf, slot, slot.items, format)
            return
        if slot.note:
            self.notes[leaf.index] = slot.note
        try:
            texts = texts_of(leaf, slot, format)
            if texts and not leaf.attribute.strict and (why := self._no_value(leaf, texts)):
                if not leaf.when_null:
                    raise ValueError(f"{why}, and the field is required")
                self.notes[leaf.index] = f'"{texts[0]}" left out: {why}'
                return
            if texts is None:
                return
            readings, refused = self._readings(leaf, texts)
            if leaf.attribute.members and texts and is_text(slot.raw, texts, readings, format):
                readings = [Reading(text) for text in texts]
        except Exception as error:  # a format may be the user's own
            self.chosen[leaf.index] = slot.raw
            self.fault(leaf, reason_of(error))
            return
        self.stated[leaf.index] = texts
        values = [reading.value for reading in readings]
        self.chosen[leaf.index] = values if leaf.attribute.is_list else values[0]
        if notes := [note for note in (slot.note, *(reading.note for reading in readings)) if note]:
            self.notes[leaf.index] = "; ".join(notes)
        if refused:
            self.fault_items(leaf, refused)

    def _readings(self, leaf: Leaf, texts: Sequence[str]) -> tuple[list[Reading], dict[int, str]]:
        """The readings of a field's texts; the places of items that cannot be read -> reason."""
        if not leaf.attribute.is_list or leaf.attribute.positions:
            return readings_of(leaf, texts, self.documents), {}
        readings: list[Reading] = []
        refused: dict[int, str] = {}
        for place, text in enumerate(texts):
            try:
                readings += readings_of(leaf, [text], self.documents)
            except Exception as error:  # a choice's type may be the user's own
                readings.append(Reading(text))
                refused[place] = reason_of(error)
        return readings, refused

    def _no_value(self, leaf: Leaf, texts: Sequence[str]) -> str | None:
        """The reason why texts are no value of a field; None if they may be a value."""
        if leaf.choices is not None:
            return None
        if not leaf.attribute.is_text:
            return "says that there is no value" if all(map(says_no_value, texts)) else None
        stray = (
            leaf.when_null
            and self.documents
            and all(is_stray_literal(text, self.documents) for text in texts)
        )
        return "no document holds the word" if stray else None

    def read_items(
        self,
        leaf: Leaf,
        slot: SlotText,
        slots: Sequence[Sequence[SlotText]],
        format: OutputFormat,
    ) -> None:
        try:
            count = count_of(slot, format)
        except Exception as error:  # a format may be the user's own
            self.chosen[leaf.index] = slot.raw
            self.fault(leaf, reason_of(error))
            return
        if count is None:
            return
        nodes = items_of(leaf, len(slots), len(self.chosen))
        rows = [(node,) if isinstance(node, Leaf) else node.leaves for node in nodes]
        for row in rows:
            self.begin(row)
        pairs = [pair for row in zip(rows, slots, strict=True) for pair in zip(*row, strict=True)]
        for inner, part in pairs:
            self.read(inner, part, format)
        self.chosen[leaf.index] = []  # counts as stated, even if all items are lost
        placed = (inner for inner, _ in pairs if inner.attribute.kind != "boolean")
        self.stated[leaf.index] = [text for inner in placed for text in self.stated[inner.index]]
        if notes := [self.notes[inner.index] for inner, _ in pairs if inner.index in self.notes]:
            self.notes[leaf.index] = "; ".join(notes)
        self.items[leaf.index] = pairs
        self.lists[leaf.index] = Group(
            path=leaf.attribute.path,
            children={str(number): node for number, node in enumerate(nodes)},
            leaves=(leaf,),
            fallbacks=leaf.when_invalid,
            is_list=True,
            is_mapping=leaf.attribute.is_mapping,
            is_one_or_several=leaf.attribute.is_one_or_several,
        )

    def node(self, child: Leaf | Group) -> Leaf | Group:
        """The child itself, or the group of its list, or the group of the kind that was chosen."""
        return self.lists.get(child.index, child) if isinstance(child, Leaf) else self.branch(child)

    def branch(self, group: Group) -> Group:
        """The group itself; for a union, the group of the kind that was chosen."""
        if group.kind is None or isinstance(self.chosen[group.kind.index], Fallback):
            return group
        choices = group.kind.attribute.choice_values
        chosen = self.chosen[group.kind.index]
        return group.branches[choices.index(chosen)] if chosen in choices else group

    @property
    def root(self) -> Group:
        return self.branch(self.tree.root)

    # Data for Pydantic.

    def assembled(self, group: Group) -> Any:
        """The group's data by field name; LOST, once the errors of all fields are known.

        For the model of a union an instance, so that Pydantic chooses no other model.
        """
        data: dict[str, Any] = {}
        lost = False
        for name, child in group.children.items():
            value = self.filling(child)
            if not isinstance(value, Fallback):
                data[name] = value
            elif value is Fallback.LOST:
                lost = True
            elif value is Fallback.EMPTY:
                is_mapping = isinstance(child, Leaf) and child.attribute.is_mapping
                data[name] = {} if is_mapping else []
            elif value is Fallback.NONE:
                data[name] = None
        if group.is_mapping:
            return self._pairs(group, data)
        if group.is_list:
            self.kept[group.path] = dict(enumerate(data))
            if group.is_one_or_several and len(data) == 1:
                self.kept[group.path] = dict.fromkeys([None], *data)
            return one_or_several(group, [*data.values()])
        if lost or group.branches:
            return Fallback.LOST
        return data if group.model is None else self._instance(group, data)

    def _pairs(self, group: Group, items: dict[str, Any]) -> dict[Any, Any]:
        """Makes a dict of pairs. The first pair of a key is kept, further pairs are reported."""
        kept: dict[int | str | None, str] = {}
        for name, item in items.items():
            if kept.setdefault(item["key"], name) != name:
                message = f"discarded, because the key {item['key']!r} is there already"
                error = FieldError(".".join((*group.path, name)), message)
                self.errors += [error] if error not in self.errors else []
        self.kept[group.path] = kept
        return {items[name]["key"]: items[name]["value"] for name in kept.values()}

    def _instance(self, group: Group, data: dict[str, Any]) -> Any:
        assert group.model is not None
        inner = self.node(*group.children.values()) if group.is_bare else group
        try:
            stated = data.pop("root") if group.is_bare else data
            instance = validated(group.model, stated, strict=False, by_name=True, by_alias=False)
        except ValidationError as error:
            raise Misfit(inner, error) from error
        return instance.root if group.is_bare else instance

    def filling(self, node: Leaf | Group) -> Any:
        node = self.node(node)
        if isinstance(node, Leaf):
            chosen = self.chosen[node.index]
            if chosen is Fallback.LOST and node.index not in self.faulty:
                self.fault(node, _NO_VALUE)
            return one_or_several(node.attribute, chosen)
        while True:
            fallback = self.taken[node.path] = self.fallback_of(node)
            self.kept.pop(node.path, None)
            data = self.assembled(node) if fallback is Fallback.BUILD else fallback
            if fallback is not Fallback.BUILD or data is not Fallback.LOST:
                return data
            self.tried.setdefault(node.path, set()).add(fallback)

    def fallback_of(self, group: Group) -> Fallback:
        stated = any(not isinstance(self.chosen[leaf.index], Fallback) for leaf in group.leaves)
        fallbacks = (
            (Fallback.BUILD, *group.fallbacks) if stated else (*group.fallbacks, Fallback.BUILD)
        )
        tried = self.tried.get(group.path, ())
        return next((fallback for fallback in fallbacks if fallback not in tried), Fallback.LOST)

    # Faults.

    def fault(self, leaf: Leaf, message: str) -> None:
        """Reports an error of a leaf, and takes the leaf's next fallback."""
        chosen = self.chosen[leaf.index]
        if not isinstance(chosen, Fallback):
            self.refused[leaf.index] = message
        if chosen is Fallback.EMPTY:
            message = _NO_VALUE
        fallbacks = leaf.when_null[1:] if isinstance(chosen, Fallback) else leaf.when_invalid
        fallbacks = self.left.get(leaf.index, fallbacks)
        self.chosen[leaf.index] = fallbacks[0] if fallbacks else Fallback.LOST
        self.left[leaf.index] = fallbacks[1:]
        self.faulty.add(leaf.index)
        if leaf.number is not None:
            message = f"item {leaf.number}: {message}"
        self.errors.append(FieldError(leaf.attribute.name, message, self.raws[leaf.index]))

    def drops_items(self, leaf: Leaf) -> bool:
        """True for a list that is one text, in which a faulty item costs itself alone."""
        is_uniform = leaf.attribute.is_list and not leaf.attribute.positions
        return is_uniform and isinstance(self.chosen[leaf.index], list)

    def fault_items(self, leaf: Leaf, messages: Mapping[int, str]) -> None:
        """Reports errors of a list's items, by their places in it, and leaves these items out."""
        values, texts = self.chosen[leaf.index], self.stated[leaf.index]
        numbers = self.numbers.get(leaf.index, range(1, len(values) + 1))
        errors = [
            FieldError(leaf.attribute.name, f"item {numbers[place]}: {message}", texts[place])
            for place, message in messages.items()
        ]
        kept = [place for place in range(len(values)) if place not in messages]
        self.chosen[leaf.index] = [values[place] for place in kept]
        self.stated[leaf.index] = [texts[place] for place in kept]
        self.numbers[leaf.index] = [numbers[place] for place in kept]
        self.refused[leaf.index] = joined(error.message for error in errors)
        self.errors += errors

    def blamed(self, error: ValidationError, of: Leaf | Group | None = None) -> bool:
        """Faults the fields that an error names; False if the error names only the whole row.

        of: the member of a union in which the error occurred; None for the root.
        """
        top = of or self.root
        if of is None and error.title != self.tree.title:
            # the error of another model, from a default factory
            self.errors.append(FieldError(None, reason_of(error)))
            return False
        blame: dict[Leaf | Group, dict[int | None, list[str]]] = {}  # None: the value as a whole
        for detail in error.errors(include_url=False, include_context=False, include_input=False):
            node, below = self.located(detail["loc"], top)
            message = message_of(detail)
            message = message.removeprefix("Value error, ").removeprefix("Assertion failed, ")
            message = message or "a validator refuses the value, and does not say why"
            item = None
            if isinstance(node, Leaf) and below and type(below[0]) is int:
                if self.drops_items(node) and below[0] < len(self.chosen[node.index]):
                    item = below[0]
                else:
                    message = f"item {below[0] + 1}: {message}"
            blame.setdefault(node, {}).setdefault(item, []).append(message)
        whole = blame.pop(self.root, {})
        if not blame:
            self.errors.append(FieldError(None, joined(whole.get(None, ()))))
        for node, messages in blame.items():
            if isinstance(node, Group):
                self.tried.setdefault(node.path, set()).add(self.taken[node.path])
                self.errors.append(FieldError(".".join(node.path), joined(messages[None])))
            elif None in messages:
                self.fault(node, joined(messages[None]))
            else:
                by_place = {
                    place: joined(each) for place, each in messages.items() if place is not None
                }
                self.fault_items(node, by_place)
        return bool(blame)

    def located(
        self, loc: tuple[int | str, ...], top: Leaf | Group
    ) -> tuple[Leaf | Group, tuple[int | str, ...]]:
        """The deepest node on a path of Pydantic's below a group, and the rest of the path."""
        node = top
        for depth, part in enumerate(loc):
            kept = self.kept.get(node.path, {}) if isinstance(node, Group) else {}
            name = kept.get(part, str(part))
            if isinstance(node, Leaf) or name not in node.children:
                return node, loc[depth:]
            is_pair = isinstance(node, Group) and node.is_mapping
            node = self.node(node.children[name])
            if is_pair and isinstance(node, Group):
                node = self.node(node.children["key" if "[key]" in loc[depth + 1 :] else "value"])
            if isinstance(node, Group) and self.taken[node.path] is not Fallback.BUILD:
                return node, loc[depth + 1 :]  # the error is in the default
        return node, ()

    def discarded(self, group: Group) -> Iterator[FieldError]:
        """Yields an error for every usable value that was lost with its enclosing model."""
        for child in map(self.node, group.children.values()):
            if isinstance(child, Leaf):
                continue
            if self.taken[child.path] is Fallback.BUILD:
                yield from self.discarded(child)
            if self.taken[child.path] is Fallback.BUILD or child.is_list:
                continue
            message = f"discarded, because {'.'.join(child.path)} could not be built"
            for leaf in child.leaves:
                if not isinstance(self.chosen[leaf.index], Fallback):
                    yield FieldError(leaf.attribute.name, message, self.raws[leaf.index])
