"""E-mail addresses."""

from __future__ import annotations

import re

from schemax.reading import Reading, noted
from schemax.reading.kinds.base import Scalar

_ADDRESS = re.compile(r"[^\s<>()\[\],;:\"@]+@[^\s<>()\[\],;:\"@]+\.[^\s<>()\[\],;:\"@]*[^\W_]")
# The most characters of a text in which an address is looked for.
_LONGEST = 1000
# As pages hide them from robots.
_AT = re.compile(r"\s*[\[({]\s*at\s*[\])}]\s*|\s+at\s+(?=\S+\s+dot\s)", re.IGNORECASE)
_DOT = re.compile(r"\s*[\[({]\s*dot\s*[\])}]\s*|\s+dot\s+", re.IGNORECASE)


class Email(Scalar):
    """EmailStr."""

    name = "email"
    json_types = (("string", "email"),)
    shown = "email address"
    word = "email address"
    samples = ("a@example.com",)
    is_text = True

    def read(self, text: str, unit: str | None = None, language: str | None = None) -> Reading:
        """Reads an address. Raises ValueError for several addresses."""
        if len(text) > _LONGEST or _ADDRESS.fullmatch(text):
            return Reading(text)
        hidden = _AT.search(text)
        plain = _DOT.sub(".", _AT.sub("@", text)) if hidden else text
        found = list(dict.fromkeys(_ADDRESS.findall(plain)))
        if len(found) > 1:
            raise ValueError(f"states several addresses ({', '.join(found)}); the field takes one")
        return noted(text, found[0]) if found else Reading(text)

    def literal(self, text: str, choices: object) -> str:
        if not _ADDRESS.fullmatch(text):
            raise ValueError("no email address")
        return text
