"""What is refused at compile time, with class, field and reason."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import make_dataclass
from datetime import date, time
from decimal import Decimal
from typing import Annotated, Any, Literal
from uuid import UUID

import pydantic
import pytest
import typing_extensions
from annotated_types import Ge, Le, MinLen
from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    PositiveInt,
    RootModel,
)

from schemax.attributes import attr, compile_attributes
from schemax.errors import SchemaError
from schemax.extraction.schema import AttrSchema


class Color(enum.Enum):
    """Colours of the catalogue."""

    RED = "red"
    BLUE = "blue"


class Dimensions(AttrSchema):
    width: float | None = attr("Width, cm", k_max=6)
    height: float | None


class Television(AttrSchema, category="tv set", format="yaml"):
    """A television set."""

    brand: str | None = attr("Manufacturer", examples=["Samsung", "LG"])
    screen_size: float | None = attr("Diagonal of the screen, inches", k_max=8, ge=1)
    resolution: Literal["720p", "1080p", "4K", "8K"] | None = attr("Resolution class")
    smart: bool | None = None
    ports: list[str] = attr("Connectors", default_factory=list)
    color: Color | None = attr(title="Colour of the case")
    released: date | None = attr(examples=[date(2024, 3, 1)])
    price: Decimal = attr(default=Decimal("1.5"))
    dimensions: Dimensions | None = attr("Outer dimensions")


def refused(model: Any) -> SchemaError:
    with pytest.raises(SchemaError) as caught:
        compile_attributes(model)
    return caught.value


def refused_type(annotation: Any, field: Any = ..., **config: Any) -> str:
    """Why a field of this type is refused; class and field are checked on the way."""
    settings = ConfigDict(**config)
    model = pydantic.create_model("Model", __config__=settings, x=(annotation, field))
    error = refused(model)
    assert (error.schema, error.field) == ("Model", "x")
    assert str(error) == f"Model.x: {error.reason}"
    return error.reason


# Refusals


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        (dict, "declare a nested model with one field per key"),
        (Mapping[str, Any] | None, "declare a nested model with one field per key"),
        (Any, "Any says nothing about the value"),
        (object, "Any says nothing about the value"),
        (str | list[int] | list[str], "is a union in which 'list' names two"),
        (list, "does not say what it is a list of"),
        (list[Any], "does not say what it is a list of"),
        (tuple, "does not say what it is a list of"),
        (list[list[str]], "a list of lists is not supported"),
        (list[tuple[int, ...]], "a list of lists is not supported"),
        (list[list[Dimensions]], "a list of lists is not supported"),
        (set[Dimensions], "a set of nested models is not supported"),
        (list[dict[str, str]], "declare a list of models"),
        (list[None], "allows nothing but None"),
        (tuple[int, Dimensions], "a tuple of fixed length"),
        (None, "allows nothing but None"),
        (Literal[None], "allows nothing but None"),
        (Literal[b"x"], "neither text nor a number"),
        (Literal[1, "1"], "two choices have the same text '1'"),
        (Literal[True, "true"], "two choices have the same text 'true'"),
        (type, "cannot be read from text"),
    ],
)
def test_refused_types(annotation: Any, reason: str) -> None:
    assert reason in refused_type(annotation)


_FIELD = "list[Annotated[..., Field"


@pytest.mark.parametrize(
    ("annotation", "keyword", "value", "reason"),
    [
        (str, "ge", 5, "ge applies to numbers and dates only; remove it, or declare a number"),
        (str | None, "lt", 5.5, "lt applies to numbers and dates only"),
        (Literal["a", "b"], "gt", 0, "gt applies to numbers and dates only"),
        (Color, "le", 0, "le applies to numbers and dates only"),
        (bool, "ge", 1, "ge applies to numbers and dates only"),
        (int | str, "ge", 1, "ge applies to numbers and dates only"),
        (UUID, "ge", 1, "ge applies to numbers and dates only"),
        (Dimensions, "ge", 1, "ge applies to numbers and dates only"),
        (list[int], "ge", 1, f"numbers and dates only; of items: {_FIELD}(ge=...)]]"),
        (tuple[int, int], "ge", 1, f"of items: {_FIELD}(ge=...)]]"),
        (tuple[int, str], "multiple_of", 2, "multiple_of applies to numbers only"),
        (date, "multiple_of", 2, "multiple_of applies to numbers only"),
        (int, "min_length", 2, "min_length applies to texts and lists only"),
        (date, "max_length", 10, "max_length applies to texts and lists only"),
        (int, "pattern", "a+", "pattern applies to texts only; remove it, or declare a text"),
        (list[str], "pattern", "a+", f"pattern applies to texts only; of items: {_FIELD}"),
        (float, "max_digits", 3, "max_digits applies to Decimals only"),
        (str, "allow_inf_nan", False, "allow_inf_nan applies to numbers only"),
        (list[Annotated[str, Ge(5)]], "min_length", 1, "ge applies to numbers and dates only"),
        (Dimensions, "unit", "cm", "unit applies to numbers only"),
        (list[Dimensions], "unit", "cm", "unit applies to numbers only"),
    ],
)
def test_conditions_that_do_not_apply(
    annotation: Any, keyword: str, value: Any, reason: str
) -> None:
    """Pydantic builds such classes, and fails every value."""
    assert reason in refused_type(annotation, attr(**{keyword: value}))


@pytest.mark.parametrize(
    "annotation",
    [
        Annotated[str, AfterValidator(len), Ge(5)],
        Annotated[str, Ge("b")],
        Annotated[int, Ge(3), Le(3)],
        Annotated[time, Ge(time(8))],
        Annotated[Literal[1, 2], Ge(1)],
        Annotated[dict[str, int], MinLen(1)],
        Annotated[set[str], MinLen(1)],
        list[Annotated[int, Ge(5)]],
        PositiveInt | None,
        AwareDatetime,
    ],
)
def test_conditions_that_apply(annotation: Any) -> None:
    assert compile_attributes(pydantic.create_model("Model", x=(annotation, ...)))


def test_patterns_that_cannot_be_used() -> None:
    """Where Pydantic waits with a class, schemax is the first to see the pattern."""
    pattern = Field(pattern="a(")
    later = pydantic.create_model(
        "Later", __config__=ConfigDict(defer_build=True), size=(str, pattern)
    )
    plain = make_dataclass("Plain", [("size", Annotated[str, pattern])])

    class Typed(typing_extensions.TypedDict):
        size: Annotated[str, Field(pattern="a(")]

    for declared in (later, plain, Typed):
        error = refused(declared)
        assert error.field == "size"
        assert error.reason == "pattern 'a(' cannot be used: unclosed group; mend it"
    ahead = make_dataclass("Ahead", [("size", Annotated[str, Field(pattern="(?=a)")])])
    assert 'regex_engine="python-re"' in refused(ahead).reason


def test_refused_enums() -> None:
    empty = enum.Enum("Empty", [])
    pairs = enum.Enum("Pairs", {"A": (1, 2)})
    same = enum.Enum("Same", {"A": 1, "B": "1"})
    assert "has no choices" in refused_type(empty)
    assert "neither text nor a number" in refused_type(pairs)
    assert "same text '1'" in refused_type(same)


def test_refused_classes() -> None:
    class Engine:
        pass

    reason = refused_type(Engine, arbitrary_types_allowed=True)
    assert "Engine cannot be read from text; use a scalar type or a nested BaseModel" in reason


class Node(AttrSchema):
    name: str
    child: Node | None


class Ping(BaseModel):
    pong: Pong


class Pong(BaseModel):
    ping: Ping | None = None


def test_recursion() -> None:
    assert Node(name="a", child={"name": "b"}).child == Node(name="b")
    error = refused(Node)
    assert (error.schema, error.field) == ("Node", "child")
    assert "Node contains itself" in error.reason
    error = refused(Ping)
    assert (error.schema, error.field) == ("Ping", "pong.ping")
    assert "Ping contains itself" in error.reason


def test_nested_errors_name_the_root_and_the_whole_path() -> None:
    class Inner(BaseModel):
        data: dict[str, Any]

    class Outer(BaseModel):
        inner: Inner | None = None

    error = refused(Outer)
    assert (error.schema, error.field) == ("Outer", "inner.data")


def test_no_fields() -> None:
    class Nothing(AttrSchema):
        pass

    class Outer(AttrSchema):
        nothing: Nothing

    assert str(refused(Nothing)).startswith("Nothing: Nothing has no fields; declare at least one")
    assert (refused(Outer).field, "Nothing has no fields" in refused(Outer).reason) == (
        "nothing",
        True,
    )
    assert "AttrSchema has no fields" in str(refused(AttrSchema))


def test_unresolved_forward_reference() -> None:
    class Waiting(AttrSchema):
        other: list[Missing] | None  # type: ignore[name-defined]  # noqa: F821

    class Around(AttrSchema):
        inner: Waiting

    assert refused(Waiting).field == "other"
    error = refused(Around)
    assert (error.schema, error.field) == ("Around", "inner.other")
    assert "'list[Missing] | None' holds a name that is not defined" in error.reason


def test_same_name_shown_twice() -> None:
    class Item(BaseModel):
        screen_size: int
        other: int = Field(title=" Screen  SIZE")

    error = refused(Item)
    assert (error.schema, error.field) == ("Item", "other")
    assert "the same name as 'screen_size'" in error.reason

    class Inner(BaseModel):
        brand: int

    class Fine(BaseModel):
        brand: int
        inner: Inner

    assert len(compile_attributes(Fine)) == 2


@pytest.mark.parametrize("title", ["", "   ", "a\nb", "a\x00b", "a\u2028b", "\ud800"])
def test_titles_must_be_one_visible_line(title: str) -> None:
    assert "must be one line of visible text" in refused_type(str, attr(title=title))


@pytest.mark.parametrize("k_max", [0, -1, 2.5, "8", True, 10**7, float("nan")])
def test_k_max_must_be_within_bounds(k_max: Any) -> None:
    assert "k_max must be" in refused_type(str, attr(k_max=k_max))


def test_what_is_no_model() -> None:
    assert refused(int).schema == "int"
    assert "is no class derived from" in refused("Television").reason
    assert "from_json_schema(DOCUMENT)" in refused("object").reason
    error = refused(Television())
    assert (error.schema, error.reason) == ("Television", "is an instance; pass its class")
    assert "a root that is no object has no named fields" in refused(RootModel[int]).reason
