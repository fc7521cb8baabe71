"""Python names for the classes and fields that a JSON Schema document names freely."""

from __future__ import annotations

import keyword
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel


def class_name(title: str) -> str:
    """A Python class name made of the words of a title."""
    words = re.findall(r"[^\W_]+", re.sub(r"['\u2019]", "", title))
    name = "".join(word[:1].upper() + word[1:] for word in words) or "Schema"
    return name if name.isidentifier() and not keyword.iskeyword(name) else f"Schema{name}"


def field_names(properties: Mapping[str, Any], base: type[BaseModel]) -> dict[str, str]:
    """A Python field name for every property; those that can keep theirs come first."""
    names = {key: key for key in properties if _is_field_name(key, base)}
    taken, times = set(names), Counter[str]()
    for key in properties:
        if key in names:
            continue
        words = re.findall(r"\w+", key)
        stem = "_".join(words).lower().strip("_") if not key.isidentifier() else key.strip("_")
        if not stem.isidentifier() or stem.startswith(("model_validate", "model_dump")):
            stem = f"field_{stem}".rstrip("_")
        if not _is_field_name(stem, base):
            stem += "_"
        name = stem
        while name in taken:
            times[stem] += 1
            name = f"{stem}_{times[stem] + 1}".replace("__", "_")
        taken.add(name)
        names[key] = name
    return names


def _is_field_name(name: str, base: type[BaseModel]) -> bool:
    return (
        name.isidentifier()
        and not keyword.iskeyword(name)
        and not name.startswith(("_", "model_validate", "model_dump"))
        and not hasattr(base, name)
    )
