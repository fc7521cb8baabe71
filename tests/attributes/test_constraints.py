"""Conditions on leaves, however they are declared; and defaults that do not match their type."""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType

import pytest
from annotated_types import Ge, Interval, Len, MaxLen
from grammar_walks import attribute_of
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    Field,
    NaiveDatetime,
    PositiveInt,
    RootModel,
    StringConstraints,
    conint,
    constr,
)

from schemax.attributes import attr, compile_attributes
from schemax.errors import SchemaError
from schemax.extraction.schema import AttrSchema

Small = NewType("Small", Annotated[int, Ge(1)])  # type: ignore[valid-newtype]


class Rooted(RootModel[Annotated[int, Field(ge=3)]]):
    pass


@pytest.mark.parametrize(
    ("annotation", "constraints"),
    [
        (str, ()),
        (Annotated[int, Field(ge=1, lt=9)], (("minimum", 1), ("exclusiveMaximum", 9))),
        (Annotated[int | None, Field(gt=1)], (("exclusiveMinimum", 1),)),
        (conint(ge=2, multiple_of=3) | None, (("minimum", 2), ("multipleOf", 3))),
        (Annotated[float, Interval(gt=0, le=1)], (("exclusiveMinimum", 0), ("maximum", 1))),
        (PositiveInt, (("exclusiveMinimum", 0),)),
        (Annotated[PositiveInt, Field(ge=5)], (("exclusiveMinimum", 0), ("minimum", 5))),
        (Small, (("minimum", 1),)),
        (Rooted, (("minimum", 3),)),
        (Annotated[int, AfterValidator(abs), Ge(1)], (("minimum", 1),)),
        (Annotated[int, BeforeValidator(abs), Ge(1)], (("minimum", 1),)),
        (constr(pattern="^a", max_length=4), (("maxLength", 4), ("pattern", "^a"))),
        (Annotated[str, StringConstraints(min_length=2, to_lower=True)], (("minLength", 2),)),
        (Annotated[str, Field(pattern=re.compile("a", re.I))], (("pattern", "(?i)a"),)),
        (
            Annotated[Decimal, Field(max_digits=5, decimal_places=2)],
            (("max_digits", 5), ("decimal_places", 2)),
        ),
        (list[constr(min_length=2)] | None, (("minLength", 2),)),
        (Annotated[list[PositiveInt], Len(1, 3)],
         (("exclusiveMinimum", 0), ("minItems", 1), ("maxItems", 3))),
        (Annotated[Sequence[str], Field(max_length=3)], (("maxItems", 3),)),
        (set[int], (("uniqueItems", True),)),
        (frozenset[Annotated[str, MaxLen(9)]], (("maxLength", 9), ("uniqueItems", True))),
        (Annotated[int, Ge(1)] | Annotated[float, Ge(1)], (("minimum", 1),)),
        (Annotated[int, Ge(1)] | float, ()),
        (AwareDatetime, (("tz_constraint", "aware"),)),
        (NaiveDatetime | None, (("tz_constraint", "naive"),)),
    ],
    ids=str,
)  # fmt: skip
def test_conditions_are_found_however_they_are_declared(annotation: Any, constraints: Any) -> None:
    attribute = attribute_of(annotation)
    assert attribute.constraints == constraints
    hash(attribute)


def test_conditions_of_a_class() -> None:
    class Product(AttrSchema):
        size: float | None = attr("Diagonal", ge=1)
        ports: list[str] = attr(default_factory=list, max_length=4)

    size, ports = compile_attributes(Product)
    assert (size.constraints, ports.constraints) == ((("minimum", 1),), (("maxItems", 4),))


def test_conditions_of_a_json_schema() -> None:
    properties = {
        "code": {"type": "string", "pattern": "^a", "maxLength": 3},
        "sizes": {"type": "array", "items": {"type": "integer", "minimum": 1}, "maxItems": 2},
    }
    schema = AttrSchema.from_json_schema({"type": "object", "properties": properties})
    code, sizes = compile_attributes(schema)
    assert set(code.constraints) == {("pattern", "^a"), ("maxLength", 3)}
    assert set(sizes.constraints) == {("minimum", 1), ("maxItems", 2)}


class Box(BaseModel):
    width: int


def test_what_may_be_omitted() -> None:
    class Item(BaseModel):
        required: int
        optional: int | None
        default: int = 3
        box: Box
        maybe: Box | None
        usual: Box = Box(width=1)

    omittable = {a.name: a.omittable for a in compile_attributes(Item)}
    assert [name for name, may in omittable.items() if not may] == ["required", "box.width"]


# --- defaults -----------------------------------------------------------------------------------


class Size(Enum):
    SMALL = "small"


@pytest.mark.parametrize(
    ("annotation", "default"),
    [(int, "n/a"), (Literal["4K", "8K"], "4k"), (list[str], "HDMI"), (Size, "tiny"),
     (bool, "perhaps")],
    ids=str,
)  # fmt: skip
def test_defaults_of_another_type_are_refused(annotation: Any, default: Any) -> None:
    with pytest.raises(
        SchemaError, match=r"^Model\.value: default .* does not match the field's type \("
    ):
        attribute_of(annotation, default)


def no_value() -> Any:
    raise AssertionError("called")


def never(value: Any) -> Any:
    raise RuntimeError


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (str, None),
        (Annotated[int, Field(ge=1)], 0),
        (Annotated[str, Field(pattern="^a$")], ""),
        (Annotated[str, AfterValidator(never)], "x"),
        (Decimal, 0.5),
        (Size, "small"),
        (Size, Size.SMALL),
        (list[str], ()),
        (Box, Box(width=1)),
        (Box, {"width": "x"}),  # of a nested model: read or replaced row by row
        (int, Field(default_factory=no_value)),
    ],
)
def test_other_defaults_are_taken_as_they_are(annotation: Any, default: Any) -> None:
    assert attribute_of(annotation, default).omittable
