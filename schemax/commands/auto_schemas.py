"""`schemax extract auto`: the ready-made schema of every category that an input names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from pydantic import BaseModel
from rich.table import Table

from schemax.attributes.ready_made import match_of
from schemax.base.messages import counted, some_of
from schemax.base.terminal import Columns, table
from schemax.errors import InputError
from schemax.extraction.declarations import load_schemas
from schemax.io.readers import InputFiles, Shard

AUTO = "auto"
"""Stands for SCHEMA where the category of each record chooses it."""

# Records that are looked at, and different categories that a column may hold.
_LOOKED_AT, _MOST_CATEGORIES = 1_000_000, 2_000
_MOST_SHOWN = 50


def schemas_by_category(
    source: InputFiles, key: str
) -> tuple[Mapping[str, type[BaseModel]], Counter[str]]:
    """Ready-made schemas by category, and the rows of every category, in all shards together.

    It reads the first million records. Raises InputError for an input that cannot be read twice,
    for too many categories, and if no category has a schema.
    """
    if source.is_stdin:
        raise InputError("auto reads the input twice, which stdin does not allow: name a file")
    counts = _category_counts(replace(source, columns=(key,), shard=Shard()), key)
    schemas = load_schemas(counts)
    if not schemas:
        content = f"it holds {some_of(map(repr, counts))}" if counts else "it holds none"
        raise InputError(
            f"no category in the column {key!r} has a ready-made schema ({content}); name the "
            "column with --category, or schemas with CATEGORY=SCHEMA"
        )
    return schemas, counts


def matches_shown(counts: Counter[str]) -> Iterator[str | Table]:
    """Yields a table of the categories with the most rows, and what the table does not show."""
    matches = {category: match_of(category) for category in counts}
    columns: Columns = {
        "category": str,
        "schema": lambda category: match[0] if (match := matches[category]) else "none",
        "by its": lambda category: match[1] if (match := matches[category]) else None,
        "rows": lambda category: f"{counts[category]:,}",
    }
    yield table([category for category, _ in counts.most_common(_MOST_SHOWN)], columns, left=3)
    if len(counts) > _MOST_SHOWN:
        yield f"and {counted(len(counts) - _MOST_SHOWN, 'more category', 'more categories')}"
    if missing := sum(rows for category, rows in counts.items() if matches[category] is None):
        yield f"note: {counted(missing, 'row')} of categories without a schema will fail"


def _category_counts(source: InputFiles, key: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    with suppress(InputError):  # for a truncated file, which the run itself reports
        for _, record in islice(source.rows(), _LOOKED_AT):
            if isinstance(record, Mapping) and record.get(key) is not None:
                counts[str(record[key])] += 1
            if len(counts) > _MOST_CATEGORIES:
                break
    if len(counts) > _MOST_CATEGORIES:
        raise InputError(
            f"the column {key!r} has more than {_MOST_CATEGORIES:,} different values, too many for "
            "categories; name the right one with --category"
        )
    return counts
