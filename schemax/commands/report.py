"""`schemax report`: a finished table as a page to look through."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from schemax.commands.console import plain_warnings, say
from schemax.io.run_record import read_run_record
from schemax.report import open_report
from schemax.report.overview import facts_of
from schemax.report.table import add_table


def report(
    table: Annotated[
        str, Argument(metavar="OUT", help="What a run of `schemax extract -o OUT` has written.")
    ],
    output: Annotated[
        str | None,
        Option("--output", "-o", metavar="FILE.html", help="The page. Default: OUT.html."),
    ] = None,
    price_per_hour: Annotated[
        float | None, Option(min=0, help="Price of the machine, for the cost of the run.")
    ] = None,
) -> None:
    """Makes a page of a finished table: all rows, whichever runs have computed them, with counts,
    costs, model and settings in front.

    Values and errors are the table's; confidences too, of a table with --details. Texts are read
    again from the input, if that is still there.
    """
    record = read_run_record(table)
    name = output or f"{table}.html"
    with plain_warnings(), open_report(name, Path(table).name) as page:
        page.overview.facts += facts_of(record, price_per_hour)
        add_table(page, table, record)
    say(f"wrote {name}")
