"""`schemax` with three more formats: JSON with other names for stacked documents.

python -m reproduce.ids evaluate oa-mine --decoding paper --format json-each
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from schemax.commands.cli import main
from schemax.formats import DocumentKey, register_format
from schemax.formats.json_format import JsonFormat

_WORDS = ("one", "two", "three", "four", "five", "six")

Path = tuple[str, ...]


@dataclass(frozen=True)
class _Json(JsonFormat):
    def key(self, path: Path, previous: Path | None) -> str:
        return super().key(self.named(path), previous and self.named(previous))

    def closing(self, last: Path) -> str:
        return super().closing(self.named(last))

    def named(self, path: Path) -> Path:
        return path if not isinstance(path[0], DocumentKey) else self.stacked(path[0], path[1:])

    def stacked(self, id: str, rest: Sequence[str]) -> Path:
        raise NotImplementedError


class Each(_Json):
    """`"1. Brand": ..., "1. Color": ...`: the id before each key, no braces around documents."""

    name = "json-each"

    def stacked(self, id: str, rest: Sequence[str]) -> Path:
        return f"{id}. {rest[0]}", *rest[1:]


class Spelled(_Json):
    """`"three": {"Brand": ..., "Color": ...}`; `spelled.jinja` names documents so in the prompt."""

    name = "json-spelled"

    def stacked(self, id: str, rest: Sequence[str]) -> Path:
        return _WORDS[int(id) - 1], *rest


class Unnamed(_Json):
    """`"Brand": ..., "Color": ..., "Brand": ...`: without ids; the order identifies documents."""

    name = "json-unnamed"

    def stacked(self, id: str, rest: Sequence[str]) -> Path:
        return tuple(rest)


FORMATS = (Each(), Spelled(), Unnamed())

if __name__ == "__main__":
    for made in FORMATS:
        register_format(made.name, made)
    main()
