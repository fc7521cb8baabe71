"""What a caller sees of one document: an instance, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import isfinite
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from pydantic import BaseModel
from pydantic_core import to_jsonable_python

from schemax.results.messages import one_line
from schemax.tokens import FinishReason

T = TypeVar("T", bound=BaseModel)


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
    confidence, span: of the value; None where they are not known.
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
    error = FieldError(field, one_line(message), raw)
    return Extraction(None, index, document_id, errors=(error,), steps=steps)
