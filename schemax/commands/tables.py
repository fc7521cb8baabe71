"""`schemax report` and `schemax merge`: make a page of finished tables, and one table of many."""

from __future__ import annotations

from dataclasses import MISSING
from pathlib import Path

from schemax.base.messages import say
from schemax.base.options import OptionGroup, option
from schemax.commands.options import UsageError, argument, plain_warnings, verb
from schemax.extraction.schema import AttrSchema
from schemax.io.finished import read_run_record, tables_of
from schemax.io.merging import common_record, merge_tables
from schemax.io.storage import refuse_inputs
from schemax.report.page import facts_of, open_report, promised_of
from schemax.report.review import Review
from schemax.report.table import add_table


class ReportArgs(OptionGroup):
    """Options"""

    tables: list[str] = argument("OUT...")
    """A table that `schemax extract -o OUT` has written, or all tables of shards, also as a pattern
    ('shards/*.parquet')."""
    output: str | None = option("-o FILE.html")
    """The page. Default: OUT.html; for several tables, report.html beside the first."""
    price_per_hour: float | None = option(min=0)
    """Price of the machine, for the cost of the run."""
    review: int | None = option("N", min=1)
    """Show only the N documents to correct first, in that order: those of unsure fields that are
    unlike each other. Requires confidences (`extract --details confidence`)."""


@verb
def report(args: ReportArgs) -> None:
    """Makes a page of a finished table: all rows, whichever runs have computed them, with counts,
    costs, model and settings in front.

    Values and errors are the table's; so are confidences, if it was made with --details. Texts are
    read again from the input, if it still exists.
    """
    places = (place for table in args.tables for place in tables_of(table))
    records = {place: read_run_record(place) for place in places}
    first = next(iter(records)).rstrip("/")
    folder = first[: 1 + first.rfind("/")]
    name = args.output or (f"{first}.html" if len(records) == 1 else f"{folder}report.html")
    refuse_inputs(name, records)
    is_ranked = args.review is not None
    if is_ranked and not all(record.settings.get("details") for record in records.values()):
        raise UsageError("--review needs confidences: extract with --details confidence")
    with plain_warnings(), open_report(name, Path(first).name, is_ranked=is_ranked) as page:
        review = None if args.review is None else Review(page, args.review)
        record = common_record(records)
        page.facts += facts_of(record, args.price_per_hour)
        page.promised += promised_of(record)
        if len(records) > 1:
            page.facts.append(("Tables", ", ".join(records)))
        for place, record in records.items():
            add = page.add if review is None else review.add
            add_table(page, place, record, AttrSchema.from_json_schema, add=add)
        if review is not None:
            review.show()
    say(f"wrote {name}")


class MergeArgs(OptionGroup):
    """Options"""

    tables: list[str] = argument("TABLE...")
    """Tables that runs with --shard have written: files, addresses and patterns."""
    output: str = option("-o OUT", default=MISSING)
    """A file of the same format."""


@verb
def merge(args: MergeArgs) -> None:
    """Merges the tables of all shards of a run, in the order of the input.

    All must have the same input, schema, model and settings. OUT is written whole or not at all,
    and is what one run would have written: it can be reported, retried and reused.
    """
    with plain_warnings():
        summary = merge_tables(args.tables, args.output)
    for line in summary.lines():
        say(line)
