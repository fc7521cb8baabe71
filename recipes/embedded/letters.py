"""Short letters, notices and offers in five languages, with their dates and numbers as values.

A text has `1.299,00 €` and `12. März 2024` as its country writes them, and a number or date field
requires `1299.00` and `2024-03-12`.
"""

from __future__ import annotations

import random
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

from recipes.embedded.invented import Facet, Said, not_drawn
from schemax.formats import Writable

_SYLLABLES = [
    "ba",
    "ber",
    "co",
    "den",
    "el",
    "fa",
    "gran",
    "hol",
    "in",
    "ka",
    "la",
    "mar",
    "nor",
    "o",
    "per",
    "qui",
    "ro",
    "sen",
    "tal",
    "ur",
    "vi",
    "wer",
    "zan",
]
_COMPANY = ("GmbH", "AG", "Ltd", "Inc.", "SARL", "S.L.", "Lda.", "& Sons", "KG", "Group", "")
_CITIES = (
    *(
        "London",
        "Leeds",
        "Boston",
        "Austin",
        "Berlin",
        "Köln",
        "München",
        "Wien",
        "Zürich",
        "Paris",
    ),
    *("Lyon", "Nantes", "Madrid", "Sevilla", "Bogotá", "Lisboa", "Porto", "São Paulo", "Recife"),
)
_CURRENCIES: Mapping[str, tuple[tuple[str, str], ...]] = {
    "en": (("$", "USD"), ("£", "GBP"), ("€", "EUR")),
    "pt": (("€", "EUR"), ("R$", "BRL")),
}
_BLANK = re.compile(r"\{(\w+)\}")


def _facet(names: Sequence[str], descriptions: Sequence[str], kinds: Mapping[str, float]) -> Facet:
    return Facet(tuple(names), tuple(descriptions), kinds, not_drawn)


FACETS: Mapping[str, Facet] = {
    "number": _facet(
        ("number", "invoice number", "reference", "Rechnungsnummer", "order number", "numéro"),
        ("Number of the document", "Reference number"),
        {"text": 1},
    ),
    "issuer": _facet(
        ("issuer", "supplier", "company", "vendor", "seller", "Lieferant"),
        ("Who issued it", "Company that sends it"),
        {"text": 1},
    ),
    "customer": _facet(("customer", "client", "bill to", "Kunde"), ("Who is billed",), {"text": 1}),
    "date": _facet(
        ("date", "issue date", "invoice_date", "Datum", "day", "fecha"),
        ("Date of issue", "Day it was written", "Date, YYYY-MM-DD"),
        {"date": 0.8, "text": 0.2},
    ),
    "due": _facet(
        ("due date", "due", "deadline", "valid until", "due_date", "échéance"),
        ("Last day", "When it is due", "Date by which it must be done"),
        {"date": 0.8, "text": 0.2},
    ),
    "total": _facet(
        ("total", "amount", "price", "total_amount", "Betrag", "sum", "montant"),
        ("Total to be paid", "Amount without currency", "Total, a bare number"),
        {"number": 0.85, "text": 0.15},
    ),
    "net": _facet(("net", "net amount", "subtotal"), ("Sum before tax",), {"number": 1}),
    "currency": _facet(
        ("currency", "Währung", "currency_code"), ("Currency code", "ISO currency"), {"choice": 1}
    ),
    "quantity": _facet(
        ("quantity", "count", "Menge", "units"), ("How many", "Number of items"), {"integer": 1}
    ),
    "item": _facet(("item", "product", "article", "what"), ("What is sold",), {"text": 1}),
    "city": _facet(("city", "place", "Ort", "town", "ville"), ("Town",), {"text": 1}),
    "weight": _facet(("weight", "weight_kg", "Gewicht"), ("Weight in kg", "kg"), {"number": 1}),
    "area": _facet(
        ("area", "area_m2", "floor area", "Wohnfläche"), ("Square metres", "in m²"), {"number": 1}
    ),
    "rooms": _facet(("rooms", "number of rooms", "Zimmer"), ("How many rooms",), {"number": 1}),
}
NAMES = ("Letter", "Document", "Invoice", "Notice", "Offer", "Text", "Note")
_CODES = ("EUR", "USD", "GBP", "BRL")
CURRENCY_CHOICES: Mapping[str, str] = {code: code for code in _CODES}


@cache
def languages() -> Mapping[str, Any]:
    """Returns language -> its months, items and letters."""
    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))


@dataclass(frozen=True, slots=True)
class Letter:
    """A text and the words and values of its blanks, by name."""

    text: str
    said: Mapping[str, Said]


def draw_letter(rng: random.Random) -> Letter:
    language = rng.choice([*languages()])
    form = rng.choice(languages()[language]["letters"])
    said = {name: _blank(name, language, rng) for name in _BLANK.findall(form)}
    sign, code = _currency(language, rng)
    for name in ("total", "net"):
        if name in said:
            said[name] = _amount(language, sign, code, rng)
            said["currency"] = Said("", {"choice": code})
    text = _BLANK.sub(lambda match: said[match[1]].text, form)
    return Letter(text, said)


def _blank(name: str, language: str, rng: random.Random) -> Said:
    if name in ("date", "due"):
        return draw_day(language, rng)
    if name == "quantity":
        count = rng.randrange(1, 60)
        return Said(str(count), {"integer": count})
    if name == "weight":
        return _decimal(
            language, rng.choice(("0", "1", "2", "4", "12")), f"{rng.randrange(1, 10)}", " kg", rng
        )
    if name == "area":
        tenths = rng.choice(("", "", "5"))
        return _decimal(
            language, str(rng.randrange(18, 190)), tenths, rng.choice((" m²", " qm", " m2")), rng
        )
    if name == "rooms":
        return _decimal(language, str(rng.randrange(1, 7)), rng.choice(("", "", "5")), "", rng)
    if name == "item":
        return _text(rng.choice(languages()[language]["items"]))
    if name == "city":
        return _text(rng.choice(_CITIES))
    if name == "number":
        digits = str(rng.randrange(100, 99999))
        year = rng.randrange(2015, 2027)
        forms = (
            f"{year}-{digits}",
            f"RE-{digits}",
            digits,
            f"{digits}/{year}",
            f"INV{digits}",
            f"A{digits}",
        )
        return _text(rng.choice(forms))
    if name == "customer":
        return _text(f"{_name(rng)} {_name(rng)}")
    if name == "issuer":
        return _text(f"{_name(rng)} {rng.choice(_COMPANY)}".strip())
    return Said("", {})


def _text(text: str) -> Said:
    return Said(text, {"text": text})


def _name(rng: random.Random) -> str:
    return "".join(rng.choices(_SYLLABLES, k=rng.choice((2, 2, 3)))).capitalize()


def _decimal(language: str, whole: str, decimals: str, unit: str, rng: random.Random) -> Said:
    point = "." if language == "en" else ","
    shown = f"{whole}{point}{decimals}" if decimals else whole
    values: dict[str, Writable] = {"number": Decimal(f"{whole}.{decimals}" if decimals else whole)}
    return Said(f"{shown}{unit}", {**values, "text": f"{shown}{unit}"})


def _currency(language: str, rng: random.Random) -> tuple[str, str]:
    return rng.choice(_CURRENCIES.get(language, (("€", "EUR"),)))


def draw_amount(language: str, rng: random.Random) -> Said:
    """Draws an amount of money as a language writes it."""
    return _amount(language, *_currency(language, rng), rng)


def _amount(language: str, sign: str, code: str, rng: random.Random) -> Said:
    whole, cents = (
        rng.choice((rng.randrange(1, 100), rng.randrange(100, 20000))),
        rng.randrange(100),
    )
    cents = rng.choice((0, cents, cents))
    value = Decimal(f"{whole}.{cents:02d}")
    grouped = f"{whole:,}"
    if language == "en":
        number = f"{rng.choice((grouped, str(whole)))}.{cents:02d}"
    else:
        mark = " " if language == "fr" else "."
        number = f"{rng.choice((grouped.replace(',', mark), str(whole)))},{cents:02d}"
    if not cents and rng.random() < 0.4:
        number, value = str(whole), Decimal(whole)
    if language == "en":
        text = rng.choice(
            (f"{sign}{number}", f"{sign}{number}", f"{number} {code}", f"{code} {number}")
        )
    else:
        text = rng.choice((f"{number} {sign}", f"{number} {code}", f"{sign} {number}"))
    return Said(text, {"number": value, "text": text})


def draw_day(language: str, rng: random.Random) -> Said:
    """Draws a date as a language writes it."""
    day = date(rng.randrange(1995, 2031), rng.randrange(1, 13), rng.randrange(1, 29))
    month = languages()[language]["months"][day.month - 1]
    short = month[:3]
    dotted, slashed = f"{day:%d.%m.%Y}", f"{day:%d/%m/%Y}"
    forms = {
        "en": (
            *(f"{month} {day.day}, {day.year}", f"{day.day} {month} {day.year}", f"{day:%Y-%m-%d}"),
            *(
                f"{short} {day.day}, {day.year}",
                f"{day.day} {short} {day.year}",
                f"{day.day}-{short}-{day.year}",
            ),
            *((f"{day:%m/%d/%Y}",) if day.day > 12 else ()),
        ),
        "de": (f"{day.day}. {month} {day.year}", dotted, f"{day.day}.{day.month}.{day.year}"),
        "fr": (f"{day.day} {month} {day.year}", slashed, f"{day.day} {month} {day.year}"),
        "es": (f"{day.day} de {month} de {day.year}", slashed, f"{day.day} {short} {day.year}"),
        "pt": (f"{day.day} de {month} de {day.year}", slashed, f"{day:%d-%m-%Y}"),
    }
    text = rng.choice(forms[language])
    return Said(text, {"date": day, "text": text})
