"""Invented shop titles with typed values: many spellings in texts, one normalized value.

A kind of goods is a list of facets. Each facet draws its words in a title, and the value that a
field of its type should get: `55"`, `55-Inch` and `139 cm (55 inch)` are all 55.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from decimal import Decimal
from typing import Any, Literal

from recipes.embedded.questions import Habits, Question, label_of
from schemax.formats import Writable


@dataclass(frozen=True, slots=True)
class Said:
    """A facet's words in a text, and their values by the name of a type.

    values: "text", "number", "integer", "boolean", "date", "list"; for choices the meaning is under
    "choice".
    """

    text: str
    values: Mapping[str, Writable]


Speaker = Callable[[random.Random], Said]
"""A function that draws a facet's words and values."""


@dataclass(frozen=True, slots=True)
class Facet:
    """A property that a text may state.

    names, descriptions: for questions. kinds: the types of questions, with their weights.
    choices: tables of meaning -> shown choice, for questions with choices.
    share: the share of texts that state it. said: draws words and values.
    """

    names: tuple[str, ...]
    descriptions: tuple[str, ...]
    kinds: Mapping[str, float]
    said: Speaker
    share: float = 0.6
    choices: tuple[Mapping[str, str], ...] = ()
    examples: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of goods: its names, its nouns in titles, and its facets in usual order."""

    names: tuple[str, ...]
    nouns: tuple[str, ...]
    facets: tuple[Facet, ...]
    fillers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Drawn:
    """A text with its words and values, by facet."""

    text: str
    said: Mapping[int, Said] = field(default_factory=dict)


def not_drawn(rng: random.Random) -> Said:
    """Stands for `said` in facets whose values the document draws itself, for its blanks."""
    raise NotImplementedError("this facet says nothing by itself")


_TYPES: Mapping[str, Any] = {
    "text": str,
    "number": float,
    "integer": int,
    "boolean": bool,
    "date": date,
}


def draw_title(kind: Kind, rng: random.Random) -> Drawn:
    """Draws a title: the first two facets lead, others come in any order, joined in any way."""
    said = {
        place: facet.said(rng)
        for place, facet in enumerate(kind.facets)
        if rng.random() < facet.share
    }
    parts: list[str] = [*dict.fromkeys(one.text for place, one in said.items() if place > 1)]
    if rng.random() < 0.6:
        rng.shuffle(parts)
    lead = [said[place].text for place in (0, 1) if place in said]
    noun = rng.choice(kind.nouns)
    parts.insert(rng.randrange(len(parts) + 1) if rng.random() < 0.6 else 0, noun)
    if kind.fillers:
        for _ in range(rng.choice((0, 0, 1, 2))):
            parts.insert(rng.randrange(len(parts) + 1), rng.choice(kind.fillers))
    style = rng.random()
    if style < 0.35:
        text = " ".join([*lead, *parts])
    elif style < 0.75:
        cut = rng.randrange(1, 4)
        rest = rng.choice((", ", ", ", " | ", " - ", " / ")).join(parts[cut:])
        joint = rng.choice((", ", " - ", " – ", " ", ": "))
        text = " ".join([*lead, *parts[:cut]]) + (joint + rest if rest else "")
    else:
        text = f"{' '.join(lead)} {rng.choice((' ', ', ')).join(parts)}"
    text = " ".join(text.split())
    if rng.random() < 0.05:
        # Lower case would change values that are copied from the title.
        copied = any("text" in one.values or "list" in one.values for one in said.values())
        text = text if copied else text.lower()
    return Drawn(text, said)


def ask_facet(
    facet: Facet, said: Sequence[Said | None], described: bool, habits: Habits, rng: random.Random
) -> Question:
    """Returns a question about a facet of texts, as one of its types."""
    kind = rng.choices([*facet.kinds], [*facet.kinds.values()])[0]
    description = rng.choice(facet.descriptions) if facet.descriptions else ""
    # For a number the description often names the unit, which the value lacks.
    shown = description if described or (kind == "number" and rng.random() < 0.6) else None
    name = rng.choice(facet.names[:1] * 2 + facet.names)
    values: list[Writable] = []
    if kind == "choice":
        table = rng.choice(facet.choices)
        choices = [*dict.fromkeys(table.values())]
        if rng.random() < 0.3:
            rng.shuffle(choices)
        annotation: Any = Literal[tuple(choices)] | None
        for one in said:
            meaning = one.values["choice"] if one else None
            values.append(table.get(str(meaning)) if meaning is not None else None)
    elif kind == "list":
        annotation = list[str]
        values = [one.values["list"] if one else None for one in said]
    else:
        annotation = _TYPES[kind] | None
        # A date is learnt as the text writes it, since copying is easier; the field parses it.
        written = "text" if kind == "date" else kind
        values = [one.values.get(written) if one else None for one in said]
    return Question(
        label=label_of(name, bool(shown), habits, rng),
        annotation=annotation,
        values=values,
        learnt=[one is None or kind in one.values for one in said],
        description=shown or None,
        examples=facet.examples if rng.random() < 0.3 else (),
    )


def one_of(*texts: str) -> Speaker:
    """Returns a speaker of one of the texts, unchanged."""
    return lambda rng: _copied(rng.choice(texts))


def _copied(text: str) -> Said:
    return Said(text, {"text": text, "choice": text.casefold(), "list": [text]})


def measure(numbers: Sequence[str], forms: Sequence[str], *, whole: bool = False) -> Speaker:
    """Returns a speaker of a number in one of the forms, where `#` stands for the number."""

    def said(rng: random.Random) -> Said:
        number = rng.choice(numbers)
        form = rng.choice(forms)
        value = Decimal(number)
        text = form.replace("#", number)
        values: dict[str, Writable] = {"number": value, "text": text}
        if whole:
            values["integer"] = int(value)
        return Said(text, values)

    return said


def meaning(table: Mapping[str, Sequence[str]]) -> Speaker:
    """Returns a speaker of one of several meanings, in one of its forms."""

    def said(rng: random.Random) -> Said:
        meant = rng.choice([*table])
        text = rng.choice(table[meant])
        return Said(text, {"choice": meant, "text": text})

    return said


def yes_no(yes: Sequence[str], no: Sequence[str], truth: float = 0.75) -> Speaker:
    """Returns a speaker of a feature that is affirmed or denied."""

    def said(rng: random.Random) -> Said:
        answer = rng.random() < truth or not no
        return Said(rng.choice(yes if answer else no), {"boolean": answer})

    return said


def several(items: Sequence[str], counted: bool = False, most: int = 4) -> Speaker:
    """Returns a speaker of some of the items in a row; counted: sometimes with numbers."""

    def said(rng: random.Random) -> Said:
        chosen = rng.sample(items, rng.randrange(1, min(most, len(items)) + 1))
        shown = []
        for item in chosen:
            count = rng.randrange(1, 5)
            forms = [item]
            if counted:
                forms += [
                    *(f"{count}x {item}", f"{item} x{count}", f"{count} x {item}"),
                    *(f"{count} {item}", f"{item} ({count})", f"{count}×{item}"),
                ]
            shown.append(rng.choice(forms))
        joint = rng.choice((", ", ", ", " + ", "/", " & ", " and ")) if len(shown) > 1 else ""
        text = joint.join(shown)
        if counted and rng.random() < 0.2:
            text = f"{text} {rng.choice(('ports', 'inputs', 'Ports'))}"
        return Said(text, {"list": chosen, **({"text": chosen[0]} if text == chosen[0] else {})})

    return said


def code(*forms: str) -> Speaker:
    """Returns a speaker of a model code: `A` a letter, `9` a digit, anything else unchanged."""

    def said(rng: random.Random) -> Said:
        form = rng.choice(forms)
        text = "".join(
            rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ")
            if sign == "A"
            else str(rng.randrange(1, 10))
            if sign == "9"
            else sign
            for sign in form
        )
        return Said(text, {"text": text})

    return said


def price() -> Speaker:
    """Returns a speaker of a price as shops of several countries write it."""

    def said(rng: random.Random) -> Said:
        whole, cents = rng.randrange(5, 2500), rng.choice((0, 49, 50, 90, 95, 99, 99))
        value = Decimal(f"{whole}.{cents:02d}")
        english = f"{whole:,}" if rng.random() < 0.6 else str(whole)
        european = english.replace(",", rng.choice((".", " ", "")))
        form = rng.choice(
            (
                *(f"${english}.{cents:02d}", f"£{english}.{cents:02d}", f"€{english}.{cents:02d}"),
                *(
                    f"{european},{cents:02d} €",
                    f"{european},{cents:02d} EUR",
                    f"€ {european},{cents:02d}",
                ),
                *(f"{english}.{cents:02d} USD", f"USD {english}.{cents:02d}"),
            )
        )
        if not cents and rng.random() < 0.5:
            form, value = rng.choice((f"${english}", f"{whole} €", f"£{english}")), Decimal(whole)
        return Said(form, {"number": value, "text": form})

    return said
