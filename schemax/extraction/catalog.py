"""Ready-made schemas as classes."""

from __future__ import annotations

from collections.abc import Iterable

from schemax.attributes.ready_made import demonstrations_of, document_of, match_of, ready_made
from schemax.extraction.schema import AttrSchema


def load_schema(name: str) -> type[AttrSchema]:
    """A ready-made schema, such as "television". Raises InputError for an unknown name."""
    stem = ready_made(name)
    shown = [{"text": text, "attributes": values} for text, values in demonstrations_of(stem)]
    return AttrSchema.from_json_schema({**document_of(stem), "demonstrations": shown})


def load_schemas(categories: Iterable[str]) -> dict[str, type[AttrSchema]]:
    """For each of a shop's categories the ready-made schema that its name means, if there is one.

    `extract(products, load_schemas(categories), category=...)` reads every product for the
    attributes of its own category. Of a path ("Electronics > Smart TVs"), the last level counts;
    case and plurals make no difference. Categories without a schema are left out.
    """
    found = {category: match_of(category) for category in categories}
    classes = {match.schema: load_schema(match.schema) for match in found.values() if match}
    return {category: classes[match.schema] for category, match in found.items() if match}
