"""Spans of time: "2 h 30" is two hours and a half."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python
from values_of_kinds import check_kind, read_as

from schemax.reading.kinds import SCALARS

read = SCALARS["duration"].read


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(
            ("90 min", "PT1H30M"),
            ("2 h 30", "PT2H30M"),
            ("1h 30m", "PT1H30M"),
            ("1 Std. 20 Min.", "PT1H20M"),
        ),
        *(("1.5 hours", "PT1H30M"), ("1,5 Stunden", "PT1H30M"), ("zwei Stunden", "PT2H")),
        *(("45 Min.", "PT45M"), ("2d3h4m5s", "P2DT3H4M5S"), ("3 days", "P3D"), ("1 week", "P7D")),
        *(("00:45:10", "PT45M10S"), ("1:30", "PT1H30M"), ("up to 30 hours", "P1DT6H")),
        *(("2 heures", "PT2H"), ("-5 min", "-PT5M"), ("0 min", "PT0S"), ("5 min (rest)", "PT5M")),
    ],
)
def test_spans_as_people_write_them(text: str, value: str) -> None:
    reading = read(text)
    assert reading.value == value
    assert reading.note is not None
    assert reading.note.startswith(f'"{text}" read as {value}')


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("90", "has no unit of time"),
        ("about 90", "has no unit of time"),
        ("5 kg", "does not convert"),
        ("2 h or 3 h", "states several numbers"),
        ("two hours and a half", "goes on"),
        ("90 m", "may be in month or minute"),
        ("99999999999999 years", "longer than any"),
    ],
)
def test_what_is_no_span(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read(text)


def test_a_text_without_a_span_is_left_as_it_is() -> None:
    assert read("none") == ("none", None)
    (error,) = read_as(timedelta, "none").errors
    assert error.field == "value"


@given(st.timedeltas(min_value=timedelta(0), max_value=timedelta(days=90_000)))
def test_literals_are_read_as_they_are(span: timedelta) -> None:
    literal = to_jsonable_python(span)
    if literal.startswith("P") and "Y" not in literal and "W" not in literal:
        assert read(literal) == (literal, None)
    assert TypeAdapter(timedelta).validate_python(literal) == span


def test_durations_are_a_kind() -> None:
    check_kind(timedelta, "PT2H30M", "2 h 30", kind="duration")
    assert read_as(timedelta, "90 min").value.value == timedelta(minutes=90)
