"""Control tokens that a template's text spells, which are encoded as plain characters."""

from __future__ import annotations

import re
from collections.abc import Iterable

from schemax.compiler.tokenizer import TextCodec


def control_tokens_in(text: str, codec: TextCodec) -> tuple[str, ...]:
    """The special tokens that a text spells, each once, in order of appearance."""
    spelt = _spelt(codec)
    return tuple(dict.fromkeys(spelt.findall(text))) if spelt is not None else ()


def control_token_warning(tokens: Iterable[str]) -> str:
    """The warning about special tokens that a template spells."""
    return (
        f"the prompt holds {', '.join(tokens)} as plain characters: a template's text is data, and "
        "the chat template writes the model's turns; take them out, and begin a turn with "
        '{{ turn("assistant") }}'
    )


def marked(text: str, codec: TextCodec) -> str:
    """Data with brackets around the special tokens that it spells: ⟪<|im_start|>⟫."""
    spelt = _spelt(codec)
    return spelt.sub(lambda found: f"⟪{found[0]}⟫", text) if spelt is not None else text


def _spelt(codec: TextCodec) -> re.Pattern[str] | None:
    texts = sorted({text for text in codec.special_texts.values() if text}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, texts))) if texts else None
