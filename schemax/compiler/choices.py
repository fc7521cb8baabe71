"""Attributes with choices: the texts that stand for each choice, and branches for other choices.

Every choice needs a probability, but a slot goes down one path of the tree of tokens: the
probability of a token that it did not take is the sum over the choices behind that token. So the
same document decodes these branches next, as slots whose keys end with the tokens that lead to the
branch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import log
from typing import Any

from schemax.attributes import Attribute
from schemax.compiler.automata import TokenGrammar
from schemax.compiler.tokenizer import TextCodec
from schemax.formats import OutputFormat
from schemax.reading.booleans import spellings
from schemax.reading.choices import ChoiceReader
from schemax.tokens import ChildSlot, Ids, Prior, SlotOutput, SlotSpec

# Less probable branches are not decoded: the choices behind one share its probability equally.
# docs/results.md says what the others bring.
LEAST_PROBABLE = 0.01
# Choices that together have a lower probability are asked for as free text as well.
LEAST_LEGAL = 0.5


class ChoiceTexts:
    """The texts that may be written into a slot, and the choice that each stands for.

    texts: a text, with what may follow it in the output -> the choice.
    """

    def __init__(self, texts: Mapping[bytes, Any]) -> None:
        self.texts = sorted(texts)
        self._values = [texts[text] for text in self.texts]
        self.values = tuple(dict.fromkeys(texts.values()))
        self.left_by = lru_cache(maxsize=65_536)(self._left_by)

    def _left_by(self, codec: TextCodec, ids: Ids) -> tuple[Any, ...]:
        """The choices that are still possible behind these tokens; see `begun_by`."""
        return self.begun_by(codec.decode_bytes(ids))

    def begun_by(self, written: bytes) -> tuple[Any, ...]:
        """The choices whose texts begin with `written`, else the choice whose text begins it."""
        place = bisect_left(self.texts, written)
        values = []
        while place < len(self.texts) and self.texts[place].startswith(written):
            values.append(self._values[place])
            place += 1
        if not values:
            for length in range(len(written), 0, -1):
                place = bisect_left(self.texts, written[:length])
                if place < len(self.texts) and self.texts[place] == written[:length]:
                    return (self._values[place],)
        return tuple(dict.fromkeys(values))


def choices_of(
    attribute: Attribute, tails: Sequence[str], output_format: OutputFormat
) -> ChoiceTexts:
    """The choices of an attribute with choices: Python values, and None for null.

    tails: the texts that may follow a value in the output.
    """
    values = attribute.choice_values if attribute.kind == "enum" else (True, False)
    pairs = [(value, value) for value in values]
    pairs += [(text, value) for text, value in zip(attribute.choices, values, strict=False)]
    if not attribute.choices and not attribute.strict:
        pairs += spellings().items()
    if attribute.may_be_null:
        pairs.append((None, None))
    return ChoiceTexts(
        {
            (output_format.escape(written) + tail).encode(): value
            for written, value in pairs
            for tail in tails
        }
    )


def free_text_of(attribute: Attribute) -> Attribute | None:
    """The attribute as free text instead of choices; None where literals alone are taken."""
    # With one choice, a text could name no other.
    if attribute.kind != "enum" or attribute.strict or len(attribute.choices) < 2:
        return None
    # A text that names a choice need not stand in the document, as the choice need not.
    text = replace(attribute, kind="string", choices=(), choice_values=(), constraints=())
    return replace(text, extractive=False)


def named_choices(attribute: Attribute) -> ChoiceReader:
    """Recognizes the choices of an attribute in texts."""
    return ChoiceReader(dict(zip(attribute.choices, attribute.choice_values, strict=True)))


@dataclass(frozen=True, slots=True, eq=False)
class Branches:
    """The slots that follow a choice: the choices not taken, and the choice asked as free text.

    See `tokens.FollowUps`. reached: the probability of the slot itself, below 1 for a branch.
    key: of the slot. free_text: the spec of the slot as free text; None where literals alone are
    taken. names: recognizes choices in that text. prior: of the slot.
    """

    choices: ChoiceTexts
    grammar: TokenGrammar
    reached: float = 1.0
    key: Ids = ()
    free_text: SlotSpec | None = None
    names: ChoiceReader | None = None
    prior: Prior | None = None

    @property
    def extent(self) -> int:
        """0: follow-ups share the slot's key and what is left of its budget."""
        return 0

    def after(self, output: SlotOutput) -> tuple[ChildSlot, ...]:
        return (*self._free_text(output), *self._branches(output))

    def _free_text(self, output: SlotOutput) -> Iterator[ChildSlot]:
        """The slot as free text, where the choices together were too improbable."""
        if self.free_text is not None and output.legal_logprobs[1] < log(LEAST_LEGAL):
            shared = len(self.key) - 1
            yield ChildSlot(self.key, None, self.free_text, "free_text", shared)

    def named(self, raw: str, output_format: OutputFormat) -> Any:
        """The choice that a slot's text names; None for a text that names no choice."""
        try:
            text = output_format.unescape(raw)
        except Exception:  # a format may be the user's own
            return None
        if not isinstance(text, str) or self.names is None:
            return None
        reading = self.names.read(text.strip())
        is_named = reading.note is not None or text.strip() in self.names.values
        return reading.value if is_named else None

    def _branches(self, output: SlotOutput) -> Iterator[ChildSlot]:
        """Yields a slot for every probable token that was not taken and leaves several choices."""
        reached = self.reached
        for step in output.alternatives:
            before, chosen = output.ids[: step.step], output.ids[step.step]
            onward = 0.0
            for token, probability in zip(step.ids, step.probabilities, strict=True):
                if token == chosen:
                    onward = probability
                elif reached * probability >= LEAST_PROBABLE:
                    begun = _begun(self.choices, self.grammar, (*before, token))
                    if begun:
                        spec = self._spec(begun, reached * probability)
                        known = len(self.key) + len(before)
                        yield ChildSlot((*self.key, *begun), None, spec, "branch", known)
            reached *= onward

    def _spec(self, begun: Ids, probability: float) -> SlotSpec:
        """The spec of a branch of this probability."""
        inner = replace(self, reached=probability, free_text=None, names=None)
        return SlotSpec(grammar=self.grammar, follow_ups=inner, begun=begun, prior=self.prior)


def with_key(spec: SlotSpec, key: Ids) -> SlotSpec:
    """The spec with the slot's key, which branches begin with."""
    if not isinstance(spec.follow_ups, Branches):
        return spec
    return replace(spec, follow_ups=replace(spec.follow_ups, key=key))


@lru_cache(maxsize=16_384)
def _begun(choices: ChoiceTexts, grammar: TokenGrammar, ids: Ids) -> Ids:
    """The beginning and the tokens that it forces; () if fewer than two choices begin with it."""
    if len(choices.left_by(grammar.codec, ids)) < 2:
        return ()
    matcher = grammar.new_matcher()
    if matcher.try_consume_tokens(list(ids)) != len(ids):
        return ()
    data = matcher.compute_ff_bytes()
    # The last token is left to decoding: with what follows, another token might take its place.
    forced = grammar.encode(data)[:-1] if data else ()
    return (*ids, *forced)
