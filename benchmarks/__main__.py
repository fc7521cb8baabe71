"""The commands of `python -m benchmarks`: each parses, calls one measurement, prints."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
import typer

from benchmarks import rivals as known
from benchmarks.compare import build_grid, load_subject
from benchmarks.constraints import measure_constraints
from benchmarks.generated import Sizes
from benchmarks.gpu import SHAPES_OF_CARDS, TIME, Suite, run_suite
from benchmarks.host import HostRow, measure_host, settings
from benchmarks.load import Load, measure_load
from benchmarks.options import CompareOptions, Pages, Shape, ShowOptions
from benchmarks.other_engines import EngineCost, Rivals, measure_engines
from benchmarks.page import write_page
from benchmarks.passes import PassRow, measure_passes
from benchmarks.plot import plot
from benchmarks.rivals.draft import DraftOptions
from benchmarks.served import measure_served
from benchmarks.tables import measure_tables
from benchmarks.transfers import PassCount
from benchmarks.waves import measure_waves
from schemax.base.messages import say
from schemax.base.options import OptionGroup, option
from schemax.base.process import use_threads
from schemax.base.terminal import show, table
from schemax.commands import bench as command
from schemax.commands import options
from schemax.commands.bench import Loading
from schemax.commands.cli import Verbs
from schemax.commands.options import UsageError, argument, plain_warnings, refused_settings, verb
from schemax.evaluation.benchmark.compare import compare_engines
from schemax.evaluation.benchmark.report import FORMAT, Report, describe_environment
from schemax.evaluation.reliability import check_picture

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


@contextmanager
def _telling(quiet: bool, threads: int | None = None) -> Iterator[Tell]:
    options.hush_libraries()
    if threads is not None:
        use_threads(threads)
    with plain_warnings(quiet=quiet), refused_settings():
        yield (lambda _: None) if quiet else say


@app.command()
@verb
def compare(given: CompareOptions) -> None:
    """`schemax bench` with all rivals: llama.cpp, continuous batching, drafts, grammars."""
    with _telling(given.quiet, given.threads) as tell:
        drafting: Any = {"draft": given.draft, "draft_acceptance": given.draft_acceptance}
        settings = command.comparison(given, partial(DraftOptions, **drafting), known.ALL)
        if given.against is not None and given.data is None:
            raise UsageError("--against requires --data, whose documents the server reads")
        sizes = Sizes(
            documents=given.documents,
            document_tokens=given.document_tokens or 250,
            attributes=given.attributes,
            jitter=given.jitter,
            seed=given.seed,
        )
        if given.picture is not None:
            check_picture("--plot", given.picture)
        generated = given.data is None or given.document_tokens is not None
        subject = load_subject(
            given.choice(), sizes if generated else None, given.data, given.documents
        )
        grid = build_grid(subject.model) if given.sweep else []
        report = compare_engines(subject, settings, tell, grid)
        command.publish(report, given.as_json)
        _draw(report, given)


@app.command("show")
@verb
def show_report(given: ShowOptions) -> None:
    """Shows, draws or writes into a page what `compare --json` wrote; measures nothing."""
    if given.picture is not None:
        check_picture("--plot", given.picture)
    with refused_settings(f"{given.results}: "):
        report = Report.from_dict(json.loads(given.results.read_text("utf-8")))
    command.publish(report, None)
    _draw(report, given)


def _draw(report: Report, given: Pages) -> None:
    if given.page is not None:
        write_page(given.page, report)
    if given.picture is not None:
        plot(report, given.picture)


class HostOptions(OptionGroup):
    """Options"""

    documents: int | None = option(min=1)
    """The most documents of a setting."""
    seed: int = 0
    """Of the model and the documents."""
    as_json: Path | None = option("--json FILE")
    """Writes all results."""
    quiet: bool = option("-q", default=False)
    """No progress."""


@app.command()
@verb
def host(given: HostOptions) -> None:
    """The cost of everything but the model, per document."""
    with _telling(given.quiet) as tell:
        rows = list(measure_host(settings(given.documents), given.seed, tell))
    _write_rows("host", rows, given.as_json)
    columns: dict[str, Callable[[Any], Any]] = {
        "slots": lambda row: f"{row.setting.slots} {row.setting.kind}",
        "flying": lambda row: "auto" if (n := row.setting.in_flight) is None else f"{n:,}",
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


class EnginesOptions(OptionGroup):
    """Options"""

    folder: str = argument("FOLDER")
    """A model's folder."""
    labels: Path = argument("LABELS")
    """Annotated documents, as `evaluate` reads them."""
    demonstrations: Path | None = None
    """Annotated documents that prompts show."""
    shots: int = option(default=4, min=0)
    """Of them, for each category."""
    documents: int = option(default=40, min=1)
    """So many documents are read."""
    few: int = option(default=10, min=1)
    """So many where one is in flight."""
    in_flight: str = "40,8,1"
    """Numbers of documents in flight."""
    threads: int = option(default=2, min=1)
    """Of every engine."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of schemax and vLLM."""
    vllm: str | None = None
    """The Python of an environment with vLLM."""
    llama: str | None = None
    """The command of llama.cpp's server."""
    gguf: Path | None = None
    """The same model, for that."""
    as_json: Path | None = option("--json FILE")
    """Writes all results."""


@app.command()
@verb
def engines(given: EnginesOptions) -> None:
    """schemax beside vLLM and llama.cpp's server, with F1: documents that each reads by itself."""
    options.hush_libraries()
    rows = []
    for row in measure_engines(
        given.folder,
        given.labels,
        given.demonstrations,
        documents=given.documents,
        shots=given.shots,
        in_flight=[int(number) for number in given.in_flight.split(",")],
        few=given.few,
        threads=given.threads,
        dtype=given.dtype,
        rivals=Rivals(given.vllm, given.llama, given.gguf),
    ):
        rows.append(row)
        say(f"{row.engine}, {row.in_flight} in flight: {row.documents / row.seconds:.2f}/s")
    _write_rows("engines", rows, given.as_json)
    own = {row.in_flight: row.seconds / row.documents for row in rows if row.engine == "schemax"}
    columns: dict[str, Callable[[Any], Any]] = {
        "engine": lambda row: row.engine,
        "in flight": lambda row: str(row.in_flight),
        "documents": lambda row: str(row.documents),
        "s/document": lambda row: f"{row.seconds / row.documents:.2f}",
        "CPU s/document": lambda row: f"{row.cpu / row.documents:.2f}",
        "x schemax": lambda row: f"{row.seconds / row.documents / own[row.in_flight]:.2f}",
        "F1": lambda row: f"{row.f1:.3f}",
    }
    show(table(rows, columns), "x schemax: the time of schemax that an engine takes")


class TransfersOptions(OptionGroup):
    """Options"""

    seed: int = 0
    """Of the documents."""
    as_json: Path | None = option("--json FILE")
    """Writes all results."""


@app.command()
@verb
def transfers(given: TransfersOptions) -> None:
    """Copies between host and device, and launched operations, of a pass."""
    rows = list(measure_passes(seed=given.seed))
    _write_rows("transfers", rows, given.as_json)
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


class ConstraintsOptions(Shape):
    """Options"""

    documents: int = option(default=64, min=1)
    """How many listings."""
    document_tokens: int = option(default=250, min=2)
    """Tokens of a listing."""
    repeats: int = option(default=3, min=1)
    """Rounds; the median counts."""
    seed: int = 0
    """Of the listings."""
    quiet: bool = option("-q", default=False)
    """No progress."""


@app.command()
@verb
def constraints(given: ConstraintsOptions) -> None:
    """What constraints cost a decode step."""
    with _telling(given.quiet, given.threads) as tell:
        costs = measure_constraints(
            *given.choice().load(),
            documents=given.documents,
            document_tokens=given.document_tokens,
            repeats=given.repeats,
            seed=given.seed,
            tell=tell,
        )
    show(*costs.lines())


class WavesOptions(Loading):
    """Options"""

    documents: int = option(default=64, min=1)
    """How many listings."""
    repeats: int = option(default=3, min=1)
    """Rounds; the median counts."""
    quiet: bool = option("-q", default=False)
    """No progress."""


@app.command()
@verb
def waves(given: WavesOptions) -> None:
    """What fields that look at others cost."""
    with _telling(given.quiet, given.threads) as tell:
        loading = (given.model, given.device, given.dtype)
        rows = list(measure_waves(given.documents, given.repeats, *loading, tell=tell))
    columns: dict[str, Callable[[Any], Any]] = {
        "waves": lambda row: str(row.waves),
        "passes": lambda row: f"{row.passes:.1f}",
        "tokens read": lambda row: f"{row.read:.0f}",
        "written": lambda row: f"{row.written:.0f}",
        "time": lambda row: f"{row.time:.2f}",
    }
    show(table(rows, columns), "of a document on average, 16 text fields; time: beside one wave's")


class ServedOptions(Shape):
    """Options"""

    document_tokens: int = option(default=250, min=2)
    """Tokens of the document."""
    repeats: int = option(default=3, min=1)
    """Rounds; the median counts."""
    quiet: bool = option("-q", default=False)
    """No progress."""


@app.command()
@verb
def served(given: ServedOptions) -> None:
    """One document through the server, beside `generate` that writes the same."""
    with _telling(given.quiet, given.threads) as tell:
        cost = measure_served(*given.choice().load(), given.repeats, given.document_tokens, tell)
    show(*cost.lines())


class TablesOptions(Loading):
    """Options"""

    rows: int = argument("ROWS")
    """Up to so many rows."""
    documents: int = option(default=64, min=1)
    """Listings that the model's own cost is told by."""
    quiet: bool = option("-q", default=False)
    """No progress."""


@app.command()
@verb
def tables(given: TablesOptions) -> None:
    """What runs over tables cost beside the model."""
    with _telling(given.quiet, given.threads) as tell:
        loading = (given.model, given.device, given.dtype)
        for line in measure_tables(given.rows, given.documents, *loading, tell=tell):
            show(line)


class LoadOptions(OptionGroup):
    """Options"""

    url: str = argument("URL")
    """Of a server of schemax."""
    clients: int = option(default=256, min=1)
    """Each with one request under way at most."""
    rate: float = option(default=20.0, min=0.01)
    """Requests a second, of all together."""
    minutes: float = option(default=10.0, min=0.01)
    """How long."""
    seed: int = 0
    """Of the documents, and of when they are due."""
    quiet: bool = option("-q", default=False)
    """No progress."""


@app.command()
@verb
def load(given: LoadOptions) -> None:
    """A server under a steady load: answers, losses, p50 and p99, memory."""
    with _telling(given.quiet) as tell:
        result = measure_load(
            Load(given.url, given.clients, given.rate, 60 * given.minutes, given.seed), tell
        )
    show(*result.lines())
    if result.lost:
        raise typer.Exit(1)


class GpuOptions(OptionGroup):
    """Options"""

    folder: Path = argument("FOLDER")
    """Of the page and its data."""
    shape: str | None = None
    """One published shape instead of three: qwen3-0.6b, qwen3-8b ..."""
    device: str = "auto"
    """auto, cuda, cuda:1, mps ..."""
    documents: int | None = option(min=1)
    """Of every comparison. Default: as many as fill a card."""
    repeats: int = option(default=3, min=1)
    """Rounds; the median counts."""
    price_per_hour: float | None = option(min=0.0)
    """Of the machine, in dollars."""
    minutes: float = option(default=TIME / 60, min=0)
    """For all parts; the same command goes on with what is missing."""
    quiet: bool = option("-q", default=False)
    """No progress."""


@app.command()
@verb
def gpu(given: GpuOptions) -> None:
    """All that is told of a card, in less than half an hour. The same command goes on."""
    shapes = SHAPES_OF_CARDS if given.shape is None else (given.shape,)
    suite = Suite(
        given.folder,
        given.device,
        shapes,
        repeats=given.repeats,
        price_per_hour=given.price_per_hour,
        seconds=60 * given.minutes,
    )
    with _telling(given.quiet) as tell:
        page = run_suite(
            suite if given.documents is None else replace(suite, documents=given.documents), tell
        )
    show(f"written: {page}")


def _write_rows(
    name: str, rows: Sequence[HostRow | PassRow | EngineCost], path: Path | None
) -> None:
    """Writes rows of a measurement on the host, with the environment, as JSON."""
    if path is None:
        return
    environment = {**describe_environment(torch.device("cpu")), "threads": 1}
    plain = [row.to_dict() for row in rows]
    data = {f"schemax_bench_{name}": FORMAT, "environment": environment, "rows": plain}
    path.write_text(json.dumps(data, indent=2) + "\n", "utf-8")


if __name__ == "__main__":
    app()
