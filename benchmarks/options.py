"""The options of `python -m benchmarks compare`, and of the model of other commands."""

from __future__ import annotations

from pathlib import Path

from benchmarks.compare import ModelChoice
from schemax.base.options import OptionGroup, option
from schemax.commands import bench as shared
from schemax.commands import options
from schemax.commands.options import argument


class Shape(shared.Loading):
    """The model and the machine"""

    shape: str | None = None
    """Random weights of a published shape instead of a model: qwen3-0.6b, qwen3-8b ..."""
    tokenizer: str | None = None
    """Folder of a tokenizer, for --data with --shape."""

    def choice(self) -> ModelChoice:
        """The model of these options; without model and shape, the default model."""
        model = self.model if self.shape else str(options.model_place(self.model))
        return ModelChoice(model, self.shape, self.tokenizer, self.device, self.dtype)


class Work(OptionGroup):
    """The work"""

    data: Path | None = None
    """JSONL of annotated documents, as `evaluate` reads it. With --document-tokens only the lengths
    of its values count."""
    documents: int = option(default=64, min=1)
    """Number of listings."""
    document_tokens: int | None = option(min=2, show_default="250")
    """Tokens of a generated listing."""
    attributes: int = option(default=16, min=1)
    """Attributes of a generated listing."""
    jitter: float = 0.0
    """Lengths of generated listings vary by this share, 0 to 0.5."""
    seed: int = 0
    """Seed of the generated listings."""
    sweep: bool = False
    """Also the paper's grid of documents per prompt and batch sizes."""


class DraftModel(OptionGroup):
    """The rival that drafts"""

    draft: str | None = None
    """Shape of the draft model. Default: an eighth of the layers."""
    draft_acceptance: float = option(default=0.8, min=0.0, max=1.0)
    """How often a drafted token is right."""


class Pages(OptionGroup):
    """Pages"""

    picture: Path | None = option("--plot FILE")
    """SVG or PNG."""
    page: Path | None = option("FILE")
    """A page to write the results into."""


class CompareOptions(shared.Compared, DraftModel, Pages, Work, Shape):
    """Options"""


class ShowOptions(Pages):
    """Options"""

    results: Path = argument("FILE")
    """Of --json."""
