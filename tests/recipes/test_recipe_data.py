"""What the embedded model is trained on: listings, public data sets, invented texts."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any, get_args

import pytest
import tokenizers

from recipes.embedded.augment import Augmenter
from recipes.embedded.columns import columned
from recipes.embedded.data import UNSEEN, read_data
from recipes.embedded.features import ask_feature
from recipes.embedded.invented import ask_facet, draw_title
from recipes.embedded.kinds import read_kinds
from recipes.embedded.letters import FACETS, draw_letter
from recipes.embedded.listings import (
    FOLDER,
    merged,
    read_listings,
    without,
    write_dataset,
)
from recipes.embedded.questions import Habits, ask, attributes_of
from recipes.embedded.shelves import About, Chosen, Document, Shelf, shelf_of
from recipes.embedded.sources import SOURCES, read_sources
from recipes.embedded.tokenizer import add_twins
from recipes.embedded.units import read_number
from schemax.attributes import compile_attributes
from schemax.base.resources import resource_dir
from schemax.errors import InputError
from schemax.evaluation.examples import Example, read_examples, row_ids
from schemax.evaluation.labelled_schemas import read_attributes, without_extra
from schemax.extraction.documents import RecordFields, read_documents

TITLES = [
    Example("Tea", "Twinings Green Tea, 20 Count", {"Brand": "Twinings", "Size": "20 Count"}),
    Example("Tea", "Tazo Zen Tea Bags - 24 ct", {"Brand": "Tazo", "Size": "24 ct"}),
    Example("Tea", "Assam loose leaf", {"Country": "Assam"}),
]


def test_augmented_values_stay_verbatim() -> None:
    titles = [
        Example(
            "Tea", "Twinings Green Tea, 20 Count", {"Brand": "Twinings", "Net content": "20 Count"}
        ),
        Example("Tea", "Tazo Zen Tea Bags - 24 ct", {"Brand": "Tazo", "Net content": "24 ct"}),
        Example("Shoes", "Crocs Clog, Navy", {"Brand": "Crocs", "Color": "Navy"}),
    ]
    augment, rng = Augmenter(titles), random.Random(0)
    variants = [augment(title, rng) for title in titles for _ in range(60)]
    assert all(str(value) in v.text for v in variants for value in v.attributes.values())
    assert len({v.text for v in variants}) > 40
    assert any(len(v.attributes) == 1 for v in variants)


def test_twins_are_cut_like_their_words() -> None:
    backend = tokenizers.Tokenizer.from_file(str(resource_dir("embedded") / "tokenizer.json"))
    after = add_twins(backend)
    for word in ("Leather", "Sunscreen", "Conditioner"):
        (with_space,) = after.encode(f" {word}").ids
        (without_space,) = after.encode(word).ids
        assert after.decode([without_space]) == word == after.decode([with_space]).strip()
    assert add_twins(after).get_vocab() == after.get_vocab()


LISTINGS = """# category: Headphones
# Brand: who makes them
# Colour
{Brand|Sony} WH-1000XM4, {Colour|Midnight Blue}

{Brand|JBL} Tune 510BT
# category: Tea
{Brand|Tazo} Zen
"""


def test_listings_are_read_as_examples(tmp_path: Path) -> None:
    path = tmp_path / "listings.txt"
    path.write_text(LISTINGS, "utf-8")
    headphones, tea = read_listings(path)
    assert headphones.attributes == {"Brand": "who makes them", "Colour": None}
    assert headphones.examples[0] == Example(
        "Headphones",
        "Sony WH-1000XM4, Midnight Blue",
        {"Brand": "Sony", "Colour": "Midnight Blue"},
    )
    assert tea.attributes == {"Brand": None}
    (left,) = without([headphones], [Example("x", "jbl  tune-510bt", {})])
    assert [example.attributes["Brand"] for example in left.examples] == ["Sony"]
    both = merged(TITLES, [headphones, tea], 2)
    assert len(both["Tea"].examples) == 7
    assert set(both["Tea"].attributes) == {"Brand", "Size", "Country"}


def test_listings_become_a_dataset(tmp_path: Path) -> None:
    categories = read_listings(FOLDER / UNSEEN)
    write_dataset(categories, tmp_path)
    found = read_examples(tmp_path / "test.jsonl")
    assert found == [example for category in categories for example in category.examples]
    schemas = read_attributes(tmp_path / "attributes.json")
    assert schemas is not None
    assert without_extra(found, row_ids(found), schemas, "", ignore=False) == found
    for category in categories:
        attributes = compile_attributes(schemas[category.name])
        assert {a.label: a.description for a in attributes} == category.attributes


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{Brand|Sony}", "line 1: a category comes first"),
        ("# category: A\n{Hot=yes|hot} {Hot=no|cold}", "line 2: 'Hot' follows from two places"),
        ("# category: A\n{Hot=yes|hot}\n{Hot|cold}", "line 3: 'Hot' follows from words elsewhere"),
        ("# category: A\n{Hot|cold}\n{Hot=yes|hot}", "line 3: 'Hot' is written elsewhere"),
        ("# category: A\n{Brand|Sony", "line 2: a brace or bar outside of a mark"),
    ],
)
def test_bad_listings_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "listings.txt"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=problem):
        read_listings(path)


@pytest.mark.slow
def test_the_recipe_s_listings_can_be_read() -> None:
    files = sorted(FOLDER.glob("*.txt"))
    categories = {c.name: c for file in files for c in read_listings(file)}
    assert len(categories) > 60
    seen = {c.name for file in files if file.name != UNSEEN for c in read_listings(file)}
    unseen = {category.name for category in read_listings(FOLDER / UNSEEN)}
    assert unseen
    assert not seen & unseen
    for category in categories.values():
        assert category.examples, category.name
        for example in category.examples:
            assert example.attributes.keys() <= category.attributes.keys()
            for name, label in example.attributes.items():
                if category.kinds.get(name, "text") in ("text", "list"):
                    written = label if isinstance(label, tuple) else (label,)
                    assert all(str(value) in example.text for value in written)


def test_marks_of_lists_choices_and_booleans(tmp_path: Path) -> None:
    path = tmp_path / "listings.txt"
    path.write_text(
        "# category: Ticket\n# Urgency: how soon\n"
        "{Item|Lamp} and {Item|vase} broken, {Urgency=high|today please}, {Refund=yes|money back}\n"
        "{Item|Chair}: no hurry\n"
        "Sofa late. {Urgency=low|whenever}, {Refund=no|no refund}\n",
        "utf-8",
    )
    [category] = read_listings(path)
    assert category.kinds == {"Item": "list", "Urgency": "choice", "Refund": "boolean"}
    assert category.examples[0].text == "Lamp and vase broken, today please, money back"
    shelf = shelf_of(category, 1.0, "texts", "listings")
    first, second, third = (dict(document.values) for document in shelf.documents)
    assert first == {"Item": ("Lamp", "vase"), "Urgency": Chosen("high"), "Refund": True}
    assert second == {"Item": ("Chair",)}
    assert third == {"Urgency": Chosen("low"), "Refund": False}
    attributes, rng = attributes_of(shelf), random.Random(0)
    asked = {
        name: ask(attributes[name], [first.get(name), None], [True, True], True, Habits(), rng)
        for name in attributes
    }
    assert asked["Item"].values == [["Lamp", "vase"], None]
    assert asked["Refund"].annotation == bool | None
    assert set(get_args(get_args(asked["Urgency"].annotation)[0])) == {"high", "low"}
    assert asked["Urgency"].values == ["high", None]
    assert asked["Urgency"].learnt == [True, True]


def test_columns_hold_what_the_text_holds() -> None:
    text, values = "Tazo Zen, green tea - 24 ct. Organic", {"Brand": "Tazo", "Size": "24 ct"}
    rng = random.Random(0)
    found = {columned(text, values, rng) for _ in range(200)}
    assert len(found) > 40
    for one in found:
        assert all(value in one for value in values.values())
        if one != text:
            assert all(": " in line for line in one.split("\n"))
            [shown] = read_documents(
                [dict(x.split(": ", 1) for x in one.split("\n"))], RecordFields()
            )
            assert shown.text == one


def row(category: str, text: str, attributes: dict[str, Any], **more: Any) -> str:
    return json.dumps({"category": category, "text": text, "attributes": attributes, **more}) + "\n"


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A folder with a few rows of every source that the recipe knows."""
    for name in SOURCES:
        (tmp_path / f"{name}.jsonl").write_text(row("Things", f"Acme {name}", {"Brand": "Acme"}))
    (tmp_path / "buildcores.jsonl").write_text(
        row(
            "Case Fans",
            "Riing 120mm PWM Red/Blue",
            {"Fan Size": "120 mm", "PWM": "yes", "Color": ["Red", "Blue"], "Series": "Absent"},
            surface={"Fan Size": [["120 mm", "120mm"]]},
            boolean=["PWM"],
        )
        + row("Headphones", "Acme Closed-Back", {"Brand": "Acme"})
        + row("Case Fans", "a test title", {"Series": "test"})
        + row("Case Fans", "of an unseen category", {"Series": "unseen"})
    )
    (tmp_path / "toys.unseen.jsonl").write_text(row("Kites", "of an unseen category", {}))
    (tmp_path / "sgd.jsonl").write_text(
        row("Buses", "two to Leeds", {"to": "Leeds"}, service="Buses_1", id="sgd-1")
        + row("Buses", "to Leeds. On Monday", {"to": "Leeds"}, service="Buses_1", id="sgd-1-all-x")
    )
    (tmp_path / "sgd.schema.json").write_text(
        json.dumps({"Buses_1": {"to": {"description": "Where to", "choices": ["Leeds", "York"]}}})
    )
    return tmp_path


def test_sources_become_shelves(sources: Path) -> None:
    shelves = list(read_sources(sources, {"a test title"}))
    assert "Headphones" not in {shelf.name for shelf in shelves}
    (fans,) = (shelf for shelf in shelves if shelf.name == "Case Fans")
    assert [document.text for document in fans.documents] == ["Riing 120mm PWM Red/Blue"]
    # As the text writes it; what the text does not write is left out.
    assert fans.documents[0].values == {
        "Fan Size": "120mm",
        "PWM": True,
        "Color": ("Red", "Blue"),
    }
    assert fans.nulls == 0
    turn, joined = (shelf for shelf in shelves if shelf.name == "Buses")
    assert (turn.nulls, joined.nulls) == (1, 0)
    assert turn.about["to"].choices == ("Leeds", "York")
    assert turn.about["to"].descriptions[0] == "Where to"


def test_a_missing_source_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"flipkart\.jsonl: no such file"):
        list(read_sources(tmp_path, ()))


@pytest.mark.slow
def test_nothing_is_trained_on_that_is_tested_on(tmp_path: Path, data: Path) -> None:
    """Texts of the test split, unseen categories, unseen files and what is set aside."""
    everything = read_data(
        data / "oa_mine.train.jsonl",
        data / "oa_mine.test.jsonl",
        data / "general",
        held_out=40,
        titles_times=1,
        seed=0,
    )
    trained = {
        document.text
        for shelves in everything.collection.shelves.values()
        for shelf in shelves
        for document in shelf.documents
    }
    tests = [*read_examples(data / "oa_mine.test.jsonl"), *everything.titles]
    tests += [example for c in read_listings(FOLDER / UNSEEN) for example in c.examples]
    for path in (data / "general").glob("*.unseen.jsonl"):
        tests += [
            Example("", json.loads(line)["text"], {})
            for line in path.read_text("utf-8").splitlines()
        ]
    assert trained
    assert not trained & {example.text for example in tests}
    aside = {d.text for shelf in (*everything.new, *everything.rows) for d in shelf.documents}
    assert aside
    assert not trained & aside


@pytest.mark.parametrize(
    ("text", "number", "unit"),
    [
        ("55-Inch", "55", "inches"),
        ('27.5"', "27.5", "inches"),
        ("Pack of 6", "6", "pieces"),
        ("$1,299.00", "1299.00", "dollars"),
        ("16.9 fl oz", "16.9", "fluid ounces"),
        ("SPF 50", "50", "SPF"),
        ("4", "4", None),
    ],
)
def test_numbers_are_read_with_their_units(text: str, number: str, unit: str | None) -> None:
    assert read_number(text) == (Decimal(number), unit)


@pytest.mark.parametrize("text", ["70-200 mm", "iPhone 12", "CL16", "ten", "", "12 parsecs"])
def test_what_is_no_number_with_a_known_unit_is_left(text: str) -> None:
    assert read_number(text) is None


def questions_about(values: Sequence[Any], habits: Habits, count: int = 200) -> list[Any]:
    documents = [Document("text", {} if v is None else {"Weight": v}) for v in values]
    shelf = Shelf("Things", documents, {"Weight": About(("how heavy it is",))}, 1.0, "goods")
    attribute = attributes_of(shelf)["Weight"]
    rng = random.Random(0)
    stated = [document.values.get("Weight") for document in documents]
    nulls = [True] * len(documents)
    return [ask(attribute, stated, nulls, True, habits, rng) for _ in range(count)]


def test_numbers_are_asked_for_in_one_unit() -> None:
    """What is stated in another unit is not learnt: nobody converts it."""
    for question in questions_about(["2 kg", "1.5kg", "3 lbs", None], Habits(numbers=1)):
        assert question.values == [Decimal("2"), Decimal("1.5"), None, None]
        assert question.learnt == [True, True, False, True]


def test_choices_hold_every_answer() -> None:
    habits = Habits(numbers=0, choices=1, lists=0)
    asked = questions_about(["light", "Heavy", None], habits)
    chosen = [question for question in asked if "Literal" in str(question.annotation)]
    assert len(chosen) > 100
    for question in chosen:
        known = str(question.annotation)
        assert [str(v).lower() for v in question.values] == ["light", "heavy", "none"]
        assert all(repr(value) in known for value in question.values[:2])


def test_a_name_that_says_nothing_comes_with_a_description() -> None:
    asked = questions_about(["light", "Heavy"], Habits(opaque=1, numbers=0, choices=0))
    assert all("eight" not in question.label for question in asked)
    assert all(question.description for question in asked)


def test_invented_titles_say_what_they_are_asked_for() -> None:
    rng = random.Random(0)
    for kind in read_kinds().values():
        for _ in range(40):
            title = draw_title(kind, rng)
            for place, facet in enumerate(kind.facets):
                said = title.said.get(place)
                question = ask_facet(facet, [said, None], True, Habits(), rng)
                assert question.values[1] is None
                if said is None or not question.learnt[0]:
                    continue
                (value, _) = question.values
                if question.annotation == (str | None):
                    assert str(value) in title.text
                if question.annotation == (float | None):
                    assert isinstance(value, Decimal)
                    digits = "".join(filter(str.isdigit, str(value)))
                    assert digits in "".join(filter(str.isdigit, said.text))


def test_a_television_is_55_inches_however_it_is_written() -> None:
    television, rng = read_kinds()["television"], random.Random(1)
    (size,) = (f for f in television.facets if "screen_size" in f.names)
    seen = {str(said.values["number"]): said.text for said in (size.said(rng) for _ in range(600))}
    assert {"24", "55", "65"} <= seen.keys()
    forms = {size.said(rng).text.replace("55", "#") for _ in range(3000)}
    assert {'#"', "#-Inch", "# Zoll", "#-inch"} <= forms


def test_letters_state_numbers_and_days_in_the_way_of_their_country() -> None:
    rng = random.Random(0)
    texts = []
    for _ in range(300):
        letter = draw_letter(rng)
        texts.append(letter.text)
        assert "{" not in letter.text
        assert letter.said.keys() <= FACETS.keys()
        for said in letter.said.values():
            assert said.text in letter.text
            if "date" in said.values:
                day = said.values["date"]
                assert isinstance(day, date)
                assert str(day.day) in said.text
    assert any(",00 €" in text for text in texts)
    assert any(" März " in text for text in texts)


def test_features_are_affirmed_and_denied() -> None:
    rng = random.Random(0)
    answers = set()
    for _ in range(200):
        (text,), question = ask_feature(["Acme Mug, 12 oz"], True, Habits(), rng)
        answers.add(question.values[0])
        assert "Acme Mug, 12 oz" in text
        assert (text == "Acme Mug, 12 oz") == (question.values[0] is None)
    assert answers == {True, False, None}
