"""The options of `schemax train`, a group per concern."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from schemax.commands import options
from schemax.commands.option_groups import option


@dataclass(frozen=True, slots=True)
class DataOptions:
    """The data"""

    test: Path | None = option(
        "Documents that the model will be tested on: dropped from training.", metavar="TEST.jsonl"
    )
    keep_overlap: bool = option("Train on documents of --test too.", default=False)
    schemas: options.Schemas = None
    held_out: float = option(
        "Share of TRAIN that is never trained on; the weights with the lowest loss on it are kept. "
        "0 keeps the last weights, and measures nothing.",
        default=0.1,
        min=0,
        max=0.99,
    )


@dataclass(frozen=True, slots=True)
class LabelOptions:
    """The labels"""

    labels: Literal["gold", "teacher", "self"] = option(
        "gold: the annotations; teacher: predictions of --teacher; self: what the model itself "
        "writes, autoregressively.",
        default="gold",
    )
    teacher: str | None = option(
        "A model, a server that is asked by chat, or rows that `extract` wrote for TRAIN.",
        metavar="MODEL, URL#MODEL or PREDICTIONS.jsonl",
    )
    teacher_decoding: str | None = option(
        "How the teacher, or the model itself, decodes. Default: as the teacher was trained by "
        "this command, else autoregressive."
    )
    absent: float = option(
        "Share of the attributes without an annotation that each epoch teaches as null; 0 teaches "
        "nothing about them.",
        default=1.0,
        min=0,
        max=1,
        metavar="SHARE",
    )


@dataclass(frozen=True, slots=True)
class WeightOptions:
    """What is trained"""

    decoding: str | None = option(
        "How the model will be decoded: isolated, paper or autoregressive, and changes: "
        "isolated:layout=gapped:slots=causal. Default: the one that MODEL was trained for by this "
        "command, else isolated."
    )
    from_scratch: str | None = option(
        "Start from random weights of this config.json, folder or Hub id; --model then names only "
        "the tokenizer.",
        metavar="CONFIG",
    )
    lora: int | None = option(
        "Train adapters of this rank, and merge them. Default: train all weights.",
        min=1,
        metavar="RANK",
    )
    lora_alpha: float | None = option("Scale of the adapters times RANK. Default: twice RANK.")
    lora_dropout: float = option("Of what adapters read.", default=0.0, min=0, max=0.99)
    lora_targets: str = option(
        "Modules that get an adapter, by the ends of their names: q_proj,v_proj. Default: all "
        "linear layers but the output head.",
        default="all-linear",
        metavar="NAME,NAME",
    )
    keep_adapter: bool = option("Write the adapter to FOLDER/adapter as well.", default=False)
    quantization: Literal["nf4"] | None = option(
        "Keep the weights beneath the adapters in 4 bits (QLoRA; CUDA): FOLDER is then an adapter."
    )


@dataclass(frozen=True, slots=True)
class RecordOptions:
    """What is recorded and kept"""

    plot: Path | None = option(
        "Draw loss, F1, learning rate and tokens per second: a .svg, .png or .pdf file. Requires "
        "matplotlib (the extra plots).",
        metavar="FILE",
    )
    report_to: str | None = option(
        "Trackers that transformers knows and that are installed: tensorboard,wandb,mlflow.",
        metavar="NAME,NAME",
    )
    keep_checkpoints: bool = option(
        "Keep the checkpoints of a finished run, so that --resume can go on with more --epochs.",
        default=False,
    )


@dataclass(frozen=True, slots=True)
class LoopOptions:
    """How it is trained"""

    # Named as in `TrainingSettings`.
    epochs: float | None = option(
        "How long. Default: 3; for small data, as many as give 100 steps, up to 10."
    )
    steps: int | None = option("How long, instead of --epochs.", min=1)
    learning_rate: float | None = option(
        "The highest one. Default: 2e-5, up to 3e-4 for models below a billion parameters; 2e-4 "
        "for LoRA; 1e-3 from scratch."
    )
    batch_tokens: int = option("Tokens per forward pass.", default=4096, min=1)
    pack: int = option("Isolated documents behind one instruction.", default=16, min=1)
    gradient_accumulation: int = option("Passes per step.", default=1, min=1)
    bf16: bool = option("Compute in bfloat16, and write the model in it.", default=False)
    compile: bool = option(
        "Compile the model's layers (torch.compile), once a run in a minute or two; requires a C++ "
        "compiler, on GPUs Triton.",
        default=False,
    )
    best_by: Literal["loss", "f1"] = option(
        "What the weights are chosen by, and --patience goes by: the loss or F1 on held-out "
        "products.",
        default="loss",
    )
    patience: int | None = option("Stop after this many checks without a better one.", min=1)
    check_every: int | None = option(
        "Steps between checks, each of which also saves a checkpoint. Default: an epoch.",
        min=1,
        metavar="STEPS",
    )
    seed: int = option("Seed of everything that is random.", default=0)
