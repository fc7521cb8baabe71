"""The errors that schemax raises, beside ValueError and TypeError for arguments of calls.

    SchemaxError
    ├── SchemaError       a declaration that cannot be compiled: which class, which field, why
    ├── TemplateError     a prompt template that is missing, broken, or does not show the documents
    ├── ModelError        a model or tokenizer that cannot be run, and why
    │   └── ServerError   a server that does not answer, or refuses
    ├── InputError        a record that cannot be read: which one, which line
    └── ExtractionError   some rows could not become instances; carries every finished extraction

Pydantic's `ValidationError` is never shadowed: a value that fails validation becomes a
`FieldError` on its extraction, not an exception.
"""

from __future__ import annotations

from collections.abc import Sequence
from errno import EDQUOT, EFBIG, ENOSPC
from typing import Any, Literal

Cause = Literal["memory", "length", "server"]
"""Why a document could not be run: memory or the model's context does not suffice for it, or a
server failed, so that a later attempt may succeed."""

FULL_DISK = (EDQUOT, EFBIG, ENOSPC)
"""The numbers of an OSError on a full disk."""


class SchemaxError(Exception):
    """Root of all errors raised by schemax."""


class _OfDeclaration(Exception):
    """schema: the name of a class. field: a dotted path, or None for a fault of the class.

    reason: the fault, and what to change.
    """

    def __init__(self, schema: str, field: str | None, reason: str) -> None:
        self.schema = schema
        self.field = field
        self.reason = reason
        where = f"{schema}.{field}" if field else schema
        super().__init__(f"{where}: {reason}")

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.schema, self.field, self.reason)


class SchemaError(_OfDeclaration, SchemaxError):
    """A declaration that cannot be compiled: `schema`, `field` or None, and `reason`."""


class SchemaWarning(_OfDeclaration, UserWarning):
    """A declaration that compiles, but is odd: `schema`, `field` or None, and `reason`."""


class TemplateError(SchemaxError):
    """A prompt template that is missing, broken, or does not show the documents."""


class ModelError(SchemaxError):
    """A model or tokenizer that cannot be run; the message names the cause and the remedy."""


class ServerError(ModelError):
    """A server that does not answer, or refuses a request.

    cause: why a document could not be run, where that is known.
    status: the HTTP status.
    """

    def __init__(
        self, message: str, *, cause: Cause | None = None, status: int | None = None
    ) -> None:
        self.cause, self.status = cause, status
        super().__init__(message)

    @property
    def is_gone(self) -> bool:
        """True if the server is at fault, so that a later attempt may succeed."""
        return self.cause == "server"


class InputError(SchemaxError):
    """A record or file that cannot be read."""


class ExtractionError(SchemaxError):
    """Some rows could not become instances.

    extractions: one `Extraction` per input row, in order, finished rows included, so that no result
        is lost.
    """

    def __init__(self, extractions: Sequence[Any]) -> None:
        self.extractions = tuple(extractions)
        failed = [item for item in self.extractions if item.value is None]
        shown = "; ".join(_first_reason(item) for item in failed[:3] if item.errors)
        more = f"; and {len(failed) - 3} more" if len(failed) > 3 else ""
        count = len(self.extractions)
        super().__init__(
            f"{len(failed)} of {count} row{'s' * (count != 1)} could not become instances "
            f"({shown}{more}). The others are in `.extractions`; "
            'on_error="null" puts None in place of these rows.'
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.extractions,)


def _first_reason(item: Any) -> str:
    error = item.errors[0]
    field = f"{error.field}: " if error.field else ""
    return f"row {item.index}: {field}{error.message}"
