"""Defaults that are no values of their fields."""

from __future__ import annotations

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from schemax.attributes.annotations import annotation_of
from schemax.attributes.field_type import UnsupportedType


def check_default(field: FieldInfo) -> None:
    """Refuses a default of another type than the field's, which Pydantic would not notice.

    None goes through, as `brand: str = None` is common; so does a default outside the field's
    bounds, lengths or pattern, which is how a stand-in for "unknown" is declared. A factory is not
    called: it may do anything.
    """
    if field.is_required() or field.default_factory is not None or field.default is None:
        return
    try:
        TypeAdapter(annotation_of(field)).validate_python(field.default)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_context=False):
            if detail["type"] not in _CONSTRAINT_ERRORS:
                raise UnsupportedType(
                    f"default {field.default!r} does not match the field's type ({detail['msg']}); "
                    "change one of them"
                ) from None
    except Exception:  # of the user's own validators, or a type that needs the class around it
        return


_CONSTRAINT_ERRORS = frozenset(
    (
        *("greater_than", "greater_than_equal", "less_than", "less_than_equal", "multiple_of"),
        *("string_too_short", "string_too_long", "string_pattern_mismatch"),
        *("too_short", "too_long", "finite_number", "value_error", "assertion_error"),
        *("decimal_max_digits", "decimal_max_places", "decimal_whole_digits"),
    )
)
