"""How documents are asked for what they state: under which name, with which words, as which type.

A model that is always asked for `Brand` as text learns what a brand is, and not to read what it is
asked for. So names, descriptions, types and choices change from prompt to prompt.
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

# Other names under which the same thing is asked for.
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
# A name that says nothing, where the description has to be read.
_OPAQUE = ("field", "value", "item", "attribute", "x", "col", "f", "key", "slot", "answer")
_PLAIN_NAME = re.compile(r"model|series|name|brand|title|code|author|maker|manufacturer", re.I)
_NUMERIC_SHARE = 0.6
_FEW = 12


@dataclass(frozen=True, slots=True)
class Question:
    """One field of a schema, with what every document of the prompt answers.

    annotation: type of the field. values: per document, None where there is none.
    learnt: per document, whether that is to be learnt.
    """

    label: str
    annotation: Any
    values: Sequence[Writable]
    learnt: Sequence[bool]
    description: str | None = None
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Habits:
    """How often questions depart from the plain one, as shares.

    renamed, restyled: other words, other letters; opaque: a name that says nothing.
    numbers, choices, lists: typed, where the values allow it.
    """

    renamed: float = 0.1
    restyled: float = 0.25
    opaque: float = 0.05
    numbers: float = 0.4
    choices: float = 0.12
    lists: float = 0.05


@dataclass(frozen=True, slots=True)
class Attribute:
    """What is known of an attribute of a shelf: which values it has, and whether it is a number."""

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
    """A question about an attribute of these documents.

    stated: per document, as the text writes it. learns_null: per document, whether a missing value
    is a null to be learnt.
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
    """The name that the model is shown."""
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
    """Values as a type wants them. label: what is added to the name."""

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
    """A choice that follows from what a text says."""
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
    """Bare numbers, of one unit that name or description says, where the documents have one."""
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
