"""The commands of `python -m benchmarks`: each parses, calls one measurement, prints."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
import typer

from benchmarks import rivals as known
from benchmarks.constraints import measure_constraints
from benchmarks.gpu import SHAPES_OF_CARDS, Suite, run_suite
from benchmarks.load import Load, measure_load
from benchmarks.passes import measure_passes
from benchmarks.rivals.draft import DraftOptions
from benchmarks.served import measure_served
from benchmarks.tables import measure_tables
from benchmarks.transfers import PassCount
from benchmarks.waves import measure_waves
from schemax.benchmark.compare import load_model
from schemax.cli import Verbs
from schemax.commands import bench as command
from schemax.commands import bench_options as given
from schemax.commands import options
from schemax.commands.console import plain_warnings, refused_settings, say, show, table
from schemax.commands.option_groups import argument, grouped, option

app = typer.Typer(
    name="python -m benchmarks",
    cls=Verbs,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help="Measures schemax beside its rivals, on devices, and part by part.",
)
Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class DraftModel:
    """The rival that drafts"""

    draft: str | None = option("Shape of the draft model. Default: an eighth of the layers.")
    draft_acceptance: float = option(
        "How often a drafted token is right.", default=0.8, min=0.0, max=1.0
    )


@contextmanager
def _telling(quiet: bool, threads: int | None = None) -> Iterator[Tell]:
    options.hush_libraries()
    if threads is not None:
        torch.set_num_threads(threads)
    with plain_warnings(quiet=quiet), refused_settings():
        yield (lambda _: None) if quiet else say


@app.command()
@grouped
def compare(
    run: given.EngineOptions,
    work: given.WorkOptions,
    machine: given.MachineOptions,
    rivals: given.RivalOptions,
    drafting: DraftModel,
    output: given.OutputOptions,
) -> None:
    """`schemax bench` with all rivals: llama.cpp, continuous batching, drafts, grammars."""
    with _telling(output.quiet) as tell:
        make = partial(
            DraftOptions, draft=drafting.draft, draft_acceptance=drafting.draft_acceptance
        )
        asked = command.comparison(run, work, machine, rivals, make, known.ALL)
        command.compare(asked, output, tell)


@app.command()
@grouped
def transfers(
    seed: int = option("Of the documents.", default=0),
    as_json: Path | None = option("Writes all results.", "--json", metavar="FILE"),
) -> None:
    """Copies between host and device, and launched operations, of a pass."""
    rows = list(measure_passes(seed=seed))
    command.write_rows("transfers", [row.to_dict() for row in rows], as_json)
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


@app.command()
@grouped
def constraints(
    machine: given.ShapeOptions,
    documents: int = option("How many listings.", default=64, min=1),
    document_tokens: int = option("Tokens of a listing.", default=250, min=2),
    repeats: int = option("Rounds; the median counts.", default=3, min=1),
    seed: int = option("Of the listings.", default=0),
    quiet: bool = option("No progress.", "-q", default=False),
) -> None:
    """What constraints cost a decode step."""
    with _telling(quiet) as tell:
        costs = measure_constraints(
            *_loaded(machine),
            documents=documents,
            document_tokens=document_tokens,
            repeats=repeats,
            seed=seed,
            tell=tell,
        )
    show(*costs.lines())


@app.command()
@grouped
def waves(
    machine: given.LoadingOptions,
    documents: int = option("How many listings.", default=64, min=1),
    repeats: int = option("Rounds; the median counts.", default=3, min=1),
    quiet: bool = option("No progress.", "-q", default=False),
) -> None:
    """What fields that look at others cost."""
    with _telling(quiet, machine.threads) as tell:
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


@app.command()
@grouped
def served(
    machine: given.ShapeOptions,
    document_tokens: int = option("Tokens of the document.", default=250, min=2),
    repeats: int = option("Rounds; the median counts.", default=3, min=1),
    quiet: bool = option("No progress.", "-q", default=False),
) -> None:
    """One document through the server, beside `generate` that writes the same."""
    with _telling(quiet) as tell:
        cost = measure_served(*_loaded(machine), repeats, document_tokens, tell)
    show(*cost.lines())


@app.command()
@grouped
def tables(
    machine: given.LoadingOptions,
    rows: int = argument("Up to so many rows.", "ROWS"),
    documents: int = option("Listings that the model's own cost is told by.", default=64, min=1),
    quiet: bool = option("No progress.", "-q", default=False),
) -> None:
    """What runs over tables cost beside the model."""
    with _telling(quiet, machine.threads) as tell:
        loading = (machine.model, machine.device, machine.dtype)
        for line in measure_tables(rows, documents, *loading, tell=tell):
            show(line)


@app.command()
@grouped
def load(
    url: str = argument("Of a server of schemax.", "URL"),
    clients: int = option("Each with one request under way at most.", default=256, min=1),
    rate: float = option("Requests a second, of all together.", default=20.0, min=0.01),
    minutes: float = option("How long.", default=10.0, min=0.01),
    seed: int = option("Of the documents, and of when they are due.", default=0),
    quiet: bool = option("No progress.", "-q", default=False),
) -> None:
    """A server under a steady load: answers, losses, p50 and p99, memory."""
    with _telling(quiet) as tell:
        result = measure_load(Load(url, clients, rate, 60 * minutes, seed), tell)
    show(*result.lines())
    if result.lost:
        raise typer.Exit(1)


@app.command()
@grouped
def gpu(
    folder: Path = argument("Of the page and its data.", "FOLDER"),
    shape: str | None = option("One published shape instead of three: qwen3-0.6b, qwen3-8b ..."),
    device: str = option("auto, cuda, cuda:1, mps ...", default="auto"),
    documents: int | None = option("Of every comparison. Default: as many as fill a card.", min=1),
    repeats: int = option("Rounds; the median counts.", default=3, min=1),
    price_per_hour: float | None = option("Of the machine, in dollars.", min=0.0),
    quiet: bool = option("No progress.", "-q", default=False),
) -> None:
    """All that is told of a card, in less than half an hour. The same command goes on."""
    shapes = SHAPES_OF_CARDS if shape is None else (shape,)
    suite = Suite(folder, device, shapes, repeats=repeats, price_per_hour=price_per_hour)
    with _telling(quiet) as tell:
        page = run_suite(suite if documents is None else replace(suite, documents=documents), tell)
    show(f"written: {page}")


def _loaded(machine: given.ShapeOptions) -> tuple[Any, Any]:
    """Model and tokenizer. Raises ValueError for a model beside a shape."""
    whole = given.MachineOptions(**asdict(machine))
    settings = (given.EngineOptions(), given.WorkOptions(), whole, given.RivalOptions())
    return load_model(command.comparison(*settings, DraftOptions, known.ALL))


if __name__ == "__main__":
    app()
