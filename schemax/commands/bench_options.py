"""The options of `schemax bench`, in the groups that its help shows."""

from __future__ import annotations

from pathlib import Path

from schemax.commands.option_groups import Options, option


class Engines(Options):
    """What to run"""

    engines: str | None = None
    """Names, separated by commas. Default: all that can run."""
    repeats: int = option(default=3, min=1)
    """Rounds; the median counts."""
    batch_size: int | None = option(min=1, show_default="auto")
    """Documents in flight, for schemax's own engines."""
    sweep: bool = False
    """Also the paper's grid of documents per prompt and batch sizes."""


class Work(Options):
    """The work"""

    data: Path | None = None
    """JSONL of annotated documents, as `evaluate` reads it. With --document-tokens only the lengths
    of its values are taken."""
    documents: int = option(default=64, min=1)
    """Number of listings."""
    document_tokens: int | None = option(min=2, show_default="250")
    """Tokens of a generated listing."""
    attributes: int = option(default=16, min=1)
    """Attributes of a generated listing."""
    jitter: float = 0.0
    """Lengths of generated listings vary by this share, 0 to 0.5."""
    seed: int = 0
    """Seed of the listings and of the order of runs."""


class Loading(Options):
    """The model and the machine"""

    model: str | None = option("-m MODEL")
    """Folder or Hugging Face Hub id. Default: the embedded model."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps ..."""
    dtype: str = "auto"
    """float32, bfloat16 or float16; auto: bfloat16 for shapes, else what `load` takes."""
    threads: int | None = option(min=1)
    """Threads of the CPU."""


class Shape(Loading):
    """The model and the machine"""

    shape: str | None = None
    """Random weights of a published shape instead of a model: qwen3-0.6b, qwen3-8b ..."""
    tokenizer: str | None = None
    """Folder of a tokenizer, for --data with --shape."""


class Machine(Shape):
    """The model and the machine"""

    price_per_hour: float | None = option(min=0.0)
    """Price of the machine, in dollars."""


class Rivals(Options):
    """Rivals"""

    rival_documents: int | None = option(min=1)
    """Rivals run on so many of the listings. Default: all."""
    generate_batches: str = "1,8,32,64"
    """Batch sizes for transformers' generate to choose from."""
    against: str | None = option("URL#MODEL")
    """A server of OpenAI's protocol, by completions or else by chat."""
    token_prices: str | None = option("IN,OUT")
    """Prices of --against: dollars for a million tokens, read and written."""
    concurrency: int = option(default=32, min=1)
    """Requests in flight to --against."""


class Special(Options):
    """Instead of the comparison"""

    host: bool = False
    """The cost of everything but the model, per document."""
    earlier: Path | None = option("--from FILE")
    """Shows the results of --json; measures nothing."""


class Output(Options):
    """Output"""

    as_json: Path | None = option("--json FILE")
    """Writes all results."""
    picture: Path | None = option("--plot FILE")
    """SVG or PNG."""
    page: Path | None = option("FILE")
    """A page to write the results into."""
    quiet: bool = option("-q", default=False)
    """No progress."""


class Compared(Output, Rivals, Machine, Work, Engines):
    """Options"""


class Given(Special, Compared):
    """Options"""
