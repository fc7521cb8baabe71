"""Stop rules: byte automata that find the end of a slot's text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Protocol


class StopRule(Protocol):
    """A byte automaton that finds the end of a value. State 0 is the start.

    Rules are hashable, with few states, numbered from 0 (at most 100: stop tables are int8). They
    read bytes, not characters, because tokens may end inside a character.
    """

    def __hash__(self) -> int: ...

    def advance(self, state: int, byte: int) -> int:
        """The next state (>= 0), or -1 - n when this byte completes the rule.

        n is the number of last bytes, this one included, that belong to the delimiter, not to the
        value.
        """


@lru_cache(maxsize=256)
def _search_table(delimiter: bytes) -> tuple[tuple[int, ...], ...]:
    """The table of Knuth-Morris-Pratt: the bytes of the delimiter read, after each byte."""
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
    """Ends a value with a delimiter, which is trimmed."""

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
    """The rule that ends a value with `delimiter`."""
    return StopAt(delimiter.encode() if isinstance(delimiter, str) else bytes(delimiter))


NEWLINE = stop_at("\n")


def split_at_stop(rule: StopRule, data: bytes) -> tuple[bytes, bool]:
    """The bytes of the value before the delimiter, and whether the value is complete."""
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
    """The transitions of all reachable states: state -> the result of `advance` for each byte."""
    rows: dict[int, tuple[int, ...]] = {}
    waiting = {0}
    while waiting:
        state = waiting.pop()
        rows[state] = tuple(rule.advance(state, byte) for byte in range(256))
        waiting |= {following for following in rows[state] if following >= 0} - rows.keys()
    return rows


def reachable_states(rule: StopRule) -> tuple[int, ...]:
    """The states of the rule that are reachable from the start, in order."""
    return tuple(sorted(transitions(rule)))
