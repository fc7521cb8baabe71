"""Listings of invented products, drawn by a seed."""

from __future__ import annotations

from random import Random

_BRANDS = ("Samsung", "LG", "Sony", "TCL", "Hisense", "Müller & Söhne", 'Ace "Pro"', "Panasonic")
_NOUNS = ("Smart TV", "television", "monitor", "4K TV with stand", "radio", "<b>Projector</b>")
_COLORS = ("black", "red", "silver grey", "white")
_FACTS = (
    "{n} HDMI ports and {m} USB ports",
    "made on {n} March 20{m}0",
    "resolution 1080p",
    "720p",
    "price: 1,{n}99.50 EUR",
    "$ {m}{n}.00, used",
    "battery lasts {n} h 30 min",
    "write to sales{n}@example.com",
    "see https://example.com/tv/{m}{n}",
    "made in South Korea",
    "manual in German",
    "{m}0 x {n}5 cm",
    "by Ann Lee, born 1970-0{n}-1{m}",
    "sold by Roku Inc.",
    "last seen 2023-0{n}-2{m}T10:30:00",
    "code {m}{n}A",
    "grade B",
    "colour: none",
    "new",
)
_ODD = (
    "x",
    "null",
    'a "quoted" text: [1, 2], {b}',
    "zeilen\nund\numbrüche – 55″ & mehr",
    "</brand>",
)


def documents(count: int, seed: int) -> list[str]:
    """Listings of invented products, each another; every eighth is an odd text."""
    draw = Random(seed).random  # the one method that is the same in every release of Python

    def one_of(values: tuple[str, ...]) -> str:
        return values[int(draw() * len(values))]

    made = []
    for place in range(count):
        facts = [one_of(_FACTS).format(n=2 + int(draw() * 7), m=1 + int(draw() * 3))]
        facts += [one_of(_FACTS).format(n=place % 8 + 1, m=2) for _ in range(int(draw() * 4))]
        title = f"{one_of(_BRANDS)} {32 + int(draw() * 60)} inch {one_of(_NOUNS)}"
        text = ", ".join([title, one_of(_COLORS), *facts])
        made.append(one_of(_ODD) if place % 8 == 7 else text)
    return made
