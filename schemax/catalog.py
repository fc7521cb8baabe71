"""Ready-made schemas: the JSON Schema documents in `schemas/`."""

from __future__ import annotations

import json
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from schemax.category_names import Match, Names, match_category, names_of
from schemax.errors import InputError
from schemax.resources import resource_dir
from schemax.schema import AttrSchema


def load_schema(name: str) -> type[AttrSchema]:
    """A ready-made schema, such as "television". Raises InputError for an unknown name."""
    stem = name.strip().lower().replace(" ", "_").replace("-", "_")
    if stem not in _paths():
        near = " or ".join(map(repr, get_close_matches(stem, schema_names())))
        known = f"did you mean {near}?" if near else f"there are {', '.join(schema_names())}"
        raise InputError(f"unknown schema {name!r}; {known}")
    return AttrSchema.from_json_schema(document_of(stem))


def load_schemas(categories: Iterable[str]) -> dict[str, type[AttrSchema]]:
    """For each of a shop's categories the ready-made schema that its name means, if there is one.

    `extract(products, load_schemas(categories), category=...)` reads every product for the
    attributes of its own category. Of a path ("Electronics > Smart TVs"), the last level counts;
    case and plurals make no difference. Categories without a schema are left out.
    """
    found = {category: match_of(category) for category in categories}
    classes = {match.schema: load_schema(match.schema) for match in found.values() if match}
    return {category: classes[match.schema] for category, match in found.items() if match}


def schema_names() -> tuple[str, ...]:
    """The names of the ready-made schemas."""
    return tuple(sorted(_paths()))


def document_of(name: str) -> dict[str, Any]:
    """The JSON Schema document of a ready-made schema."""
    found: dict[str, Any] = json.loads(_paths()[name].read_text("utf-8"))
    return found


def match_of(category: str) -> Match | None:
    """The ready-made schema that a shop's name of a category means."""
    return match_category(category, _names())


def is_task(name: str) -> bool:
    """Whether the schema is of no product: a form, a ticket, an invoice."""
    return _paths()[name].parent.name == "tasks"


@cache
def _paths() -> dict[str, Path]:
    return {path.stem: path for path in resource_dir("schemas").glob("**/*.json")}


@cache
def _names() -> Names:
    return names_of((name, document_of(name).get("aliases", ())) for name in schema_names())
