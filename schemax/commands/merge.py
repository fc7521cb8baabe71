"""`schemax merge`: merges the tables of shards into one."""

from __future__ import annotations

from dataclasses import MISSING

from schemax.base.messages import say
from schemax.commands.console import plain_warnings
from schemax.commands.option_groups import Options, argument, option, verb
from schemax.io.merging import merge_tables


class Given(Options):
    """Options"""

    tables: list[str] = argument("TABLE...")
    """Tables that runs with --shard have written: files, addresses and patterns."""
    output: str = option("-o OUT", default=MISSING)
    """A file of the same format."""


@verb
def merge(given: Given) -> None:
    """Puts the tables of all shards of a run together, in the order of the input.

    They must have been made the same way: of the same input, with the same schema, model and
    settings. OUT is written whole or not at all, and is what one run would have written: it can be
    reported, retried and reused.
    """
    with plain_warnings():
        summary = merge_tables(given.tables, given.output)
    for line in summary.lines():
        say(line)
