"""Measures what extraction costs beside the model, by looking into the engine.

    python -m recipes.costs host           documents per CPU second of the whole pipeline
    python -m recipes.costs transfers      copies and launched operations of a pass
    python -m recipes.costs constraints    what grammars cost a decode step

docs/benchmarks.md and docs/constraints.md say how, and what the figures mean.
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

from recipes.costs.constraints import measure_constraints
from recipes.costs.passes import PassRow, measure_passes
from recipes.costs.pipeline import HostRow, measure_host
from recipes.costs.settings import settings
from recipes.costs.transfers import PassCount
from schemax.benchmark import EngineOptions, Rules, Sizes
from schemax.benchmark.compare import Comparison, load_model
from schemax.benchmark.report import describe_environment
from schemax.resources import resource_dir

FORMAT = 1


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        prog="recipes.costs", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    commands = parser.add_subparsers(dest="what", required=True)
    for name in ("host", "transfers", "constraints"):
        command = commands.add_parser(name)
        command.add_argument("--seed", type=int, default=0)
        if name == "constraints":
            add_constraint_options(command)
            continue
        command.add_argument("--json", type=Path, help="writes all results to a file")
        if name == "host":
            command.add_argument("--documents", type=int, help="of a setting at most")
    given = parser.parse_args(arguments)
    if given.what == "constraints":
        show_constraints(given)
        return
    rows: list[Any] = (
        list(measure_passes(seed=given.seed))
        if given.what == "transfers"
        else list(measure_host(settings(given.documents), given.seed, tell))
    )
    if given.json is not None:
        environment = {**describe_environment(torch.device("cpu")), "threads": 1}
        found = [row.to_dict() for row in rows]
        data = {f"schemax_bench_{given.what}": FORMAT, "environment": environment, "rows": found}
        given.json.write_text(json.dumps(data, indent=2) + "\n", "utf-8")
    show = show_transfers if given.what == "transfers" else show_host
    show(rows)


def add_constraint_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--model", help="folder or Hub id; default: the embedded model")
    command.add_argument("--shape", help="random weights of a published shape instead")
    command.add_argument("--tokenizer", help="folder of a tokenizer, for --shape")
    command.add_argument("--device", default="auto")
    command.add_argument("--dtype", default="auto")
    command.add_argument("--threads", type=int)
    for name, usual in (("documents", 64), ("document-tokens", 250), ("repeats", 3)):
        command.add_argument(f"--{name}", type=int, default=usual)


def show_constraints(given: argparse.Namespace) -> None:
    names = ("shape", "tokenizer", "device", "dtype", "threads")
    embedded = None if given.shape else str(resource_dir("embedded"))
    comparison = Comparison(
        *((), Rules(), EngineOptions()),
        model=given.model or embedded,
        sizes=Sizes(),
        **{name: getattr(given, name) for name in names},
    )
    model, tokenizer = load_model(comparison)
    costs = measure_constraints(
        model,
        tokenizer,
        documents=given.documents,
        document_tokens=given.document_tokens,
        repeats=given.repeats,
        seed=given.seed,
        tell=tell,
    )
    for line in costs.lines():
        print(line)


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
