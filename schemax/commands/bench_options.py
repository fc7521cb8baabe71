"""The options of `schemax bench`, in the groups that its help shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from schemax.commands.option_groups import option


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """What to run"""

    engines: str | None = option("Names, separated by commas. Default: all that can run.")
    repeats: int = option("Rounds; the median counts.", default=3, min=1)
    batch_size: int | None = option("Of schemax's own engines.", min=1, show_default="auto")
    sweep: bool = option(
        "Also the paper's grid of documents per prompt and batch sizes.", default=False
    )


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """The work"""

    data: Path | None = option(
        "JSONL of annotated documents, as `evaluate` reads it. With --document-tokens only the "
        "lengths of its values are taken."
    )
    documents: int = option("How many listings.", default=64, min=1)
    document_tokens: int | None = option(
        "Tokens of a generated listing.", min=2, show_default="250"
    )
    attributes: int = option("Attributes of a generated listing.", default=16, min=1)
    jitter: float = option(
        "Lengths of generated listings vary by this share, 0 to 0.5.", default=0.0
    )
    seed: int = option("Of the listings and of the order of runs.", default=0)


@dataclass(frozen=True, slots=True)
class LoadingOptions:
    """The model and the machine"""

    model: str | None = option(
        "Folder or Hugging Face Hub id. Default: the embedded model.",
        "--model",
        "-m",
        metavar="MODEL",
    )
    device: str = option("auto, cpu, cuda, cuda:1, mps ...", default="auto")
    dtype: str = option(
        "float32, bfloat16 or float16; auto: bfloat16 for shapes, else what `load` takes.",
        default="auto",
    )
    threads: int | None = option("Threads of the CPU.", min=1)


@dataclass(frozen=True, slots=True)
class ShapeOptions(LoadingOptions):
    """The model and the machine"""

    shape: str | None = option(
        "Random weights of a published shape instead of a model: qwen3-0.6b, qwen3-8b ..."
    )
    tokenizer: str | None = option("Folder of a tokenizer, for --data with --shape.")


@dataclass(frozen=True, slots=True)
class MachineOptions(ShapeOptions):
    """The model and the machine"""

    price_per_hour: float | None = option("Of the machine, in dollars.", min=0.0)


@dataclass(frozen=True, slots=True)
class RivalOptions:
    """Rivals"""

    rival_documents: int | None = option(
        "Rivals run on so many of the listings. Default: all.", min=1
    )
    generate_batches: str = option(
        "Batch sizes for transformers' generate to choose from.", default="1,8,32,64"
    )
    against: str | None = option(
        "A server of OpenAI's protocol, by completions or else by chat.", metavar="URL#MODEL"
    )
    token_prices: str | None = option(
        "Of --against: dollars for a million tokens, read and written.", metavar="IN,OUT"
    )
    concurrency: int = option("Requests in flight to --against.", default=32, min=1)


@dataclass(frozen=True, slots=True)
class SpecialOptions:
    """Instead of the comparison"""

    host: bool = option("What everything but the model costs, per document.", default=False)
    earlier: Path | None = option(
        "Shows the results of --json; measures nothing.", "--from", metavar="FILE"
    )


@dataclass(frozen=True, slots=True)
class OutputOptions:
    """Output"""

    as_json: Path | None = option("Writes all results.", "--json", metavar="FILE")
    picture: Path | None = option("SVG or PNG.", "--plot", metavar="FILE")
    page: Path | None = option("A page to write the results into.", metavar="FILE")
    quiet: bool = option("No progress.", "-q", default=False)
