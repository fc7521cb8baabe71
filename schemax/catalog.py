"""Ready-made categories: the JSON Schema documents in `schemas/`."""

from __future__ import annotations

import json

from schemax.errors import InputError
from schemax.resources import resource_dir
from schemax.schema import AttrSchema


def load_schema(name: str) -> type[AttrSchema]:
    """A ready-made category, such as "television". Raises InputError for an unknown name."""
    stem = name.strip().lower().replace(" ", "_").replace("-", "_")
    path = resource_dir("schemas") / f"{stem}.json"
    if stem not in schema_names() or not path.is_file():
        raise InputError(
            f"unknown schema {name!r}; the ready-made ones are {', '.join(schema_names())}"
        )
    return AttrSchema.from_json_schema(json.loads(path.read_text("utf-8")))


def schema_names() -> tuple[str, ...]:
    """The names of the ready-made categories."""
    return tuple(sorted(path.stem for path in resource_dir("schemas").glob("*.json")))
