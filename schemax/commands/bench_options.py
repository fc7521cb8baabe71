"""The options of `schemax bench`, in the groups that its help shows."""

from __future__ import annotations

from dataclasses import MISSING
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


class Documents(Options):
    """The work"""

    data: Path = option("FILE", default=MISSING, show_default=False)
    """JSONL of annotated documents, as `evaluate` reads it."""
    documents: int = option(default=64, min=1)
    """Number of documents, evenly spread over the file."""


class Loading(Options):
    """The model and the machine"""

    model: str | None = option("-m MODEL")
    """Folder or Hugging Face Hub id. Default: the embedded model."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps ..."""
    dtype: str = "auto"
    """float32, bfloat16 or float16; auto: as `load` chooses."""
    threads: int | None = option(min=1)
    """Threads of the CPU."""


class Machine(Options):
    """The model and the machine"""

    price_per_hour: float | None = option(min=0.0)
    """Price of the machine, in dollars."""


class Rivals(Options):
    """Rivals"""

    rival_documents: int | None = option(min=1)
    """Rivals run on so many of the documents. Default: all."""
    generate_batches: str = "1,8,32,64"
    """Batch sizes for transformers' generate to choose from."""
    against: str | None = option("URL#MODEL")
    """A server of OpenAI's protocol, by completions or else by chat."""
    token_prices: str | None = option("IN,OUT")
    """Prices of --against: dollars for a million tokens, read and written."""
    concurrency: int = option(default=32, min=1)
    """Requests in flight to --against."""


class Output(Options):
    """Output"""

    as_json: Path | None = option("--json FILE")
    """Writes all results."""
    quiet: bool = option("-q", default=False)
    """No progress."""


class Compared(Output, Rivals, Machine, Engines):
    """Options"""


class Given(Compared, Loading, Documents):
    """Options"""
