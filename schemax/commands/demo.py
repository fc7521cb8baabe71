"""`schemax demo`: reads realistic product listings and shows the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import mean
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from schemax.base.messages import track
from schemax.base.terminal import show, table
from schemax.commands import options
from schemax.commands.options import option, plain_warnings, verb
from schemax.evaluation.diagnosis import listings
from schemax.results import Extraction

_COLUMNS: dict[str, Callable[[tuple[str, Sequence[listings.Cost]]], str]] = {
    "decoding": lambda way: way[0],
    "forward passes per listing": lambda way: f"{mean(passes for passes, _ in way[1]):.1f}",
    "seconds per listing": lambda way: f"{mean(seconds for _, seconds in way[1]):.2f}",
}


class Args(options.Model, without="device dtype"):
    """Options"""

    compare: bool = option("--compare/--no-compare", default=True)
    """Read some listings with autoregressive decoding as well."""


@verb
def demo(args: Args) -> None:
    """Reads a handful of listings with the embedded model, and shows what that took."""
    with plain_warnings():
        with Console(stderr=True).status("loading the model"):
            extractor = options.load_extractor(args.model)
        items = listings.read_listings(extractor)
        show(_values_table(items))
        if args.compare:
            show(_cost_table(list(track(listings.costs(extractor), total=None, unit="listings"))))
        else:
            show(f"{mean(item.steps for item in items):.1f} forward passes per listing")
    show(
        "\nNext, your own products, one JSON object or string per line:\n"
        "  schemax extract shoes products.jsonl -o shoes.jsonl\n"
        "`schemax schemas` lists all ready-values schemas, `schemax explain shoes` shows how shoes "
        "are read."
    )


def _values_table(items: Sequence[Extraction[Any]]) -> Table:
    values = Table(show_header=False, pad_edge=False)
    values.add_column(style="bold", no_wrap=True)
    values.add_column(overflow="fold")
    for item, (_, title) in zip(items, listings.LISTINGS, strict=True):
        values.add_section()
        values.add_row("", Text(title, style="italic"))
        for error in item.errors if item.value is None else ():
            values.add_row("failed", Text(error.message))
        for name, result in item.fields.items() if item.value is not None else ():
            value = result.value if isinstance(result.value, list) else [result.value]
            if value not in ([], [None]):
                values.add_row(name.replace("_", " "), Text(", ".join(map(str, value))))
    return values


def _cost_table(costs: Sequence[tuple[listings.Cost, ...]]) -> Table:
    shown = table(zip(listings.WAYS, zip(*costs, strict=True), strict=True), _COLUMNS)
    shown.caption = f"{len(costs)} of the listings, read one by one"
    return shown
