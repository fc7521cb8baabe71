"""Grammars as servers take them, in GBNF: of choices alone. All are kept in `slot_writer`."""

from __future__ import annotations

import json
from functools import lru_cache

from schemax.compiler.choices import Choices

_MOST_TEXTS = 256


@lru_cache(maxsize=1024)
def gbnf(choices: Choices) -> str | None:
    """All texts of a slot; None where these are too many to be sent with every request."""
    if len(choices.texts) > _MOST_TEXTS:
        return None
    texts = (json.dumps(text.decode(), ensure_ascii=False) for text in choices.texts)
    return f"root ::= {' | '.join(texts)}"
