"""Specs of slots, known before a document is read: grammar, first token of null, budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from operator import itemgetter
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from cachetools import LRUCache, cached

from schemax.attributes import Attribute
from schemax.attributes.patterns import states_of
from schemax.compiler.extractive import copying_of
from schemax.compiler.free_text import TextForm, text_table
from schemax.compiler.grammars import (
    check_grammar,
    free_text_form,
    may_be_null,
    parser_limits,
    reads_texts,
    slot_grammar,
)
from schemax.compiler.tokenizer import TextCodec
from schemax.config import DecodingConfig
from schemax.formats import OutputFormat, StopRule, Writable
from schemax.reading.kinds import SCALARS
from schemax.tokens import SlotSpec, StopTable


@dataclass(frozen=True, slots=True)
class TokenGrammar:
    """A slot's grammar over the tokens of `codec`; see `tokens.Grammar`.

    form: the form of texts, for a grammar that allows every text; None for any other.
    """

    text: str
    strict: bool
    choices: bool
    codec: TextCodec
    eos_ids: tuple[int, ...]
    vocab_size: int
    form: TextForm | None = None

    def __hash__(self) -> int:
        return hash(self.text)  # a string caches its hash; the other fields are nearly always equal

    def new_matcher(self) -> Any:
        return prototype(self.text, self.codec, self.eos_ids, self.vocab_size)[0].deep_copy()

    def not_first(self) -> tuple[int, ...]:
        return _not_first(self)

    def encode(self, data: bytes) -> tuple[int, ...]:
        return _encoded(self.codec, data)

    def text_table(self, stop: StopTable) -> npt.NDArray[np.int8] | None:
        return None if self.form is None else _text_table(self, self.form, stop)


@dataclass(frozen=True, slots=True)
class Compiling:
    """The settings that slots' specs and budgets depend on, beside their attributes."""

    schema: str
    format: OutputFormat
    config: DecodingConfig
    codec: TextCodec
    vocab_size: int
    eos_ids: tuple[int, ...]
    stop_rule: StopRule

    def num_tokens(self, value: Writable) -> int:
        """Counts the tokens of a value and the delimiter behind it."""
        return len(self.codec.encode(self.format.escape(value) + self.format.delimiter))

    def spec(self, attributes: Sequence[Attribute], place: int) -> SlotSpec:
        """The spec of the slot at a place among (N,) attributes.

        Raises SchemaError for conditions that no value meets, or that no grammar can express.
        """
        attribute, grammar, form = attributes[place], None, self.format
        tails = slot_tails(attributes, place, form, self.config)
        null = self.codec.encode(form.escape(None) + tails[0])
        text = slot_grammar(attribute, form, tails) if self.config.constrain != "nothing" else None
        if text is not None:
            self._check(attribute, text, tails)
            if not attribute.strict:
                text = slot_grammar(attribute, form, tails, literals=False) or text
            grammar = TokenGrammar(
                text,
                is_typed(attribute) and not reads_texts(attribute),
                attribute.is_sure and not attribute.is_list,
                self.codec,
                self.eos_ids,
                self.vocab_size,
                free_text_form(attribute, form),
            )
        copying = None
        if grammar is not None:
            copying = copying_of(attribute, form, tails, self.config, self.codec, self.vocab_size)
        null_id = null[0] if may_be_null(attribute) else -1
        return SlotSpec(null_id, grammar, copying=copying)

    def _check(self, attribute: Attribute, grammar: str, tails: Sequence[str]) -> None:
        """Raises SchemaError for a grammar that fails, and for conditions that only null meets."""
        check_grammar(grammar, schema=self.schema, attribute=attribute)
        if attribute.omittable and attribute.constraints:
            of_values = slot_grammar(replace(attribute, omittable=False), self.format, tails)
            if of_values is not None:
                check_grammar(of_values, schema=self.schema, attribute=attribute)


def slot_tails(
    attributes: Sequence[Attribute],
    place: int,
    output_format: OutputFormat,
    config: DecodingConfig,
) -> tuple[str, ...]:
    """The texts that may follow an attribute's value in the output, as far as tokens reach."""
    labels = attributes[place].labels
    ends = [output_format.delimiter, output_format.closing(labels)]
    if place + 1 < len(attributes):
        ends.append(output_format.key(attributes[place + 1].labels, labels))
    return tuple(dict.fromkeys(e for e in ends if config.stop == "literal" or "\n" in e))


def is_typed(attribute: Attribute) -> bool:
    """True if the attribute's type or pattern rules out most texts."""
    if attribute.members:
        return all(map(is_typed, attribute.variants))
    patterns = any(keyword == "pattern" for keyword, _ in attribute.constraints)
    return not attribute.is_text or patterns


@lru_cache(maxsize=1024)
def _not_first(grammar: TokenGrammar) -> tuple[int, ...]:
    return lone_spaces(grammar.new_matcher(), grammar.codec, grammar.vocab_size)


@lru_cache(maxsize=1024)
def _text_table(
    grammar: TokenGrammar, form: TextForm, stop: StopTable
) -> npt.NDArray[np.int8] | None:
    matcher = grammar.new_matcher()
    table = text_table(form, matcher, stop, grammar.codec, grammar.vocab_size, grammar.not_first())
    return None if table is None else _shared(table.tobytes(), table.shape[1])


@lru_cache(maxsize=64)
def _shared(data: bytes, width: int) -> npt.NDArray[np.int8]:
    """Returns one table for all slots whose tables are equal, as nearly all are."""
    return np.frombuffer(data, np.int8).reshape(-1, width)


@lru_cache(maxsize=4096)
def _encoded(codec: TextCodec, data: bytes) -> tuple[int, ...]:
    """The tokens of bytes, without an unfinished last character; () if they begin within one."""
    ids = tuple(codec.encode(data.decode("utf-8", "ignore")))
    return ids if data.startswith(codec.decode_bytes(ids)) else ()


_MOST_BYTES = 64_000_000  # of the matchers that are kept


@cached(LRUCache(_MOST_BYTES, itemgetter(1)), lock=Lock())
def prototype(
    grammar: str, codec: TextCodec, eos_ids: tuple[int, ...], vocab_size: int
) -> tuple[Any, int]:
    """A matcher to copy, and a rough size of its automaton, from the states of its patterns."""
    from llguidance import LLMatcher

    tokenizer = _tokenizer(codec, eos_ids, vocab_size)
    matcher = LLMatcher(tokenizer, grammar, log_level=0, limits=parser_limits())
    return matcher, min(_MOST_BYTES, 20_000 + 4_000 * states_of(grammar))


@lru_cache(maxsize=8)
def _tokenizer(codec: TextCodec, eos_ids: tuple[int, ...], vocab_size: int) -> Any:
    from llguidance import LLTokenizer, TokenizerWrapper

    return LLTokenizer(TokenizerWrapper(_Tokens(codec, eos_ids, vocab_size)))


class _Tokens:
    """A codec in llguidance's interface: the bytes of every token.

    Special tokens and tokens that end a slot have none: within a value, their text would end it.
    """

    bos_token_id = None

    def __init__(self, codec: TextCodec, eos_ids: tuple[int, ...], vocab_size: int) -> None:
        known = codec.token_bytes[:vocab_size]
        self.tokens = [*known, *[b""] * (vocab_size - len(known))]
        for number in (*eos_ids, *codec.eos_ids):
            if number < vocab_size:
                self.tokens[number] = b""
        self.special_token_ids = [number for number, data in enumerate(self.tokens) if not data]
        # Any token without text: slots end before it is ever allowed.
        self.eos_token_id = next(iter(self.special_token_ids), vocab_size)
        self._codec = codec

    def __call__(self, text: bytes) -> list[int]:
        return self._codec.encode(text.decode("utf-8", "replace"))


DEFAULT_K_MAX = 30

LIST_ITEMS = 8
"""The number of items that the budget of a list in one piece provides for."""


def slot_budget(attribute: Attribute, compiling: Compiling) -> int:
    """`k_max` of a slot: the attribute's, else the config's, else the type's, else 30."""
    named = attribute.k_max or compiling.config.k_max
    if named is not None:
        return named
    if attribute.members:
        return max(slot_budget(one, compiling) for one in attribute.variants)
    forms: Sequence[str] = attribute.choices
    if not forms:
        forms = SCALARS[attribute.kind].widest[: 1 if attribute.strict else 2]
    if not forms:
        return DEFAULT_K_MAX * (2 if attribute.is_list else 1)
    item = max(map(compiling.num_tokens, forms))
    null = compiling.num_tokens(None)
    return max(item * (LIST_ITEMS if attribute.is_list else 1), null) + 1


def lone_spaces(matcher: Any, codec: TextCodec, vocab_size: int) -> tuple[int, ...]:
    """The tokens that are one space, if the tokenizer begins no value of the grammar with them.

    A tokenizer that cuts digits one by one writes ` 5` in two tokens, and ` "5"` with ` "` in one.
    So a model that sees digits tends to write a space first, and means a bare number. Where a text
    is required, the grammar would force a quote behind that space, a cut that the model has never
    seen, and the value becomes useless. Values without quotes may still begin with a lone space.
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
