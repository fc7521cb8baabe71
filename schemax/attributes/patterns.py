"""Patterns of JSON Schema documents, which anyone may have written: searched for in bounded time.

Pydantic's own engine is Rust's `regex`, whose time is linear in the text. What that does not know,
such as look-around, goes to the package `regex` with a time limit; Python's `re` has none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import regex
from annotated_types import BaseMetadata
from pydantic.annotated_handlers import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic_core import PydanticKnownError, SchemaValidator, core_schema
from pydantic_core import SchemaError as CoreSchemaError

LONGEST = 10_000
"""Characters of a pattern."""

# Seconds that a search may take, and characters of a pattern whose repetitions are written out,
# which is what the engine with the time limit compiles.
_MOST_SECONDS = 0.25
_MOST_EXPANDED = 100_000


@dataclass(frozen=True, slots=True)
class Pattern(BaseMetadata):
    """In the metadata of an `Annotated` text: a regular expression that is found in it.

    Raises ValueError for one that no engine takes, or that is too large.
    """

    pattern: str

    def __post_init__(self) -> None:
        if len(self.pattern) > LONGEST:
            raise ValueError(
                f"a pattern has at most {LONGEST:,} characters, this one {len(self.pattern):,}"
            )
        if not _is_linear(self.pattern):
            if _expanded(self.pattern) > _MOST_EXPANDED:
                raise ValueError(
                    "the pattern repeats too much; use smaller numbers in its braces, or no "
                    "look-around and no back-references"
                )
            try:
                regex.compile(self.pattern)
            except (regex.error, RecursionError, OverflowError) as error:
                raise ValueError(str(error)) from error

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        schema = handler(source)
        if _is_linear(self.pattern) and schema["type"] == "str":
            # Named here, since the class that is derived from may have chosen the other one.
            return {**schema, "pattern": self.pattern, "regex_engine": _LINEAR}
        return core_schema.no_info_after_validator_function(self._check, schema)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return {**handler(schema), "pattern": self.pattern}

    def _check(self, text: str) -> str:
        try:
            found = regex.search(self.pattern, text, timeout=_MOST_SECONDS)
        except TimeoutError:
            raise ValueError(
                f"searching for the pattern {self.pattern!r} took more than {_MOST_SECONDS} seconds"
            ) from None
        if found is None:
            raise PydanticKnownError("string_pattern_mismatch", {"pattern": self.pattern})
        return text


_LINEAR: Literal["rust-regex"] = "rust-regex"


@lru_cache(maxsize=256)
def _is_linear(pattern: str) -> bool:
    try:
        SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine=_LINEAR))
    except CoreSchemaError:
        return False
    return True


_PART = re.compile(
    r"""
    (?P<open> \( ) | (?P<close> \) ) | (?P<repeat> \{ [0-9]+ (?: ,[0-9]* )? \} )
    | \\. | \[ \^? \]? (?: \\. | [^\]\\] )* \] | .
    """,
    re.VERBOSE | re.DOTALL,
)


def _expanded(pattern: str) -> int:
    """How many parts a pattern has with its repetitions written out, about."""
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
