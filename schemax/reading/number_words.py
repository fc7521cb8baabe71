"""Numbers in words, in the languages that text2num reads best: two, fünfundzwanzig, vingt."""

from __future__ import annotations

import re

_LANGUAGES = ("en", "de", "fr", "es", "pt", "it", "nl")
_OTHERS = {
    **{"half a dozen": "6", "a dozen": "12", "dozen": "12", "a pair": "2", "pair": "2"},
    **{"once": "1", "twice": "2", "single": "1", "double": "2", "triple": "3"},
    **{"a half": "0.5", "half": "0.5", "a quarter": "0.25", "a hundred": "100"},
}
_MINUS = re.compile(r"\b(?:minus|moins|menos|meno|min)\s+(?=\d)", re.IGNORECASE)
_OTHER = re.compile(rf"\b(?:{'|'.join(_OTHERS)})\b", re.IGNORECASE)


def in_digits(text: str) -> str:
    """The text with its number words in digits; as it is, where it has none."""
    if not any(character.isalpha() for character in text):
        return text
    from text_to_num import alpha2digit

    written = _OTHER.sub(lambda found: _OTHERS[found[0].lower()], text)
    for language in _LANGUAGES:
        if any(character.isdigit() for character in written):
            break
        written = alpha2digit(text.lower(), language, threshold=0)
    return _MINUS.sub("-", written)
