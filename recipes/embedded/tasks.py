"""How well a model does what it was not made for: forms, addresses, tickets and the like.

    python -m recipes.embedded.tasks MODEL

reads the documents of `tests/data/tasks`, 20 of each task, with the template `generic` and with
the model's own prompt, without improbable values and with them. It prints the share of fields that
are right, with a 95 % interval over documents, and how many texts are debris: words of the prompt
instead of the document.
"""

from __future__ import annotations

import datetime
import json
import sys
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np

from schemax import AttrSchema, Extractor, attr
from schemax.evaluation.scores import OUTCOMES, Counts, f1_interval, f1_of

ALL_VALUES = "isolated:min_probability=0"

DOCUMENTS = Path(__file__).parents[2] / "tests" / "data" / "tasks"


class Form(AttrSchema, category="membership form"):
    """An application for membership in a club."""

    member: str | None = attr("Name of the new member")
    membership: Literal["junior", "adult", "family", "senior"] | None = attr("Kind of membership")
    start_date: datetime.date | None = attr("First day of the membership")
    monthly_fee: float | None = attr("Fee for a month")
    courses: list[str] = attr("Courses that are booked", default_factory=list)
    newsletter: bool | None = attr("Whether the newsletter is wanted")


class Address(AttrSchema, category="postal address"):
    """Where mail is sent to."""

    organization: str | None = attr("Company or institution")
    street: str | None = attr("Name of the street, without the number")
    house_number: str | None = attr("Number of the house")
    postal_code: str | None = attr("Postal code")
    city: str | None = attr("Town or city")
    country: str | None = attr("Country")
    floor: int | None = attr("Floor of the building")


class Ingredient(AttrSchema, category="recipe ingredient"):
    """One line of a list of ingredients."""

    quantity: float | None = attr("How much or how many")
    unit: str | None = attr("Unit of the quantity", examples=["g", "cups"])
    name: str | None = attr("Name of the ingredient")
    preparation: str | None = attr("How the ingredient is prepared")
    optional: bool | None = attr("Whether the ingredient may be left out")


class Ticket(AttrSchema, category="support ticket"):
    """A message to the customer service of a shop."""

    product: str | None = attr("Product that the message is about")
    order_number: str | None = attr("Number of the order")
    purchased: datetime.date | None = attr("Day of the purchase")
    amount: float | None = attr("Money that was paid or charged")
    issue: Literal["delivery", "defect", "billing", "question"] | None = attr("What it is about")
    refund: bool | None = attr("Whether money back is wanted")


class Event(AttrSchema, category="event"):
    """An announcement of an event."""

    title: str | None = attr("Title of the event")
    date: datetime.date | None = attr("Day of the event")
    start_time: str | None = attr("When the event begins", examples=["19:00"])
    venue: str | None = attr("Where the event takes place")
    price: float | None = attr("Price of a ticket, 0 if free")
    speakers: list[str] = attr("People who speak", default_factory=list)
    online: bool | None = attr("Whether one can take part online")


class Entities(AttrSchema, category="sentence"):
    """What a sentence names."""

    people: list[str] = attr("Names of people", default_factory=list)
    organizations: list[str] = attr("Names of organizations", default_factory=list)
    places: list[str] = attr("Names of places", default_factory=list)
    year: int | None = attr("Year that is named")


TASKS: dict[str, type[AttrSchema]] = {
    "form": Form,
    "address": Address,
    "ingredient": Ingredient,
    "ticket": Ticket,
    "event": Event,
    "entities": Entities,
}


def documents(task: str) -> list[tuple[str, AttrSchema]]:
    """Returns the texts of a task with their gold instances; attributes not in a row are null."""
    lines = (DOCUMENTS / f"{task}.jsonl").read_text("utf-8").splitlines()
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
    return [(row.pop("text"), TASKS[task].model_validate(row)) for row in rows]


def is_debris(value: str, document: str, prompt: str) -> bool:
    """True if a value has words or markup of the prompt that the document lacks."""
    if value.casefold() in document.casefold():
        return False
    marks = ("<", ">", "[", "]", "{", "}", "null")
    return value.casefold() in prompt.casefold() or any(
        mark in value and mark not in document for mark in marks
    )


@dataclass(frozen=True, slots=True)
class Reading:
    """The outcome of a task.

    counts: (documents, 5), as for `f1_interval`: right fields as "vc" and all others as "vw", so
        that F1 is the share of right fields.
    texts: the number of free-text values; debris: the values among them that are debris.
    """

    counts: Counts
    texts: int
    debris: tuple[str, ...]


def read(
    extractor: Extractor, task: str, template: str | None, decoding: str = "isolated"
) -> Reading:
    """Reads the documents of a task. template: None for the model's own."""
    schema, expected = TASKS[task], documents(task)
    compiled = extractor.compile(schema, template=template)
    prompt = compiled.codec.decode_bytes(compiled.instruction).decode()
    free = [attribute.name for attribute in compiled.attributes if not attribute.choices]
    counts = np.zeros((len(expected), len(OUTCOMES)), np.int64)
    values: list[tuple[str, str]] = []
    texts = [text for text, _ in expected]
    for item in extractor.stream(texts, schema, template=template, decoding=decoding):
        text, gold = expected[item.index]
        found = dict(item.value or ())
        right = sum(name in found and found[name] == value for name, value in gold)
        counts[item.index, OUTCOMES.index("vc")] = right
        counts[item.index, OUTCOMES.index("vw")] = len(dict(gold)) - right
        for value in (found.get(name) for name in free):
            items = value if isinstance(value, list) else [value]
            values += [(one, text) for one in items if isinstance(one, str)]
    debris = tuple(value for value, text in values if is_debris(value, text, prompt))
    return Reading(counts, len(values), debris)


def main(folder: str) -> None:
    extractor = Extractor.from_pretrained(folder, device="cpu")
    for template, decoding in product(("generic", None), ("isolated", ALL_VALUES)):
        readings = {task: read(extractor, task, template, decoding) for task in TASKS}
        everything = Reading(
            np.concatenate([found.counts for found in readings.values()]),
            sum(found.texts for found in readings.values()),
            sum((found.debris for found in readings.values()), ()),
        )
        print(f"template {template or 'of the model'}, {decoding}")
        for task, found in (readings | {"all": everything}).items():
            share, around = f1_of(found.counts.sum(0)), f1_interval(found.counts)
            print(
                f"  {task:10}  right {share:.3f} ({around.low:.3f} to {around.high:.3f})"
                f"  debris {len(found.debris)} of {found.texts} texts"
            )
        for value in sorted(set(everything.debris)):
            print(f"  debris: {value!r}")


if __name__ == "__main__":
    try:
        _, folder = sys.argv
    except ValueError:
        sys.exit(__doc__)
    main(folder)
