"""The options of `schemax bench`, in the groups that its help shows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

RUN = "What to run"
WORK = "The work"
MACHINE = "The model and the machine"
RIVALS = "Rivals"
SPECIAL = "Instead of the comparison"
OUTPUT = "Output"

Engines = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=RUN,
        show_default=False,
        help="Names, separated by commas. Default: all that can run.",
    ),
]
Repeats = Annotated[
    int, typer.Option(min=1, rich_help_panel=RUN, help="Rounds; the median counts.")
]
BatchSize = Annotated[
    int | None,
    typer.Option(min=1, rich_help_panel=RUN, show_default="auto", help="Of schemax's own engines."),
]
Sweep = Annotated[
    bool,
    typer.Option(
        "--sweep",
        rich_help_panel=RUN,
        help="Also the paper's grid of documents per prompt and batch sizes.",
    ),
]

Data = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=WORK,
        show_default=False,
        help="JSONL of annotated products, as `evaluate` reads it. With --document-tokens "
        "only the lengths of its values are taken.",
    ),
]
Documents = Annotated[int, typer.Option(min=1, rich_help_panel=WORK, help="How many listings.")]
DocumentTokens = Annotated[
    int | None,
    typer.Option(
        min=2, rich_help_panel=WORK, show_default="250", help="Tokens of a generated listing."
    ),
]
Attributes = Annotated[
    int, typer.Option(min=1, rich_help_panel=WORK, help="Attributes of a generated listing.")
]
Jitter = Annotated[
    float,
    typer.Option(
        rich_help_panel=WORK, help="Lengths of generated listings vary by this share, 0 to 0.5."
    ),
]
Seed = Annotated[
    int, typer.Option(rich_help_panel=WORK, help="Of the listings and of the order of runs.")
]

Model = Annotated[
    str | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        rich_help_panel=MACHINE,
        show_default=False,
        help="Folder or Hugging Face Hub id. Default: --shape, else the embedded model.",
    ),
]
Shape = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=MACHINE,
        show_default=False,
        help="Random weights of a published shape instead: qwen3-0.6b, qwen3-8b ...",
    ),
]
Tokenizer = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=MACHINE,
        show_default=False,
        help="Folder of a tokenizer, for --data with --shape.",
    ),
]
Device = Annotated[
    str, typer.Option(rich_help_panel=MACHINE, help="auto, cpu, cuda, cuda:1, mps ...")
]
Dtype = Annotated[
    str,
    typer.Option(
        rich_help_panel=MACHINE,
        help="float32, bfloat16 or float16; auto: bfloat16 for shapes, else what `load` takes.",
    ),
]
Threads = Annotated[
    int | None, typer.Option(min=1, rich_help_panel=MACHINE, help="Threads of the CPU.")
]
PricePerHour = Annotated[
    float | None,
    typer.Option(
        min=0.0, rich_help_panel=MACHINE, show_default=False, help="Of the machine, in dollars."
    ),
]

RivalDocuments = Annotated[
    int | None,
    typer.Option(
        min=1,
        rich_help_panel=RIVALS,
        show_default=False,
        help="Rivals run on so many of the listings. Default: all.",
    ),
]
GenerateBatches = Annotated[
    str,
    typer.Option(
        rich_help_panel=RIVALS, help="Batch sizes for transformers' generate to choose from."
    ),
]
Draft = Annotated[
    str | None,
    typer.Option(
        rich_help_panel=RIVALS,
        show_default=False,
        help="Shape of the draft model. Default: an eighth of the layers.",
    ),
]
DraftAcceptance = Annotated[
    float,
    typer.Option(
        min=0.0, max=1.0, rich_help_panel=RIVALS, help="How often a drafted token is right."
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        rich_help_panel=RIVALS,
        show_default=False,
        help="A server of OpenAI's protocol.",
    ),
]
Concurrency = Annotated[
    int, typer.Option(min=1, rich_help_panel=RIVALS, help="Requests in flight to --against.")
]

Host = Annotated[
    bool,
    typer.Option(
        "--host",
        rich_help_panel=SPECIAL,
        help="What everything but the model costs, per document.",
    ),
]
Transfers = Annotated[
    bool,
    typer.Option(
        "--transfers",
        rich_help_panel=SPECIAL,
        help="Copies between host and device and launched operations of a pass.",
    ),
]
Constraints = Annotated[
    bool,
    typer.Option(
        "--constraints", rich_help_panel=SPECIAL, help="What constraints cost a decode step."
    ),
]
Tables = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="ROWS",
        rich_help_panel=SPECIAL,
        show_default=False,
        help="What runs over tables cost beside the model, up to so many rows.",
    ),
]
Earlier = Annotated[
    Path | None,
    typer.Option(
        "--from",
        metavar="FILE",
        rich_help_panel=SPECIAL,
        show_default=False,
        help="Shows the results of --json; measures nothing.",
    ),
]

Json = Annotated[
    Path | None,
    typer.Option(
        "--json",
        metavar="FILE",
        rich_help_panel=OUTPUT,
        show_default=False,
        help="Writes all results.",
    ),
]
Plot = Annotated[
    Path | None,
    typer.Option(
        "--plot", metavar="FILE", rich_help_panel=OUTPUT, show_default=False, help="SVG or PNG."
    ),
]
Page = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        rich_help_panel=OUTPUT,
        show_default=False,
        help="A page to write the results into.",
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", rich_help_panel=OUTPUT, help="No progress.")]
