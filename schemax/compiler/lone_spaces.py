"""Lone spaces: tokens that are one space, with which a quoted value may not begin.

A tokenizer that cuts digits one by one writes ` 5` in two tokens, and ` "5"` with ` "` in one. So a
model that sees digits tends to write a space first, and means a bare number. Where a text is
required, the grammar would force a quote behind that space, a cut that the model has never seen,
and the value becomes useless. Values without quotes, such as numbers, may still begin with a lone
space.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from schemax.compiler.tokenizer import TextCodec


def lone_spaces(matcher: Any, codec: TextCodec, vocab_size: int) -> tuple[int, ...]:
    """The tokens that are one space, if the tokenizer begins no value of the grammar with them.

    Every value then begins with a token that holds more than the space, so that none becomes
    impossible to write. matcher: an `llguidance.LLMatcher`, which is reset afterwards.
    """
    tokens = codec.token_bytes[:vocab_size]
    found = []
    for space in (number for number, data in enumerate(tokens) if data == b" "):
        if not matcher.reset() or matcher.try_consume_tokens([space]) != 1:
            continue
        mask = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        behind = np.flatnonzero(np.unpackbits(mask, bitorder="little")[: len(tokens)])
        characters = {tokens[number][:1] for number in behind.tolist()}
        if characters and all(_is_joined(space, one, matcher, codec) for one in characters):
            found.append(space)
    matcher.reset()
    return tuple(found)


def _is_joined(space: int, character: bytes, matcher: Any, codec: TextCodec) -> bool:
    """True if the tokenizer writes the space and the character behind it in one token."""
    if not character.isascii():
        return False
    ids = [space, *codec.encode(character.decode())]
    if not matcher.reset() or matcher.try_consume_tokens(ids) != len(ids):
        return False
    # With all forced bytes: a tokenizer may know the word "null" and no "n".
    data = b" " + character + matcher.compute_ff_bytes()
    first = codec.encode(data.decode("utf-8", "ignore"))[:1]
    return len(codec.decode_bytes(first)) > 1
