"""The spelling of texts in a format, from which grammars are made.

`OutputFormat.escape` writes a text in one way; a `Spelling` describes all ways. Types of fields are
left to `schemax.compiler.grammars`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """A form of texts: characters one by one, between `before` and `after`.

    characters: all ways to write the characters that cannot, or need not, stand as they are.
    never: regular expressions, in the common dialect of Python and Rust, none of which matches the
        written characters from end to end.
    """

    before: str = ""
    after: str = ""
    characters: Mapping[str, tuple[str, ...]] | None = None
    never: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Spelling:
    """The forms of texts as values and as items of lists, and the brackets of lists.

    alone: the text that may follow a list's only item, before `closing`, to tell it from a text.
    exceptions: texts without a form, which `escape` alone can write.

    Every other text has a form, and no form reads back as another text. Numbers, words and dates
    have a single spelling, that of `escape`.
    """

    texts: tuple[Form, ...]
    items: tuple[Form, ...]
    opening: str
    separator: str
    closing: str
    exceptions: tuple[str, ...] = ()
    alone: str = ""


_NOT_PLAIN = (*map(chr, range(0xA0)), *"\u2028\u2029\ufeff\ufffe\uffff")


def written(
    write: Callable[[str], str], characters: Iterable[str] = _NOT_PLAIN
) -> dict[str, tuple[str, ...]]:
    """The characters that `write` changes, each with what it writes."""
    return {text: (write(text),) for text in characters if write(text) != text}
