"""Misfits: defaults and examples that do not fit their fields, which Pydantic does not check."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from schemax.attributes.annotations import annotation_of, text_of
from schemax.attributes.attribute import Attribute
from schemax.attributes.classes import is_judged_by_class
from schemax.attributes.field_type import FieldType, UnsupportedType
from schemax.base.messages import clipped


def misfits_of(
    model: type[Any], name: str, field: FieldInfo, field_type: FieldType, *told: str | None
) -> Iterator[str]:
    """Yields warnings about a field's default and examples: a sentence for each misfit.

    told: unit and language of the field.

    A default that violates the field's constraints may be meant, as a stand-in for "unknown". None
    is not checked, since `brand: str = None` is common; neither are factories, which may do
    anything, nor examples of fields that have validators of their own.

    Raises UnsupportedType for a default of another type than the field's.
    """
    has_default = not field.is_required() and field.default_factory is None
    defaults = [field.default] if has_default and field.default is not None else []
    examples = [example for example in field.examples or () if example is not None]
    if not defaults and not examples:
        return
    try:
        reader: TypeAdapter[Any] = TypeAdapter(annotation_of(field))
    except Exception:  # of a type that needs the class around it
        return
    for default in defaults:
        faults = _faults(reader, default)
        for fault, reason in faults.items():
            if fault not in _CONSTRAINT_ERRORS:
                raise UnsupportedType(
                    f"default {default!r} does not match the field's type ({reason}); change one "
                    "of them"
                )
        for shown in faults.values():
            yield (
                f"default {clipped(repr(default))} does not fit the field ({shown}), and is what "
                "documents get that state no value; change one of them"
            )
    for example in () if is_judged_by_class(model, name) else examples:
        if (misfit := _misfit(reader, example, field_type, *told)) is not None:
            yield (
                f"example {clipped(repr(example))} does not fit the field ({misfit}), and is shown "
                "to the model; change one of them"
            )


def named_misfits(attributes: Iterable[Attribute], around: str = "") -> Iterator[tuple[str, str]]:
    """Yields the misfits of all leaves, also of items of lists, with their dotted names."""
    for attribute in attributes:
        name = f"{around}{attribute.name}"
        yield from ((name, misfit) for misfit in attribute.misfits)
        yield from named_misfits(attribute.fields, f"{name}.")


def _misfit(reader: Any, example: Any, field_type: FieldType, *told: str | None) -> str | None:
    """The reason why an example fits neither the field nor an item of a list; None if it fits."""
    is_whole = isinstance(example, dict if field_type.is_mapping else (list, tuple, set, frozenset))
    items = list(example) if is_whole and not field_type.is_mapping else [example]
    if choices := {text for text, _ in field_type.choices}:
        wrong = any(text_of(item) not in choices for item in items)
        return "it is not one of the choices" if wrong else None
    try:
        read = [_read(item, field_type, *told) for item in items]
    except ValueError as error:
        return f"it {error}"
    is_list = field_type.is_list and not (field_type.is_mapping and is_whole)
    faults = _faults(reader, read if is_list else read[0] if not is_whole else example)
    lengths = () if is_whole else ("too_short", "too_long", "missing")
    return next((reason for kind, reason in faults.items() if kind not in lengths), None)


def _read(example: Any, field_type: FieldType, *told: str | None) -> Any:
    """Reads an example as the text that the model is shown."""
    scalar = field_type.scalar
    if field_type.is_text and isinstance(example, (bool, int, float)):
        return text_of(example)
    return scalar.read(example, *told).value if scalar and isinstance(example, str) else example


def _faults(reader: TypeAdapter[Any], value: Any) -> dict[str, str]:
    """Pydantic's messages for a value, by the types of its errors."""
    try:
        reader.validate_python(value)
    except ValidationError as error:
        details = error.errors(include_url=False, include_context=False)
        return {detail["type"]: detail["msg"] for detail in details}
    except Exception:  # of the user's own validators
        return {}
    return {}


_CONSTRAINT_ERRORS = frozenset(
    (
        *("greater_than", "greater_than_equal", "less_than", "less_than_equal", "multiple_of"),
        *("string_too_short", "string_too_long", "string_pattern_mismatch"),
        *("too_short", "too_long", "finite_number", "value_error", "assertion_error"),
        *("decimal_max_digits", "decimal_max_places", "decimal_whole_digits"),
    )
)
