"""URLs and e-mail addresses."""

from __future__ import annotations

import re

from schemax.reading import Reading, noted
from schemax.reading.kinds.base import Scalar

# Characters of prose around an address.
_AROUND = re.compile(r"^[\s<(\[\"'“]+|[\s>)\]\"'”.,;!]+$")
_IN_PROSE = re.compile(r"\bhttps?://[^\s<>\"]+", re.IGNORECASE)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_HOST = re.compile(r"(?:www\.|[a-z0-9-]+(?:\.[a-z0-9-]+)*\.[a-z]{2,24}(?=[/?#:]|$))", re.IGNORECASE)


class Url(Scalar):
    """AnyUrl, HttpUrl and Pydantic's other URLs; www.example.com is read as https://..."""

    name = "url"
    json_types = (("string", "uri"),)
    shown = "URL"
    word = "URL"
    widest = (
        "https://www.example.com/en/televisions/55-inch/example-qn90b-neo-qled?ref=a1b2c3d4e5&page=2",
    )
    samples = ("https://a.b",)
    is_text = True

    def read(self, text: str, unit: str | None = None, language: str | None = None) -> Reading:
        addresses = list(dict.fromkeys(_IN_PROSE.findall(text)))
        if len(addresses) > 1:
            raise ValueError(f"states several ({', '.join(addresses)}); the field takes one")
        address = _AROUND.sub("", addresses[0] if addresses else text)
        end = text.find(address) + len(address)
        if text[end : end + 1] == ")" and address.count("(") > address.count(")"):
            address += ")"
        if address and not _SCHEME.match(address) and _HOST.match(address):
            return noted(text, f"https://{address}", "https://, since the text names no scheme")
        return Reading(text) if address in ("", text) else noted(text, address)

    def literal(self, text: str, choices: object) -> str:
        if not _SCHEME.match(text):
            raise ValueError("names no scheme")
        return text


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
        addresses = list(dict.fromkeys(_ADDRESS.findall(plain)))
        if len(addresses) > 1:
            raise ValueError(
                f"states several addresses ({', '.join(addresses)}); the field takes one"
            )
        return noted(text, addresses[0]) if addresses else Reading(text)

    def literal(self, text: str, choices: object) -> str:
        if not _ADDRESS.fullmatch(text):
            raise ValueError("no email address")
        return text
