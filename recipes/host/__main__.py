"""Measures on a CPU what everything but the model costs.

    python -m recipes.host [--documents N]    documents per CPU second of the whole pipeline
    python -m recipes.host --transfers        copies and launched operations of a pass

docs/benchmarks.md says how, and what the columns mean.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from recipes.host.passes import PassRow, measure_passes
from recipes.host.pipeline import HostRow, measure_host
from recipes.host.settings import settings
from recipes.host.transfers import PassCount
from schemax.benchmark.report import describe_environment

FORMAT = 1


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--transfers", action="store_true")
    parser.add_argument("--documents", type=int, help="of a setting at most")
    parser.add_argument("--seed", type=int, default=0, help="of the model and the documents")
    parser.add_argument("--json", type=Path, help="writes all results to a file")
    given = parser.parse_args(arguments)
    name = "transfers" if given.transfers else "host"
    rows: list[Any] = (
        list(measure_passes(seed=given.seed))
        if given.transfers
        else list(measure_host(settings(given.documents), given.seed, tell))
    )
    if given.json is not None:
        environment = {**describe_environment(torch.device("cpu")), "threads": 1}
        found = [row.to_dict() for row in rows]
        data = {f"schemax_bench_{name}": FORMAT, "environment": environment, "rows": found}
        given.json.write_text(json.dumps(data, indent=2) + "\n", "utf-8")
    show = show_transfers if given.transfers else show_host
    show(rows)


def tell(text: str) -> None:
    print(text, file=sys.stderr)


def show_host(rows: Sequence[HostRow]) -> None:
    show_table(
        ("slots", "flying", "docs", "tokens", "docs/s", "docs/CPU s", "model", "host only"),
        (
            (
                f"{row.setting.slots} {row.setting.kind}",
                "auto" if row.setting.in_flight is None else f"{row.setting.in_flight:,}",
                f"{row.setting.documents:,}",
                f"{row.tokens_per_slot:.1f}",
                f"{row.documents_per_second:,.0f}",
                f"{row.documents_per_cpu_second:,.0f}",
                f"{row.model_share:.0%}",
                f"{row.host_documents_per_cpu_second:,.0f}",
            )
            for row in rows
        ),
    )
    print(
        "flying: documents in flight; tokens: written per slot; model: share of the CPU time in\n"
        "forward passes and on logits; host only: documents per CPU second of all the rest"
    )


def show_transfers(rows: Sequence[PassRow]) -> None:
    show_table(
        ("slots", "tokens", "live", "to device", "to host", "waits", "a layer", "others"),
        (
            (
                f"{row.live_slots} {row.kind}{' + read' if row.reads else ''}",
                f"{row.count.tokens:,}",
                f"{row.count.slots:,}",
                *(str(row.count.total(cause)) for cause in row.count.CAUSES),
                f"{row.ops_per_layer:.0f}",
                str(row.ops_beside),
            )
            for row in rows
        ),
    )
    print(
        "live: slots that a token is chosen for; waits: for results whose shape depends on data;\n"
        "a layer, others: launched operations. By the lines that cause them, rows as above:"
    )
    for cause in PassCount.CAUSES:
        counts: list[Counter[str]] = [getattr(row.count, cause) for row in rows]
        for line in sum(counts, Counter()):
            times = " ".join(f"{count[line]:3}" for count in counts)
            print(f"{times}  {cause.replace('_', ' ')}: {line}")


def show_table(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(pad_edge=False, box=SIMPLE_HEAD)
    table.add_column(names[0], no_wrap=True)
    for name in names[1:]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)


if __name__ == "__main__":
    main()
