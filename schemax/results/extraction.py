"""`Extraction`, the result of one document: an instance, or the reason why there is none."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic_core import to_jsonable_python

from schemax.attributes.classes import dumped
from schemax.base.messages import clipped, counted, some_of
from schemax.errors import Cause, ExtractionError
from schemax.results.file_text import Location
from schemax.results.slot_text import SlotText
from schemax.tokens import FinishReason

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FieldError:
    """The reason why a field lacks the value that the model wrote, or a row its instance.

    `field` is a dotted path, None for the row as a whole; `raw` is the text that the model wrote.
    """

    field: str | None
    message: str
    raw: str | None = None


class Span(NamedTuple):
    """A place in one of a document's texts: `texts[field][start:end]`, in characters."""

    start: int
    end: int
    field: str


Fact = TypeVar("Fact")


class _OfSlot(Generic[Fact]):
    """A fact of a result's slot, by the same name: a property of `FieldResult`."""

    def __set_name__(self, owner: type[Any], name: str) -> None:
        self._name = name

    def __get__(self, result: FieldResult | None, owner: type[Any]) -> Fact:
        value: Any = self if result is None else getattr(result.slot or _UNMENTIONED, self._name)
        return value  # type: ignore[no-any-return]


_UNMENTIONED = SlotText("", "eos", 0, complete=True)


@dataclass(frozen=True, slots=True)
class FieldResult:
    """The result of a field: its value and the slot that it was read from, with places and notes.

    slot: the text and its probabilities; None if the output did not mention the field. `raw` (then
        None), `finish_reason` (then "eos") and the facts below it are properties, see `SlotText`.
        For a list in two phases, they refer to the count and all items: see docs/lists.md.
    value: the final value, after validators and defaults. For a failed row, the value as read.
    spans: the places of the written text in the document: one per item that the model wrote for a
        list, else one; None for a text that is not found. Empty without a value, for a default,
        and for bool, which has no text of its own.
    locations: for a text read from a file, one per span: page and boxes, or paragraph; None where
        the span is None. Else empty.
    note: the interpretation of the text, '"140 cm" read as 55.1 (centimeter in inch)', for a list
        of all items; a first value that was refused, with the reason; a text that stands in the
        prompt but not in the document. None for a literal, or for a text that could not be read.
    """

    slot: SlotText | None
    value: Any
    spans: tuple[Span | None, ...] = ()
    locations: tuple[Location | None, ...] = ()
    note: str | None = None

    finish_reason = _OfSlot[FinishReason]()
    tokens = _OfSlot[int]()
    confidence = _OfSlot[float | None]()
    probability = _OfSlot[float | None]()
    null_probability = _OfSlot[float | None]()
    legal_probability = _OfSlot[float | None]()
    legal_at_start = _OfSlot[float | None]()
    alternatives = _OfSlot[Mapping[Any, float]]()
    left_out = _OfSlot[bool]()
    model = _OfSlot[str | None]()

    @property
    def raw(self) -> str | None:
        """The text that the model wrote, without delimiter."""
        return None if self.slot is None else self.slot.raw

    @property
    def span(self) -> Span | None:
        """The first place found."""
        return next((span for span in self.spans if span is not None), None)

    @property
    def location(self) -> Location | None:
        """The place of `span` in its file; None for a text that was not read from a file."""
        return next((place for place in self.locations if place is not None), None)

    @property
    def grounded(self) -> bool | None:
        """True if the document states all that the model wrote; None if there is nothing to find.

        A value that is not grounded is normalised, inferred or invented.
        """
        return None not in self.spans if self.spans else None


class LaterResults(Mapping[str, FieldResult]):
    """Results that are computed on first access, since most callers only use values."""

    __slots__ = ("_known", "_make")

    def __init__(self, make: Callable[[], dict[str, FieldResult]]) -> None:
        self._make: Callable[[], dict[str, FieldResult]] | None = make
        self._known: dict[str, FieldResult] = {}

    def _results(self) -> dict[str, FieldResult]:
        # Two concurrent threads may both compute the results, which are equal.
        if (make := self._make) is not None:
            self._known, self._make = make(), None
        return self._known

    def __getitem__(self, name: str) -> FieldResult:
        return self._results()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._results())

    def __len__(self) -> int:
        return len(self._results())

    def __repr__(self) -> str:
        return repr(self._results())


_READ_ONLY = (LaterResults, MappingProxyType)


@dataclass(frozen=True, slots=True)
class Extraction(Generic[T]):
    """The result of a document: the instance, or the reason why there is none.

    fields: dotted names -> results, in declaration order; empty if the document was not read. The
        result of a list of nested models is followed by results of the items' leaves, such as
        "lines.0.price". Computed on first access, from the instance as it is then.
    steps: the number of forward passes for the document.
    texts: the texts given for the document, by key of the record ("text" for a bare str); spans are
        offsets into these texts. Empty if the document was not read.
    slots: the decoded text of each attribute, from which `build` has made all the rest.
    cause: see `errors.Cause`; None for other reasons, and without a failure.
    partial: for a row without an instance, the values that could be read, by field; nested models
        as dicts. Each value fits its field, but the model's validators have not seen them together.
    """

    value: T | None
    index: int
    document_id: str | None
    errors: tuple[FieldError, ...] = ()
    fields: Mapping[str, FieldResult] = field(default_factory=dict)
    steps: int = 0
    texts: Mapping[str, str] = field(default_factory=dict)
    slots: tuple[SlotText | None, ...] = field(default=(), repr=False, compare=False)
    cause: Cause | None = None
    partial: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not isinstance(self.fields, LaterResults):
            object.__setattr__(self, "fields", MappingProxyType(dict(self.fields)))
        object.__setattr__(self, "texts", MappingProxyType(dict(self.texts)))
        object.__setattr__(self, "partial", MappingProxyType(dict(self.partial)))

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy can be neither pickled nor copied, and results travel between processes.
        state = (getattr(self, item.name) for item in fields(self))
        return type(self), tuple(dict(x) if isinstance(x, _READ_ONLY) else x for x in state)

    @property
    def ok(self) -> bool:
        """True if there is an instance."""
        return self.value is not None

    @property
    def is_gone(self) -> bool:
        """True if the server failed to answer, so that a later attempt may succeed."""
        return self.cause == "server"

    def to_row(self, *, details: bool = False) -> dict[str, Any]:
        """Returns the row of a results file, in JSON types; with `details`, all fields' results.

        NaN and the infinities, which JSON lacks, become None, as in Pydantic's own JSON. Raises the
        errors of the model's own serializers and computed fields.
        """
        row: dict[str, Any] = {"id": self.document_id, "index": self.index, "attributes": None}
        if self.value is not None:
            row["attributes"] = json_ready(dumped(self.value, mode="json"))
        row["errors"] = [_as_json(error, ("field", "message", "raw")) for error in self.errors]
        if details:
            row["fields"] = {name: _details(result) for name, result in self.fields.items()}
            if self.partial:
                row["partial"] = json_ready(dict(self.partial))
        return row


_COLUMNS = (
    *("raw", "value", "confidence", "probability", "left_out", "null_probability"),
    *("legal_probability", "legal_at_start", "note", "finish_reason", "tokens"),
)


def _as_json(item: FieldError | FieldResult, names: Iterable[str]) -> dict[str, Any]:
    return {name: json_ready(getattr(item, name)) for name in names}


def _details(result: FieldResult) -> dict[str, Any]:
    """A result in JSON types, with `spans` for lists alone, and locations for files alone."""
    row = _as_json(result, _COLUMNS)
    row["span"] = _place(result.span)
    if isinstance(row["value"], list):
        row["spans"] = [_place(span) for span in result.spans]
    if result.locations:
        row["location"] = _in_file(result.location)
        if isinstance(row["value"], list):
            row["locations"] = [_in_file(location) for location in result.locations]
    row["grounded"] = result.grounded
    if result.model is not None:
        row["model"] = result.model
    if result.alternatives:
        row["alternatives"] = {_label(choice): p for choice, p in result.alternatives.items()}
    return row


def _label(choice: Any) -> str:
    """A choice as a name in JSON; "null" for None."""
    plain = to_jsonable_python(choice, fallback=str)
    return plain if isinstance(plain, str) else json.dumps(plain)


def _place(span: Span | None) -> dict[str, Any] | None:
    return None if span is None else span._asdict()


def _in_file(location: Location | None) -> dict[str, Any] | None:
    if location is None:
        return None
    boxes = [dict(zip(_SIDES, box, strict=True)) for box in location.boxes]
    return {**location._asdict(), "boxes": boxes}


_SIDES = ("left", "top", "right", "bottom")


def json_ready(value: Any) -> Any:
    """A value in JSON's types: None for NaN and the infinities, which JSON lacks."""
    return to_jsonable_python(value, fallback=str, inf_nan_mode="null")


def failed(
    index: int, document_id: str | None, message: str, *, steps: int = 0, cause: Cause | None = None
) -> Extraction[Any]:
    """Makes the row of a document that could not be read at all."""
    error = FieldError(None, clipped(message))
    return Extraction(None, index, document_id, errors=(error,), steps=steps, cause=cause)


def check_on_error(on_error: str) -> None:
    if on_error not in ("raise", "null"):
        raise ValueError(f'on_error must be "raise" or "null", not {on_error!r}')


def values_of(extractions: Iterable[Extraction[Any]], on_error: str) -> list[Any]:
    """Returns the instances in input order, None for a failed row.

    Raises ExtractionError for failed rows if on_error is "raise".
    """
    finished = sorted(extractions, key=lambda item: item.index)
    if on_error == "raise" and any(item.value is None for item in finished):
        raise ExtractionError(finished)
    _warn_of_fields(finished)
    return [item.value for item in finished]


def _warn_of_fields(finished: Sequence[Extraction[Any]]) -> None:
    """Logs the fields of finished rows that lack the value that the model wrote."""
    rows = [item for item in finished if item.value is not None and item.errors]
    if not rows:
        return
    count = Counter(error.field or "the row" for item in rows for error in item.errors)
    first = rows[0].errors[0]
    logger.warning(
        "fields of %d of %s have values that could not be used: %s. The first: %s: %s. "
        "Extractor.stream gives every document with its errors",
        len(rows),
        counted(len(finished), "document"),
        some_of(f"{field} {number}" for field, number in count.most_common()),
        first.field or "the row",
        first.message,
    )
