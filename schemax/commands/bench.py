"""`schemax bench`: products per second of every engine, on the same weights and the same work."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from schemax.commands import options
from schemax.commands.messages import UsageError, plain_warnings, refused_settings, say
from schemax.resources import resource_dir

if TYPE_CHECKING:
    from schemax.benchmark.report import Report
    from schemax.benchmark.work import Work
    from schemax.evaluation.examples import Example

_GRID_DOCUMENTS, _GRID_BATCHES = (1, 2, 4, 6, 8), (1, 2, 4, 8, 16)
_COUNT = 64

_Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        show_default=False,
        help="Folder or Hugging Face Hub id. Default: --shape, else the embedded model.",
    ),
]


def bench(
    model: _Model = None,
    shape: Annotated[
        str | None,
        typer.Option(
            show_default=False,
            help="Random weights of a published shape instead: qwen3-0.6b, qwen3-8b ...",
        ),
    ] = None,
    tokenizer: Annotated[
        str | None,
        typer.Option(show_default=False, help="Folder of a tokenizer, for --data with --shape."),
    ] = None,
    device: options.Device = "auto",
    dtype: Annotated[
        str,
        typer.Option(help="float32, bfloat16, float16; auto: bfloat16 for shapes, else as always."),
    ] = "auto",
    threads: Annotated[int | None, typer.Option(min=1, help="Threads of the CPU.")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            show_default=False,
            help="JSONL of annotated products, as `evaluate` reads it. With --document-tokens "
            "only the lengths of its values are taken.",
        ),
    ] = None,
    documents: Annotated[int, typer.Option(min=1, help="How many listings.")] = _COUNT,
    document_tokens: Annotated[
        int | None, typer.Option(min=2, show_default="250", help="Generated listings: their size.")
    ] = None,
    attributes: Annotated[int, typer.Option(min=1, help="... attributes of each.")] = 16,
    key_tokens: Annotated[int, typer.Option(min=1, help="... tokens of a key.")] = 4,
    instruction_tokens: Annotated[int, typer.Option(min=1, help="... of the instruction.")] = 250,
    jitter: Annotated[float, typer.Option(help="... lengths vary by this share, to 0.5.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of the listings and of the order of runs.")] = 0,
    engines: Annotated[
        str | None,
        typer.Option(show_default=False, help="Names by commas. Default: all that can run."),
    ] = None,
    repeats: Annotated[int, typer.Option(min=1, help="Rounds; the median counts.")] = 3,
    rival_documents: Annotated[
        int | None,
        typer.Option(min=1, show_default=False, help="Rivals run on so many listings. All if not."),
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, show_default="auto", help="Of schemax's own engines.")
    ] = None,
    generate_batches: Annotated[
        str, typer.Option(help="Batch sizes for transformers' generate to choose from.")
    ] = "1,8,32,64",
    draft: Annotated[
        str | None,
        typer.Option(show_default=False, help="Shape of the draft model. Default: an eighth."),
    ] = None,
    draft_acceptance: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="How often a drafted token is right.")
    ] = 0.8,
    sweep: Annotated[
        bool, typer.Option("--sweep", help="The grid of documents per prompt and batch sizes.")
    ] = False,
    against: Annotated[
        str | None,
        typer.Option(metavar="URL", show_default=False, help="A server of OpenAI's protocol."),
    ] = None,
    concurrency: Annotated[int, typer.Option(min=1, help="Requests in flight there.")] = 32,
    price_per_hour: Annotated[
        float | None, typer.Option(min=0.0, show_default=False, help="Of the machine, in dollars.")
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", show_default=False, help="Results.")
    ] = None,
    picture: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", show_default=False, help="SVG or PNG.")
    ] = None,
    page: Annotated[
        Path | None,
        typer.Option(metavar="FILE", show_default=False, help="A page to write the results into."),
    ] = None,
    earlier: Annotated[
        Path | None,
        typer.Option(
            "--from", metavar="FILE", show_default=False, help="Shows results; measures nothing."
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="No progress.")] = False,
) -> None:
    """Measures schemax and its rivals: one process, one model, the same answers for all.

    Every engine is made to write the same given tokens (replay), so that weights of any shape can
    be compared, random ones as well, and every run is checked for them. The floor is what plain
    forward passes over the tokens of the work take.
    """
    if earlier is not None:
        _publish(_read_report(earlier), None, picture, page)
        return
    asked = _Asked(
        names=_names(engines),
        model=_source(model, shape),
        tokenizer=tokenizer,
        data=data,
        generated=data is None or document_tokens is not None,
        batches=_numbers(generate_batches, "--generate-batches"),
    )
    if against is not None and data is None:
        raise UsageError("--against needs products to ask for: name them with --data")
    from schemax import benchmark

    with refused_settings():
        sizes = benchmark.Sizes(
            *(documents, document_tokens or 250, attributes, key_tokens, instruction_tokens),
            *(jitter, seed),
        )
        rules = benchmark.Rules(repeats, rival_documents, seed=seed)
    with plain_warnings(quiet=quiet):
        report = _compare(
            asked,
            sizes,
            rules,
            device=device,
            dtype=dtype,
            threads=threads,
            batch_size=batch_size or "auto",
            draft=draft,
            draft_acceptance=draft_acceptance,
            sweep=sweep,
            against=against,
            concurrency=concurrency,
            price_per_hour=price_per_hour,
            tell=(lambda _: None) if quiet else say,
        )
    _publish(report, as_json, picture, page)
    if against is None:
        from schemax.benchmark.servers import ABSENT

        say(ABSENT)


@dataclass(frozen=True, slots=True)
class _Asked:
    """What to compare: checked, and nothing loaded yet. model: (shape or model, its name)."""

    names: Sequence[str]
    model: tuple[str, str]
    tokenizer: str | None
    data: Path | None
    generated: bool
    batches: tuple[int, ...]


def _compare(asked: _Asked, sizes: Any, rules: Any, **how: Any) -> Report:
    """Loads the model, makes the work, runs everything."""
    import torch

    from schemax.benchmark import report as reports
    from schemax.benchmark.measure import measure
    from schemax.benchmark.servers import ask_server
    from schemax.benchmark.suite import Field, build, build_sweep

    if how["threads"]:
        torch.set_num_threads(how["threads"])
    model, tokenizer = _load(asked, how["device"], how["dtype"])
    work, examples = _make_work(asked, sizes, model, tokenizer)
    draft = how["draft"] and _random(how["draft"], "auto", model.device, model.dtype)
    field = Field(model, draft, how["batch_size"], asked.batches, how["draft_acceptance"])
    tell, device = how["tell"], model.device
    outcomes = measure(build(asked.names, field), work, rules, device, tell)
    grid = []
    if how["sweep"]:
        grid = measure(
            build_sweep(field, _GRID_DOCUMENTS, _GRID_BATCHES), work, rules, device, tell
        )
    server = None
    if how["against"]:
        server = ask_server(how["against"], examples, tokenizer, concurrency=how["concurrency"])
    price = how["price_per_hour"]
    return reports.Report(
        model=reports.describe_model(model, asked.model[1]),
        environment=reports.describe_environment(device),
        work=reports.describe_work(work),
        settings={**asdict(rules), "batch_size": how["batch_size"], "price_per_hour": price},
        engines=tuple(reports.make_rows(outcomes, price)),
        skipped=reports.skipped([*outcomes, *grid]),
        sweep=tuple(reports.make_rows(grid, price)),
        server=None if server is None else asdict(server),
    )


def _load(asked: _Asked, device: str, dtype: str) -> tuple[Any, Any]:
    """The model and a tokenizer. Raises ModelError, and UsageError for a folder that is none."""
    options.hush_libraries()
    kind, name = asked.model
    folder = asked.tokenizer or str(resource_dir("embedded"))
    if kind == "shape":
        return _random(name, dtype, device), folder
    from schemax.runtime.loading import load

    loaded = load(name, device=device, dtype=dtype)
    return loaded.model.eval(), asked.tokenizer or loaded.tokenizer


def _random(shape: str, dtype: str, device: Any, like: Any = None) -> Any:
    import torch

    from schemax.benchmark.shapes import random_model, shape_config
    from schemax.runtime.loading.load import pick_device

    names = {"auto": "bfloat16"}
    chosen = like or getattr(torch, names.get(dtype, dtype), None)
    if not isinstance(chosen, torch.dtype) or not chosen.is_floating_point:
        raise UsageError(f"dtype {dtype!r} is none; use float32, bfloat16 or float16")
    with refused_settings():
        config = shape_config(shape)
    return random_model(config, chosen, pick_device(device))


def _make_work(
    asked: _Asked, sizes: Any, model: Any, tokenizer: Any
) -> tuple[Work, Sequence[Example]]:
    """Generated listings, or annotated ones; and the annotated products, if there are any."""
    from schemax.benchmark.generated import VALUE_LENGTHS, generate_work
    from schemax.benchmark.listings import annotated_work, read_rows, value_lengths

    vocab_size = model.get_output_embeddings().weight.shape[0]
    examples: Sequence[Example] = []
    lengths = VALUE_LENGTHS
    if asked.data is not None:
        examples = read_rows(asked.data, sizes.documents)
        work = annotated_work(examples, tokenizer, vocab_size, source=asked.data.name)
        if not asked.generated:
            return work, examples
        lengths = value_lengths(work)
    with refused_settings():
        return generate_work(sizes, vocab_size, lengths), examples


def _publish(report: Report, as_json: Path | None, picture: Path | None, page: Path | None) -> None:
    """The table on the terminal, and the files that were asked for."""
    from schemax.benchmark.page import write_page
    from schemax.benchmark.plot import can_plot, plot
    from schemax.benchmark.table import cells, columns, headline, notes

    if as_json is not None:
        as_json.write_text(json.dumps(report.to_dict(), indent=2) + "\n", "utf-8")
    console = Console()
    console.print(headline(report), highlight=False, markup=False, soft_wrap=True)
    for rows in (None, report.sweep):
        if rows is None or rows:
            table = Table(pad_edge=False)
            for place, name in enumerate(columns(report)):
                table.add_column(name, justify="right" if place else "left")
            for row in cells(report, rows):
                table.add_row(*row)
            console.print(table)
    for note in notes(report):
        console.print(note, highlight=False, markup=False, soft_wrap=True)
    if page is not None:
        write_page(page, report)
    if picture is not None and not can_plot():
        say("no plot: matplotlib is not installed; pip install 'schemax-hpd[bench]'")
    elif picture is not None:
        with refused_settings():
            plot(report, picture)


def _read_report(path: Path) -> Report:
    from schemax.benchmark.report import Report

    try:
        return Report.from_dict(json.loads(path.read_text("utf-8")))
    except ValueError as error:
        raise UsageError(f"{path}: {error}") from error


def _names(engines: str | None) -> Sequence[str]:
    from schemax.benchmark.suite import ENGINES, check_names

    if engines is None:
        return ENGINES
    names = [name.strip() for name in engines.split(",") if name.strip()]
    if not names:
        raise UsageError("--engines names none")
    with refused_settings():
        check_names(names)
    return names


def _source(model: str | None, shape: str | None) -> tuple[str, str]:
    if model is not None and shape is not None:
        raise UsageError("--model and --shape are two models; name one")
    if shape is not None:
        from schemax.benchmark.shapes import shape_config

        with refused_settings():
            shape_config(shape)
        return "shape", shape
    name = model or os.environ.get("SCHEMAX_MODEL")
    if name:
        options.check_folder(name)
    return "model", name or str(resource_dir("embedded"))


def _numbers(text: str, option: str) -> tuple[int, ...]:
    try:
        numbers = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(f"{option} takes numbers by commas, not {text!r}") from error
    if any(number < 1 for number in numbers):
        raise UsageError(f"{option} takes numbers of 1 or more, not {text!r}")
    return numbers
