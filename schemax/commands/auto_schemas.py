"""The ready-made schema of every category that an input names: `schemax extract auto`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from pydantic import BaseModel
from rich.table import Table

from schemax.attributes.ready_made import Match, match_of
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


class CategoryMatch(NamedTuple):
    """A category, its number of rows, and its ready-made schema, if there is one."""

    category: str
    rows: int
    match: Match | None


_COLUMNS: Columns = {
    "category": lambda found: found.category,
    "schema": lambda found: found.match.schema if found.match else "none",
    "by its": lambda found: found.match.how if found.match else None,
    "rows": lambda found: f"{found.rows:,}",
}


def schemas_by_category(
    source: InputFiles, key: str
) -> tuple[Mapping[str, type[BaseModel]], list[CategoryMatch]]:
    """Ready-made schemas by the categories of the first million records, all shards together.

    Raises InputError for an input that cannot be read twice, that has too many categories for a
    column of categories, or none with a schema.
    """
    if source.is_stdin:
        raise InputError("auto reads the input twice, which stdin does not allow: name a file")
    counts = _counted(replace(source, columns=(key,), shard=Shard()), key)
    schemas = load_schemas(counts)
    matches = [CategoryMatch(name, rows, match_of(name)) for name, rows in counts.most_common()]
    if not schemas:
        found = f"it holds {some_of(map(repr, counts))}" if counts else "it holds none"
        raise InputError(
            f"no category in the column {key!r} has a ready-made schema ({found}); name the column "
            "with --category, or schemas with CATEGORY=SCHEMA"
        )
    return schemas, matches


def matches_shown(matches: Sequence[CategoryMatch]) -> Iterator[str | Table]:
    """Yields a table of the categories with the most rows, and what the table does not show."""
    yield table(matches[:_MOST_SHOWN], _COLUMNS, left=3)
    if len(matches) > _MOST_SHOWN:
        yield f"and {counted(len(matches) - _MOST_SHOWN, 'more category', 'more categories')}"
    if missing := sum(found.rows for found in matches if found.match is None):
        yield f"note: {counted(missing, 'row')} of categories without a schema will fail"


def _counted(source: InputFiles, key: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    with suppress(InputError):  # of a file that breaks off, as the run itself will say
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
