"""Bounds, calendars, patterns and choices in grammars of slots; null; and what is refused."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import product
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from annotated_types import Gt
from conftest import combinations
from grammar_walks import (
    FORMATS,
    TAILS,
    accepts,
    accepts_value,
    attribute_of,
    grammar_of,
    in_each_format,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, create_model

from schemax.attributes import compile_attributes
from schemax.compiler import TextCodec, compile_schema
from schemax.compiler.grammars import check_grammar, slot_grammar
from schemax.compiler.patterns import Unsupported, is_found, spelled_pattern
from schemax.errors import SchemaError
from schemax.formats import OutputFormat, get_format
from schemax.reading.kinds import SCALARS
from schemax.reading.kinds.number import INTEGER_DIGITS, NUMBER_DIGITS


def is_valid(annotation: Any, value: Any) -> bool:
    try:
        TypeAdapter(annotation).validate_python(value)
    except ValidationError:
        return False
    return True


# --- numbers ------------------------------------------------------------------------------------

WHOLE = [
    *({}, {"ge": 3}, {"gt": 3}, {"le": 3}, {"lt": 3}, {"ge": 0}, {"gt": 0}, {"le": 0}, {"lt": 0}),
    *({"ge": -12, "le": 7}, {"gt": -12, "lt": 107}, {"ge": 95, "le": 1010}, {"ge": 99, "lt": 100}),
    *({"gt": -1000, "le": -99}, {"ge": 10, "gt": 12, "le": 20}),
    {"ge": 9, "multiple_of": 1},
]


@pytest.mark.parametrize("bounds", WHOLE, ids=str)
def test_whole_numbers_within_bounds_and_no_others(bounds: dict[str, Any]) -> None:
    annotation = Annotated[int, Field(**bounds)]
    attribute = attribute_of(annotation)
    grammar = grammar_of(attribute, "yaml")
    for value in [*range(-130, 130), *range(-1003, -995), *range(995, 1015)]:
        assert accepts(grammar, f" {value}\n") == is_valid(annotation, value), value
    assert not any(accepts(grammar, f" {text}\n") for text in ("007", "+5", "5.0", "-0", "1e1", ""))


@pytest.mark.parametrize("sign", [1, -1])
def test_bounds_of_many_digits_are_exact(sign: int) -> None:
    bound = sign * (10**30 + 1)
    grammar = grammar_of(
        attribute_of(Annotated[int, Field(**{"ge" if sign > 0 else "le": bound})]), "yaml"
    )
    assert [accepts(grammar, f" {bound + n * sign}\n") for n in (-1, 0, 1)] == [False, True, True]


FRACTIONS = [
    *({}, {"ge": 0.5}, {"gt": 0.5}, {"le": 1.25}, {"lt": 1.25}, {"gt": -0.5, "lt": 0.05}),
    *({"ge": -1.05, "le": 9.9}, {"ge": 0}, {"gt": 0}, {"le": 0}, {"ge": 9.95, "lt": 10.05}),
    *({"gt": 1e-7, "lt": 2}, {"le": 1e300}, {"ge": -1e22, "le": 10}, {"lt": -0.0}, {"ge": -0.0}),
]


@pytest.mark.parametrize("bounds", FRACTIONS, ids=str)
def test_fractions_within_bounds_and_no_others(bounds: dict[str, Any]) -> None:
    annotation = Annotated[float, Field(**bounds)]
    grammar = grammar_of(attribute_of(annotation), "yaml")
    texts = [f"{sign}{n / 100:.{places}f}" for sign in ("", "-") for n in range(0, 1100, 5)
             for places in (1, 2, 3)]  # fmt: skip
    for text in texts:
        assert accepts(grammar, f" {text}\n") == is_valid(annotation, float(text)), text
    refused = ("1e2", "nan", "inf", ".5", "5.", "00.5", "1,299", "1_0")
    assert not any(accepts(grammar, f" {text}\n") for text in refused)


def test_numbers_do_not_ramble() -> None:
    whole, fraction = (grammar_of(attribute_of(kind), "yaml") for kind in (int, float))
    assert accepts(whole, f" -{'9' * 13}\n")
    assert not accepts(whole, f" {'9' * 14}\n")
    assert accepts(fraction, f" 0.{'3' * 14}\n")
    assert accepts(fraction, f" {'9' * 14}.5\n")
    assert not accepts(fraction, f" 3.{'3' * 15}\n")
    assert accepts(
        grammar_of(attribute_of(Annotated[int, Field(ge=10**15)]), "yaml"), f" {10**15}\n"
    )


@pytest.mark.parametrize(
    "limits",
    [{"max_digits": 4}, {"decimal_places": 2}, {"max_digits": 4, "decimal_places": 2},
     {"max_digits": 2, "decimal_places": 2}, {"multiple_of": Decimal("0.01")},
     {"decimal_places": 0}, {"max_digits": 3, "le": 20}],
    ids=str,
)  # fmt: skip
def test_decimals_are_as_long_as_declared(limits: dict[str, Any]) -> None:
    annotation = Annotated[Decimal, Field(**limits)]
    grammar = grammar_of(attribute_of(annotation), "yaml")
    wholes, fractions = ("0", "7", "12", "123", "9999", "54321"), ("", ".5", ".25", ".125")
    for whole, fraction in product(wholes, fractions):
        text = f"{whole}{fraction}"
        assert accepts(grammar, f" {text}\n") == is_valid(annotation, Decimal(text)), text


# --- dates --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_all_days_of_the_calendar_and_no_others() -> None:
    grammar = grammar_of(attribute_of(date), "yaml")
    for year, month, day in product((0, 1, 1900, 2000, 2023, 2024, 9999), range(14), range(33)):
        text = f"{year:04}-{month:02}-{day:02}"
        assert accepts(grammar, f" {text}\n") == is_valid(date, text), text


@pytest.mark.parametrize("bound", ["ge", "gt", "le", "lt"])
def test_dates_within_bounds_and_no_others(bound: str) -> None:
    annotation = Annotated[date, Field(**{bound: date(2019, 12, 30)})]
    grammar = grammar_of(attribute_of(annotation), "yaml")
    for days in range(500):
        day = date(2019, 6, 1) + timedelta(days)
        assert accepts(grammar, f" {day}\n") == is_valid(annotation, day), day


def test_what_a_datetime_may_leave_out() -> None:
    grammar = grammar_of(attribute_of(datetime), "json")
    for text in (
        "2024-02-29",
        "2024-02-29T12:30",
        "2024-02-29T12:30:59.5Z",
        "2024-02-29T12:30+05:30",
    ):
        assert accepts(grammar, f' "{text}",\n')
    for text in ("2023-02-29", "2024-02-29 12:30", "2024-02-29T24:00", "2024-02-29T12:60", "2024"):
        assert not accepts(grammar, f' "{text}",\n')


# --- texts --------------------------------------------------------------------------------------

PATTERNS = [
    *(
        r"^[A-Z]{2}\d+$",
        r"a",
        r"^a|b$",
        r"^(?:a|b$)",
        r"(^a|x)b",
        r"^$",
        r"^a*$",
        r"a+?b",
        r"",
        "|",
    ),
    *(r"^[^\"\\&]*$", r"^\"a\\", r"&|\||:", r"^.$", r"\s$", r"^ x", r"x $", r"^null$", r"[^a-z]"),
    *(r"^(?P<n>a)(?<m>b)?", r"\x41|\u00e9", r"^\p{Lu}", r"^[\w.-]+@\w+$", r"[[:digit:]]", r"/|\/"),
    *(r"^[\]x]$", r"\A\S\z", r"(a|b){2,3}", r"^(a|^b)", r"\n", "\n", r"^[\n\t ]+$", r"[,\[\]{}#]"),
]
ALPHABET = "aAbBx1 .:,&|<>\"'\\/\n\té[]{}#@-null"


@combinations("pattern, name", PATTERNS, FORMATS)
def test_patterns_are_found_in_what_is_accepted_and_only_there(pattern: str, name: str) -> None:
    attribute = attribute_of(Annotated[str, Field(pattern=pattern)])
    try:
        likely = st.from_regex(re.compile(pattern))
    except (re.error, FutureWarning):  # Rust's alone
        likely = st.just("A")

    @settings(max_examples=settings.default.max_examples // 2)
    @given(st.text(ALPHABET, max_size=5) | likely)
    def check(text: str) -> None:
        if text.isprintable() or text.isascii():
            searched = pattern.replace(r"\d", "[0-9]")
            assert accepts_value(attribute, text, name) == is_found(searched, text)

    check()


@in_each_format
@pytest.mark.parametrize("pattern", [r"^\d{2}$", r"^[\d.]{2}$", r"^[\\\d]{2}$"])
def test_digits_are_those_of_this_script(pattern: str, name: str) -> None:
    """A YAML text of digits alone is quoted; a last digit of another script would do as well."""
    attribute = attribute_of(Annotated[str, Field(pattern=pattern)])
    assert accepts_value(attribute, "12", name)
    assert not accepts_value(attribute, "1൧", name)
    assert is_found(pattern, "1൧")
    free = attribute_of(Annotated[str, Field(pattern=r"^[^\d]{2}$")])
    assert [accepts_value(free, text, name) for text in ("ab", "a൧", "a1")] == [True, False, False]


@in_each_format
def test_lengths_count_characters_not_bytes_or_escapes(name: str) -> None:
    attribute = attribute_of(Annotated[str, Field(min_length=2, max_length=3)])
    for text in ("", "a", "ab", "&<", "é😀", "abc", '"\\"', "    ", "\n\x85\u2028", "abcd", "&<>|"):
        assert accepts_value(attribute, text, name) == (2 <= len(text) <= 3), text
    assert accepts_value(attribute_of(Annotated[str, Field(max_length=0)]), "", name)


@pytest.mark.parametrize(
    "pattern",
    [r"a(?=b)", r"(?!x)", r"(?<=a)b", r"(a)\1", r"\bword\b", r"(?i)a", r"a^b", r"(a$)+", r"a++",
     r"(?>a)", "a)", "[a-z&&[aeiou]]", r"\d{,3}"],
)  # fmt: skip
def test_what_is_more_than_a_set_of_texts_is_left_to_validation(pattern: str) -> None:
    with pytest.raises(Unsupported):
        spelled_pattern(pattern, lambda source: source)


def test_such_a_pattern_leaves_the_rest_in_place() -> None:
    anycase = re.compile("a", re.IGNORECASE)
    attribute = attribute_of(Annotated[str, Field(max_length=3, pattern=anycase)])
    assert accepts_value(attribute, "xyz")
    assert not accepts_value(attribute, "wxyz")


@pytest.mark.parametrize(
    ("annotation", "value"),
    [
        (Annotated[int, Field(multiple_of=3, ge=1)], 4),
        (Annotated[float, Field(multiple_of=0.5)], 0.3),
        (Annotated[str, Field(max_length=500)], "a" * 501),
        (Annotated[str, Field(pattern="^a", max_length=50)], "a" * 51),
        (Annotated[datetime, Field(gt=datetime(2024, 1, 1))], "2023-12-31T00:00:00"),
        (Annotated[Literal["a", "bb"], Gt("a")], "a"),
    ],
)
def test_what_is_left_to_validation(annotation: Any, value: Any) -> None:
    assert accepts_value(attribute_of(annotation), value)
    with pytest.raises(ValidationError):
        TypeAdapter(annotation).validate_python(value)


# --- choices ------------------------------------------------------------------------------------


@in_each_format
def test_ten_thousand_choices(name: str) -> None:
    choices = tuple(
        f'{"word " * (i % 3)}"{i}", é\n😀'[: 4 + i % 17] + str(i) for i in range(10_000)
    )
    attribute = attribute_of(Literal[choices])
    started = time.process_time()
    grammar = grammar_of(attribute, name)
    check_grammar(grammar, schema="Model", attribute=attribute)
    assert time.process_time() - started < 60  # measured: 1.0; only a hang fails
    assert accepts_value(attribute, choices[7777], name)
    assert not accepts_value(attribute, choices[7777] + "x", name)


@in_each_format
def test_a_thousand_choices_compile_in_a_moment(name: str) -> None:
    attribute = attribute_of(Literal[tuple(f"choice number {i}" for i in range(1000))])
    started = time.process_time()
    check_grammar(grammar_of(attribute, name), schema="Model", attribute=attribute)
    assert time.process_time() - started < 10  # measured: 0.05; only a hang fails


# --- null, lists, other formats, errors ---------------------------------------------------------


class Box(BaseModel):
    width: int


class Nullable(BaseModel):
    required: str
    optional: str | None
    default: str = "x"
    factory: list[str] = Field(default_factory=lambda: ["x"], min_length=1)
    items: list[str]
    some: list[str] = Field(min_length=1)
    word: Literal["a", None]
    box: Box
    maybe: Box | None
    usual: Box = Box(width=1)


@in_each_format
def test_null_stands_where_the_field_has_something_to_fall_back_to(name: str) -> None:
    attributes = compile_attributes(Nullable)
    null = get_format(name).escape(None)
    allowed = {a.name: accepts(grammar_of(a, name), null + TAILS[name][0]) for a in attributes}
    assert allowed == {a.name: a.may_be_null for a in attributes}
    assert [field for field, may in allowed.items() if not may] == ["required", "some", "box.width"]


@in_each_format
def test_lists_are_as_long_as_declared(name: str) -> None:
    for fewest, most in ((0, 0), (0, 1), (1, 1), (0, 3), (2, None), (2, 3), (3, 2)):
        field = Field(min_length=fewest, max_length=most)
        attribute = attribute_of(Annotated[list[Literal["a", "b, c"]], field])
        for length in range(5):
            wanted = fewest <= length and (most is None or length <= most)
            value = ["a", "b, c", "a", "a"][:length]
            assert accepts_value(attribute, value, name) == wanted, (fewest, most, length)


def test_formats_without_a_spelling_are_not_constrained(lines_format: OutputFormat) -> None:
    class Bare:
        pass

    attribute = attribute_of(str)
    assert slot_grammar(attribute, lines_format, ("\n",)) is None
    assert slot_grammar(attribute, Bare(), ("\n",)) is None  # type: ignore[arg-type]


def test_a_format_that_says_how_it_writes(lines_format: OutputFormat) -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "constraints.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    namespace: dict[str, Any] = {}
    exec(code, namespace)
    spelled_lines = type("Spelled", (type(lines_format),), {"spelling": namespace["spelling"]})()
    grammar = slot_grammar(attribute_of(str | None), spelled_lines, ("\n",))
    assert grammar is not None
    for text in ("a", 'a "b"', "a b", "null", ""):
        assert accepts(grammar, f" {text}\n")
    for text in (" a", "a ", "a\nb"):
        assert not accepts(grammar, f" {text}\n")


def test_numbers_fit_their_budgets() -> None:
    assert len(SCALARS["integer"].widest[0]) == len("-") + INTEGER_DIGITS
    assert len(SCALARS["number"].widest[0]) == len("-.") + NUMBER_DIGITS


@pytest.mark.parametrize("name", FORMATS)
def test_conditions_that_nothing_meets_are_refused(name: str) -> None:
    for annotation, field in (
        (int, Field(ge=10, le=5)),
        (str, Field(pattern="^[a-z]$", min_length=2)),
        (list[int], Field(min_length=3, max_length=2)),
        (float, Field(gt=1, lt=1)),
        (date, Field(gt=date.max)),
    ):
        attribute = attribute_of(annotation, field)
        with pytest.raises(SchemaError, match=r"^Model\.value: no value satisfies its conditions"):
            check_grammar(grammar_of(attribute, name), schema="Model", attribute=attribute)


@pytest.mark.parametrize(
    ("annotation", "field"),
    [
        (int | None, Field(ge=10, le=5)),
        (str | None, Field(pattern="^a$", min_length=2)),
        (date | None, Field(gt=date.max)),
    ],
)
def test_null_meets_no_condition(annotation: Any, field: Any, codec: TextCodec) -> None:
    schema = create_model("Model", value=(annotation, field))
    with pytest.raises(SchemaError, match=r"^Model\.value: no value satisfies its conditions"):
        compile_schema(schema, codec)


def test_a_grammar_that_does_not_compile_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"^Model\.value: its string type cannot be turned"):
        check_grammar("start: /(?=a)/", schema="Model", attribute=attribute_of(str))


def test_grammars_are_made_without_llguidance_or_torch() -> None:
    code = "import sys, schemax.compiler.grammars; print(*{'llguidance', 'torch'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
