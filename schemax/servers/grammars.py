"""GBNF grammars for servers, of choices alone; `slot_writer` enforces all grammars here."""

from __future__ import annotations

import json
from functools import lru_cache

from schemax.compiler.choices import Choices

_MOST_TEXTS = 256


@lru_cache(maxsize=1024)
def gbnf(choices: Choices) -> str | None:
    """The grammar of all texts of a slot; None for too many to send with every request."""
    if len(choices.texts) > _MOST_TEXTS:
        return None
    texts = (json.dumps(text.decode(), ensure_ascii=False) for text in choices.texts)
    return f"root ::= {' | '.join(texts)}"
