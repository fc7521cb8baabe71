"""Questions: the name, description and type by which a prompt asks for a value.

A model that is always asked for `Brand` as text learns what a brand is, but not to read the
question. So names, descriptions, types and choices change from prompt to prompt.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from recipes.embedded.shelves import About, Chosen, Shelf, Stated
from recipes.embedded.units import read_number
from schemax.formats import Writable

# Other names for the same attribute.
_SYNONYMS: Mapping[str, tuple[str, ...]] = {
    "brand": ("Manufacturer", "Maker", "Brand name", "Company", "Vendor", "Made by"),
    "manufacturer": ("Brand", "Maker", "Producer"),
    "model name": ("Model", "Name"),
    "model number": ("Model", "Part number", "MPN", "Article number"),
    "color": ("Colour", "Color name"),
    "colour": ("Color",),
    "flavor": ("Flavour", "Taste"),
    "scent": ("Fragrance",),
    "item form": ("Form",),
    "pack size": ("Pack", "Package quantity", "Count"),
    "net content": ("Content", "Amount", "Net weight"),
    "material": ("Made of",),
    "capacity": ("Volume", "Storage"),
    "city": ("Town", "Place"),
    "date": ("Day", "When"),
    "quantity": ("Amount",),
    "name": ("Item", "Title"),
    "title": ("Name",),
    "price": ("Cost", "Amount"),
    "size": ("Size name",),
    "screen size": ("Display size", "Diagonal", "Screen diagonal", "Display"),
    "authors": ("Author", "Written by"),
    "postal_code": ("ZIP", "Postcode"),
}
# Meaningless names, so that the description must be read.
_OPAQUE = ("field", "value", "item", "attribute", "x", "col", "f", "key", "slot", "answer")
_PLAIN_NAME = re.compile(r"model|series|name|brand|title|code|author|maker|manufacturer", re.I)
_NUMERIC_SHARE = 0.6
_FEW = 12


@dataclass(frozen=True, slots=True)
class Question:
    """A field of a schema, with the answers of all documents of a prompt.

    annotation: the field's type. values: per document, None without a value.
    learnt: per document, True if the value is to be learnt.
    """

    label: str
    annotation: Any
    values: Sequence[Writable]
    learnt: Sequence[bool]
    description: str | None = None
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Habits:
    """The shares of questions that vary from the plain one.

    renamed, restyled: another name, another case or separator; opaque: a meaningless name.
    numbers, choices, lists: typed questions, where the values allow them.
    """

    renamed: float = 0.1
    restyled: float = 0.25
    opaque: float = 0.05
    numbers: float = 0.4
    choices: float = 0.12
    lists: float = 0.05


@dataclass(frozen=True, slots=True)
class Attribute:
    """An attribute of a shelf: its texts, and the types of its values."""

    name: str
    about: About
    texts: Sequence[str] = ()
    numeric: bool = False
    listed: bool = False
    boolean: bool = False
    chosen: bool = False


def attributes_of(shelf: Shelf) -> dict[str, Attribute]:
    return {name: _attribute(name, shelf) for name in shelf.about}


def _attribute(name: str, shelf: Shelf) -> Attribute:
    values = [d.values[name] for d in shelf.documents if name in d.values]
    texts = [value for value in values if isinstance(value, str)]
    numbers = sum(read_number(text) is not None for text in texts)
    return Attribute(
        name=name,
        about=shelf.about[name],
        texts=texts,
        numeric=bool(texts)
        and numbers / len(texts) >= _NUMERIC_SHARE
        and not _PLAIN_NAME.search(name),
        listed=any(isinstance(value, tuple) for value in values),
        boolean=any(isinstance(value, bool) for value in values),
        chosen=any(isinstance(value, Chosen) for value in values),
    )


def ask(
    attribute: Attribute,
    stated: Sequence[Stated | None],
    learns_null: Sequence[bool],
    described: bool,
    habits: Habits,
    rng: random.Random,
) -> Question:
    """Returns a question about an attribute of documents.

    stated: per document, as the text writes it. learns_null: per document, True if a missing value
    is learnt as null.
    """
    description = rng.choice(attribute.about.descriptions or ("",)) if described else ""
    view = (
        _as_boolean(attribute, stated)
        or _as_inferred(attribute, stated, rng)
        or _as_number(attribute, stated, description, habits, rng)
        or _as_choice(attribute, stated, habits, rng)
        or _as_list(attribute, stated, habits, rng)
        or _as_text(stated)
    )
    label = label_of(attribute.name, bool(view.description or description), habits, rng)
    return Question(
        label=f"{label}{view.label}",
        annotation=view.annotation,
        values=view.values,
        learnt=[
            known and (value is not None or null)
            for known, value, null in zip(view.known, view.values, learns_null, strict=True)
        ],
        description=view.description or description or None,
    )


def label_of(name: str, described: bool, habits: Habits, rng: random.Random) -> str:
    """Returns the name that the model is shown."""
    chance = rng.random()
    if described and chance < habits.opaque:
        return f"{rng.choice(_OPAQUE)}{rng.choice(('', ' ', '_'))}{rng.randrange(1, 20)}"
    if chance < habits.opaque + habits.renamed:
        name = rng.choice(_SYNONYMS.get(name.lower(), (name,)))
    # schemax shows a Python name with spaces.
    if "_" in name and rng.random() < 0.6:
        name = name.replace("_", " ")
    return restyled(name, rng) if rng.random() < habits.restyled else name


def restyled(name: str, rng: random.Random) -> str:
    style = rng.randrange(4)
    if style == 0:
        return name.lower()
    if style == 1:
        return name.title()
    if style == 2:
        return re.sub(r"\W+", "_", name.lower()).strip("_") or name
    return name[:1].upper() + name[1:].lower()


@dataclass(frozen=True, slots=True)
class _View:
    """Values as a type requires them. label: an addition to the name."""

    annotation: Any
    values: Sequence[Writable]
    known: Sequence[bool]
    description: str = ""
    label: str = ""


def _as_boolean(attribute: Attribute, stated: Sequence[Stated | None]) -> _View | None:
    if not attribute.boolean:
        return None
    known = [value is None or isinstance(value, bool) for value in stated]
    values = [value if isinstance(value, bool) else None for value in stated]
    return _View(bool | None, values, known)


def _as_inferred(
    attribute: Attribute, stated: Sequence[Stated | None], rng: random.Random
) -> _View | None:
    """Asks for a choice that follows from the text without being written there."""
    if not attribute.chosen or len(attribute.about.choices) < 2:
        return None
    values = [value.value if isinstance(value, Chosen) else None for value in stated]
    known = [value is None or isinstance(value, Chosen) for value in stated]
    choices = rng.sample(attribute.about.choices, len(attribute.about.choices))
    return _View(Literal[tuple(choices)] | None, values, known)


def _as_number(
    attribute: Attribute,
    stated: Sequence[Stated | None],
    description: str,
    habits: Habits,
    rng: random.Random,
) -> _View | None:
    """Asks for bare numbers in a unit, which name or description states, if documents have one."""
    if not attribute.numeric or rng.random() >= habits.numbers:
        return None
    found = [read_number(value) if isinstance(value, str) else None for value in stated]
    units = Counter(pair[1] for pair in found if pair)
    if not units:
        return None
    unit = units.most_common(1)[0][0]
    known = [
        value is None or (pair is not None and pair[1] == unit)
        for value, pair in zip(stated, found, strict=True)
    ]
    values = [pair[0] if pair and pair[1] == unit else None for pair in found]
    whole = all(v == v.to_integral_value() and "." not in str(v) for v in values if v is not None)
    annotation: Any = int if whole and rng.random() < 0.6 else float
    label, said = "", description
    if unit and rng.random() < 0.85:
        place = rng.random()
        if place < 0.25:
            label = f" ({unit})"
        elif place < 0.4:
            label = f" in {unit}"
        elif description:
            said = f"{description}{rng.choice((', in ', ', ', ' in '))}{unit}"
        else:
            said = rng.choice((f"in {unit}", unit, f"number of {unit}", f"{unit}, a bare number"))
    return _View(annotation | None, values, known, said, label)


def _as_choice(
    attribute: Attribute, stated: Sequence[Stated | None], habits: Habits, rng: random.Random
) -> _View | None:
    given = attribute.about.choices
    if not attribute.texts or rng.random() >= (0.5 if given else habits.choices):
        return None
    texts = [value for value in stated if isinstance(value, str)]
    if any(len(text) > 40 for text in texts) or attribute.listed:
        return None
    folded = {choice.casefold(): choice for choice in given}
    if given:
        choices = [*given]
    else:
        others = rng.sample(attribute.texts, min(len(attribute.texts), rng.randrange(1, 7)))
        for text in [*texts, *(other for other in others if len(other) <= 40)]:
            folded.setdefault(text.casefold(), text)
        choices = [*folded.values()]
        if len(choices) > _FEW or len(choices) < 2:
            return None
        if rng.random() < 0.3:
            change = rng.choice((str.lower, str.upper, str.title))
            choices = [change(choice) for choice in choices]
            folded = {choice.casefold(): choice for choice in choices}
        rng.shuffle(choices)
    if len(set(choices)) < 2 or len({choice.casefold() for choice in choices}) < len(choices):
        return None
    values = [folded.get(value.casefold()) if isinstance(value, str) else None for value in stated]
    known = [
        value is None or chosen is not None for value, chosen in zip(stated, values, strict=True)
    ]
    return _View(Literal[tuple(choices)] | None, values, known)


def _as_list(
    attribute: Attribute, stated: Sequence[Stated | None], habits: Habits, rng: random.Random
) -> _View | None:
    several = any(isinstance(value, tuple) for value in stated)
    if not several and rng.random() >= (0.5 if attribute.listed else habits.lists):
        return None
    values = [
        [*value] if isinstance(value, tuple) else [value] if isinstance(value, str) else None
        for value in stated
    ]
    return _View(list[str], values, [True] * len(stated))


def _as_text(stated: Sequence[Stated | None]) -> _View:
    known = [value is None or isinstance(value, str) for value in stated]
    return _View(str | None, [v if isinstance(v, str) else None for v in stated], known)
