"""The raw text of slots becomes typed values, and these become validated instances.

`build()` reads one document's slots. Values reach Pydantic as text, in lax mode, so that `int`,
`Decimal` or `date` fields, constraints and validators mean what they always mean. A value that
cannot be used never costs more than it must: its field falls back to its default, else to None,
each with its reason in `Extraction.errors`; only if neither is allowed does the row fail.

Strict models and fields are read in lax mode too: strictness is about the types a program passes,
and a document has nothing but text to offer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from pydantic import BaseModel, RootModel, ValidationError

from schemax.attributes import Attribute
from schemax.formats import OutputFormat
from schemax.results.extraction import Extraction, FieldError, FieldResult, SlotText, Span
from schemax.results.layout import Group, Layout, Leaf, Way, items_of, layout_of
from schemax.results.lists import taken_together
from schemax.results.messages import joined, reason_of
from schemax.results.spans import Source
from schemax.results.values import as_seconds, count_of, texts_of, value_of

T = TypeVar("T", bound=BaseModel)


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
) -> Extraction[T]:
    """One document's slots as an instance of `schema`, or as a row that says why there is none.

    `slots` is aligned with `attributes`; None is a field that the output did not mention, and
    counts as null. `texts` are the document's, by field; without them no result has spans. Nothing
    that the slots' texts or the schema's validators do is raised; ValueError only if the slots do
    not fit the attributes, or these the schema.
    """
    if len(slots) != len(attributes):
        raise ValueError(f"{len(slots)} slots for {len(attributes)} attributes")
    row = _Row(layout_of(schema), Source(texts) if texts else None)
    for attribute, slot in zip(attributes, slots, strict=True):
        leaf = row.layout.leaves.get(attribute.path)
        if leaf is None:
            raise ValueError(f"{schema.__name__} has no attribute {attribute.name!r}")
        if slot is not None:
            row.read(leaf, slot, format)
    instance = row.instance(schema)
    results: dict[str, FieldResult] = {}
    for attribute, slot in zip(attributes, slots, strict=True):
        results.update(row.results(row.layout.leaves[attribute.path], slot, instance))
    return Extraction(
        instance,
        index,
        document_id,
        errors=tuple(row.errors),
        fields=results,
        steps=steps,
        texts=texts or {},
        slots=tuple(slots),
    )


_MOVED = object()
_NO_VALUE = "the text states no value, and the field is required"


class _Row:
    """One document on its way to an instance.

    chosen: per leaf the value that was read, or the way that is taken instead.
    stated: per leaf the texts of the value that was read.
    left: per leaf that was at fault, the ways not tried yet.
    lists, items: per leaf that is a list in two phases, its group, and its items' leaves with their
        slots.
    kept: per such list, by path, the names of the items that were passed to Pydantic.
    taken, tried: per group, the way of the latest attempt and those that did not work.
    """

    __slots__ = (
        "chosen",
        "dated",
        "errors",
        "faulty",
        "items",
        "kept",
        "layout",
        "left",
        "lists",
        "raws",
        "source",
        "stated",
        "taken",
        "tried",
    )

    def __init__(self, layout: Layout, source: Source | None) -> None:
        self.layout = layout
        self.source = source
        self.chosen: list[Any] = []
        self.raws: list[str | None] = []
        self.stated: list[list[str]] = []
        self.dated: list[Leaf] = []
        self.begin(layout.root.leaves)
        self.lists: dict[int, Group] = {}
        self.items: dict[int, list[tuple[Leaf, SlotText]]] = {}
        self.kept: dict[tuple[str, ...], list[str]] = {}
        self.errors: list[FieldError] = []
        self.faulty: set[int] = set()
        self.left: dict[int, tuple[Way, ...]] = {}
        self.taken: dict[tuple[str, ...], Way] = {}
        self.tried: dict[tuple[str, ...], set[Way]] = {}

    def begin(self, leaves: Sequence[Leaf]) -> None:
        """Takes up the leaves that are numbered next."""
        self.chosen += [leaf.when_null[0] if leaf.when_null else Way.LOST for leaf in leaves]
        self.raws += [None] * len(leaves)
        self.stated += [[] for _ in leaves]
        self.dated += [leaf for leaf in leaves if leaf.attribute.kind in ("date", "datetime")]

    def read(self, leaf: Leaf, slot: SlotText, format: OutputFormat) -> None:
        self.raws[leaf.index] = slot.raw
        if slot.items is not None:
            self.read_items(leaf, slot, slot.items, format)
            return
        try:
            texts = texts_of(leaf, slot, format)
            value = None if texts is None else value_of(leaf, texts)
        except Exception as error:  # a format may be the user's own
            self.chosen[leaf.index] = slot.raw
            self.fault(leaf, reason_of(error))
        else:
            if texts is not None:
                self.stated[leaf.index] = texts
                self.chosen[leaf.index] = value

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
        for inner, one in pairs:
            self.read(inner, one, format)
        self.chosen[leaf.index] = []  # stated, whatever becomes of its items
        placed = (inner for inner, _ in pairs if inner.attribute.kind != "boolean")
        self.stated[leaf.index] = [text for inner in placed for text in self.stated[inner.index]]
        self.items[leaf.index] = pairs
        self.lists[leaf.index] = Group(
            path=leaf.attribute.path,
            children={str(number): node for number, node in enumerate(nodes)},
            leaves=(leaf,),
            ways=leaf.when_invalid,
            is_list=True,
        )

    def node(self, child: Leaf | Group) -> Leaf | Group:
        """The child itself, or the group of the list that it is."""
        return self.lists.get(child.index, child) if isinstance(child, Leaf) else child

    def instance(self, schema: type[T]) -> T | None:
        """The instance, once all that is at fault has been replaced; None if the row fails.

        Terminates because every round uses up a way of a leaf or of a nested model.
        """
        while True:
            data = self.assembled(self.layout.root)
            if isinstance(data, Way):
                return None
            try:
                # Names, because the data is keyed by them; lax, because it is text.
                instance = schema.model_validate(data, strict=False, by_name=True, by_alias=False)
            except ValidationError as error:
                if not self.blamed(error):
                    return None
                continue
            except Exception as error:  # a validator's: costs this row, not the run
                self.errors.append(FieldError(None, reason_of(error)))
                return None
            if not self.blamed_timestamps(instance):
                self.errors += self.discarded(self.layout.root)
                return instance

    def results(
        self, leaf: Leaf, slot: SlotText | None, instance: BaseModel | None
    ) -> Iterator[tuple[str, FieldResult]]:
        """Of the leaf, and of all leaves of the nested models that it is a list of."""
        yield leaf.attribute.name, self.result(leaf, slot, instance)
        for inner, one in self.items.get(leaf.index, ()):
            if inner.number is None:
                yield from self.results(inner, one, instance)

    def result(self, leaf: Leaf, slot: SlotText | None, instance: BaseModel | None) -> FieldResult:
        value = _MOVED if instance is None else self.final(instance, leaf.attribute.path)
        if value is _MOVED:
            value = self.read_value(leaf)
        if slot is None:
            return FieldResult(raw=None, value=value, finish_reason="eos", tokens=0)
        spans = () if value is None else self.spans(leaf, instance)
        slot = taken_together(slot)
        return FieldResult(
            raw=slot.raw,
            value=value,
            confidence=slot.confidence,
            probability=slot.probability,
            left_out=slot.left_out,
            null_probability=slot.null_probability,
            alternatives=slot.alternatives,
            spans=spans,
            finish_reason=slot.finish_reason,
            tokens=slot.tokens,
        )

    def spans(self, leaf: Leaf, instance: BaseModel | None) -> tuple[Span | None, ...]:
        """Where the texts of the leaf's value stand; nowhere, if the value is not made of them."""
        path, source = leaf.attribute.path, self.source
        around = (self.taken.get(path[:depth], Way.BUILD) for depth in range(1, len(path) + 1))
        if (
            source is None
            or leaf.attribute.kind == "boolean"
            or isinstance(self.chosen[leaf.index], Way)
            or (instance is not None and any(way is not Way.BUILD for way in around))
        ):
            return ()
        return tuple(source.locate(text) for text in self.stated[leaf.index])

    def read_value(self, leaf: Leaf) -> Any:
        """What was read, before Pydantic."""
        group = self.lists.get(leaf.index)
        chosen = self.chosen[leaf.index] if group is None else self.filling(group)
        return None if isinstance(chosen, Way) else chosen

    def final(self, instance: Any, path: tuple[str, ...]) -> Any:
        """The leaf's value in the instance; None where a nested model is absent.

        _MOVED where it cannot be told which of a list's items is meant, since Pydantic or the
        model's validators have dropped or added some.
        """
        for depth, name in enumerate(path):
            while isinstance(instance, RootModel):
                instance = instance.root
            kept = self.kept.get(path[:depth])
            if kept is None:
                instance = getattr(instance, name, None)
            elif name not in kept:
                return None
            elif not isinstance(instance, Sequence) or len(instance) != len(kept):
                return _MOVED
            else:
                instance = instance[kept.index(name)]
        return instance

    # What is passed to Pydantic.

    def assembled(self, group: Group) -> dict[str, Any] | list[Any] | Way:
        """The group's data by field name, or LOST; goes on to the end to report all reasons."""
        data: dict[str, Any] = {}
        lost = False
        for name, child in group.children.items():
            value = self.filling(child)
            if not isinstance(value, Way):
                data[name] = value
            elif value is Way.LOST:
                lost = True
            elif value is not Way.OMIT:
                data[name] = [] if value is Way.EMPTY else None
        if group.is_list:
            self.kept[group.path] = list(data)
            return list(data.values())
        return Way.LOST if lost else data

    def filling(self, node: Leaf | Group) -> Any:
        node = self.node(node)
        if isinstance(node, Leaf):
            chosen = self.chosen[node.index]
            if chosen is Way.LOST and node.index not in self.faulty:
                self.fault(node, _NO_VALUE)
            return chosen
        while True:
            way = self.taken[node.path] = self.way_of(node)
            self.kept.pop(node.path, None)
            data = self.assembled(node) if way is Way.BUILD else way
            if way is not Way.BUILD or data is not Way.LOST:
                return data
            self.tried.setdefault(node.path, set()).add(way)

    def way_of(self, group: Group) -> Way:
        stated = any(not isinstance(self.chosen[leaf.index], Way) for leaf in group.leaves)
        ways = (Way.BUILD, *group.ways) if stated else (*group.ways, Way.BUILD)
        tried = self.tried.get(group.path, ())
        return next((way for way in ways if way not in tried), Way.LOST)

    # What was at fault.

    def fault(self, leaf: Leaf, message: str) -> None:
        """Reports the leaf, and takes its next way."""
        chosen = self.chosen[leaf.index]
        if chosen is Way.EMPTY:
            message = _NO_VALUE
        ways = leaf.when_null[1:] if isinstance(chosen, Way) else leaf.when_invalid
        ways = self.left.get(leaf.index, ways)
        self.chosen[leaf.index] = ways[0] if ways else Way.LOST
        self.left[leaf.index] = ways[1:]
        self.faulty.add(leaf.index)
        if leaf.number is not None:
            message = f"item {leaf.number}: {message}"
        self.errors.append(FieldError(leaf.attribute.name, message, self.raws[leaf.index]))

    def blamed(self, error: ValidationError) -> bool:
        """Faults what the error names; False if that is nothing but the row as a whole."""
        if error.title != self.layout.title:  # of another model, out of a default factory
            self.errors.append(FieldError(None, reason_of(error)))
            return False
        blame: dict[Leaf | Group, list[str]] = {}
        for detail in error.errors(include_url=False, include_context=False, include_input=False):
            node, rest = self.located(detail["loc"])
            message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
            if isinstance(node, Leaf) and node.attribute.is_list and rest:
                message = f"item {rest[0] + 1}: {message}" if type(rest[0]) is int else message
            blame.setdefault(node, []).append(message)
        whole = blame.pop(self.layout.root, [])
        if not blame:
            self.errors.append(FieldError(None, joined(whole)))
        for node, messages in blame.items():
            if isinstance(node, Leaf):
                self.fault(node, joined(messages))
            else:
                self.tried.setdefault(node.path, set()).add(self.taken[node.path])
                self.errors.append(FieldError(".".join(node.path), joined(messages)))
        return bool(blame)

    def located(self, loc: tuple[int | str, ...]) -> tuple[Leaf | Group, tuple[int | str, ...]]:
        """The deepest node on the way that was passed to Pydantic, and what is left of the way."""
        node: Leaf | Group = self.layout.root
        for depth, part in enumerate(loc):
            kept = self.kept.get(node.path) if isinstance(node, Group) else None
            name = kept[part] if kept and type(part) is int and part < len(kept) else str(part)
            if isinstance(node, Leaf) or name not in node.children:
                return node, loc[depth:]
            node = self.node(node.children[name])
            if isinstance(node, Group) and self.taken[node.path] is not Way.BUILD:
                return node, loc[depth + 1 :]  # the error is in its default
        return node, ()

    def blamed_timestamps(self, instance: BaseModel) -> bool:
        """Faults dates that Pydantic took for seconds since 1970, such as the year "2024".

        Looks at the outcome, because a validator may well make a date of a year.
        """
        before = len(self.errors)
        for leaf in self.dated:
            chosen = self.chosen[leaf.index]
            texts = chosen if isinstance(chosen, list) else [chosen]
            if seconds := [reading for text in texts for reading in as_seconds(leaf, text)]:
                final = self.final(instance, leaf.attribute.path)
                is_list = leaf.attribute.is_list or leaf.number is not None
                many = is_list and isinstance(final, Iterable)
                if any(value in seconds for value in (final if many else [final])):
                    self.fault(leaf, "Input should be a date, not a bare number")
        return len(self.errors) > before

    def discarded(self, group: Group) -> Iterator[FieldError]:
        """A reason for every usable value that went with the nested model around it."""
        for child in map(self.node, group.children.values()):
            if isinstance(child, Leaf):
                continue
            if self.taken[child.path] is Way.BUILD:
                yield from self.discarded(child)
            if self.taken[child.path] is Way.BUILD or child.is_list:
                continue
            message = f"discarded, because {'.'.join(child.path)} could not be built"
            for leaf in child.leaves:
                if not isinstance(self.chosen[leaf.index], Way):
                    yield FieldError(leaf.attribute.name, message, self.raws[leaf.index])
