"""Slots that copy: their texts have to stand in the document, so that a model invents none.

Document and value are compared in bytes, as the format writes them. Continuations are looked up in
the document first, then in the vocabulary: few tokens go on as a document does.

A slot may copy any run within a line, from word edge to word edge. An edge is any place between two
characters, except between two digits, and between two letters of a script that has upper and lower
case. So scripts without spaces have edges everywhere. No text ends with white space. A text in
quotes may begin with it, since tokens bring it along; reading the value drops it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import islice
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from schemax.attributes import Attribute
from schemax.compiler.grammars import spelling_of
from schemax.compiler.tokenizer import TextCodec
from schemax.config import DecodingConfig
from schemax.formats import Form, OutputFormat
from schemax.tokens import FREE

BREAK = b"\xff"
"""The separator of lines: a byte that no character is written with."""

# The most bytes of a text that patterns are tried on, since some take quadratic time; and the most
# edges among which the last end of a text is searched.
_LONGEST, _MOST_EDGES = 1_024, 64

# Kinds of characters: letters with case and the marks on them, digits, white space; else 0.
# Bytes but the first of a character have a further bit: no text starts or ends before them.
_LETTER, _DIGIT, _SPACE, _INNER = 1, 2, 3, 8
_BREAK_KIND = bytes([_SPACE])
_STARTS = re.compile(rb"[\x00\x03]|(?<![\x01\x09])\x01|(?<![\x02\x0a])\x02")
# Beyond Unicode's first plane, every character is a word of its own.
_NUM_KINDS = 0x10000
_NO_IDS: tuple[int, ...] = ()
# Bytes that index the longest tokens: few tokens share this many. Shorter tokens are always tried.
_KEY = 4


@dataclass(frozen=True, slots=True)
class Way:
    """A form in which a text is written.

    head: the bytes before its characters, the leading space included.
    marker: the first byte behind them.
    characters: (character, how it is written), for escaped characters alone.
    never: matches from end to end what no text may be, as written; None for no such pattern.
    beside: the literal of null where it could be taken for a text; b"" if there is none.
    """

    head: bytes
    marker: bytes
    characters: tuple[tuple[str, str], ...] = ()
    never: re.Pattern[str] | None = None
    beside: bytes = b""


@dataclass(frozen=True, slots=True)
class Copying:
    """The forms in which a slot writes texts of its document; see `SlotSpec.copying`.

    ways: longer heads first.
    is_all: whether texts have a form without quotes, so that every value begins like a text.
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
    is_held = attribute.extractive
    if is_held is None:
        is_held = config.constrain == "document"
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
    return _shared_copying(Copying(tuple(ways), is_all, codec, vocab_size))


@lru_cache(maxsize=64)
def _shared_copying(copying: Copying) -> Copying:
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
Match: TypeAlias = "tuple[DocumentRuns, int, int]"


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
        self._cuts: dict[tuple[int, int], tuple[tuple[int, ...], dict[int, int]]] = {}

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
        # The text may also stand at a later place, and go on with this token there.
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

    def ahead(self, state: Match | bytes, count: int) -> tuple[int, ...]:
        if isinstance(state, bytes):
            return ()
        runs, start, end = state
        key = id(runs), start
        if key not in self._cuts:
            self._cuts[key] = self._cut(runs.data[start : min(runs.limit(start), start + _LONGEST)])
        ids, places = self._cuts[key]
        first = places.get(end - start)
        return () if first is None else ids[first : first + count]

    def _cut(self, data: bytes) -> tuple[tuple[int, ...], dict[int, int]]:
        """The tokens of a text, and by the bytes before a token its place among them."""
        ids = tuple(self._copying.codec.encode(data.decode("utf-8", "ignore"), behind=None))
        whole = b"".join(map(self._tokens.__getitem__, ids))
        if not whole.endswith(data):
            return (), {}
        places, end = {}, len(data) - len(whole)  # some tokenizers put a space before a text
        for place, token in enumerate(ids, 1):
            end += len(self._tokens[token])
            places[end] = place
        return ids, places

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
    plain: bytes -> tokens.
    longest: the most bytes of a token.
    longest_with: the most bytes of a token by its first `_KEY` bytes.
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


# --- runs of a document --------------------------------------------------------------------------


def lines_of(text: str) -> str:
    """The lines of a text that are not empty, without white space around them."""
    return "\n".join(line for part in text.splitlines() if (line := part.strip()))


class DocumentRuns:
    """A document as one `Way` writes it. Places count bytes, since tokens end within characters.

    text: as `lines_of` gives it.
    data: the text as written.
    marker, never: of the way.

    From its start, a text may go on within its line to the last place where one may end.
    """

    __slots__ = ("_apart", "_kinds", "_limits", "data", "marker", "never")

    def __init__(self, text: str, way: Way) -> None:
        self.marker, self.never = way.marker, way.never
        self._apart = (0, _SPACE) if way.never is None else (0,)
        self._limits: dict[int, int] = {}
        self.data, kinds = _written_text(text, way)
        if way.beside:
            start = len(self.data) + len(BREAK)
            self.data += BREAK + way.beside
            kinds += _BREAK_KIND + way.beside.translate(_ASCII_KINDS)
            self._limits[start] = len(self.data)
        # The kind of every byte, with a line's end before the first and behind the last.
        self._kinds = _BREAK_KIND + kinds + _BREAK_KIND

    def goes_on(self, data: bytes, start: int, end: int) -> bool:
        """True if the text from start to end goes on with these bytes, and may end behind them."""
        return self.data.startswith(data, end) and (
            self.never is None or end + len(data) <= self.limit(start)
        )

    def is_end(self, place: int) -> bool:
        """True if a text may end before this byte."""
        before, after = self._kinds[place] & ~_INNER, self._kinds[place + 1]
        return before != _SPACE and after < _INNER and (before != after or not after)

    def limit(self, start: int) -> int:
        """The furthest end of a text that starts here; `start` if it cannot end."""
        limit = self._limits.get(start)
        if limit is None:
            limit = self._limits[start] = self._limit(start)
        return limit

    def _limit(self, start: int) -> int:
        end = self.data.find(BREAK, start)
        if end < 0:
            end = len(self.data)
        if self.never is None:
            return end
        if end - start > _LONGEST:
            end = next(filter(self.is_end, range(start + _LONGEST, start, -1)), start)
        if self._is_text(start, end):
            return end
        edges = filter(self.is_end, range(start + 1, end))
        return max(
            (place for place in islice(edges, _MOST_EDGES) if self._is_text(start, place)),
            default=start,
        )

    def _is_text(self, start: int, end: int) -> bool:
        assert self.never is not None
        return not self.never.fullmatch(self.data[start:end].decode())

    def places(self, begun: bytes, since: int = 0) -> Iterator[int]:
        """Yields the places where a text starts that begins with these bytes, at least one."""
        start = self.data.find(begun, since)
        while start >= 0:
            if self._is_start(start) and start + len(begun) <= self.limit(start):
                yield start
            start = self.data.find(begun, start + 1)

    def _is_start(self, place: int) -> bool:
        before, after = self._kinds[place] & ~_INNER, self._kinds[place + 1]
        return after in self._apart or (before != after and after in (_LETTER, _DIGIT))

    def first(self, begun: bytes, since: int = 0) -> int:
        """The first of `places`; -1 if there is none."""
        return next(self.places(begun, since), -1)

    def holds(self, text: bytes, since: int = 0) -> bool:
        """True if these bytes are a whole text of the document."""
        return bool(text) and any(self.is_end(p + len(text)) for p in self.places(text, since))

    def starts(self) -> Iterator[int]:
        """Yields all places where a text may start."""
        matches = _STARTS.finditer(self._kinds, 1, len(self._kinds) - 1)
        return (match.start() - 1 for match in matches if self._is_start(match.start() - 1))


def _written_text(text: str, way: Way) -> tuple[bytes, bytes]:
    """A text as it is written, and the kind of every byte's character."""
    special = _special_characters(way.characters)
    if text.isascii() and not special.search(text):
        data = text.encode()
        return data.replace(b"\n", BREAK), data.translate(_ASCII_KINDS)
    codes = np.frombuffer(text.encode("utf-32-le"), "<u4")
    lengths = 1 + (codes >= 0x80).astype(np.int64) + (codes >= 0x800) + (codes >= 0x10000)
    written = dict(way.characters)
    for match in special.finditer(text):
        lengths[match.start()] = len(written[match[0]].encode())
    data = special.sub(lambda match: written[match[0]], text).encode()
    kinds = np.repeat(_all_kinds()[np.minimum(codes, _NUM_KINDS - 1)] | _INNER, lengths)
    kinds[lengths.cumsum() - lengths] &= ~np.uint8(_INNER)
    return data.replace(b"\n", BREAK), kinds.tobytes()


def _special_characters(characters: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    """The pattern that finds escaped characters."""
    if not characters:
        return re.compile(r"(?!)")
    return re.compile("[" + "".join(re.escape(character) for character, _ in characters) + "]")


def _kind(character: str) -> int:
    if character.isspace():
        return _SPACE
    if character.isdigit():
        return _DIGIT
    has_case = character.lower() != character.upper()
    return _LETTER if has_case or unicodedata.combining(character) else 0


_ASCII_KINDS = bytes(_kind(chr(code)) if code < 0x80 else 0 for code in range(0x100))


@lru_cache(maxsize=1)
def _all_kinds() -> npt.NDArray[np.uint8]:
    """(65536,) the kinds of all characters of Unicode's first plane."""
    return np.array([*map(_kind, map(chr, range(_NUM_KINDS)))], np.uint8)
