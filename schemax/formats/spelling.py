"""The spelling of texts in a format, said in a way that grammars can be made of.

`OutputFormat.escape` writes one text; a `Spelling` describes everything that it may write. The
types of fields are not known here: see `schemax.compiler.grammars`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Form:
    """A way to write a text: its characters one by one, between `before` and `after`.

    characters: all ways to write those that cannot, or need not, stand as they are.
    never: regular expressions, in what the dialects of Python and Rust share: what is written
        between `before` and `after` matches none of them from end to end.
    """

    before: str = ""
    after: str = ""
    characters: Mapping[str, tuple[str, ...]] | None = None
    never: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Spelling:
    """The forms of a text that is a value of its own or an item of a list, and how lists look.

    alone: what may stand before `closing` behind a list's only item, to tell it from a text.
    exceptions: texts that no form writes: `escape` alone knows how.

    Every other text has a form, and no form reads back as another text. Numbers, words and dates
    are written in one way only, which is asked of `escape`.
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
    """The characters that `write` does not leave as they are, with what it writes."""
    return {text: (write(text),) for text in characters if write(text) != text}
