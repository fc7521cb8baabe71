"""Exact-match scores of attribute-value pairs.

They follow the protocol of ExtractGPT (Brinkmann et al., 2024), as the HPD paper does: every
annotated (product, attribute) pair is one of NN (both null), NV (target null), VN (prediction
null), VC (exact match) and VW (another value); P = VC / (NV + VC + VW), R = VC / (VN + VC + VW).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, get_args

Outcome = Literal["nn", "nv", "vn", "vc", "vw"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

_NULLS = {"", "n/a", "none", "null"}


@dataclass(frozen=True, slots=True)
class PairScore:
    """Counts of pairs by outcome, with precision, recall and F1."""

    nn: int = 0
    nv: int = 0
    vn: int = 0
    vc: int = 0
    vw: int = 0

    @property
    def precision(self) -> float:
        """The share of predicted values that are right."""
        return self.vc / max(1, self.nv + self.vc + self.vw)

    @property
    def recall(self) -> float:
        """The share of stated values that were found."""
        return self.vc / max(1, self.vn + self.vc + self.vw)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 0 if no value is stated or predicted."""
        # 2PR / (P + R) in one division.
        return 2 * self.vc / max(1, self.nv + self.vn + 2 * (self.vc + self.vw))

    @property
    def defined(self) -> bool:
        """True if any value is stated or predicted; otherwise F1 means nothing."""
        return bool(self.nv or self.vn or self.vc or self.vw)


def outcome_of(label: str | None | tuple[str | None, ...], prediction: str | None) -> Outcome:
    """The outcome of a prediction. label: a value, None, or several accepted values.

    A prediction that equals any accepted value is right. Null, "n/a" and the like are equal. If
    both values and null are accepted, the first one decides whether the label counts as null.
    """
    accepted = label if isinstance(label, tuple) else (label,)
    if is_null(prediction):
        return "nn" if any(map(is_null, accepted)) else "vn"
    if prediction in accepted:
        return "vc"
    return "nv" if is_null(accepted[0]) else "vw"


def is_null(value: str | None) -> bool:
    """True for None, "", "n/a", "none" and "null"."""
    return value is None or value.strip().lower() in _NULLS


def count_outcomes(outcomes: Iterable[Outcome]) -> PairScore:
    """Counts outcomes; the scores of the counts are micro averages."""
    counts = Counter(outcomes)
    return PairScore(*(counts[name] for name in OUTCOMES))


def mean_f1(scores: Iterable[PairScore]) -> float:
    """Macro F1: the mean over defined scores; 0 if none is defined."""
    found = [score.f1 for score in scores if score.defined]
    return sum(found) / len(found) if found else 0.0
