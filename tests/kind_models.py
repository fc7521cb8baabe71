"""Schemas with unions, dicts, tuples, dataclasses and TypedDicts, and slots that hold instances."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, Literal, NotRequired

from pydantic import BaseModel, Field
from pydantic.dataclasses import dataclass as checked_dataclass
from typing_extensions import TypedDict

from schemax.attributes import Attribute, attr, compile_attributes
from schemax.attributes.examples import leaf_value
from schemax.extraction.schema import AttrSchema
from schemax.formats import OutputFormat, get_format
from schemax.results import Extraction, SlotText, build


class Person(BaseModel):
    name: str = attr("Full name")
    born: date | None = None
    number: str | None = attr("Of the passport", default=None)


class Company(BaseModel):
    name: str = attr("Full name")
    legal_form: str
    number: int | None = attr("Of the register", default=None)


class Email(AttrSchema):
    channel: Literal["email", "newsletter"]
    address: str


class Phone(AttrSchema):
    channel: Literal["phone"] = "phone"
    digits: str
    owner: Person | Company | None = None


Channel = Annotated[Email | Phone, Field(discriminator="channel")]


@dataclasses.dataclass
class Box:
    """Declared as the standard library does."""

    width: Annotated[float, attr("Width, cm", ge=0)]
    labels: list[str] = dataclasses.field(default_factory=list)
    color: str | None = None
    made: int = dataclasses.field(default=7, init=False)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Parcel:
    """Declared as the standard library does, and never changed."""

    name: str
    weight: float | None = None
    box: Box | None = None


@checked_dataclass
class Lid:
    box: Box
    tight: bool | None = None


class Note(TypedDict):
    """A note."""

    text: Annotated[str, attr("What it says")]
    author: NotRequired[str]


class Part(AttrSchema):
    name: str
    parts: list[Part] = attr(max_depth=1, max_length=2, default_factory=list)


class Everything(AttrSchema):
    """All kinds of fields that hold more than one type."""

    who: Person | Company
    reach: Channel | None = None
    all: list[Channel] = attr(default_factory=list, max_length=3)
    specs: dict[str, float] = attr("Measures", default_factory=dict, max_length=3)
    people: dict[Literal["buyer", "seller"], Person] = attr(default_factory=dict)
    code: int | str | None = None
    when: date | Literal["now"] | float | None = None
    amount: float | str | None = None
    price: Decimal | None = None
    many: list[int | str] = attr(default_factory=list)
    place: tuple[float, float] | None = None
    mixed: tuple[str, int, Literal["x", "y"]] | None = None
    box: Box | None = None
    note: Note | None = None
    part: Part | None = None


FULL = Everything(
    who=Company(name="Ü & Co", legal_form="AG", number=12),
    reach=Phone(digits="0123", owner=Person(name="Ann", number="C1")),
    all=[Email(channel="newsletter", address="a@b.c"), Phone(digits="5")],
    specs={"depth": 1.5, "net weight": 3},
    people={"seller": Person(name="Bo", born=date(2000, 2, 29))},
    code="55",
    when=date(2024, 3, 1),
    amount="a lot",
    price=Decimal("1.20"),
    many=[1, "a, b", 2],
    place=(48.25, 11),
    mixed=("a|b", 3, "y"),
    box=Box(width=2.5, labels=["fragile", "this way up"]),
    note={"text": "null"},
    part=Part(name="wheel", parts=[Part(name="rim"), Part(name="tyre")]),
)


def slots_of(instance: Any, output: OutputFormat, schema: Any = None) -> list[SlotText]:
    """What a model writes that reads an instance right."""
    return [
        _slot(attribute, leaf_value(attribute, instance), output)
        for attribute in compile_attributes(schema or type(instance))
    ]


def _slot(attribute: Attribute, value: Any, output: OutputFormat) -> SlotText:
    if not attribute.two_phase:
        return written(output.escape(value))
    items = [item if attribute.fields else [item] for item in value or ()]
    leaves = attribute.fields or (attribute,)
    return written(
        output.escape(None if value is None else len(items)),
        [[_slot(*pair, output) for pair in zip(leaves, item, strict=True)] for item in items],
    )


def written(raw: str, items: Any = None) -> SlotText:
    """items: of a list in two phases, raw texts or slots."""
    rows = None
    if items is not None:
        rows = tuple(
            tuple(one if isinstance(one, SlotText) else written(one) for one in item)
            for item in items
        )
    return SlotText(raw, "stop", 3, True, 0.5, 0.5, items=rows)


def read(schema: Any, format: str = "json", **slots: Any) -> Extraction[Any]:
    """An extraction of these slots, as they are written; "__" stands for "."."""
    by_name = {name.replace("__", "."): slot for name, slot in slots.items()}
    attributes = compile_attributes(schema)
    assert by_name.keys() <= {attribute.name for attribute in attributes}
    found = [by_name.get(attribute.name) for attribute in attributes]
    texts = [written(slot) if isinstance(slot, str) else slot for slot in found]
    return build(schema, attributes, texts, get_format(format), index=0, document_id=None)


def flat(attributes: Any) -> Iterator[tuple[Any, ...]]:
    """All that a prompt and its slots depend on."""
    for one in attributes:
        yield (
            *(one.path, one.labels, one.description, one.examples, one.kind, one.choices),
            *(one.is_list, one.required, one.k_max, one.omittable, one.constraints, one.two_phase),
            *(one.unit, one.strict, one.is_mapping, one.is_discriminator),
            *([member.kind for member in some] for some in (one.members, one.positions)),
        )
        yield from flat(one.fields)
