"""What `schemax bench` measures instead of comparing engines, and which options go with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from schemax.commands.bench_options import MachineOptions
from schemax.commands.console import UsageError, refused_settings, show, table

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
    "waves": ("documents", "repeats", "model", "device", "dtype", "threads", "quiet"),
    "served": (
        "document_tokens",
        "repeats",
        "model",
        "shape",
        "tokenizer",
        "device",
        "dtype",
        "threads",
        "quiet",
    ),
    "tables": ("documents", "model", "device", "dtype", "threads", "quiet"),
    "gpu_suite": ("documents", "repeats", "shape", "device", "price_per_hour", "quiet"),
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


def host(
    most_documents: int | None, seed: int, as_json: Path | None, tell: Callable[[str], None]
) -> None:
    """most_documents: of a setting; None takes as many as make its figures stable."""
    from schemax.benchmark.host import measure_host, settings

    rows = list(measure_host(settings(most_documents), seed, tell))
    _write("host", [row.to_dict() for row in rows], as_json)
    columns: dict[str, Callable[[Any], Any]] = {
        "slots": lambda row: f"{row.setting.slots} {row.setting.kind}",
        "flying": lambda row: (
            "auto" if row.setting.in_flight is None else f"{row.setting.in_flight:,}"
        ),
        "docs": lambda row: f"{row.setting.documents:,}",
        "tokens": lambda row: f"{row.tokens_per_slot:.1f}",
        "docs/s": lambda row: f"{row.documents_per_second:,.0f}",
        "docs/CPU s": lambda row: f"{row.documents_per_cpu_second:,.0f}",
        "model": lambda row: f"{row.model_share:.0%}",
        "host only": lambda row: f"{row.host_documents_per_cpu_second:,.0f}",
    }
    show(
        table(rows, columns),
        "flying: documents in flight; tokens: written per slot; model: share of the CPU time in\n"
        "forward passes and on logits; host only: documents per CPU second of all the rest",
    )


def transfers(seed: int, as_json: Path | None) -> None:
    from schemax.benchmark.host import PassCount, measure_passes

    rows = list(measure_passes(seed=seed))
    _write("transfers", [row.to_dict() for row in rows], as_json)
    causes = PassCount.CAUSES
    columns: dict[str, Callable[[Any], Any]] = {
        "slots": lambda row: f"{row.live_slots} {row.kind}{' + read' if row.reads else ''}",
        "tokens": lambda row: f"{row.count.tokens:,}",
        "live": lambda row: f"{row.count.slots:,}",
        "to device": lambda row: row.count.total(causes[0]),
        "to host": lambda row: row.count.total(causes[1]),
        "waits": lambda row: row.count.total(causes[2]),
        "a layer": lambda row: f"{row.ops_per_layer:.0f}",
        "others": lambda row: str(row.ops_beside),
    }
    show(
        table(rows, columns),
        "live: slots that a token is chosen for; waits: for results whose shape depends on data;\n"
        "a layer, others: launched operations. By the lines that cause them, rows as above:",
    )
    for cause in causes:
        counts: list[Counter[str]] = [getattr(row.count, cause) for row in rows]
        for line in sum(counts, Counter()):
            times = " ".join(f"{count[line]:3}" for count in counts)
            print(f"{times}  {cause.replace('_', ' ')}: {line}")


def constraints(comparison: Comparison, tell: Callable[[str], None]) -> None:
    from schemax.benchmark.compare import load_model
    from schemax.benchmark.constraints import measure_constraints

    with refused_settings():
        model, tokenizer = load_model(comparison)
        costs = measure_constraints(
            model,
            tokenizer,
            documents=comparison.documents,
            document_tokens=comparison.sizes.document_tokens if comparison.sizes else 250,
            repeats=comparison.rules.repeats,
            seed=comparison.rules.seed,
            tell=tell,
        )
    show(*costs.lines())


def waves(
    documents: int, repeats: int, machine: MachineOptions, tell: Callable[[str], None]
) -> None:
    from schemax.commands.wave_costs import measure_waves

    _set_threads(machine)
    loading = (machine.model, machine.device, machine.dtype)
    rows = list(measure_waves(documents, repeats, *loading, tell=tell))
    columns: dict[str, Callable[[Any], Any]] = {
        "waves": lambda row: str(row.waves),
        "passes": lambda row: f"{row.passes:.1f}",
        "tokens read": lambda row: f"{row.read:.0f}",
        "written": lambda row: f"{row.written:.0f}",
        "time": lambda row: f"{row.time:.2f}",
    }
    show(table(rows, columns), "of a document on average, 16 text fields; time: beside one wave's")


def served(comparison: Comparison, tell: Callable[[str], None]) -> None:
    from schemax.benchmark.compare import load_model
    from schemax.commands.served_cost import measure_served

    with refused_settings():
        length = comparison.sizes.document_tokens if comparison.sizes else 250
        cost = measure_served(*load_model(comparison), comparison.rules.repeats, length, tell)
    show(*cost.lines())


def _set_threads(machine: MachineOptions) -> None:
    import torch

    if machine.threads is not None:
        torch.set_num_threads(machine.threads)


def tables(rows: int, documents: int, machine: MachineOptions, tell: Callable[[str], None]) -> None:
    from schemax.commands.table_costs import measure_tables

    _set_threads(machine)
    loading = (machine.model, machine.device, machine.dtype)
    for line in measure_tables(rows, documents, *loading, tell=tell):
        show(line)


def gpu_suite(
    out: Path,
    documents: int | None,
    repeats: int,
    machine: MachineOptions,
    tell: Callable[[str], None],
) -> None:
    """documents: of every comparison; None takes as many as fill a card."""
    from schemax.commands.gpu_suite import SHAPES_OF_CARDS, Suite, run_suite

    with refused_settings():
        suite = Suite(
            out,
            device=machine.device,
            shapes=SHAPES_OF_CARDS if machine.shape is None else (machine.shape,),
            repeats=repeats,
            price_per_hour=machine.price_per_hour,
        )
        page = run_suite(suite if documents is None else replace(suite, documents=documents), tell)
    show(f"written: {page}")


def _write(name: str, rows: Sequence[dict[str, Any]], path: Path | None) -> None:
    import torch

    from schemax.benchmark.report import describe_environment

    if path is None:
        return
    environment = {**describe_environment(torch.device("cpu")), "threads": 1}
    data = {f"schemax_bench_{name}": FORMAT, "environment": environment, "rows": rows}
    path.write_text(json.dumps(data, indent=2) + "\n", "utf-8")
