"""The settings of a training run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from schemax.config import PRESETS, DecodingConfig, check_numbers

# Default learning rates. `_FULL` is for models of at least `_LARGE` parameters; for smaller models
# the rate is inversely proportional to the square root of their number, up to `_FULL_MOST`.
_FULL, _LORA, _SCRATCH = 2e-5, 2e-4, 1e-3
_LARGE, _FULL_MOST = 1e9, 3e-4
# The default length: so many steps, within bounds of epochs.
_FEWEST_EPOCHS, _MOST_EPOCHS, _USUAL_STEPS = 3.0, 10.0, 100


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Settings of a training run, apart from its data and its model.

    decoding: the layout, documents and slots that the model is trained for.
    epochs, steps: the length of the run; steps take precedence. By default, 100 steps, but at least
        3 and at most 10 epochs.
    learning_rate: the peak, after a warm-up of 3 % and before a cosine decay to 0; None: 2e-5, for
        models below a billion parameters up to 3e-4; 2e-4 for LoRA and 1e-3 from scratch.
    batch_tokens: the most tokens of a pass on a device, padding included.
    pack: the most isolated documents that share a row and its instruction.
    gradient_accumulation: passes per optimizer step.
    lora: the rank of adapters; None trains all weights.
    keep_adapter: also write the adapters.
    lora_alpha: the adapters' scale times the rank; None: twice the rank.
    lora_dropout: on adapters' inputs.
    lora_targets: the modules with adapters, by the ends of names, or "all-linear".
    quantization: "nf4" keeps the weights beneath adapters in 4 bits (QLoRA).
    bf16: compute in bfloat16, and write the model so.
    compile: compile the model's layers, except for attention.
    absent: the share of values without an annotation that are learnt as null; 0 ignores them.
    held_out: the share of products that are held out.
    best_by: whether their loss or their F1 chooses the weights.
    patience: stops after this many checks without improvement; None never stops early.
    check_every: steps between checks, which also save; None checks once an epoch.

    Raises ValueError for inconsistent settings, and for numbers outside `config.BOUNDS`.
    """

    decoding: DecodingConfig = PRESETS["isolated"]
    epochs: float | None = None
    steps: int | None = None
    learning_rate: float | None = None
    batch_tokens: int = 4096
    pack: int = 16
    gradient_accumulation: int = 1
    lora: int | None = None
    lora_alpha: float | None = None
    lora_dropout: float = 0.0
    lora_targets: str | tuple[str, ...] = "all-linear"
    keep_adapter: bool = False
    quantization: Literal["nf4"] | None = None
    bf16: bool = False
    compile: bool = False
    absent: float = 1.0
    held_out: float = 0.1
    best_by: Literal["loss", "f1"] = "loss"
    patience: int | None = None
    check_every: int | None = None
    seed: int = 0
    from_scratch: bool = False

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
