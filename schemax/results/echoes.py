"""Echoes: values that stand in the prompt, but not in the document.

A model that finds no value tends to write the field's name, an example of the declaration or a word
of the instruction. Such a value may still be right ("television" for a text with "TV"), so it is
kept and reported.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_WORD = re.compile(r"\w+")
_LONGEST_SHOWN = 3


def is_echo(text: str, prompt: str) -> bool:
    """True if the words of a text, with letters among them, stand in the prompt in sequence."""
    words = r"\W+".join(_WORD.findall(text.casefold()))
    is_named = any(map(str.isalpha, text))
    return is_named and re.search(rf"\b{words}\b", prompt.casefold()) is not None


def echo_note(texts: Sequence[str]) -> str | None:
    """The note about values that are echoes; None without any."""
    if not texts:
        return None
    shown = ", ".join(f'"{text.strip()}"' for text in texts[:_LONGEST_SHOWN])
    more = ", ..." if len(texts) > _LONGEST_SHOWN else ""
    stand = "stands" if len(texts) == 1 else "stand"
    return f"{shown}{more} {stand} in the prompt, and not in the document"
