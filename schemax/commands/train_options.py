"""The options of `schemax train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from schemax.commands.options import SCHEMAS_HELP

_DATA = "The data"
_LABELS = "The labels"
_FORM = "What is trained"
_LOOP = "How it is trained"

Train = Annotated[
    Path,
    typer.Argument(
        metavar="TRAIN.jsonl or FOLDER",
        show_default=False,
        help='JSONL with one {"category", "text", "attributes": {name: value}} a line; '
        '"id" and "description" may be there too. Of a folder train.jsonl, and test.jsonl and '
        "attributes.json where they are there.",
    ),
]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        "-o",
        metavar="FOLDER",
        show_default=False,
        help="Where the model goes, with its tokenizer, card and checkpoints.",
    ),
]
Device = Annotated[
    str, typer.Option(help="auto, cpu, cuda or mps; CUDA_VISIBLE_DEVICES chooses among GPUs.")
]
FromScratch = Annotated[
    str | None,
    typer.Option(
        metavar="CONFIG",
        show_default=False,
        help="Random weights of this config.json, folder or Hub id, not trained ones; "
        "--model then only names the tokenizer.",
        rich_help_panel=_FORM,
    ),
]
Test = Annotated[
    Path | None,
    typer.Option(
        metavar="TEST.jsonl",
        show_default=False,
        help="Products that the model will be tested on: dropped from training.",
        rich_help_panel=_DATA,
    ),
]
KeepOverlap = Annotated[
    bool,
    typer.Option("--keep-overlap", help="Train on products of --test too.", rich_help_panel=_DATA),
]
Schemas = Annotated[
    str | None,
    typer.Option(metavar="SCHEMAS", show_default=False, help=SCHEMAS_HELP, rich_help_panel=_DATA),
]
HeldOut = Annotated[
    float,
    typer.Option(
        min=0,
        max=0.99,
        help="Share of TRAIN that is never trained on; the weights with the lowest loss on it "
        "are kept. 0 keeps the last ones.",
        rich_help_panel=_DATA,
    ),
]
Labels = Annotated[
    str,
    typer.Option(
        help="gold: the annotations; teacher: predictions of --teacher; self: what the model "
        "itself writes, autoregressively.",
        rich_help_panel=_LABELS,
    ),
]
Teacher = Annotated[
    str | None,
    typer.Option(
        metavar="MODEL or PREDICTIONS.jsonl",
        show_default=False,
        help="A model, or rows that `extract` wrote for TRAIN.",
        rich_help_panel=_LABELS,
    ),
]
TeacherDecoding = Annotated[
    str,
    typer.Option(help="How the teacher, or the model itself, decodes.", rich_help_panel=_LABELS),
]
Absent = Annotated[
    str,
    typer.Option(
        help="What an attribute without an annotation means: null, or ignore it.",
        rich_help_panel=_LABELS,
    ),
]
AbsentShare = Annotated[
    float,
    typer.Option(
        min=0,
        max=1,
        help="With --absent null: the share of them that is learnt in an epoch.",
        rich_help_panel=_LABELS,
    ),
]
Decoding = Annotated[
    str,
    typer.Option(help="isolated, paper or autoregressive.", rich_help_panel=_FORM),
]
Layout = Annotated[
    str | None,
    typer.Option(
        show_default=False, help="branched, gapped or autoregressive.", rich_help_panel=_FORM
    ),
]
Documents = Annotated[
    str | None,
    typer.Option(show_default=False, help="isolated or stacked.", rich_help_panel=_FORM),
]
Slots = Annotated[
    str | None,
    typer.Option(show_default=False, help="independent or causal.", rich_help_panel=_FORM),
]
DocumentsPerPrompt = Annotated[
    int | None,
    typer.Option(min=1, show_default=False, help="Of stacked documents.", rich_help_panel=_FORM),
]
Lora = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="RANK",
        show_default=False,
        help="Train adapters of this rank, and merge them. Default: all weights are trained.",
        rich_help_panel=_FORM,
    ),
]
KeepAdapter = Annotated[
    bool,
    typer.Option(
        "--keep-adapter",
        help="Write the adapter to FOLDER/adapter as well.",
        rich_help_panel=_FORM,
    ),
]
Epochs = Annotated[
    float | None,
    typer.Option(
        show_default=False,
        help="How long. Default: 3, of small data as many as give 100 steps, up to 10.",
        rich_help_panel=_LOOP,
    ),
]
Steps = Annotated[
    int | None,
    typer.Option(
        min=1, show_default=False, help="How long, instead of --epochs.", rich_help_panel=_LOOP
    ),
]
LearningRate = Annotated[
    float | None,
    typer.Option(
        show_default=False,
        help="At its peak. Default: 2e-5, of models below a billion parameters up to 3e-4; 2e-4 "
        "for LoRA, 1e-3 from scratch.",
        rich_help_panel=_LOOP,
    ),
]
BatchTokens = Annotated[int, typer.Option(min=1, help="Tokens of a pass.", rich_help_panel=_LOOP)]
Pack = Annotated[
    int,
    typer.Option(min=1, help="Isolated documents behind one instruction.", rich_help_panel=_LOOP),
]
GradientAccumulation = Annotated[
    int, typer.Option(min=1, help="Passes per step.", rich_help_panel=_LOOP)
]
Bf16 = Annotated[
    bool,
    typer.Option(
        "--bf16", help="Compute in bfloat16, and write the model so.", rich_help_panel=_LOOP
    ),
]
Patience = Annotated[
    int | None,
    typer.Option(
        min=1,
        show_default=False,
        help="Stop after so many checks without a lower held-out loss.",
        rich_help_panel=_LOOP,
    ),
]
CheckEvery = Annotated[
    int | None,
    typer.Option(
        min=1,
        metavar="STEPS",
        show_default=False,
        help="Steps between checks, which also save. Default: an epoch.",
        rich_help_panel=_LOOP,
    ),
]
Seed = Annotated[int, typer.Option(help="Of all that is random.", rich_help_panel=_LOOP)]
Resume = Annotated[
    bool,
    typer.Option("--resume", help="Go on from the last checkpoint.", rich_help_panel=_LOOP),
]
