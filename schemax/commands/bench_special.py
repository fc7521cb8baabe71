"""What `schemax bench` measures instead of comparing engines, and which options go with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from schemax.commands.console import UsageError, plain_warnings, refused_settings, say

if TYPE_CHECKING:
    from schemax.benchmark.compare import Comparison

FORMAT = 1

# Options that each of them makes use of; any other would be ignored, so it is refused.
_USED = {
    "host": ("documents", "seed", "as_json", "quiet"),
    "transfers": ("seed", "as_json", "quiet"),
    "constraints": (
        *("documents", "document_tokens", "repeats", "seed", "quiet"),
        *("model", "shape", "tokenizer", "device", "dtype", "threads"),
    ),
    "tables": ("documents", "model", "device", "dtype", "threads", "quiet"),
    "earlier": ("as_json", "picture", "page", "quiet"),
}


def refuse_others(context: typer.Context) -> None:
    """Raises UsageError for an option that is given beside a special measurement without use."""
    given = [option for option in context.command.params if is_given(context, option.name)]
    special = next((option for option in given if option.name in _USED), None)
    if special is None:
        return
    used = (special.name, *_USED[str(special.name)])
    others = [option.opts[0] for option in given if option.name not in used]
    if others:
        raise UsageError(f"{special.opts[0]} does not go with {', '.join(others)}")


def is_given(context: typer.Context, name: str | None) -> bool:
    source = context.get_parameter_source(name or "")
    return source is not None and source.name == "COMMANDLINE"


def host(most_documents: int | None, seed: int, as_json: Path | None, quiet: bool) -> None:
    """most_documents: of a setting; None takes as many as make its figures stable."""
    from schemax.benchmark.host import measure_host, settings

    tell = (lambda _: None) if quiet else say
    with plain_warnings(quiet=quiet):
        rows = list(measure_host(settings(most_documents), seed, tell))
    _write("host", [row.to_dict() for row in rows], as_json)
    _print(
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


def transfers(seed: int, as_json: Path | None, quiet: bool) -> None:
    from schemax.benchmark.host import PassCount, measure_passes

    with plain_warnings(quiet=quiet):
        rows = list(measure_passes(seed=seed))
    _write("transfers", [row.to_dict() for row in rows], as_json)
    names = [f"{row.live_slots} {row.kind}{' + read' if row.reads else ''}" for row in rows]
    _print(
        ("slots", "tokens", "live", "to device", "to host", "waits", "a layer", "others"),
        (
            (
                name,
                f"{row.count.tokens:,}",
                f"{row.count.slots:,}",
                *(str(row.count.total(cause)) for cause in row.count.CAUSES),
                f"{row.ops_per_layer:.0f}",
                str(row.ops_beside),
            )
            for name, row in zip(names, rows, strict=True)
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


def constraints(comparison: Comparison, quiet: bool) -> None:
    from schemax.benchmark.compare import load_model
    from schemax.benchmark.constraints import measure_constraints

    with plain_warnings(quiet=quiet), refused_settings():
        model, tokenizer = load_model(comparison)
        costs = measure_constraints(
            model,
            tokenizer,
            documents=comparison.documents,
            document_tokens=comparison.sizes.document_tokens if comparison.sizes else 250,
            repeats=comparison.rules.repeats,
            seed=comparison.rules.seed,
            tell=(lambda _: None) if quiet else say,
        )
    for line in costs.lines():
        print(line)


def tables(
    rows: int,
    documents: int,
    model: str | None,
    device: str,
    dtype: str,
    threads: int | None,
    quiet: bool,
) -> None:
    import torch

    from schemax.commands.table_costs import measure_tables

    if threads is not None:
        torch.set_num_threads(threads)
    with plain_warnings(quiet=quiet):
        costs = measure_tables(
            rows,
            documents=documents,
            model=model,
            device=device,
            dtype=dtype,
            tell=(lambda _: None) if quiet else say,
        )
    for line in costs.lines():
        print(line)


def _write(name: str, rows: Sequence[dict[str, Any]], path: Path | None) -> None:
    import torch

    from schemax.benchmark.report import describe_environment

    if path is None:
        return
    environment = {**describe_environment(torch.device("cpu")), "threads": 1}
    data = {f"schemax_bench_{name}": FORMAT, "environment": environment, "rows": rows}
    path.write_text(json.dumps(data, indent=2) + "\n", "utf-8")


def _print(names: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    table = Table(pad_edge=False, box=SIMPLE_HEAD)
    table.add_column(names[0], no_wrap=True)
    for name in names[1:]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    Console().print(table)
