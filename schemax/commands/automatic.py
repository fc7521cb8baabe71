"""`schemax extract auto`: the ready-made schema of every category that the input names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

from pydantic import BaseModel
from rich.console import Console

from schemax.catalog import load_schemas
from schemax.commands.console import UsageError, table
from schemax.errors import InputError
from schemax.io.readers import InputFiles, Shard
from schemax.messages import counted, say, some_of
from schemax.ready_made import Match, match_of

AUTO = "auto"
"""Stands for SCHEMA where the category of each record chooses it."""

# Records that are looked at, and different categories that a column may hold.
_LOOKED_AT, _MOST_CATEGORIES = 1_000_000, 2_000
_MOST_SHOWN = 50


class _Line(NamedTuple):
    category: str
    rows: int
    match: Match | None


_COLUMNS: Mapping[str, Callable[[_Line], Any]] = {
    "category": lambda line: line.category,
    "schema": lambda line: line.match.schema if line.match else "none",
    "by its": lambda line: line.match.how if line.match else None,
    "rows": lambda line: f"{line.rows:,}",
}


def schemas_by_category(
    source: InputFiles, key: str, *, quiet: bool
) -> Mapping[str, type[BaseModel]]:
    """Ready-made schemas by the categories of the first million records, all shards together.

    Says on stderr, as a table, which category has got which. Raises UsageError where the input
    cannot be read twice, has too many categories for a column of them, or none with a schema.
    """
    if source.is_stdin:
        raise UsageError("auto reads the input twice, which stdin does not allow: name a file")
    counts = _counted(replace(source, columns=(key,), shard=Shard()), key)
    schemas = load_schemas(counts)
    lines = [_Line(name, rows, match_of(name)) for name, rows in counts.most_common()]
    if not schemas:
        found = f"it holds {some_of(map(repr, counts))}" if counts else "it holds none"
        raise UsageError(
            f"no category in the column {key!r} has a ready-made schema ({found}); name the column "
            "with --category, or schemas with CATEGORY=SCHEMA"
        )
    if not quiet:
        Console(stderr=True).print(table(lines[:_MOST_SHOWN], _COLUMNS, left=3))
        if len(lines) > _MOST_SHOWN:
            say(f"and {counted(len(lines) - _MOST_SHOWN, 'more category', 'more categories')}")
        if missing := sum(line.rows for line in lines if line.match is None):
            say(f"note: {counted(missing, 'row')} of categories without a schema will fail")
    return schemas


def _counted(source: InputFiles, key: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    with suppress(InputError):  # of a file that breaks off, as the run itself will say
        for _, record in islice(source.rows(), _LOOKED_AT):
            if isinstance(record, Mapping) and record.get(key) is not None:
                counts[str(record[key])] += 1
            if len(counts) > _MOST_CATEGORIES:
                raise UsageError(
                    f"the column {key!r} has more than {_MOST_CATEGORIES:,} different values, too "
                    "many for categories; name the right one with --category"
                )
    return counts
