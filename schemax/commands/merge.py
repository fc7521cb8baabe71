"""`schemax merge`: the tables of shards as one."""

from __future__ import annotations

from dataclasses import MISSING

from schemax.commands.console import plain_warnings, say
from schemax.commands.option_groups import argument, grouped, option
from schemax.io.merging import merge_tables


@grouped
def merge(
    tables: list[str] = argument(
        "What runs with --shard have written: files, addresses and patterns.", "TABLE..."
    ),
    output: str = option(
        "A file of the same format.", *("--output", "-o"), default=MISSING, metavar="OUT"
    ),
) -> None:
    """Puts the tables of all shards of a run together, in the order of the input.

    They must have been made the same way: of the same input, with the same schema, model and
    settings. OUT is written whole or not at all, and is what one run would have written: it can be
    reported, retried and reused.
    """
    with plain_warnings():
        summary = merge_tables(tables, output)
    for line in summary.lines():
        say(line)
