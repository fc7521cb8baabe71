"""Texts as records of several columns, in the form that schemax shows: a line `key: text` each.

A shop's feed or a table seldom holds a document as one text: it has a title and a description, or a
subject and a message, beside irrelevant columns.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from recipes.embedded.shelves import Stated, pieces_of

# The separators at which a text may be cut.
_CUTS = (". ", " - ", "; ", " / ", ", ", " | ")
_KEYS = (
    ("title", "description"),
    ("Title", "Description"),
    ("name", "details"),
    ("headline", "body"),
    ("subject", "message"),
    ("product_title", "bullet_points"),
    ("text_1", "text_2"),
    ("heading", "content"),
)
_IDLE = {
    "lang": ("en", "EN", "en-GB", "de"),
    "source": ("feed", "import", "scraper-2", "web"),
    "row": ("17", "203", "48", "5"),
    "status": ("active", "new", "ok"),
}


def columned(text: str, values: Mapping[str, Stated], rng: random.Random) -> str:
    """Splits a text into several lines with keys; returns it unchanged if it cannot be cut."""
    keys = rng.choice(_KEYS)
    parts = [(keys[1], text)]
    cuts = [cut for cut in _CUTS if cut in text]
    if cuts and rng.random() < 0.8:
        first, _, rest = text.partition(rng.choice(cuts))
        parts = [(keys[0], first), (keys[1], rest)]
    written = {name: value for name, value in values.items() if isinstance(value, str)}
    if written and rng.random() < 0.3:
        # A column that repeats a value of the text.
        name = rng.choice([*written])
        parts.insert(rng.randrange(len(parts) + 1), (name, written[name]))
    if rng.random() < 0.4:
        key = rng.choice([*_IDLE])
        parts.insert(rng.randrange(len(parts) + 1), (key, rng.choice(_IDLE[key])))
    parts = [(key, part.strip()) for key, part in parts if part.strip()]
    found = "\n".join(f"{key}: {part}" for key, part in parts)
    stated = [v for value in values.values() for v in pieces_of(value)]
    return found if len(parts) > 1 and all(value in found for value in stated) else text
