"""Grammars of slots run by llguidance, byte by byte or token by token."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from pydantic import create_model

from schemax.attributes import Attribute, compile_attributes
from schemax.compiler import TextCodec
from schemax.compiler.grammars import parser_limits, slot_grammar
from schemax.formats import get_format

FORMATS = ("json", "yaml", "xml")
TAILS = {"json": (",\n", "\n}"), "yaml": ("\n",), "xml": ("</size>\n",)}
in_each_format = pytest.mark.parametrize("name", FORMATS)


class _Tokens:
    """A codec as llguidance asks for it: the bytes of every token, special ones without any."""

    bos_token_id = None

    def __init__(self, codec: TextCodec) -> None:
        self.tokens = list(codec.token_bytes)
        self.eos_token_id = codec.eos_ids[0]
        self.special_token_ids = [i for i, data in enumerate(self.tokens) if not data]
        self._codec = codec

    def __call__(self, text: bytes) -> list[int]:
        return self._codec.encode(text.decode())


def tokenizer_of(codec: TextCodec) -> LLTokenizer:
    return LLTokenizer(TokenizerWrapper(_Tokens(codec)))


def attribute_of(annotation: Any, field: Any = ...) -> Attribute:
    return compile_attributes(create_model("Model", value=(annotation, field)))[0]


def grammar_of(attribute: Attribute, name: str) -> str:
    grammar = slot_grammar(attribute, get_format(name), TAILS[name])
    assert grammar is not None
    return grammar


@cache
def byte_tokenizer() -> LLTokenizer:
    return LLTokenizer("byte")


@cache
def matcher_of(grammar: str) -> LLMatcher:
    return LLMatcher(byte_tokenizer(), grammar, log_level=0, limits=parser_limits())


def accepts(grammar: str, text: str) -> bool:
    matcher = matcher_of(grammar).deep_copy()
    data = text.encode()
    return matcher.try_consume_tokens(list(data)) == len(data) and matcher.is_accepting()


def accepts_value(attribute: Attribute, value: Any, name: str = "json") -> bool:
    literal = get_format(name).escape(value)
    return all(accepts(grammar_of(attribute, name), literal + tail) for tail in TAILS[name])


def allowed_by(matcher: LLMatcher) -> list[int]:
    bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
    found: list[int] = np.flatnonzero(np.unpackbits(bits, bitorder="little")).tolist()
    return found


def random_text(matcher: LLMatcher, table: Sequence[bytes], chance: random.Random) -> bytes | None:
    """A walk to where the grammar is fulfilled, which likes to end; None if it would take long."""
    matcher = matcher.deep_copy()
    data = b""
    for _ in range(60):
        if matcher.is_accepting():
            return data
        allowed = [token for token in allowed_by(matcher) if token < len(table)]
        if chance.random() < 0.3:
            ending = [token for token in allowed if table[token][:1] in b'",\n}]</:# x']
            allowed = ending or allowed
        token = chance.choice(allowed)
        assert matcher.consume_token(token), matcher.get_error()
        data += table[token]
    return None
