"""The options of `schemax train`, a group per concern."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from schemax.commands.options import SCHEMAS_HELP

Train = Annotated[
    Path,
    typer.Argument(
        metavar="TRAIN.jsonl or FOLDER",
        show_default=False,
        help='JSONL with one {"category", "text", "attributes": {name: value}} per line, and '
        'optionally "id" and "description". In a folder: train.jsonl, and test.jsonl and '
        "attributes.json if present.",
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
Resume = Annotated[bool, typer.Option("--resume", help="Resume from the last checkpoint.")]


@dataclass(frozen=True, slots=True)
class DataOptions:
    """Which products are trained on, and which are kept from training."""

    panel: ClassVar[str] = "The data"

    test: Annotated[
        Path | None,
        typer.Option(
            metavar="TEST.jsonl",
            show_default=False,
            help="Products that the model will be tested on: dropped from training.",
        ),
    ] = None
    keep_overlap: Annotated[
        bool, typer.Option("--keep-overlap", help="Train on products of --test too.")
    ] = False
    schemas: Annotated[
        str | None, typer.Option(metavar="SCHEMAS", show_default=False, help=SCHEMAS_HELP)
    ] = None
    held_out: Annotated[
        float,
        typer.Option(
            min=0,
            max=0.99,
            help="Share of TRAIN that is never trained on; the weights with the lowest loss on "
            "it are kept. 0 keeps the last weights.",
        ),
    ] = 0.1


@dataclass(frozen=True, slots=True)
class LabelOptions:
    """Where the labels come from, and what a missing one means."""

    panel: ClassVar[str] = "The labels"

    labels: Annotated[
        str,
        typer.Option(
            help="gold: the annotations; teacher: predictions of --teacher; self: what the model "
            "itself writes, autoregressively."
        ),
    ] = "gold"
    teacher: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL or PREDICTIONS.jsonl",
            show_default=False,
            help="A model, or rows that `extract` wrote for TRAIN.",
        ),
    ] = None
    teacher_decoding: Annotated[
        str, typer.Option(help="How the teacher, or the model itself, decodes.")
    ] = "autoregressive"
    absent: Annotated[
        float,
        typer.Option(
            min=0,
            max=1,
            metavar="SHARE",
            help="Share of the attributes without an annotation that each epoch teaches as null; "
            "0 teaches nothing about them.",
        ),
    ] = 1.0


@dataclass(frozen=True, slots=True)
class WeightOptions:
    """Which weights are trained, and for which decoding."""

    panel: ClassVar[str] = "What is trained"

    decoding: Annotated[
        str,
        typer.Option(
            help="How the model will be decoded: isolated, paper or autoregressive, and changes: "
            "isolated:layout=gapped:slots=causal."
        ),
    ] = "isolated"
    from_scratch: Annotated[
        str | None,
        typer.Option(
            metavar="CONFIG",
            show_default=False,
            help="Start from random weights of this config.json, folder or Hub id; --model then "
            "names only the tokenizer.",
        ),
    ] = None
    lora: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="RANK",
            show_default=False,
            help="Train adapters of this rank, and merge them. Default: train all weights.",
        ),
    ] = None
    keep_adapter: Annotated[
        bool, typer.Option("--keep-adapter", help="Write the adapter to FOLDER/adapter as well.")
    ] = False


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """The training loop, under the names of `TrainingSettings`."""

    panel: ClassVar[str] = "How it is trained"

    epochs: Annotated[
        float | None,
        typer.Option(
            show_default=False,
            help="How long. Default: 3; for small data, as many as give 100 steps, up to 10.",
        ),
    ] = None
    steps: Annotated[
        int | None, typer.Option(min=1, show_default=False, help="How long, instead of --epochs.")
    ] = None
    learning_rate: Annotated[
        float | None,
        typer.Option(
            show_default=False,
            help="The highest one. Default: 2e-5, up to 3e-4 for models below a billion "
            "parameters; 2e-4 for LoRA; 1e-3 from scratch.",
        ),
    ] = None
    batch_tokens: Annotated[int, typer.Option(min=1, help="Tokens per forward pass.")] = 4096
    pack: Annotated[int, typer.Option(min=1, help="Isolated documents behind one instruction.")] = (
        16
    )
    gradient_accumulation: Annotated[int, typer.Option(min=1, help="Passes per step.")] = 1
    bf16: Annotated[
        bool, typer.Option("--bf16", help="Compute in bfloat16, and write the model in it.")
    ] = False
    patience: Annotated[
        int | None,
        typer.Option(
            min=1,
            show_default=False,
            help="Stop after this many checks without a lower held-out loss.",
        ),
    ] = None
    check_every: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="STEPS",
            show_default=False,
            help="Steps between checks, each of which also saves a checkpoint. Default: an epoch.",
        ),
    ] = None
    seed: Annotated[int, typer.Option(help="Seed of everything that is random.")] = 0
