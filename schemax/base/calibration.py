"""Calibration: turns a model's probabilities into confidences."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from math import exp, isfinite, log
from pathlib import Path

from schemax.errors import ModelError

FILE = "calibration.json"

# A probability nearer to 0 or 1 shows only the rounding of a sum.
LEAST = 1e-6


@dataclass(frozen=True, slots=True)
class Calibration:
    """The calibration of a model, fitted on documents that it was not trained on.

    temperature, bias: a value's confidence is sigmoid(logit(raw) / temperature + bias), which keeps
        the order of confidences. The temperature after Guo et al., On Calibration of Modern Neural
        Networks, 2017; the bias after Platt, Probabilistic Outputs for Support Vector Machines,
        1999.
    min_probability: a less probable value becomes null, if its field may be null.
    usual_logprob, usual_deviation: mean and standard deviation of `familiarity.mean_logprob` over
        the products of the fit; a deviation of 0 says that they were not measured.

    Raises ValueError for a number that is not finite, a temperature that is not above 0, and a
    min_probability that is not from 0 to 1.
    """

    temperature: float = 1.0
    bias: float = 0.0
    min_probability: float = 0.0
    usual_logprob: float = 0.0
    usual_deviation: float = 0.0

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value):
                raise ValueError(f"{name} must be a finite number, not {value!r}")
        if self.temperature <= 0:
            raise ValueError(f"temperature must be above 0, not {self.temperature!r}")
        if not 0 <= self.min_probability <= 1:
            raise ValueError(f"min_probability must be from 0 to 1, not {self.min_probability!r}")

    def confidence(self, raw: float) -> float:
        """The measured share of right values among those of a raw confidence."""
        if (self.temperature, self.bias) == (1, 0):
            return raw
        scaled = logit(raw) / self.temperature + self.bias
        # Written so that exp never overflows.
        return 1 / (1 + exp(-scaled)) if scaled >= 0 else exp(scaled) / (1 + exp(scaled))


def per_item(probability: float, items: int) -> float:
    """The probability to compare with `min_probability`; for a list, the mean over its items."""
    return float(probability ** (1 / max(1, items)))


def logit(probability: float) -> float:
    """The logit of a probability, which is first moved a millionth away from 0 and 1."""
    kept = min(max(probability, LEAST), 1 - LEAST)
    return log(kept / (1 - kept))


def read_calibration(path: Path) -> Calibration:
    """Reads a file, ignoring unknown keys. Raises ModelError, naming it, for a broken file."""
    try:
        written = json.loads(path.read_text("utf-8"))
        if not isinstance(written, dict):
            raise ValueError("it is not a JSON object")
        names = [field.name for field in fields(Calibration) if field.name in written]
        return Calibration(**{name: written[name] for name in names})
    except (OSError, ValueError, OverflowError, RecursionError) as error:
        raise ModelError(
            f"{path} cannot be used: {error}; delete it, or calibrate again"
        ) from error


def write_calibration(calibration: Calibration, folder: Path) -> None:
    """Writes a calibration into a model's folder, with which the model is then loaded."""
    text = json.dumps(asdict(calibration), indent=2) + "\n"
    (folder / FILE).write_text(text, "utf-8")
