"""Results: the raw text of slots becomes typed values, and these become validated instances.

`build()` reads one document's slots. Values reach Pydantic as text, in lax mode, so that `int`,
`Decimal` or `date` fields, constraints and validators mean what they always mean. A value that
cannot be used never costs more than it must: its field falls back to its default, else to None,
each with its reason in `Extraction.errors`; only if neither is allowed does the row fail.

Strict models and fields are read in lax mode too: strictness is about the types a program passes,
and a document has nothing but text to offer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import date, datetime
from enum import Enum
from functools import lru_cache
from math import isfinite
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, RootModel, TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from schemax.formats import OutputFormat
from schemax.schema import Attribute, compile_attributes
from schemax.shapes import annotation_of, shape_of
from schemax.tokens import FinishReason

T = TypeVar("T", bound=BaseModel)


# --- what a caller sees -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FieldError:
    """Why a field has not got the value that the model wrote, or why a row has no instance.

    `field` is a dotted path, None for the row as a whole; `raw` is what the model wrote, if it did.
    """

    field: str | None
    message: str
    raw: str | None = None


@dataclass(frozen=True, slots=True)
class FieldResult:
    """One leaf of one document, beside its value in the instance.

    raw: what the model wrote, delimiter dropped; None if its output did not mention the field.
    value: the final one, validators and defaults included. Of a failed row, what was read.
    confidence, span: None unless they were asked for.
    finish_reason: "eos" also for a field that the output did not mention.
    tokens: how many were decoded for it, delimiter included.
    """

    raw: str | None
    value: Any
    confidence: float | None = None
    span: tuple[int, int] | None = None
    finish_reason: FinishReason = "stop"
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Extraction(Generic[T]):
    """One document, read: the instance, or why there is none.

    fields: dotted names to results, in declaration order; empty if the document was not read.
    steps: forward passes that the document took part in.
    """

    value: T | None
    index: int
    document_id: str | None
    errors: tuple[FieldError, ...] = ()
    fields: Mapping[str, FieldResult] = field(default_factory=dict)
    steps: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", MappingProxyType(dict(self.fields)))

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy can be neither pickled nor copied, and results travel between processes.
        state = {item.name: getattr(self, item.name) for item in fields(self)}
        return type(self), (*(state | {"fields": dict(self.fields)}).values(),)

    @property
    def ok(self) -> bool:
        """Whether there is an instance."""
        return self.value is not None

    def to_row(self, *, details: bool = False) -> dict[str, Any]:
        """The row of a results file, of JSON types only; with `details`, every field's result.

        NaN and the infinities, which JSON lacks, become None, as in Pydantic's own JSON. Raises
        what the model's own serializers and computed fields raise.
        """
        row: dict[str, Any] = {"id": self.document_id, "index": self.index, "attributes": None}
        if self.value is not None:
            row["attributes"] = _json_ready(self.value.model_dump(mode="json", warnings=False))
        row["errors"] = [_as_dict(error) for error in self.errors]
        if details:
            row["fields"] = {name: _as_dict(result) for name, result in self.fields.items()}
        return row


@dataclass(frozen=True, slots=True)
class SlotText:
    """What was decoded for one slot.

    raw: its text, delimiter dropped.
    complete: whether its stop rule was met, so that nothing of the value can be missing.
    """

    raw: str
    finish_reason: FinishReason
    tokens: int
    complete: bool


def _as_dict(item: FieldError | FieldResult) -> dict[str, Any]:
    plain = {one.name: getattr(item, one.name) for one in fields(item)}
    return {name: _json_ready(to_jsonable_python(x, fallback=str)) for name, x in plain.items()}


def _json_ready(value: Any) -> Any:
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: _json_ready(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_json_ready(item) for item in value]
    return value


def failed(
    index: int,
    document_id: str | None,
    message: str,
    *,
    field: str | None = None,
    raw: str | None = None,
    steps: int = 0,
) -> Extraction[Any]:
    """The row of a document that could not be read at all."""
    error = FieldError(field, _one_line(message), raw)
    return Extraction(None, index, document_id, errors=(error,), steps=steps)


def build(
    schema: type[T],
    attributes: Sequence[Attribute],
    slots: Sequence[SlotText | None],
    format: OutputFormat,
    *,
    index: int,
    document_id: str | None,
    steps: int = 0,
) -> Extraction[T]:
    """One document's slots as an instance of `schema`, or as a row that says why there is none.

    `slots` is aligned with `attributes`; None is a field that the output did not mention, and
    counts as null. Nothing that the texts or the schema's validators do is raised; ValueError only
    if the slots do not fit the attributes, or these the schema.
    """
    if len(slots) != len(attributes):
        raise ValueError(f"{len(slots)} slots for {len(attributes)} attributes")
    row = _Row(_plan(schema))
    for attribute, slot in zip(attributes, slots, strict=True):
        leaf = row.plan.leaves.get(attribute.path)
        if leaf is None:
            raise ValueError(f"{schema.__name__} has no attribute {attribute.name!r}")
        if slot is not None:
            row.read(leaf, slot, format)
    instance = row.instance(schema)
    results = {
        attribute.name: row.result(row.plan.leaves[attribute.path], slot, instance)
        for attribute, slot in zip(attributes, slots, strict=True)
    }
    return Extraction(instance, index, document_id, tuple(row.errors), results, steps)


# --- what is known of a schema before the first row ---------------------------------------------


class _Way(Enum):
    """How a field is filled other than by a value of the text; the ways are tried in turn."""

    BUILD = "a nested model: from its leaves"
    OMIT = "left out, so that Pydantic supplies the default"
    NONE = "None"
    EMPTY = "the empty list"
    LOST = "there is no way left"


@dataclass(frozen=True, slots=True, eq=False)
class _Leaf:
    """An attribute, and its ways where the text states no value, or one that cannot be used."""

    index: int
    attribute: Attribute
    when_null: tuple[_Way, ...]
    when_invalid: tuple[_Way, ...]
    choices: Mapping[str, Any]
    folded_choices: Mapping[str, Any]

    @property
    def key(self) -> str:
        return self.attribute.path[-1]


@dataclass(frozen=True, slots=True, eq=False)
class _Group:
    """The root or a nested model. `ways`: besides building it; `leaves`: all below it."""

    path: tuple[str, ...]
    children: Mapping[str, _Leaf | _Group]
    leaves: tuple[_Leaf, ...]
    ways: tuple[_Way, ...]


@dataclass(frozen=True, slots=True, eq=False)
class _Plan:
    root: _Group
    leaves: Mapping[tuple[str, ...], _Leaf]
    dated: tuple[_Leaf, ...]
    title: str


@lru_cache(maxsize=128)
def _plan(schema: type[BaseModel]) -> _Plan:
    """Raises SchemaError for what cannot be compiled."""
    # Keyed by the class alone: attributes hold Enum members, and these need not be hashable.
    attributes = compile_attributes(schema)
    numbered = {attribute.path: (at, attribute) for at, attribute in enumerate(attributes)}
    root = _group(schema, (), (), numbered)
    return _Plan(
        root=root,
        leaves={leaf.attribute.path: leaf for leaf in root.leaves},
        dated=tuple(leaf for leaf in root.leaves if leaf.attribute.kind in _DATES),
        title=schema.__pydantic_validator__.title,
    )


def _group(
    model: type[BaseModel],
    path: tuple[str, ...],
    ways: tuple[_Way, ...],
    numbered: Mapping[tuple[str, ...], tuple[int, Attribute]],
) -> _Group:
    children: dict[str, _Leaf | _Group] = {}
    leaves: list[_Leaf] = []
    for name, info in model.model_fields.items():
        shape = shape_of(annotation_of(info))
        inner = [] if info.is_required() else [_Way.OMIT]
        inner += [_Way.NONE] if shape.nullable else []
        if shape.model is None:
            leaf = _leaf(*numbered[*path, name], tuple(inner))
            children[name] = leaf
            leaves.append(leaf)
        else:
            group = _group(shape.model, (*path, name), tuple(inner), numbered)
            children[name] = group
            leaves += group.leaves
    return _Group(path, children, tuple(leaves), ways)


def _leaf(index: int, attribute: Attribute, ways: tuple[_Way, ...]) -> _Leaf:
    exact = dict(zip(attribute.choices, attribute.choice_values, strict=True))
    folds = [_folded(text) for text in exact]
    return _Leaf(
        index=index,
        attribute=attribute,
        when_null=(*ways, _Way.EMPTY) if attribute.is_list else ways,
        when_invalid=ways,
        choices=exact,
        folded_choices={
            fold: value
            for fold, value in zip(folds, exact.values(), strict=True)
            if folds.count(fold) == 1
        },
    )


def _folded(text: str) -> str:
    return " ".join(text.split()).casefold()


# --- raw text to values -------------------------------------------------------------------------

_THOUSANDS = re.compile(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?")


def _value_of(leaf: _Leaf, slot: SlotText, format: OutputFormat) -> Any:
    """What the slot states: texts and choices, or None. Raises ValueError, which says why."""
    if slot.finish_reason == "length" and not slot.complete:
        raise ValueError(f"ran out of its budget of {slot.tokens} tokens (truncated)")
    value = format.unescape(slot.raw, is_list=leaf.attribute.is_list)
    if value is None:
        return None
    texts = [value] if isinstance(value, str) else [item for item in value if item is not None]
    if leaf.attribute.is_list:
        return [_typed(leaf, text) for text in texts]
    if len(texts) > 1:
        raise ValueError(f"{len(texts)} values where one belongs")
    return _typed(leaf, texts[0]) if texts else None


def _typed(leaf: _Leaf, text: str) -> Any:
    """A choice as the Python value behind it; all other texts are left to Pydantic."""
    if leaf.choices:
        return leaf.choices.get(text, leaf.folded_choices.get(_folded(text), text))
    # Pydantic reads no separators, and prices stand in texts with them. Nothing else is repaired:
    # a number with a unit or a currency may well be another number than the one asked for.
    if leaf.attribute.kind in ("integer", "number") and _THOUSANDS.fullmatch(text.strip()):
        return text.strip().replace(",", "")
    return text


# --- values to an instance ----------------------------------------------------------------------

_NO_VALUE = "the text states no value, and the field is required"


class _Row:
    """One document on its way to an instance.

    chosen: per leaf the value that was read, or the way that is taken instead.
    left: per leaf that was at fault, the ways not tried yet.
    taken, tried: per nested model, the way of the latest attempt and those that did not work.
    """

    __slots__ = ("chosen", "errors", "faulty", "left", "plan", "raws", "taken", "tried")

    def __init__(self, plan: _Plan) -> None:
        self.plan = plan
        self.chosen: list[Any] = [
            leaf.when_null[0] if leaf.when_null else _Way.LOST for leaf in plan.root.leaves
        ]
        self.raws: list[str | None] = [None] * len(self.chosen)
        self.errors: list[FieldError] = []
        self.faulty: set[int] = set()
        self.left: dict[int, tuple[_Way, ...]] = {}
        self.taken: dict[tuple[str, ...], _Way] = {}
        self.tried: dict[tuple[str, ...], set[_Way]] = {}

    def read(self, leaf: _Leaf, slot: SlotText, format: OutputFormat) -> None:
        self.raws[leaf.index] = slot.raw
        try:
            value = _value_of(leaf, slot, format)
        except Exception as error:  # a format may be the user's own
            self.chosen[leaf.index] = slot.raw
            self.fault(leaf, _reason(error))
        else:
            if value is not None:
                self.chosen[leaf.index] = value

    def instance(self, schema: type[T]) -> T | None:
        """The instance, once all that is at fault has been replaced; None if the row fails.

        Terminates because every round uses up a way of a leaf or of a nested model.
        """
        while True:
            data = self.assembled(self.plan.root)
            if isinstance(data, _Way):
                return None
            try:
                # Names, because the data is keyed by them; lax, because it is text.
                instance = schema.model_validate(data, strict=False, by_name=True, by_alias=False)
            except ValidationError as error:
                if not self.blamed(error):
                    return None
                continue
            except Exception as error:  # a validator's: costs this row, not the run
                self.errors.append(FieldError(None, _reason(error)))
                return None
            if not self.blamed_timestamps(instance):
                self.errors += self.discarded(self.plan.root)
                return instance

    def result(self, leaf: _Leaf, slot: SlotText | None, instance: BaseModel | None) -> FieldResult:
        if instance is not None:
            value = _final(instance, leaf.attribute.path)
        else:
            chosen = self.chosen[leaf.index]
            value = None if isinstance(chosen, _Way) else chosen
        if slot is None:
            return FieldResult(raw=None, value=value, finish_reason="eos", tokens=0)
        return FieldResult(
            raw=slot.raw, value=value, finish_reason=slot.finish_reason, tokens=slot.tokens
        )

    # What is passed to Pydantic.

    def assembled(self, group: _Group) -> dict[str, Any] | _Way:
        """The group's data by field name, or LOST; goes on to the end to report all reasons."""
        data: dict[str, Any] = {}
        lost = False
        for name, child in group.children.items():
            value = self.filling(child)
            if not isinstance(value, _Way):
                data[name] = value
            elif value is _Way.LOST:
                lost = True
            elif value is not _Way.OMIT:
                data[name] = [] if value is _Way.EMPTY else None
        return _Way.LOST if lost else data

    def filling(self, node: _Leaf | _Group) -> Any:
        if isinstance(node, _Leaf):
            chosen = self.chosen[node.index]
            if chosen is _Way.LOST and node.index not in self.faulty:
                self.fault(node, _NO_VALUE)
            return chosen
        while True:
            way = self.taken[node.path] = self.way_of(node)
            data = self.assembled(node) if way is _Way.BUILD else way
            if way is not _Way.BUILD or data is not _Way.LOST:
                return data
            self.tried.setdefault(node.path, set()).add(way)

    def way_of(self, group: _Group) -> _Way:
        stated = any(not isinstance(self.chosen[leaf.index], _Way) for leaf in group.leaves)
        ways = (_Way.BUILD, *group.ways) if stated else (*group.ways, _Way.BUILD)
        tried = self.tried.get(group.path, ())
        return next((way for way in ways if way not in tried), _Way.LOST)

    # What was at fault.

    def fault(self, leaf: _Leaf, message: str) -> None:
        """Reports the leaf, and takes its next way."""
        chosen = self.chosen[leaf.index]
        if chosen is _Way.EMPTY:
            message = _NO_VALUE
        ways = leaf.when_null[1:] if isinstance(chosen, _Way) else leaf.when_invalid
        ways = self.left.get(leaf.index, ways)
        self.chosen[leaf.index] = ways[0] if ways else _Way.LOST
        self.left[leaf.index] = ways[1:]
        self.faulty.add(leaf.index)
        self.errors.append(FieldError(leaf.attribute.name, message, self.raws[leaf.index]))

    def blamed(self, error: ValidationError) -> bool:
        """Faults what the error names; False if that is nothing but the row as a whole."""
        if error.title != self.plan.title:  # of another model, out of a default factory
            self.errors.append(FieldError(None, _reason(error)))
            return False
        blame: dict[_Leaf | _Group, list[str]] = {}
        for detail in error.errors(include_url=False, include_context=False, include_input=False):
            node, rest = self.located(detail["loc"])
            message = detail["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
            if isinstance(node, _Leaf) and node.attribute.is_list and rest:
                message = f"item {rest[0] + 1}: {message}" if type(rest[0]) is int else message
            blame.setdefault(node, []).append(message)
        whole = blame.pop(self.plan.root, [])
        if not blame:
            self.errors.append(FieldError(None, _joined(whole)))
        for node, messages in blame.items():
            if isinstance(node, _Leaf):
                self.fault(node, _joined(messages))
            else:
                self.tried.setdefault(node.path, set()).add(self.taken[node.path])
                self.errors.append(FieldError(".".join(node.path), _joined(messages)))
        return bool(blame)

    def located(self, loc: tuple[int | str, ...]) -> tuple[_Leaf | _Group, tuple[int | str, ...]]:
        """The deepest node on the way that was passed to Pydantic, and what is left of the way."""
        node: _Leaf | _Group = self.plan.root
        for depth, part in enumerate(loc):
            if isinstance(node, _Leaf) or str(part) not in node.children:
                return node, loc[depth:]
            node = node.children[str(part)]
            if isinstance(node, _Group) and self.taken[node.path] is not _Way.BUILD:
                return node, loc[depth + 1 :]  # the error is in its default
        return node, ()

    def blamed_timestamps(self, instance: BaseModel) -> bool:
        """Faults dates that Pydantic took for seconds since 1970, such as the year "2024".

        Looks at the outcome, because a validator may well make a date of a year.
        """
        before = len(self.errors)
        for leaf in self.plan.dated:
            chosen = self.chosen[leaf.index]
            texts = chosen if isinstance(chosen, list) else [chosen]
            if seconds := [reading for text in texts for reading in _as_seconds(leaf, text)]:
                final = _final(instance, leaf.attribute.path)
                many = leaf.attribute.is_list and isinstance(final, Iterable)
                if any(value in seconds for value in (final if many else [final])):
                    self.fault(leaf, "Input should be a date, not a bare number")
        return len(self.errors) > before

    def discarded(self, group: _Group) -> Iterator[FieldError]:
        """A reason for every usable value that went with the nested model around it."""
        for child in group.children.values():
            if isinstance(child, _Leaf):
                continue
            if self.taken[child.path] is _Way.BUILD:
                yield from self.discarded(child)
                continue
            message = f"discarded, because {'.'.join(child.path)} could not be built"
            for leaf in child.leaves:
                if not isinstance(self.chosen[leaf.index], _Way):
                    yield FieldError(leaf.attribute.name, message, self.raws[leaf.index])


_DATES: Mapping[str, Any] = {"date": date, "datetime": datetime}
_BARE_NUMBER = re.compile(r"\s*[-+]?\d+(\.\d*)?\s*")


@lru_cache
def _date_reader(kind: str) -> TypeAdapter[Any]:
    return TypeAdapter(_DATES[kind])


def _as_seconds(leaf: _Leaf, text: Any) -> Iterator[Any]:
    if isinstance(text, str) and _BARE_NUMBER.fullmatch(text):
        try:
            yield _date_reader(leaf.attribute.kind).validate_python(text)
        except ValidationError:
            return


def _final(instance: Any, path: tuple[str, ...]) -> Any:
    """The leaf's value in the instance; None where a nested model is absent."""
    for name in path:
        while isinstance(instance, RootModel):
            instance = instance.root
        instance = getattr(instance, name, None)
    return instance


# --- messages -----------------------------------------------------------------------------------

_LONGEST = 300


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[: _LONGEST - 3]}..."


def _joined(messages: Iterable[str]) -> str:
    return _one_line("; ".join(dict.fromkeys(messages)))


def _reason(error: Exception) -> str:
    """A ValueError's own message; of other exceptions the type as well."""
    if isinstance(error, ValidationError):  # its text has lines, and an address on each
        details = error.errors(include_url=False, include_context=False, include_input=False)
        return _joined([f"{error.title}: {detail['msg']}" for detail in details])
    if type(error) is ValueError and str(error):
        return _one_line(str(error))
    return _one_line(f"{type(error).__name__}: {error}")
