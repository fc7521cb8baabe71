"""Slots that copy: their texts have to stand in the document, so that a model invents none.

Document and value are compared in bytes, as the format writes them. Continuations are looked up in
the document first, then in the vocabulary: few tokens go on as a document does.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from schemax.attributes import Attribute
from schemax.compiler.document_runs import BREAK, DocumentRuns, Way, lines_of
from schemax.compiler.grammars import spelling_of
from schemax.compiler.tokenizer import TextCodec
from schemax.config import DecodingConfig
from schemax.formats import Form, OutputFormat
from schemax.tokens import FREE

_NO_IDS: tuple[int, ...] = ()
# Bytes that index the longest tokens: few tokens share this many. Shorter tokens are always tried.
_KEY = 4


@dataclass(frozen=True, slots=True)
class Copying:
    """The forms in which a slot writes texts of its document; see `SlotSpec.copying`.

    ways: longer heads first. is_all: whether texts have a form without quotes, so that every value
    begins like a text.
    """

    ways: tuple[Way, ...]
    is_all: bool
    codec: TextCodec
    vocab_size: int


def copying_of(
    attribute: Attribute,
    output_format: OutputFormat,
    tails: Sequence[str],
    config: DecodingConfig,
    codec: TextCodec,
    vocab_size: int,
) -> Copying | None:
    """The copying of a slot; None if its values need not, or cannot, be held to the document.

    tails: the texts that may follow a value in the output.
    """
    is_held = config.extractive if attribute.extractive is None else attribute.extractive
    spelling = spelling_of(output_format) if is_held and _is_free(attribute) else None
    if spelling is None:
        return None
    null = output_format.escape(None).removeprefix(" ").encode() if attribute.may_be_null else b""
    ways = [_way(form, tails, null) for form in spelling.texts]
    is_all = any(way.head == b" " for way in ways)
    # A number without quotes looks like a text, but need not be written as in the document.
    if not all(way.marker for way in ways) or (is_all and not attribute.is_text):
        return None
    ways.sort(key=lambda way: -len(way.head))
    return _shared(Copying(tuple(ways), is_all, codec, vocab_size))


@lru_cache(maxsize=64)
def _shared(copying: Copying) -> Copying:
    """Returns one object for all slots that copy alike, so that they share readers."""
    return copying


def _is_free(attribute: Attribute) -> bool:
    """True if any text may be written, and no other values but numbers."""
    texts = [variant for variant in attribute.variants if variant.is_text]
    is_plain = all(variant.is_text or variant.is_number for variant in attribute.variants)
    takes_all = not any(text.constraints for text in texts) if texts else attribute.takes_texts
    return takes_all and not attribute.is_list and is_plain


def _way(form: Form, tails: Sequence[str], null: bytes) -> Way:
    behind = {(form.after + tail).encode()[:1] for tail in tails}
    written = ((text, ways[0]) for text, ways in (form.characters or {}).items())
    return Way(
        head=f" {form.before}".encode(),
        marker=behind.pop() if len(behind) == 1 else b"",
        characters=tuple((text, way) for text, way in written if way != text and text != "\n"),
        never=re.compile("|".join(f"(?:{never})" for never in form.never)) if form.never else None,
        beside=b"" if form.before else null,
    )


class DocumentSource:
    """A document that slots copy from, read on first use; see `tokens.CopySource`.

    ids: the document's tokens in the prompt.
    """

    def __init__(self, ids: tuple[int, ...], codec: TextCodec) -> None:
        self._ids, self._codec = ids, codec
        self._readers: dict[int, DocumentReader] = {}

    def reader(self, copying: Copying) -> DocumentReader:
        # By identity: hashing its contents would cost more than all else.
        reader = self._readers.get(id(copying))
        if reader is None:
            reader = self._readers[id(copying)] = DocumentReader(self, copying)
        return reader

    @cached_property
    def lines(self) -> str:
        data = b"".join(map(self._codec.token_bytes.__getitem__, self._ids))
        return lines_of(data.decode("utf-8", "replace"))


# The first place in the document, from start to end, of the text written so far.
Match = tuple[DocumentRuns, int, int]


class DocumentReader:
    """Reads what slots may copy from one document; see `tokens.CopyReader`.

    A state is a `Match`, or the bytes written before the text's first character.
    """

    def __init__(self, document: DocumentSource, copying: Copying) -> None:
        self._document, self._copying = document, copying
        self._vocabulary = _vocabulary(copying.codec, copying.vocab_size)
        self._tokens = self._vocabulary.tokens
        self._runs: dict[int, DocumentRuns] = {}
        self._first: dict[bytes, npt.NDArray[np.int64]] = {}

    def begin(self, ids: Iterable[int]) -> Match | bytes | str | None:
        state: Match | bytes | str | None = b""
        for token in ids:
            if state is None or isinstance(state, str):
                break
            state = self.after(state, token)
        return state

    def after(self, state: Match | bytes, token: int) -> Match | bytes | str | None:
        data = self._tokens[token]
        if isinstance(state, bytes):
            return self._begun(state + data) if data else None
        runs, start, end = state
        if data and runs.goes_on(data, start, end):
            return runs, start, end + len(data)
        cut = data.find(runs.marker)
        if cut >= 0 and runs.goes_on(data[:cut], start, end) and runs.is_end(end + cut):
            return FREE
        # The text may stand at a later place, too, and go on with this token there.
        return self._found(runs, runs.data[start:end], data, start)

    def allowed(self, state: Match | bytes) -> npt.NDArray[np.bool_]:
        if isinstance(state, bytes):
            mask = _unlike_texts(self._copying, state).copy()
            if state not in self._first:
                self._first[state] = np.array(self._first_ids(state), np.int64)
            mask[self._first[state]] = True
            return mask
        mask = np.zeros(len(self._tokens), bool)
        runs, start, end = state
        text = runs.data[start:end]
        places = ((place, place + len(text)) for place in runs.places(text, start))
        mask[self._onward(runs, b"", places)] = True
        return mask

    def _of(self, way: Way) -> DocumentRuns:
        runs = self._runs.get(id(way))
        if runs is None:
            runs = self._runs[id(way)] = DocumentRuns(self._document.lines, way)
        return runs

    def _begun(self, written: bytes) -> Match | bytes | str | None:
        """The state behind the first bytes of a value."""
        copying = self._copying
        for way in copying.ways:
            # Nothing but a text, or also a number, begins like this.
            if way.head.startswith(written) and (
                (len(written) < len(way.head) and not copying.is_all) or self._of(way).data
            ):
                return written
        for way in copying.ways:
            if written.startswith(way.head):
                return self._found(self._of(way), b"", written[len(way.head) :], 0)
        return None if copying.is_all else FREE

    def _found(
        self, runs: DocumentRuns, text: bytes, data: bytes, since: int
    ) -> Match | str | None:
        """The state behind a text and a token's bytes, looked for from the place `since` on."""
        if not data:
            return None
        longer = text + data
        if (start := runs.first(longer, since)) >= 0:
            return runs, start, start + len(longer)
        cut = data.find(runs.marker)
        while cut >= 0:
            if runs.holds(text + data[:cut], since):
                return FREE
            cut = data.find(runs.marker, cut + 1)
        return None

    def _first_ids(self, written: bytes) -> list[int]:
        """Tokens that lead into a text, behind the first bytes of a value."""
        token_ids: list[int] = []
        for way in self._copying.ways:
            if not way.head.startswith(written):
                continue
            head, runs = way.head[len(written) :], self._of(way)
            for length in range(1, len(head) + 1):
                plain = self._vocabulary.plain.get(head[:length], _NO_IDS)
                token_ids += (token for token in plain if self.after(written, token) is not None)
            token_ids += self._onward(runs, head, ((start, start) for start in runs.starts()))
        return token_ids

    def _onward(
        self, runs: DocumentRuns, head: bytes, places: Iterable[tuple[int, int]]
    ) -> list[int]:
        """Tokens that write what is left of a head, and go on with a text or end it.

        places: (start, end) wherever the text written so far stands.
        """
        vocabulary = self._vocabulary
        plain, ending = vocabulary.plain, vocabulary.ending(runs.marker)
        # Places with the same continuation allow the same tokens.
        alike: dict[tuple[bytes, int], tuple[int, int]] = {}
        for start, end in places:
            last = min(runs.limit(start), end + vocabulary.longest)
            alike.setdefault((runs.data[end : last + 1], last - end), (start, end))
        token_ids: list[int] = []
        for (_, count), (start, end) in alike.items():
            ahead = head + runs.data[end : end + count]
            longest = vocabulary.longest_with.get(ahead[:_KEY], _KEY - 1)
            for length in range(len(head), min(longest, len(ahead)) + 1):
                piece, reached = ahead[:length], end + length - len(head)
                if reached > end and (ids := plain.get(piece)):
                    token_ids += ids
                if reached > start and (ids := ending.get(piece)) and runs.is_end(reached):
                    token_ids += ids
        return token_ids


class _Vocabulary:
    """Tokens by their bytes.

    tokens: (V,) bytes; b"" for tokens without bytes and for tokens that hold `BREAK`.
    plain: bytes -> tokens. longest: the most bytes of a token. longest_with: the most bytes of a
    token by its first `_KEY` bytes.
    """

    def __init__(self, codec: TextCodec, vocab_size: int) -> None:
        known = [b"" if BREAK in data else data for data in codec.token_bytes[:vocab_size]]
        self.tokens = (*known, *[b""] * (vocab_size - len(known)))
        self.plain: dict[bytes, list[int]] = defaultdict(list)
        self.longest_with: dict[bytes, int] = defaultdict(int)
        for token, data in enumerate(self.tokens):
            if data:
                self.plain[data].append(token)
                key = data[:_KEY]
                self.longest_with[key] = max(self.longest_with[key], len(data))
        self.longest = max(self.longest_with.values(), default=0)
        self._ending: dict[bytes, dict[bytes, list[int]]] = {}

    def ending(self, marker: bytes) -> dict[bytes, list[int]]:
        """The bytes before a marker in a token -> the tokens with these bytes."""
        if marker not in self._ending:
            tokens: dict[bytes, list[int]] = defaultdict(list)
            for token, data in enumerate(self.tokens):
                cut = data.find(marker)
                while cut >= 0:
                    tokens[data[:cut]].append(token)
                    cut = data.find(marker, cut + 1)
            self._ending[marker] = tokens
        return self._ending[marker]


@lru_cache(maxsize=8)
def _vocabulary(codec: TextCodec, vocab_size: int) -> _Vocabulary:
    return _Vocabulary(codec, vocab_size)


@lru_cache(maxsize=32)
def _unlike_texts(copying: Copying, written: bytes) -> npt.NDArray[np.bool_]:
    """(V,) the tokens behind which the value cannot be a text."""
    tokens = _vocabulary(copying.codec, copying.vocab_size).tokens
    if copying.is_all:
        return np.zeros(len(tokens), bool)
    heads = [way.head[len(written) :] for way in copying.ways if way.head.startswith(written)]
    begun = {head[:length] for head in heads for length in range(len(head) + 1)}
    whole = tuple(heads)
    return np.array([data not in begun and not data.startswith(whole) for data in tokens])
