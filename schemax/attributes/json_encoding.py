"""Finds texts in JSON documents that are not Unicode: `\\ud800` alone is JSON, but no character."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def lone_surrogate(root: Any) -> tuple[str, str] | None:
    """The place of the first text that UTF-8 cannot encode, and the text, escaped; or None."""
    parts: list[tuple[str, Any]] = [("#", root)]
    while parts:
        place, part = parts.pop()
        if isinstance(part, Mapping):
            parts += ((place, key) for key in part)
            parts += ((f"{place}/{_escaped(str(key))}", value) for key, value in part.items())
        elif isinstance(part, (list, tuple)):
            parts += ((f"{place}/{number}", value) for number, value in enumerate(part))
        elif isinstance(part, str) and not part.isascii() and part != (shown := _escaped(part)):
            return place, shown
    return None


def _escaped(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode()
