"""Patterns of JSON Schema documents, searched for in bounded time, since anyone may write them.

Pydantic's engine is Rust's `regex`, whose time is linear in the text. Patterns that it refuses,
such as look-around, go to the package `regex` with a time limit, which Python's `re` lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial
from operator import itemgetter
from threading import Lock
from typing import Any

import regex
from annotated_types import BaseMetadata
from cachetools import LRUCache, cached
from pydantic.annotated_handlers import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticKnownError, SchemaValidator, core_schema
from pydantic_core import SchemaError as CoreSchemaError

from schemax.base.messages import clipped

LONGEST = 10_000
"""The most characters of a pattern."""

MOST_STATES = 10_000
"""The most characters of a pattern, or of all patterns of a document, with repetitions expanded as
engines compile them."""

# The most seconds of a search, and bytes of compiled patterns in the cache.
_MOST_SECONDS = 0.25
_MOST_BYTES = 16_000_000

# An engine's bytes for a character of a pattern, for a large set of characters, and the most bytes
# for a pattern.
_STATE, _LARGE_SET, _MOST_COMPILED = 500, 85_000, 10_000_000
_LARGE_SETS = re.compile(r"\\[wWpPdDsSbB]|\[\^")


@dataclass(frozen=True, slots=True)
class Pattern(BaseMetadata):
    """Metadata of an `Annotated` text: a regular expression that must match within the text.

    Raises ValueError for a pattern that no engine takes, or that is too large.
    """

    pattern: str

    def __post_init__(self) -> None:
        if len(self.pattern) > LONGEST:
            raise ValueError(
                f"a pattern has at most {LONGEST:,} characters, this one {len(self.pattern):,}"
            )
        if states_of(self.pattern) > MOST_STATES:
            raise ValueError("the pattern repeats too much; use smaller numbers in its braces")
        search_of(self.pattern)

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        # With Pydantic's own validator, every class with the pattern would keep an automaton.
        return core_schema.no_info_after_validator_function(self._check, handler(source))

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern}

    def is_in(self, text: str) -> bool:
        """True if the pattern matches within a text. Raises ValueError if the search is slow."""
        try:
            return search_of(self.pattern)[0](text)
        except TimeoutError:
            raise ValueError(
                f"searching for the pattern {clipped(repr(self.pattern))} took more than "
                f"{_MOST_SECONDS} seconds"
            ) from None

    def _check(self, text: str) -> str:
        if not self.is_in(text):
            raise PydanticKnownError("string_pattern_mismatch", {"pattern": self.pattern})
        return text


def _bytes_of(pattern: str) -> int:
    """The approximate upper bound of a compiled pattern's memory, in bytes."""
    bytes_of_state = _LARGE_SET if _LARGE_SETS.search(pattern) else _STATE
    return min(_MOST_COMPILED, bytes_of_state * states_of(pattern))


@cached(LRUCache(_MOST_BYTES, itemgetter(1)), lock=Lock())
def search_of(pattern: str) -> tuple[Callable[[str], bool], int, bool]:
    """A function that searches a text for a pattern, its bytes, and whether its time is linear.

    If its time is not linear, the function may raise TimeoutError. Raises ValueError for a pattern
    that no engine takes.
    """
    try:
        linear = SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex"))
        return linear.isinstance_python, _bytes_of(pattern), True
    except CoreSchemaError:
        pass
    try:
        compiled = regex.compile(pattern, cache_pattern=False)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ValueError(str(error)) from error
    search = partial(compiled.search, timeout=_MOST_SECONDS)
    return lambda text: search(text) is not None, _bytes_of(pattern), False


_PART = re.compile(
    r"""
    (?P<open> \( ) | (?P<close> \) ) | (?P<repeat> \{ [0-9]+ (?: ,[0-9]* )? \} )
    | \\. | \[ \^? \]? (?: \\. | [^\]\\] )* \] | .
    """,
    re.VERBOSE | re.DOTALL,
)


@lru_cache(maxsize=1024)
def states_of(pattern: str) -> int:
    """The approximate number of a pattern's parts with its repetitions expanded."""
    sizes, last = [0], 0
    for part in _PART.finditer(pattern):
        if part.lastgroup == "open":
            sizes.append(0)
            continue
        if part.lastgroup == "close" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif part.lastgroup == "repeat":
            times = max(int(number[:9]) for number in re.findall("[0-9]+", part[0]))
            sizes[-1] += last * max(0, times - 1)
            last *= times
        else:
            last = 1
            sizes[-1] += 1
    return sum(sizes)
