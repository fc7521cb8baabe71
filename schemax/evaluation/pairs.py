"""Exact-match scores of attribute-value pairs.

The protocol of ExtractGPT (Brinkmann et al., 2024), used by the HPD paper: every annotated
(product, attribute) pair is one of NN (both null), NV (target null), VN (prediction null), VC
(exact match) and VW (another value); P = VC / (NV + VC + VW), R = VC / (VN + VC + VW).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_NULLS = {"", "n/a", "none", "null"}


@dataclass(frozen=True, slots=True)
class PairScore:
    """Counts over pairs, and what follows from them."""

    nn: int = 0
    nv: int = 0
    vn: int = 0
    vc: int = 0
    vw: int = 0

    @property
    def precision(self) -> float:
        return self.vc / max(1, self.nv + self.vc + self.vw)

    @property
    def recall(self) -> float:
        return self.vc / max(1, self.vn + self.vc + self.vw)

    @property
    def f1(self) -> float:
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def score_pairs(
    rows: Iterable[tuple[Mapping[str, str | None], Mapping[str, str | None]]],
    *,
    attributes: Iterable[str] | None = None,
) -> PairScore:
    """Micro scores over rows of (target, prediction).

    attributes: the strict variant counts all of these per row, an unannotated one as null;
        without it only annotated pairs count.
    """
    counts = dict.fromkeys(("nn", "nv", "vn", "vc", "vw"), 0)
    strict = None if attributes is None else tuple(attributes)
    for target, prediction in rows:
        for name in target if strict is None else strict:
            counts[_outcome(target.get(name), prediction.get(name))] += 1
    return PairScore(**counts)


def add_scores(scores: Iterable[PairScore]) -> PairScore:
    """The counts of several parts together."""
    parts = list(scores)
    return PairScore(*(sum(getattr(s, n) for s in parts) for n in ("nn", "nv", "vn", "vc", "vw")))


def _outcome(target: str | None, prediction: str | None) -> str:
    if _is_null(target):
        return "nn" if _is_null(prediction) else "nv"
    if _is_null(prediction):
        return "vn"
    return "vc" if prediction == target else "vw"


def _is_null(value: str | None) -> bool:
    return value is None or value.strip().lower() in _NULLS
