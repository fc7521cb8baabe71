"""Texts as records of several columns, as schemax shows these: `key: text`, a line each.

What a shop's feed or a table holds of a document is seldom one text: a title stands beside a
description, a subject beside a message, and beside both stand columns that say nothing.
"""

from __future__ import annotations

import random
from collections.abc import Mapping

from recipes.embedded.shelves import Stated, pieces_of

# Where a text may be cut.
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
    """The text over several lines with keys, or as it is where it cannot be cut."""
    keys = rng.choice(_KEYS)
    parts = [(keys[1], text)]
    cuts = [cut for cut in _CUTS if cut in text]
    if cuts and rng.random() < 0.8:
        first, _, rest = text.partition(rng.choice(cuts))
        parts = [(keys[0], first), (keys[1], rest)]
    written = {name: value for name, value in values.items() if isinstance(value, str)}
    if written and rng.random() < 0.3:
        # A column that says again what the text says.
        name = rng.choice([*written])
        parts.insert(rng.randrange(len(parts) + 1), (name, written[name]))
    if rng.random() < 0.4:
        key = rng.choice([*_IDLE])
        parts.insert(rng.randrange(len(parts) + 1), (key, rng.choice(_IDLE[key])))
    parts = [(key, part.strip()) for key, part in parts if part.strip()]
    found = "\n".join(f"{key}: {part}" for key, part in parts)
    stated = [v for value in values.values() for v in pieces_of(value)]
    return found if len(parts) > 1 and all(value in found for value in stated) else text
