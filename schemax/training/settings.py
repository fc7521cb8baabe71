"""The settings of a training run."""

from __future__ import annotations

from dataclasses import fields
from typing import Literal

from schemax.base.options import OptionGroup, option
from schemax.config import PRESETS, DecodingConfig, check_numbers

# Default learning rates. `_FULL` is for models of at least `_LARGE` parameters; for smaller models
# the rate is inversely proportional to the square root of their number, up to `_FULL_MOST`.
_FULL, _LORA, _SCRATCH = 2e-5, 2e-4, 1e-3
_LARGE, _FULL_MOST = 1e9, 3e-4
# The default length: so many steps, within bounds of epochs.
_FEWEST_EPOCHS, _MOST_EPOCHS, _USUAL_STEPS = 3.0, 10.0, 100


class TrainingOptions(OptionGroup):
    """Settings of a training run that `schemax train` takes as they stand here."""

    """The data"""

    held_out: float = option(default=0.1, min=0, max=0.99)
    """Share of TRAIN that is never trained on; the weights with the lowest loss on it are kept. 0
    keeps the last weights, and measures nothing."""

    """The labels"""

    absent: float = option("SHARE", default=1.0, min=0, max=1)
    """Share of the attributes without an annotation that each epoch teaches as null; 0 teaches
    nothing about them."""

    """The weights"""

    lora: int | None = option("RANK", min=1)
    """Train adapters of this rank, and merge them. Default: train all weights."""
    lora_alpha: float | None = None
    """Scale of the adapters times RANK. Default: twice RANK."""
    lora_dropout: float = option(default=0.0, min=0, max=0.99)
    """Dropout on the inputs of adapters."""
    keep_adapter: bool = False
    """Write the adapter to FOLDER/adapter as well."""
    quantization: Literal["nf4"] | None = None
    """Keep the weights beneath the adapters in 4 bits (QLoRA; CUDA): FOLDER is then an adapter."""

    """The loop"""

    epochs: float | None = None
    """Number of epochs. Default: 3; for small data, as many as give 100 steps, up to 10."""
    steps: int | None = option(min=1)
    """Number of steps, instead of --epochs."""
    learning_rate: float | None = None
    """The highest one. Default: 2e-5, up to 3e-4 for models below a billion parameters; 2e-4 for
    LoRA; 1e-3 from scratch."""
    batch_tokens: int = option(default=4096, min=1)
    """Tokens per forward pass."""
    pack: int = option(default=16, min=1)
    """Isolated documents behind one instruction."""
    gradient_accumulation: int = option(default=1, min=1)
    """Passes per step."""
    bf16: bool = False
    """Compute in bfloat16, and write the model in it."""
    compile: bool = False
    """Compile the model's layers (torch.compile), once a run in a minute or two; requires a C++
    compiler, on GPUs Triton."""
    best_by: Literal["loss", "f1"] = "loss"
    """Measure that chooses the weights and that --patience watches: the loss or F1 on held-out
    products."""
    patience: int | None = option(min=1)
    """Stop after this many checks without a better one."""
    check_every: int | None = option("STEPS", min=1)
    """Steps between checks, each of which also saves a checkpoint. Default: an epoch."""
    seed: int = 0
    """Seed of everything that is random."""


class TrainingSettings(TrainingOptions):
    """Settings of a training run, apart from its data and its model.

    Raises ValueError for inconsistent settings, and for numbers outside `config.BOUNDS`.
    """

    decoding: DecodingConfig = PRESETS["isolated"]
    """The layout, documents and slots that the model is trained for."""
    lora_targets: str | tuple[str, ...] = "all-linear"
    """The modules with adapters, by the ends of names, or "all-linear"."""
    from_scratch: bool = False
    """Whether the weights are random at the start."""

    def __post_init__(self) -> None:
        settings = {field.name: getattr(self, field.name) for field in fields(self)}
        check_numbers({name: value for name, value in settings.items() if value is not None})
        if self.patience is not None and not self.held_out:
            raise ValueError("patience requires a held-out part: set held_out above 0")
        if self.lora is not None and self.from_scratch:
            raise ValueError("LoRA requires trained weights; from scratch, train all weights")
        changed = {
            "keep_adapter": self.keep_adapter,
            "lora_alpha": self.lora_alpha is not None,
            "lora_dropout": self.lora_dropout > 0,
            "lora_targets": self.lora_targets != "all-linear",
            "quantization": self.quantization is not None,
        }
        for name, is_changed in changed.items():
            if is_changed and self.lora is None:
                raise ValueError(f"{name} requires LoRA: name a rank, such as lora=16")
        config = self.decoding
        if config.layout == "autoregressive" and config.documents == "stacked":
            raise ValueError(
                'training with layout="autoregressive" requires documents="isolated": stacked '
                "documents share one output, which no annotated document has"
            )
        if self.best_by == "f1" and not self.held_out:
            raise ValueError("best_by='f1' requires a held-out part: set held_out above 0")

    def peak(self, num_parameters: int) -> float:
        """Returns the peak learning rate for a model with this many parameters."""
        if self.learning_rate is not None:
            return self.learning_rate
        if self.from_scratch or self.lora is not None:
            return _SCRATCH if self.from_scratch else _LORA
        return float(f"{min(_FULL_MOST, _FULL * max(1.0, _LARGE / num_parameters) ** 0.5):.2g}")

    def num_steps(self, steps_per_epoch: int) -> int:
        """Returns the number of optimizer steps in all."""
        if self.steps is not None:
            return self.steps
        epochs = self.epochs
        if epochs is None:
            epochs = min(_MOST_EPOCHS, max(_FEWEST_EPOCHS, _USUAL_STEPS / steps_per_epoch))
        return max(1, round(epochs * steps_per_epoch))

    @property
    def merges(self) -> bool:
        """True if adapters are merged into the weights that are written."""
        return self.lora is not None and self.quantization is None

    @property
    def documents(self) -> int:
        """The largest number of documents in a row."""
        stacked = self.decoding.documents == "stacked"
        return self.decoding.documents_per_prompt if stacked else self.pack
