"""Raw slot texts become validated instances, and every loss has its reason."""

from __future__ import annotations

import copy
import enum
import json
import pickle
from datetime import date, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal

import jsonschema
import pytest
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    RootModel,
    StrictBool,
    computed_field,
    field_validator,
    model_validator,
)
from seams import trees_made

from schemax.attributes import attr, compile_attributes
from schemax.extraction.schema import AttrSchema
from schemax.formats import BaseFormat, get_format
from schemax.results import Extraction, FieldError, FieldResult, SlotText, build, failed

FORMATS = ("json", "yaml", "xml")
MISSING = "the text states no value, and the field is required"


def slot(raw: str, reason: Any = "stop", tokens: int = 3) -> SlotText:
    return SlotText(raw, reason, tokens, complete=reason == "stop")


def read(schema: type[BaseModel], format: str = "json", **raws: Any) -> Extraction[Any]:
    """Fields by name, dots written as `__`: a value to be escaped, or a SlotText as it is."""
    output = get_format(format)
    attributes = compile_attributes(schema)
    given = {name.replace("__", "."): value for name, value in raws.items()}
    assert given.keys() <= {attribute.name for attribute in attributes}
    slots = []
    for attribute in attributes:
        value = given.get(attribute.name, ...)
        if value is ... or isinstance(value, SlotText):
            slots.append(None if value is ... else value)
        else:
            slots.append(slot(output.escape(value)))
    return build(schema, attributes, slots, output, index=7, document_id="d7", steps=4)


def told(item: Extraction[Any]) -> dict[str | None, str]:
    assert all("\n" not in error.message and "http" not in error.message for error in item.errors)
    return {error.field: error.message for error in item.errors}


class Size(enum.Enum):
    SMALL = "Small"
    EXTRA_LARGE = "Extra Large"


class Television(AttrSchema):
    """A television set."""

    brand: str | None = attr("Manufacturer")
    inches: float | None = attr("Diagonal", ge=1)
    hdmi: int | None = None
    price: Decimal | None = None
    smart: bool | None = None
    resolution: Literal["720p", "1080p", "4K", "8K"] | None = None
    size: Size | None = None
    released: date | None = None
    updated: datetime | None = None
    ports: list[str] = attr("Connectors", default_factory=list)


# --- values that are fine -----------------------------------------------------------------------


@pytest.mark.parametrize("format", FORMATS)
def test_every_type_in_every_format(format: str) -> None:
    item = read(
        Television,
        format,
        brand="Samsung",
        inches=55.5,
        hdmi=3,
        price=Decimal("1299.50"),
        smart=True,
        resolution="4K",
        size="Extra Large",
        released=date(2024, 1, 2),
        updated=datetime(2024, 1, 2, 3, 4, 5),
        ports=["HDMI", "USB"],
    )
    assert item.ok
    assert item.errors == ()
    assert item.value == Television(
        brand="Samsung",
        inches=55.5,
        hdmi=3,
        price=Decimal("1299.50"),
        smart=True,
        resolution="4K",
        size=Size.EXTRA_LARGE,
        released=date(2024, 1, 2),
        updated=datetime(2024, 1, 2, 3, 4, 5),
        ports=["HDMI", "USB"],
    )
    assert (item.index, item.document_id, item.steps) == (7, "d7", 4)


@pytest.mark.parametrize("format", FORMATS)
def test_nulls_are_defaults_without_errors(format: str) -> None:
    item = read(Television, format, **dict.fromkeys(Television.model_fields))
    assert item.value == Television()
    assert item.errors == ()


def test_a_field_that_the_output_did_not_mention() -> None:
    item = read(Television, brand="LG")
    assert item.value == Television(brand="LG")
    assert item.errors == ()
    assert item.fields["ports"] == FieldResult(None, [])
    facts = item.fields["ports"]
    assert (facts.raw, facts.finish_reason, facts.tokens) == (None, "eos", 0)
    assert (facts.confidence, facts.alternatives, facts.left_out) == (None, {}, False)


def test_fields_are_results_in_declaration_order() -> None:
    item = read(Television, hdmi=slot(' "3"', tokens=5), brand=slot(' "LG', "eos"))
    assert list(item.fields) == list(Television.model_fields)
    assert item.fields["hdmi"] == FieldResult(slot(' "3"', tokens=5), 3)
    assert item.fields["brand"] == FieldResult(slot(' "LG', "eos"), None)
    with pytest.raises(TypeError):
        item.fields["hdmi"] = None  # type: ignore[index]


def test_results_hold_what_validators_made() -> None:
    class Shoe(AttrSchema):
        brand: str

        @field_validator("brand")
        @classmethod
        def shout(cls, value: str) -> str:
            return value.upper()

    item = read(Shoe, brand="puma")
    assert (item.fields["brand"].value, item.fields["brand"].raw) == ("PUMA", ' "puma"')


# --- reading raw texts --------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["json", "yaml"])
def test_a_literal_that_is_not_closed(format: str) -> None:
    item = read(Television, format, brand=slot(' "Samsu', "eos"), hdmi=2)
    assert item.value == Television(hdmi=2)
    assert item.errors == (FieldError("brand", "the string is not closed", ' "Samsu'),)


def test_end_of_sequence_after_a_whole_literal_is_fine() -> None:
    item = read(Television, brand=slot(' "LG"', "eos"), hdmi=slot(" 3", "eos"))
    assert (item.value, item.errors) == (Television(brand="LG", hdmi=3), ())


@pytest.mark.parametrize("format", FORMATS)
def test_truncated(format: str) -> None:
    item = read(Television, format, brand=slot(" Samsu", "length", tokens=8))
    assert item.value == Television()
    message = "ran out of its budget of 8 tokens (truncated)"
    assert item.errors == (FieldError("brand", message, " Samsu"),)
    assert item.fields["brand"] == FieldResult(slot(" Samsu", "length", tokens=8), None)


def test_complete_at_the_very_end_of_the_budget() -> None:
    item = read(Television, brand=SlotText(' "LG"', "length", 4, complete=True))
    assert (item.value, item.errors) == (Television(brand="LG"), ())


@pytest.mark.parametrize("error", [ValueError("bad literal"), KeyError("bug")])
def test_a_format_of_ones_own_that_raises(error: Exception) -> None:
    class Broken(BaseFormat):
        name = "broken"

        def unescape(self, raw: str, *, is_list: bool = False) -> Any:
            raise error

    attributes = compile_attributes(Television)
    slots = [slot("x"), *[None] * (len(attributes) - 1)]
    item = build(Television, attributes, slots, Broken(), index=0, document_id=None)  # type: ignore[arg-type]
    assert item.value == Television()
    assert "b" in told(item)["brand"]


def test_slots_must_fit() -> None:
    attributes = compile_attributes(Television)
    with pytest.raises(ValueError, match="1 slots for 10 attributes"):
        build(Television, attributes, [None], get_format("json"), index=0, document_id=None)

    class Other(BaseModel):
        colour: str

    with pytest.raises(ValueError, match="Other has no attribute 'brand'"):
        build(Other, attributes[:1], [None], get_format("json"), index=0, document_id=None)


# --- choices, numbers, lists --------------------------------------------------------------------


@pytest.mark.parametrize("text", ["Extra Large", "extra  large", " EXTRA\tLARGE "])
def test_choices_forgive_case_and_white_space(text: str) -> None:
    assert read(Television, size=text).value.size is Size.EXTRA_LARGE
    assert read(Television, resolution="4k").value.resolution == "4K"


@pytest.mark.parametrize("format", FORMATS)
def test_values_have_no_white_space_around_them(format: str) -> None:
    class Box(AttrSchema):
        name: str | None = None
        notes: list[str] = attr(default_factory=list)

    item = read(Box, format, name=" Old  Spice\t", notes=[" a", "b c "])
    assert item.value == Box(name="Old  Spice", notes=["a", "b c"])


def test_choices_that_differ_in_case_alone_are_told_apart() -> None:
    class Chip(AttrSchema):
        unit: Literal["Mb", "MB", "GB"] | None = None

    assert read(Chip, unit="MB").value.unit == "MB"
    assert read(Chip, unit="gb").value.unit == "GB"
    item = read(Chip, unit="mb")
    assert item.value.unit is None
    assert "'Mb', 'MB' or 'GB'" in told(item)["unit"]


def test_choices_are_the_values_behind_their_texts() -> None:
    class Odd(enum.IntEnum):
        ONE = 1
        TWO = 2

    class Unhashable(enum.StrEnum):
        A = "a"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, str) and other.lower() == self.value

        __hash__ = None  # type: ignore[assignment]

    class Mixed(BaseModel):
        doors: Literal[2, 4]
        flag: Literal[True]
        odd: Odd
        many: set[Literal[1, 2]]
        letter: Unhashable

    item = read(Mixed, doors="4", flag="True", odd="2", many=["2", "1", "2"], letter="a")
    assert item.errors == ()
    assert item.value == Mixed(doors=4, flag=True, odd=Odd.TWO, many={1, 2}, letter=Unhashable.A)
    assert item.value.flag is True


def test_an_unknown_choice_falls_back() -> None:
    item = read(Television, resolution="2K", size="XS")
    assert item.value == Television()
    assert told(item).keys() == {"resolution", "size"}
    assert told(item)["resolution"] == "Input should be '720p', '1080p', '4K' or '8K'"


@pytest.mark.parametrize(
    ("text", "value"),
    [("1,299.00", "1299.00"), ("1,299", "1299"), ("-12,345,678", "-12345678"), (" 5 ", "5")],
)
def test_thousands(text: str, value: str) -> None:
    item = read(Television, price=text)
    assert (item.value.price, item.errors) == (Decimal(value), ())


@pytest.mark.parametrize(
    "text", ["$", "", "1.2.3", "10 x 20", "UN55KU6300", "100/240 V", "something"]
)
def test_what_is_no_number_is_an_error(text: str) -> None:
    item = read(Television, price=text, hdmi=text)
    assert item.value == Television()
    assert told(item).keys() == {"price", "hdmi"}
    assert item.errors[0].raw == f' "{text}"'


def test_texts_keep_their_commas() -> None:
    assert read(Television, brand="1,299").value.brand == "1,299"


def test_a_scalar_that_got_a_list() -> None:
    item = read(Television, brand=["LG"], hdmi=["1", "2"], smart=[None, "true"], price=[])
    assert item.value == Television(brand="LG", smart=True)
    assert told(item) == {"hdmi": "expected one value, got 2"}


def test_a_list_that_got_a_scalar_or_nulls() -> None:
    assert read(Television, ports="HDMI").value.ports == ["HDMI"]
    assert read(Television, ports=["HDMI", None, "USB"]).value.ports == ["HDMI", "USB"]
    assert read(Television, ports=[]).value.ports == []


def test_lists_of_other_kinds() -> None:
    class Lists(BaseModel):
        pair: tuple[int, ...]
        days: frozenset[date]
        sizes: list[Size]

    item = read(Lists, pair=["1,000", "2"], days=["2024-01-02"], sizes=["small"])
    assert item.value == Lists(pair=(1000, 2), days={date(2024, 1, 2)}, sizes=[Size.SMALL])


@pytest.mark.parametrize("text", ["2024", "1970", "1e9", "86400"])
def test_a_bare_number_is_no_date(text: str) -> None:
    item = read(Television, released=text, updated=text)
    assert item.value == Television()
    assert told(item).keys() == {"released", "updated"}


def test_a_validator_may_make_a_date_of_a_year() -> None:
    class Book(BaseModel):
        printed: date
        reprinted: list[datetime] = []

        @field_validator("printed", mode="before")
        @classmethod
        def year(cls, value: str) -> str:
            return f"{value}-01-01"

    item = read(Book, printed="1970", reprinted=["2024-01-01", "86400"])
    assert item.value == Book(printed="1970", reprinted=[datetime(2024, 1, 1)])  # type: ignore[arg-type]
    assert told(item) == {"reprinted": "item 2: Input should be a date, not a bare number"}


@pytest.mark.parametrize("number", ["0", "3", "12", "86400"])
def test_a_few_seconds_since_1970_are_no_date(number: str) -> None:
    class Milk(BaseModel):
        packed: date | None = None

    (said,) = told(read(Milk, packed=number)).values()
    assert "not a bare number" in said


# --- nulls, fallbacks, failures -----------------------------------------------------------------


class Plain(BaseModel):
    """Without AttrSchema's implied defaults."""

    model: str
    colour: str | None
    weight: int | None = 5
    tags: list[str]
    sizes: list[int] | None


def test_null_without_a_default() -> None:
    item = read(Plain, model="X1", colour=None, tags=None, sizes=None, weight=None)
    assert item.value == Plain(model="X1", colour=None, weight=5, tags=[], sizes=None)
    assert item.errors == ()


@pytest.mark.parametrize("given", [{"model": None}, {}])
def test_a_required_field_without_a_value_fails_the_row(given: dict[str, Any]) -> None:
    item = read(Plain, weight="3", colour="red", **given)
    assert not item.ok
    assert item.errors == (FieldError("model", MISSING, " null" if given else None),)
    assert item.fields["weight"].value == "3"
    assert item.fields["model"].value is None


def test_all_reasons_of_a_failed_row_are_told() -> None:
    class Three(BaseModel):
        a: int
        b: int
        c: int = 0

    item = read(Three, a="x", b="x", c="y")
    assert item.value is None
    assert told(item).keys() == {"a", "b", "c"}
    assert told(read(Three, c="1")) == {"a": MISSING, "b": MISSING}


def test_an_invalid_value_falls_back_to_default_then_none() -> None:
    item = read(Plain, model="X1", weight="heavy", colour="red", sizes=["x"], tags=["a"])
    assert item.value == Plain(model="X1", colour="red", weight=5, tags=["a"], sizes=[])
    assert told(item).keys() == {"weight", "sizes"}
    assert item.errors[0].raw == ' "heavy"'


def test_an_invalid_value_of_a_required_field_fails_the_row() -> None:
    class Screen(BaseModel):
        inches: Annotated[float, Field(ge=1)]

    item = read(Screen, inches="0.5")
    assert item.value is None
    message = "Input should be greater than or equal to 1"
    assert item.errors == (FieldError("inches", message, ' "0.5"'),)
    assert item.fields["inches"].value is None


def test_an_empty_list_that_is_too_short() -> None:
    class Box(BaseModel):
        parts: Annotated[list[str], Field(min_length=1)]

    item = read(Box, parts=None)
    assert (item.value, item.errors) == (None, (FieldError("parts", MISSING, " null"),))


def test_a_default_that_is_invalid_falls_back_to_none() -> None:
    class Box(BaseModel):
        model_config = ConfigDict(validate_default=True)
        weight: Annotated[int, Field(ge=1)] | None = 0
        height: Annotated[int, Field(ge=1)] = 0

    item = read(Box, weight="-1", height="2")
    assert item.value == Box(weight=None, height=2)
    assert [error.field for error in item.errors] == ["weight", "weight"]
    assert not read(Box, weight="1", height=None).ok


def test_several_rounds_of_validation() -> None:
    class Rounds(BaseModel):
        a: int = 1
        b: int | None = None
        c: int | None = None

        @model_validator(mode="after")
        def rule(self) -> Rounds:
            if self.c is not None and self.a == 1:
                raise ValueError("c needs another a")
            return self

    assert read(Rounds, a="x", b="x").value == Rounds()
    item = read(Rounds, a="x", c="3")
    assert item.value is None
    assert told(item)[None] == "c needs another a"
    assert told(item).keys() == {"a", None}


def test_unions_of_numbers_blame_their_field_once() -> None:
    class Union(BaseModel):
        amount: int | float = 0
        amounts: list[int | float] = []

    item = read(Union, amount="many", amounts=["1", "x"])
    assert item.value == Union(amounts=[1])
    assert [error.field for error in item.errors] == ["amount", "amounts"]
    assert read(Union, amount="5", amounts=["5.5"]).value == Union(amount=5, amounts=[5.5])


# --- validators ---------------------------------------------------------------------------------


class Mute(ValueError):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize("error", [Mute, type("Other", (Exception,), {"__str__": Mute.__str__})])
@pytest.mark.parametrize("kind", ["field", "model"])
def test_an_exception_without_words_costs_its_row_alone(error: type[Exception], kind: str) -> None:
    class Product(AttrSchema):
        brand: str | None = None

        @field_validator("brand")
        @classmethod
        def never(cls, value: str) -> str:
            if kind == "field":
                raise error
            return value

        @model_validator(mode="after")
        def refused(self) -> Any:
            raise error

    item = read(Product, brand="LG")
    assert item.value is None or item.value.brand is None
    # Of a ValueError, Pydantic asks for the words, and passes on what that raises.
    assert [one.message for one in item.errors][-1] in (error.__name__, "RuntimeError")


def test_an_arithmetic_error_has_words() -> None:
    class Product(AttrSchema):
        price: Decimal | None = None

        @field_validator("price")
        @classmethod
        def rounded(cls, value: Decimal) -> Decimal:
            return value.quantize(Decimal("1e-9999999"))

    messages = [error.message for error in read(Product, price="5").errors]
    assert messages == ["InvalidOperation: no number that can be computed with"]


def test_field_validators_before_and_after() -> None:
    class Screen(BaseModel):
        inches: float | None = None
        brand: str | None = None

        @field_validator("inches", mode="before")
        @classmethod
        def drop_unit(cls, value: str) -> str:
            return value.removesuffix(" inches")

        @field_validator("brand")
        @classmethod
        def known(cls, value: str) -> str:
            if value == "ACME":
                raise AssertionError("no such\nbrand")
            return value

    item = read(Screen, inches="55 inches", brand="ACME")
    assert item.value == Screen(inches="55")  # type: ignore[arg-type]
    assert told(item) == {"brand": "no such brand"}


@pytest.mark.parametrize("mode", ["before", "after"])
def test_model_validators_fail_the_row(mode: Any) -> None:
    class Range(BaseModel):
        low: int = 0
        high: int = 9

        @model_validator(mode=mode)
        def rule(self: Any) -> Any:
            raise ValueError("low is above high")

    item = read(Range, low="3", high="2")
    assert item.value is None
    assert item.errors == (FieldError(None, "low is above high"),)
    assert item.fields["low"].value == "3"


@pytest.mark.parametrize("kind", [TypeError, KeyError, ZeroDivisionError, RecursionError])
@pytest.mark.parametrize("where", ["field", "model", "factory"])
def test_validators_that_raise_anything(kind: type[Exception], where: str) -> None:
    def burst(*_: Any) -> Any:
        raise kind("bang")

    class Bomb(BaseModel):
        a: str
        b: int = Field(default_factory=burst if where == "factory" else int)

        @field_validator("a")
        @classmethod
        def check_a(cls, value: str) -> str:
            return burst() if where == "field" else value

        @model_validator(mode="after")
        def check_all(self) -> Bomb:
            return burst() if where == "model" else self

    item = read(Bomb, a="x")
    assert item.value is None
    assert len(item.errors) == 1
    assert item.errors[0].field is None
    assert item.errors[0].message.startswith(f"{kind.__name__}: ")
    assert "bang" in item.errors[0].message


def test_a_default_factory_that_builds_another_model_wrongly() -> None:
    class Other(BaseModel):
        a: int

    class Outer(BaseModel):
        a: str
        b: int = Field(default_factory=lambda: Other(a="x").a)  # type: ignore[arg-type]

    item = read(Outer, a="fine")
    assert item.value is None
    assert told(item)[None].startswith("Other: Input should be a valid integer")


def test_long_messages_are_cut() -> None:
    class Wordy(BaseModel):
        a: str = ""

        @field_validator("a")
        @classmethod
        def check(cls, value: str) -> str:
            raise ValueError("no! " * 1000)

    assert len(told(read(Wordy, a="x"))["a"]) == 300


# --- kinds of models ----------------------------------------------------------------------------


def test_aliases_frozen_and_forbidden_extras() -> None:
    class Inner(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)
        width: int | None = Field(None, alias="Width", ge=1)

    class Outer(BaseModel):
        model_config = ConfigDict(extra="forbid", frozen=True)
        brand: str = Field(alias="Brand")
        code: int = Field(0, validation_alias=AliasChoices("Code", "EAN"))
        inner: Inner | None = Field(None, alias="Inner")

    item = read(Outer, brand="LG", code="12", inner__width="3")
    assert item.errors == ()
    assert item.value.model_dump() == {"brand": "LG", "code": 12, "inner": {"width": 3}}
    item = read(Outer, brand="LG", code="x", inner__width="0")
    assert told(item).keys() == {"code", "inner.width"}
    assert item.value.model_dump() == {"brand": "LG", "code": 0, "inner": None}


def test_strict_models_are_read_from_text_all_the_same() -> None:
    class Strict(BaseModel):
        model_config = ConfigDict(strict=True)
        count: int
        price: Decimal
        day: date
        size: Size
        flags: set[bool]

    class Outer(BaseModel):
        strict: Strict
        ok: StrictBool
        weight: Annotated[float | None, Field(strict=True)]

    given = {"count": "3", "price": "1,299.10", "day": "2024-01-02", "size": "small"}
    item = read(
        Outer,
        **{f"strict__{name}": value for name, value in given.items()},
        strict__flags=["true"],
        ok="yes",
        weight="1.5",
    )
    assert item.errors == ()
    assert item.value.strict == Strict(
        count=3, price=Decimal("1299.10"), day=date(2024, 1, 2), size=Size.SMALL, flags={True}
    )
    assert (item.value.ok, item.value.weight) == (True, 1.5)


def test_computed_fields_and_root_models() -> None:
    class Brand(RootModel[str]):
        pass

    class Dimensions(BaseModel):
        width: int

    class Wrapped(RootModel[Dimensions]):
        pass

    class Box(BaseModel):
        brand: Brand
        size: Wrapped

        @computed_field  # type: ignore[prop-decorator]
        @property
        def double(self) -> int:
            return 2 * self.size.root.width

    item = read(Box, brand="LG", size__width="3")
    assert item.to_row()["attributes"] == {"brand": "LG", "size": {"width": 3}, "double": 6}
    assert item.fields["size.width"].value == 3
    assert told(read(Box, brand="LG", size__width="x")).keys() == {"size.width"}


def test_fields_named_like_methods() -> None:
    with pytest.warns(UserWarning, match="shadows"):

        class Odd(BaseModel):
            copy: str | None = None  # type: ignore[assignment]

    item = read(Odd, copy="x")
    assert item.fields["copy"].value == "x"


# --- nested models ------------------------------------------------------------------------------


class Dimensions(BaseModel):
    width: int
    height: int | None = None
    note: str = "none"


class WithOptional(BaseModel):
    name: str = ""
    size: Dimensions | None = None


class WithRequired(BaseModel):
    size: Dimensions


class WithDefault(BaseModel):
    size: Dimensions = Dimensions(width=1)


class WithNullable(BaseModel):
    size: Dimensions | None


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize("schema", [WithOptional, WithRequired, WithDefault, WithNullable])
def test_nested_values(schema: type[BaseModel], format: str) -> None:
    item = read(schema, format, size__width="3", size__height=None)
    assert item.value == schema.model_validate({"size": {"width": 3}})
    assert item.errors == ()
    assert item.fields["size.width"].value == 3
    assert item.fields["size.note"].value == "none"


def test_nested_without_any_value() -> None:
    nothing = dict.fromkeys(("size__width", "size__height", "size__note"))
    assert read(WithOptional, **nothing).value == WithOptional(size=None)
    assert read(WithNullable, **nothing).value == WithNullable(size=None)
    assert read(WithDefault, **nothing).value == WithDefault()
    item = read(WithDefault, **nothing)
    assert (item.errors, item.fields["size.width"].value) == ((), 1)
    item = read(WithRequired, **nothing)
    assert (item.value, item.errors) == (None, (FieldError("size.width", MISSING, " null"),))


def test_nested_with_defaults_for_all() -> None:
    class Loose(BaseModel):
        width: int = 3
        tags: list[str]

    class Outer(BaseModel):
        size: Loose

    assert read(Outer).value == Outer(size=Loose(tags=[]))


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (WithOptional, WithOptional()),
        (WithNullable, WithNullable(size=None)),
        (WithDefault, WithDefault()),
        (WithRequired, None),
    ],
)
@pytest.mark.parametrize("width", [None, "wide"])
def test_nested_that_lacks_a_required_leaf(
    schema: type[BaseModel], expected: BaseModel | None, width: str | None
) -> None:
    item = read(schema, size__width=width, size__height="4")
    assert item.value == expected
    message = told(item)["size.width"]
    assert message == MISSING if width is None else message.startswith("Input should be a valid")
    if expected is not None:
        assert told(item)["size.height"] == "discarded, because size could not be built"
        assert item.errors[-1].raw == ' "4"'
    assert len(item.errors) == (1 if expected is None else 2)


def test_nested_optional_leaf_at_fault_costs_that_leaf_alone() -> None:
    item = read(WithRequired, size__width="3", size__height="tall")
    assert item.value == WithRequired(size=Dimensions(width=3))
    assert told(item).keys() == {"size.height"}


def test_the_only_value_of_a_nested_model_is_at_fault() -> None:
    item = read(WithDefault, size__width="wide")
    assert item.value == WithDefault()
    assert told(item).keys() == {"size.width"}


def test_nested_in_nested() -> None:
    class Middle(BaseModel):
        size: Dimensions
        colour: str | None = None

    class Outer(BaseModel):
        middle: Middle | None = None
        name: str

    item = read(Outer, name="n", middle__colour="red", middle__size__height="3")
    assert item.value == Outer(name="n")
    assert told(item) == {
        "middle.size.width": MISSING,
        "middle.size.height": "discarded, because middle could not be built",
        "middle.colour": "discarded, because middle could not be built",
    }
    assert read(Outer, name="n").errors == ()
    item = read(Outer, name="n", middle__size__width="3")
    assert item.value.middle.size.width == 3


def test_a_nested_models_validator() -> None:
    class Range(BaseModel):
        low: int
        high: int

        @model_validator(mode="after")
        def rule(self) -> Range:
            if self.low > self.high:
                raise ValueError("low is above high")
            return self

    class Optional(BaseModel):
        range: Range | None = None
        name: str = ""

    class Required(BaseModel):
        range: Range

    item = read(Optional, name="n", range__low="3", range__high="2")
    assert item.value == Optional(name="n")
    assert told(item) == {
        "range": "low is above high",
        "range.low": "discarded, because range could not be built",
        "range.high": "discarded, because range could not be built",
    }
    item = read(Required, range__low="3", range__high="2")
    assert (item.value, item.errors) == (None, (FieldError("range", "low is above high"),))


def test_a_nested_default_that_is_invalid() -> None:
    class Outer(BaseModel):
        size: Dimensions | None = Field({"width": "x"}, validate_default=True)  # type: ignore[assignment]

    item = read(Outer, size__height="3")
    assert item.value == Outer.model_construct(size=None)
    assert told(item).keys() == {"size.width", "size", "size.height"}


# --- rows, copies, speed ------------------------------------------------------------------------


def test_rows() -> None:
    class Item(AttrSchema):
        day: date | None = None
        price: Decimal | None = None
        ratio: float | None = None
        tags: set[Size] = Field(default_factory=set)

    item = read(Item, day="2024-01-02", price="x", ratio="nan", tags=["small"])
    expected = {
        "id": "d7",
        "index": 7,
        "attributes": {"day": "2024-01-02", "price": None, "ratio": None, "tags": ["Small"]},
        "errors": [
            {"field": "ratio", "message": "is no finite number", "raw": ' "nan"'},
            {"field": "price", "message": told(item)["price"], "raw": ' "x"'},
        ],
    }
    assert item.to_row() == expected
    detailed = item.to_row(details=True)
    assert json.loads(json.dumps(detailed, allow_nan=False)) == detailed
    assert list(detailed) == ["id", "index", "attributes", "errors", "fields"]
    assert detailed["fields"]["tags"] == {
        "raw": ' ["small"]',
        "value": ["Small"],
        "confidence": None,
        "probability": None,
        "left_out": False,
        "null_probability": None,
        "legal_probability": None,
        "legal_at_start": None,
        "note": '"small" read as Small',
        "finish_reason": "stop",
        "tokens": 3,
        "span": None,
        "spans": [],
        "grounded": None,
    }


def test_a_failed_row() -> None:
    item = failed(3, None, "no\ntext", steps=0)
    assert not item.ok
    assert item.to_row(details=True) == {
        "id": None,
        "index": 3,
        "attributes": None,
        "errors": [{"field": None, "message": "no text", "raw": None}],
        "fields": {},
    }
    item = failed(3, "x", "too long", steps=2)
    assert item.errors == (FieldError(None, "too long"),)
    assert item.steps == 2


def test_extractions_can_be_pickled_copied_and_compared() -> None:
    item = read(Television, brand="LG", hdmi="x")
    assert pickle.loads(pickle.dumps(item)) == item
    assert copy.deepcopy(item) == item
    assert item != read(Television, brand="Sony", hdmi="x")


def test_one_validation_when_all_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    original = Television.model_validate

    def counted(*args: Any, **options: Any) -> Any:
        calls.append(args)
        return original(*args, **options)

    monkeypatch.setattr(Television, "model_validate", counted)
    before = trees_made()
    for _ in range(3):
        assert read(Television, brand="LG", ports=["HDMI"]).errors == ()
    assert len(calls) == 3
    assert trees_made() <= before + 1


def test_a_row_that_contradicts_its_class_fails_a_test() -> None:
    """As all rows do that tests write, see tests/judged_rows.py."""

    class Sized(BaseModel):
        size: int = Field(ge=1)

    item = Extraction(Sized.model_construct(size=0), 0, None)
    with pytest.raises(jsonschema.ValidationError, match="0 is less than the minimum"):
        item.to_row()


class Asserted(AttrSchema):
    size: int | None = None

    @field_validator("size")
    @classmethod
    def _check(cls, value: int | None) -> int | None:
        if value == 5:
            raise AssertionError  # as a bare assert does outside of tests
        return value


def test_a_validator_without_words_is_told_as_such() -> None:
    slot = SlotText("5", "stop", 1, complete=True)
    found = build(
        Asserted,
        compile_attributes(Asserted),
        [slot],
        get_format("json"),
        index=0,
        document_id=None,
    )
    (error,) = found.errors
    assert "does not say why" in error.message


@pytest.mark.parametrize(
    ("raw", "text", "is_refused"),
    [
        ("4006381333931", "EAN 4006381333931207", True),
        ("1234567890123", "no. 1,234,567,890,123,456", True),
        ("4006381333931", "card 4006-3813-3393-1207", True),
        ("4006381333931", "EAN 4006381333931, 4006381333931207", False),
        ("1234567890123", "sum 1,234,567,890,123.45", False),
        ("1234567890123", "no. 1234567890123 45 pieces", False),
        ("123456789012", "EAN 1234567890123", False),
    ],
)
def test_a_number_that_goes_on_in_its_document_is_an_error(
    raw: str, text: str, is_refused: bool
) -> None:
    class Item(AttrSchema):
        """A thing with a long number."""

        number: int | None = None
        others: list[int] = attr("Others", default_factory=list)

    attributes = compile_attributes(Item)
    slots = [slot(raw), slot(f"[{raw}]")]
    written = get_format("json")
    item = build(Item, attributes, slots, written, index=0, document_id=None, texts={"text": text})
    if is_refused:
        said = "has more digits in the document than the 13 that a number is written with"
        assert item.value == Item(others=[])
        assert [error.message.partition(";")[0] for error in item.errors] == [
            said,
            f"item 1: {said}",
        ]
    else:
        assert item.value == Item(number=int(raw), others=[int(raw)])
