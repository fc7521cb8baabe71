"""Splits a list that is written as one text: HDMI, USB."""

from __future__ import annotations

import re

_STRONG = re.compile(r"\s*[;|\n•·]\s*|\s+/\s+")
# Not the comma of 1,299; an "and" only behind a comma.
_WEAK = re.compile(r"\s*,(?!(?<=\d,)\d{3}(?!\d))\s*")
_AND = re.compile(r"^(?:and|und|et|y|e|&)\s+|\s+(?:and|und|et|y|e|&)\s+", re.IGNORECASE)


def items_in(text: str) -> list[str]:
    """Splits a text at ";", "|", " / ", bullets and line breaks; without any, at commas.

    Behind commas, the last item is also split at "and". Any other text is one item.
    """
    items = _STRONG.split(text)
    if len(items) == 1:
        items = _WEAK.split(text)
        if len(items) > 1:
            items[-1:] = _AND.split(items[-1])
    return [item.strip() for item in items if item.strip()]
