"""The embedded model's recipe: documents that are drawn out of patterns, and its optimizer."""

from __future__ import annotations

import random
import re
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import BaseModel

from recipes.embedded.items import without_items
from recipes.embedded.mixture import NEW_PATTERNS, PATTERNS, Reader, Variety
from recipes.embedded.muon import Muon, orthogonal
from recipes.embedded.patterns import Pattern, read_file, read_patterns
from recipes.embedded.prompts import ALONE, Page, written
from recipes.embedded.questions import Question
from recipes.embedded.shelves import Library
from recipes.embedded.telling import Told, draw_document, texts_of
from schemax.base.resources import resource_dir
from schemax.compiler import load_codec
from schemax.compiler.prompt import load_template
from schemax.errors import InputError
from schemax.training.sequences import IGNORE

KIND = """\
kind: parcel; shipment
field: number | text | number; parcel_no | Number of the parcel
field: weight | number | weight; weight_kg | Weight in kg
field: pieces | int | pieces | How many pieces
field: sent | date | sent on | Day of posting
field: cost | money | postage | What was paid
field: to | list | receivers | Who gets it
field: state | choice | state | Where it is | on its way; delivered
field: signed | bool | signed | Whether somebody signed
where: number = P#99-AA
where: weight = %1.5-9.5
where: pieces = %2-9
where: to = @who
pool: who = Ann; Bob <Lee|Roy>; Cy
"""
# All fields, since each must be said somewhere.
EVERY = "{number} {weight} {pieces} {sent} {cost} {to} {state} a~signed=yes"


def kinds(folder: Path, *lines: str) -> list[Pattern]:
    path = folder / "parcels.txt"
    path.write_text(KIND + "\n".join(lines), "utf-8")
    return read_file(path, {})


def told(folder: Path, say: str, *lines: str, draws: int = 1) -> list[Told]:
    (pattern,) = kinds(folder, *lines, f"say: {say}", f"say: {EVERY}")
    pattern.says.pop()
    rng = random.Random(0)
    return [draw_document(pattern, rng) for _ in range(draws)]


def test_blanks_are_written_and_mean_what_their_type_says(tmp_path: Path) -> None:
    (one,) = told(
        tmp_path,
        r"Parcel {number}, {weight} kg, {pieces} pieces, sent {sent} for {cost}"
        r"\nto a@@b.c; {number}",
    )
    values = {key: said.values for key, said in one.said.items()}
    number = str(values["number"]["text"])
    assert len(number) == 6
    assert one.text.count(number) == 2
    assert one.text.endswith(f"\nto a@b.c; {number}")
    assert f"{values['weight']['number']} kg" in one.text
    assert isinstance(values["pieces"]["integer"], int)
    assert isinstance(values["sent"]["date"], date)
    assert str(values["sent"]["text"]) in one.text
    assert isinstance(values["cost"]["number"], Decimal)


def test_one_of_several_branches_is_written_with_what_follows_from_it(tmp_path: Path) -> None:
    say = "It <has <arrived|come>~state=delivered~signed=yes|left~state=on its way|>."
    found = {
        one.text: {key: dict(said.values) for key, said in one.said.items()}
        for one in told(tmp_path, say, draws=60)
    }
    arrived = {"state": {"choice": "delivered"}, "signed": {"boolean": True}}
    assert found == {
        "It has arrived.": arrived,
        "It has come.": arrived,
        "It left.": {"state": {"choice": "on its way"}},
        "It .": {},
    }


def test_items_of_a_list_are_all_those_that_are_written(tmp_path: Path) -> None:
    for one in told(tmp_path, "For {to*}, and <{to}|nobody>", draws=40):
        items = one.said["to"].values["list"]
        assert isinstance(items, list)
        assert len(set(items)) == len(items)
        assert set(items) <= {"Ann", "Bob Lee", "Bob Roy", "Cy"}
        assert {name for name in ("Ann", "Bob Lee", "Bob Roy", "Cy") if name in one.text} == {
            *items
        }


def test_items_are_written_in_one_form_and_have_all_their_parts(tmp_path: Path) -> None:
    lines = (
        "field: lines | items | lines | What is in it",
        "part: lines.what | text | item | What it is",
        "part: lines.count | int | count | How many",
        "where: lines.what = <cup|pot|pan> #99",
        "where: lines.count = %11-40",
        "item: lines = {count} x {what}; {what} ({count})",
    )
    forms = set()
    for one in told(tmp_path, "Holds {lines*}.", *lines, draws=40):
        items: Any = one.said["lines"].values["items"]
        assert 1 <= len(items) <= 5
        said = [{key: said.values for key, said in item.items()} for item in items]
        texts = [
            (f"{item['count']['text']} x {item['what']['text']}", item["what"]["text"])
            for item in said
        ]
        (first_form,) = {text in one.text for text, _ in texts}
        forms.add(first_form)
        assert all(what in one.text for _, what in texts)
    assert forms == {True, False}


class Line(BaseModel):
    what: str | None
    count: int | None


def test_pages_with_items_are_learnt_item_by_item(tmp_path: Path) -> None:
    codec = load_codec(resource_dir("embedded"))
    lines: Any = [("cup", 2), ("pot", 31)]
    question = Question("Lines", list[Line], (lines, None), (True, True))
    page = Page("Order", ("2 cup, 31 pot", "nothing"), (question,))
    for format in ("json", "yaml", "xml"):
        sequence = written(
            page,
            codec,
            codec.encode,
            format=format,
            template=load_template("generic"),
            layout=ALONE,
            read_twice=False,
        )
        ids = [int(label) for label in sequence.labels if label != IGNORE]
        text = codec.decode_bytes(ids).decode()
        assert re.findall(r"\w+", text.replace("null", "")) == ["2", "cup", "2", "pot", "31"]
        assert not without_items(page).questions


def test_numbers_are_written_as_a_language_writes_them(tmp_path: Path) -> None:
    (one,) = told(tmp_path, "{weight} kg", "language: de")
    value = one.said["weight"].values["number"]
    assert one.text == f"{value} kg".replace(".", ",")


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("say: {colour}", "no field 'colour'"),
        ("say: <open", "a `<` without its `>`"),
        ("say: @nobody", "no pool 'nobody'"),
        ("say: {number*}", "'number' is no list"),
        ("say: gone~signed=maybe", "'maybe' is none of yes, no"),
        ("say: gone~state=lost", "'lost' is none of on its way, delivered"),
        ("field: x | choice | x | y", "a choice has choices"),
        ("field: x | text | x | y | a; b", "a text has none"),
        ("field: x | y", "not `key | type"),
        ("where: y = z", "no field 'y'"),
        ("frield: x", "unknown word 'frield'"),
        ("say: >{number}<", "a `<` without its `>`, or the other way round"),
        ("say: {signed}", "'signed' is yes or no, and follows from words"),
        ("say: gone~number=3", "'number' is no choice"),
        ("say: {number }", "'{number }' is neither text nor a token"),
        ("say: ~ signed = yes", "'~' is neither text nor a token"),
        ("say: %9-3", "'%9-3' begins behind its end"),
        ("where: number = @nobody", "no pool 'nobody'"),
        ("where: number = <a; b>", "a `<` without its `>`"),
        ("language: xx", "unknown language 'xx'"),
        ("field: number | text | no | Number", "'number' is declared twice"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, line: str, wrong: str) -> None:
    with pytest.raises(InputError, match=r"parcels.txt, line 15") as error:
        kinds(tmp_path, line)
    assert wrong in str(error.value)


@pytest.mark.parametrize(
    ("lines", "wrong"),
    [
        ((), "no `say`"),
        (("field: x | text | x | y", "say: {x}"), "no `where` of 'x'"),
        (("field: x | date | x | y", "say: nothing"), "'x' is never said"),
        (("field: x | date | Posted_on; weight | y", "say: {x}"), "'x' and 'weight' are both"),
    ],
)
def test_what_a_kind_lacks_is_named_with_its_line(
    tmp_path: Path, lines: tuple[str, ...], wrong: str
) -> None:
    with pytest.raises(InputError, match=r"parcels.txt, line 1: ") as error:
        kinds(tmp_path, *lines, *([f"say: {EVERY}"] if lines else []))
    assert wrong in str(error.value)


def test_an_opposite_is_not_said(tmp_path: Path) -> None:
    (pattern,) = kinds(tmp_path, f"say: {EVERY}, b~signed=no")
    with pytest.raises(ValueError, match="'signed' is 'no' after it was 'yes'"):
        draw_document(pattern, random.Random(0))


def test_number_words_are_english_and_stand_alone(tmp_path: Path) -> None:
    line = "field: few | int | few | How many"
    where = "where: few = 2"
    for language, say, shown in (
        ("en", "{few} of", {"2 of", "two of"}),
        ("en", "the {few}nd", {"the 2nd"}),
        ("de", "{few} von", {"2 von"}),
    ):
        drawn = told(tmp_path, say, f"language: {language}", line, where, draws=60)
        assert {one.text for one in drawn} == shown


@pytest.mark.slow
def test_every_pattern_writes_what_it_says_that_it_states() -> None:
    trained, aside = read_patterns(aside=False), read_patterns(aside=True)
    assert not {(p.file, p.names) for p in trained} & {(p.file, p.names) for p in aside}
    assert len(trained) / 20 < len(aside) < len(trained) / 6
    rng = random.Random(0)
    for pattern in (*trained, *aside):
        stated = set()
        for say in range(3 * len(pattern.says)):
            one = draw_document(pattern, rng)
            assert one.text.strip(), (pattern.names, say)
            stated |= {*one.said}
            assert all(text in one.text for text in texts_of(one.said)), (pattern.names, one)
        assert stated, pattern.names


@pytest.mark.slow
@pytest.mark.parametrize("name", [PATTERNS, NEW_PATTERNS])
def test_pages_of_patterns_have_right_answers(name: str) -> None:
    reader = Reader(Library({}, {name: 1.0}), Variety(padded=0))
    rng = random.Random(0)
    learnt = nulls = 0
    for _ in range(60):
        page = reader.page(2, rng)
        for question in page.questions:
            for text, value, counts in zip(
                page.texts, question.values, question.learnt, strict=True
            ):
                learnt += counts
                nulls += counts and value is None
                copied = question.annotation in (str | None, date | None)
                if counts and copied and value is not None:
                    assert str(value) in text
                if counts and question.annotation == list[str]:
                    assert all(str(item) in text for item in value or ())  # type: ignore[union-attr]
    assert 0.05 < nulls / learnt < 0.6


def test_muon_does_in_float32_what_torch_does_in_bfloat16() -> None:
    found = []
    for own in (True, False):
        torch.manual_seed(0)
        shapes = ((48, 96), (96, 48), (48, 96))
        matrices = [torch.nn.Parameter(torch.randn(shape)) for shape in shapes]
        before = [matrix.detach().clone() for matrix in matrices]
        optimizer = (
            Muon(matrices, lr=0.01, weight_decay=0.1)
            if own
            else torch.optim.Muon(
                matrices, lr=0.01, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
            )
        )
        for _ in range(4):
            for matrix in matrices:
                matrix.grad = torch.randn_like(matrix)
            optimizer.step()
        found.append([m.detach() - b for m, b in zip(matrices, before, strict=True)])
    for mine, theirs in zip(*found, strict=True):
        assert (mine - theirs).norm() < 0.02 * theirs.norm()


def test_orthogonal_brings_singular_values_near_one() -> None:
    torch.manual_seed(0)
    for shape in ((2, 16, 40), (2, 40, 16)):
        values = torch.linalg.svdvals(orthogonal(torch.randn(shape)))
        assert values.min() > 0.6
        assert values.max() < 1.3
