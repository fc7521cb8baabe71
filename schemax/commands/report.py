"""`schemax report`: makes a page of a finished table."""

from __future__ import annotations

from pathlib import Path

from schemax.base.messages import say
from schemax.commands.console import plain_warnings
from schemax.commands.option_groups import Options, argument, option, verb
from schemax.extraction.schema import AttrSchema
from schemax.io.finished import read_run_record, tables_of
from schemax.io.merging import common_record
from schemax.io.storage import refuse_inputs
from schemax.report import open_report
from schemax.report.page import facts_of
from schemax.report.table import add_table


class Given(Options):
    """Options"""

    tables: list[str] = argument("OUT...")
    """A table that `schemax extract -o OUT` has written; of shards, all tables, also as pattern
    ('shards/*.parquet')."""
    output: str | None = option("-o FILE.html")
    """The page. Default: OUT.html; of several, report.html beside the first."""
    price_per_hour: float | None = option(min=0)
    """Price of the machine, for the cost of the run."""


@verb
def report(given: Given) -> None:
    """Makes a page of a finished table: all rows, whichever runs have computed them, with counts,
    costs, model and settings in front.

    Values and errors are the table's; confidences too, of a table with --details. Texts are read
    again from the input, if that is still there.
    """
    found = {one: read_run_record(one) for table in given.tables for one in tables_of(table)}
    first = next(iter(found)).rstrip("/")
    beside = first[: 1 + first.rfind("/")]
    name = given.output or (f"{first}.html" if len(found) == 1 else f"{beside}report.html")
    refuse_inputs(name, found)
    with plain_warnings(), open_report(name, Path(first).name) as page:
        page.overview.facts += facts_of(common_record(found), given.price_per_hour)
        if len(found) > 1:
            page.overview.facts.append(("Tables", ", ".join(found)))
        for table, record in found.items():
            add_table(page, table, record, AttrSchema.from_json_schema)
    say(f"wrote {name}")
