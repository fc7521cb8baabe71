"""The result of one document, as callers see it: an instance, or why there is none."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import isfinite
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from pydantic_core import to_jsonable_python

from schemax.attributes.classes import dumped
from schemax.errors import ExtractionError
from schemax.messages import clipped, counted, some_of
from schemax.reading.file_text import Location
from schemax.tokens import FinishReason

logger = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FieldError:
    """Why a field has not got the value that the model wrote, or why a row has no instance.

    `field` is a dotted path, None for the row as a whole; `raw` is what the model wrote, if it did.
    """

    field: str | None
    message: str
    raw: str | None = None


class Span(NamedTuple):
    """A place in one of a document's texts: `texts[field][start:end]`, in characters."""

    start: int
    end: int
    field: str


@dataclass(frozen=True, slots=True)
class FieldResult:
    """A leaf of a document, beside its value in the instance.

    Of a list in two phases, everything stands for the count and all items: see docs/lists.md.

    raw: what the model wrote, delimiter dropped; None if its output did not mention the field.
    value: the final one, validators and defaults included. Of a failed row, what was read.
    confidence: how probable the value is under the model. Of a typed value, among all that it
        could write; of free text, the geometric mean over its tokens. Of a calibrated model, how
        often such values are right (schemax.calibration), but for null. None where the model wrote
        keys and values itself, where a server tells no probabilities, and for a field that the
        output did not mention.
    probability: of the whole value: the product over its tokens, where `confidence` is a mean. One
    left_out: whether what was written is too improbable (the decoding's `min_probability`) to be
        taken for a value: `raw` and `confidence` tell of it, `value` is what stands for none.
    null_probability: how probable it is that there is no value; None where there has to be one.
    legal_probability: how much of the model's probability fell on what the field's type allows:
        `confidence` and `probability` are at most so large. A small one says that the model wanted
        to write something else. legal_at_start: the same at the first token alone. None where the
        model wrote keys and values itself.
    alternatives: of an Enum, Literal or bool, every choice and its probability among these, None
        for null. Of any other field that was decoded with `beams`, the texts of all beams, best
        first, and how probable each is by itself, as `probability` is.
    spans: where the text that the model wrote stands in the document: of a list, one per item that
        it wrote; else one; None for what is not there. Empty without a value, where the value is
        a default, and for bool, which has no text of its own.
    locations: of a text that was read from a file, one per span: its page and boxes there, or its
        paragraph; None where the span is None. Else empty.
    note: what was read into the text, '"140 cm" read as 55.1 (centimeter in inch)'; of a list, into
        all items; and of a value that was refused and asked for again, the first one with what was
        said of it; and of a text that stands in the prompt and not in the document, that. None
        where the text is a literal already, or could not be read.
    finish_reason: "eos" also for a field that the output did not mention.
    tokens: how many were decoded for it, delimiter included.
    """

    raw: str | None
    value: Any
    confidence: float | None = None
    probability: float | None = None
    left_out: bool = False
    null_probability: float | None = None
    legal_probability: float | None = None
    legal_at_start: float | None = None
    alternatives: Mapping[Any, float] = field(default_factory=dict)
    spans: tuple[Span | None, ...] = ()
    locations: tuple[Location | None, ...] = ()
    note: str | None = None
    finish_reason: FinishReason = "stop"
    tokens: int = 0

    @property
    def span(self) -> Span | None:
        """The first place that was found."""
        return next((span for span in self.spans if span is not None), None)

    @property
    def location(self) -> Location | None:
        """The place of `span` in its file; None for a text that was read from none."""
        return next((one for one in self.locations if one is not None), None)

    @property
    def grounded(self) -> bool | None:
        """Tells if the document states all that the model wrote; None if there is nothing to find.

        A value that is not grounded is normalised, inferred or invented.
        """
        return None not in self.spans if self.spans else None


class LaterResults(Mapping[str, FieldResult]):
    """Results that are made when they are first asked for: most callers only look at values."""

    __slots__ = ("_known", "_make")

    def __init__(self, make: Callable[[], dict[str, FieldResult]]) -> None:
        self._make: Callable[[], dict[str, FieldResult]] | None = make
        self._known: dict[str, FieldResult] = {}

    def _results(self) -> dict[str, FieldResult]:
        # Two threads that ask at once make the same results twice, and both get them.
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
    """A document, read: the instance, or why there is none.

    fields: dotted names to results, in declaration order; empty if the document was not read. Of a
        list of nested models, behind the list's own, those of its items' leaves, "lines.0.price".
        Made when first asked for, of the instance as it is then.
    steps: forward passes that the document took part in.
    texts: what the model was shown, by key of the record ("text" for a bare str), as it was given:
        spans are offsets into these. Empty if the document was not read.
    slots: what was decoded, attribute by attribute, of which `build` has made all the rest.
    is_gone: whether it failed for want of a server, so that the same may succeed later.
    partial: of a row without an instance, the values that could be read, by field; nested models as
        dicts. Each fits its field, and no validator of the model has seen them together.
    """

    value: T | None
    index: int
    document_id: str | None
    errors: tuple[FieldError, ...] = ()
    fields: Mapping[str, FieldResult] = field(default_factory=dict)
    steps: int = 0
    texts: Mapping[str, str] = field(default_factory=dict)
    slots: tuple[SlotText | None, ...] = field(default=(), repr=False, compare=False)
    is_gone: bool = False
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
        """Tells whether there is an instance."""
        return self.value is not None

    def to_row(self, *, details: bool = False) -> dict[str, Any]:
        """The row of a results file, of JSON types only; with `details`, every field's result.

        NaN and the infinities, which JSON lacks, become None, as in Pydantic's own JSON. Raises
        what the model's own serializers and computed fields raise.
        """
        row: dict[str, Any] = {"id": self.document_id, "index": self.index, "attributes": None}
        if self.value is not None:
            row["attributes"] = json_ready(dumped(self.value, mode="json"))
        row["errors"] = [_as_dict(error) for error in self.errors]
        if details:
            row["fields"] = {name: _details(result) for name, result in self.fields.items()}
            if self.partial:
                row["partial"] = json_ready(to_jsonable_python(dict(self.partial), fallback=str))
        return row


@dataclass(frozen=True, slots=True)
class SlotText:
    """The text that was decoded for one slot.

    raw: its text, delimiter dropped.
    complete: whether its stop rule was met, so that nothing of the value can be missing.
    is_loop: whether it ends in the same few tokens over and over.
    left_out: whether the value is too improbable to be taken for one.
    items: of a list in two phases, whose raw text is the count, the slots of every item.
    repaired: what was written when the value was asked for again, until one of both is taken.
    refused: of such a slot, the first text and what was said of it. note: what became of that.
    confidence, probability, null_probability, alternatives, legal_...: see `FieldResult`.
    """

    raw: str
    finish_reason: FinishReason
    tokens: int
    complete: bool
    confidence: float | None = None
    probability: float | None = None
    null_probability: float | None = None
    legal_probability: float | None = None
    legal_at_start: float | None = None
    alternatives: Mapping[Any, float] = field(default_factory=dict)
    left_out: bool = False
    items: tuple[tuple[SlotText, ...], ...] | None = None
    repaired: SlotText | None = None
    refused: tuple[str, str] | None = None
    note: str | None = None
    is_loop: bool = False

    @property
    def is_cut(self) -> bool:
        """Tells whether a value ran out of its budget."""
        return self.finish_reason == "length" and not self.complete


def _as_dict(item: FieldError | FieldResult) -> dict[str, Any]:
    plain = {one.name: getattr(item, one.name) for one in fields(item)}
    return {name: json_ready(to_jsonable_python(x, fallback=str)) for name, x in plain.items()}


def _details(result: FieldResult) -> dict[str, Any]:
    """`spans` only of lists: of other fields, `span` says all. Locations only of files."""
    row = _as_dict(replace(result, alternatives={}))
    del row["spans"], row["alternatives"], row["locations"]
    row["span"] = _place(result.span)
    if isinstance(row["value"], list):
        row["spans"] = [_place(span) for span in result.spans]
    if result.locations:
        row["location"] = _in_file(result.location)
        if isinstance(row["value"], list):
            row["locations"] = [_in_file(one) for one in result.locations]
    row["grounded"] = result.grounded
    if result.alternatives:
        row["alternatives"] = {_label(choice): p for choice, p in result.alternatives.items()}
    return row


def _label(choice: Any) -> str:
    """A choice as a name in JSON; "null" for none."""
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
    """The value with None for NaN and the infinities, which JSON lacks."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {key: json_ready(item) for key, item in value.items()}
    if isinstance(value, list):
        return [json_ready(item) for item in value]
    return value


def failed(
    index: int,
    document_id: str | None,
    message: str,
    *,
    field: str | None = None,
    raw: str | None = None,
    steps: int = 0,
    is_gone: bool = False,
) -> Extraction[Any]:
    """The row of a document that could not be read at all."""
    error = FieldError(field, clipped(message), raw)
    return Extraction(None, index, document_id, errors=(error,), steps=steps, is_gone=is_gone)


def check_on_error(on_error: str) -> None:
    if on_error not in ("raise", "null"):
        raise ValueError(f'on_error must be "raise" or "null", not {on_error!r}')


def values_of(found: Iterable[Extraction[Any]], on_error: str) -> list[Any]:
    """Instances in order of the input, with None for a row that is none.

    Raises ExtractionError for such rows where on_error is "raise".
    """
    finished = sorted(found, key=lambda item: item.index)
    if on_error == "raise" and any(item.value is None for item in finished):
        raise ExtractionError(finished)
    _warn_of_fields(finished)
    return [item.value for item in finished]


def _warn_of_fields(finished: Sequence[Extraction[Any]]) -> None:
    """Says which fields of finished rows have not got what the model wrote."""
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
