"""The settings of a training run."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Literal

from schemax.config import PRESETS, DecodingConfig, check_numbers

# Learning rates where none is given. Smaller models take larger ones: `_FULL` is of `_LARGE`
# parameters and more, and grows with the inverse of the square root of their number, up to
# `_FULL_MOST`.
_FULL, _LORA, _SCRATCH = 2e-5, 2e-4, 1e-3
_LARGE, _FULL_MOST = 1e9, 3e-4
# Epochs where neither epochs nor steps are given: the fewest, and the most for so many steps.
_FEWEST_EPOCHS, _MOST_EPOCHS, _USUAL_STEPS = 3.0, 10.0, 100


@dataclass(frozen=True, slots=True)
class TrainingSettings:
    """Settings of a run, but for its data and its model.

    decoding: the layout, documents and slots that the model is trained for.
    epochs, steps: how long; steps, if given, decide. Without either, 3 epochs, or of small data as
        many as give 100 steps, up to 10.
    learning_rate: at its peak, after a warm-up of 3% and before a cosine to 0; None takes 2e-5, of
        models below a billion parameters more, up to 3e-4; 2e-4 for LoRA and 1e-3 from scratch.
    batch_tokens: of one pass on one device, padding included.
    pack: how many isolated documents share a row and its instruction, at most.
    gradient_accumulation: passes per optimizer step.
    lora: rank of adapters; None trains all weights. keep_adapter: write them beside the model.
    lora_alpha: their scale times the rank; None for twice the rank. lora_dropout: of what adapters
        read. lora_targets: the modules that get one, by the ends of their names, or "all-linear".
    quantization: "nf4" keeps the weights beneath adapters in 4 bits (QLoRA).
    bf16: computes in bfloat16, and writes the model so.
    compile: compiles the model's layers, without what attention does within them.
    absent: the share of values without an annotation that are learnt as null; 0 ignores them.
    held_out: the share of products that are never trained on; best_by says whether their loss or
        their F1 chooses the weights.
    patience: stops after this many checks without a better one; None never stops early.
    check_every: steps between checks, which also save; None checks once an epoch.

    Raises ValueError for settings that make no sense, and for numbers outside `config.BOUNDS`.
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
        if self.best_by == "f1" and not self.held_out:
            raise ValueError("best_by='f1' requires a held-out part: set held_out above 0")

    def peak(self, num_parameters: int) -> float:
        """The learning rate at its peak, for a model with this many parameters."""
        if self.learning_rate is not None:
            return self.learning_rate
        if self.from_scratch or self.lora is not None:
            return _SCRATCH if self.from_scratch else _LORA
        return float(f"{min(_FULL_MOST, _FULL * max(1.0, _LARGE / num_parameters) ** 0.5):.2g}")

    def num_steps(self, steps_per_epoch: int) -> int:
        """Optimizer steps in all."""
        if self.steps is not None:
            return self.steps
        epochs = self.epochs
        if epochs is None:
            epochs = min(_MOST_EPOCHS, max(_FEWEST_EPOCHS, _USUAL_STEPS / steps_per_epoch))
        return max(1, round(epochs * steps_per_epoch))

    @property
    def merges(self) -> bool:
        """True if adapters become a part of the weights that are written."""
        return self.lora is not None and self.quantization is None

    @property
    def documents(self) -> int:
        """The largest number of documents in a row."""
        stacked = self.decoding.documents == "stacked"
        return self.decoding.documents_per_prompt if stacked else self.pack
