"""URLs."""

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
        found = _AROUND.sub("", addresses[0] if addresses else text)
        end = text.find(found) + len(found)
        if text[end : end + 1] == ")" and found.count("(") > found.count(")"):
            found += ")"
        if found and not _SCHEME.match(found) and _HOST.match(found):
            return noted(text, f"https://{found}", "https://, since the text names no scheme")
        return Reading(text) if found in ("", text) else noted(text, found)

    def literal(self, text: str, choices: object) -> str:
        if not _SCHEME.match(text):
            raise ValueError("names no scheme")
        return text
