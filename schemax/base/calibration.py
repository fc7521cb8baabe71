"""Calibration: turns a model's probabilities into confidences."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from math import exp, inf, isfinite, log
from pathlib import Path
from typing import TypeAlias

from pydantic import TypeAdapter

from schemax.errors import ModelError

FILE = "calibration.json"

# A probability nearer to 0 or 1 shows only the rounding of a sum.
LEAST = 1e-6


FEWEST_LABELS = 60
"""The fewest labelled values of a field with a threshold by itself: 59 right ones prove 0.95."""

PROMISE_COLUMNS = ("field", "values", "threshold", "kept", "right")

Share: TypeAlias = tuple[float, float, float]
"""A share, and the ends of its 95 % interval."""


@dataclass(frozen=True, slots=True)
class FieldPromise:
    """What a threshold keeps of a field's labelled values, or of all fields'.

    min_confidence: the least confidence of values kept; None keeps none.
    by_itself: whether the precision is promised of this field by itself.
    values: the labelled values, kept or not.
    coverage: the share of them that is kept.
    precision: the share of right values among those kept; None without any.
    """

    min_confidence: float | None
    by_itself: bool
    values: int
    coverage: Share
    precision: Share | None


@dataclass(frozen=True, slots=True)
class Promise:
    """Thresholds for a precision of the values kept (schemax.evaluation.precision).

    precision: at least this share of the values kept is right.
    together: of all fields; its threshold is that of every field without one by itself.
    fields: category -> field -> what is kept of the field.
    """

    precision: float
    together: FieldPromise
    fields: Mapping[str, Mapping[str, FieldPromise]] = field(default_factory=dict)

    def min_confidence(self, category: str, name: str) -> float:
        """The least confidence of values that are kept of a field."""
        least = self.fields.get(category, {}).get(name, self.together).min_confidence
        return inf if least is None else least

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Yields (field, values, threshold, kept, right, remark) as texts, all fields first."""
        named = {
            f"{category}: {name}": kept
            for category, inner in self.fields.items()
            for name, kept in inner.items()
        }
        for name, kept in {"all together": self.together, **named}.items():
            remark = "promised"
            if kept is not self.together and not kept.by_itself:
                is_few = kept.values < FEWEST_LABELS
                reason = f"fewer than {FEWEST_LABELS} values" if is_few else "not proven by itself"
                remark = f"shared threshold: {reason}"
            yield (
                name,
                str(kept.values),
                "keeps none" if kept.min_confidence is None else f"{kept.min_confidence:.3f}",
                _share_text(kept.coverage),
                _share_text(kept.precision),
                remark,
            )


def _share_text(share: Share | None) -> str:
    return "-" if share is None else "{:.3f} ({:.3f}-{:.3f})".format(*share)


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
    promise: a less sure value becomes null, if its field may be null; None promises nothing.

    Raises ValueError for a number that is not finite, a temperature that is not above 0, and a
    min_probability that is not from 0 to 1.
    """

    temperature: float = 1.0
    bias: float = 0.0
    min_probability: float = 0.0
    usual_logprob: float = 0.0
    usual_deviation: float = 0.0
    promise: Promise | None = None

    def __post_init__(self) -> None:
        for name in ("temperature", "bias", "min_probability", "usual_logprob", "usual_deviation"):
            value = getattr(self, name)
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


promise_in = TypeAdapter[Promise | None](Promise | None).validate_python
"""A function: a promise from its JSON, or None. Raises ValueError for anything else."""


def read_calibration(path: Path) -> Calibration:
    """Reads a file, ignoring unknown keys. Raises ModelError, naming it, for a broken file."""
    try:
        written = json.loads(path.read_text("utf-8"))
        if not isinstance(written, dict):
            raise ValueError("it is not a JSON object")
        names = [item.name for item in fields(Calibration) if item.name in written]
        known = {name: written[name] for name in names}
        return Calibration(**known | {"promise": promise_in(written.get("promise"))})
    except (OSError, ValueError, OverflowError, RecursionError) as error:
        raise ModelError(
            f"{path} cannot be used: {error}; delete it, or calibrate again"
        ) from error


def write_calibration(calibration: Calibration, folder: Path) -> None:
    """Writes a calibration into a model's folder, with which the model is then loaded."""
    written = asdict(calibration)
    if calibration.promise is None:
        del written["promise"]
    (folder / FILE).write_text(json.dumps(written, indent=2) + "\n", "utf-8")
