"""Stop rules: byte automata that say where a slot's text ends."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol


class StopRule(Protocol):
    """A byte automaton that finds where a value ends. State 0 is the start.

    Rules are hashable and number their few states from 0 (at most 100: stop tables are int8).
    They read bytes, not characters, because tokens may end inside a character.
    """

    def __hash__(self) -> int: ...

    def advance(self, state: int, byte: int) -> int:
        """The next state (>= 0), or -1 - n when this byte completes the rule.

        n is how many of the last bytes, this one included, belong to the delimiter and not to
        the value.
        """


@lru_cache(maxsize=256)
def _search_table(delimiter: bytes) -> tuple[tuple[int, ...], ...]:
    """Knuth-Morris-Pratt as a table: how much of the delimiter has been read after each byte."""
    rows: list[tuple[int, ...]] = []
    fallback = 0
    for position, wanted in enumerate(delimiter):
        row = list(rows[fallback]) if position else [0] * 256
        if position:
            fallback = rows[fallback][wanted]
        row[wanted] = position + 1
        rows.append(tuple(row))
    return tuple(rows)


@dataclass(frozen=True, slots=True)
class StopAt:
    """Ends where the delimiter has been read; all of the delimiter is trimmed."""

    delimiter: bytes

    def __post_init__(self) -> None:
        if not 1 <= len(self.delimiter) <= 100:
            raise ValueError(
                f"a delimiter has 1 to 100 bytes, not {len(self.delimiter)}: {self.delimiter!r}"
            )

    def advance(self, state: int, byte: int) -> int:
        read = _search_table(self.delimiter)[state][byte]
        return -1 - read if read == len(self.delimiter) else read


def stop_at(delimiter: str | bytes) -> StopAt:
    """The rule that ends a value where `delimiter` has been read."""
    return StopAt(delimiter.encode() if isinstance(delimiter, str) else bytes(delimiter))


NEWLINE = stop_at("\n")


def split_at_stop(rule: StopRule, data: bytes) -> tuple[bytes, bool]:
    """The value's bytes, without the delimiter and all after it; and whether it is complete."""
    rows = transitions(rule)
    row = rows[0]
    for position, byte in enumerate(data, start=1):
        state = row[byte]
        if state < 0:
            return data[: position + state + 1], True
        row = rows[state]
    return data, False


@lru_cache(maxsize=256)
def transitions(rule: StopRule) -> dict[int, tuple[int, ...]]:
    """The transitions of `advance`, by state and byte, of all states that the rule can be in."""
    return {
        state: tuple(rule.advance(state, byte) for byte in range(256))
        for state in reachable_states(rule)
    }


def reachable_states(rule: StopRule) -> tuple[int, ...]:
    """All states of the rule that some bytes lead to, in order."""
    seen = {0}
    waiting = [0]
    while waiting:
        state = waiting.pop()
        for byte in range(256):
            following = rule.advance(state, byte)
            if following >= 0 and following not in seen:
                seen.add(following)
                waiting.append(following)
    return tuple(sorted(seen))
