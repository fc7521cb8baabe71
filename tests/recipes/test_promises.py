"""Promised precision on random halves of documents."""

from __future__ import annotations

import numpy as np

from recipes.promises import measure
from schemax.evaluation.calibrate import FitEntry


def test_halves_of_drawn_documents() -> None:
    """Of values that are right as often as they are sure of, most of what could be kept is kept."""
    rng = np.random.default_rng(0)
    entries = [
        FitEntry(n // 4, True, "vc" if rng.random() < sure else "vw", "vn", sure, sure, "Tea", name)
        for n, sure in enumerate(rng.beta(6, 1, 4_000).tolist())
        for name in ["brand", "size", "count", "leaf"][n % 4 : n % 4 + 1]
    ]
    measured = measure(entries, 0.9, 10)
    assert (measured.precision, measured.draws, measured.nothing) == (0.9, 10, 0)
    assert measured.violations <= 1
    assert 0.7 < measured.ratio < 1
    assert measure(entries, 0.999, 1).nothing == 1
