"""What chosen documents are worth as labels."""

from __future__ import annotations

import numpy as np

from recipes.reviewed import gain
from schemax.evaluation.calibrate import FitEntry


def test_unsure_documents_hold_mistakes_and_prove_no_precision() -> None:
    """Of values that are right as often as they are sure of."""
    rng = np.random.default_rng(0)
    sure = rng.beta(6, 1, 4_000).round(4)
    entries = [
        FitEntry(
            n, True, "vc" if rng.random() < share else "vw", "vn", share, share, "Tea", "Brand"
        )
        for n, share in enumerate(sure.tolist())
    ]
    half, others = list(range(2_000)), list(range(2_000, 4_000))
    unsure = sorted(others, key=lambda n: sure[n])[:500]
    at_random, chosen = gain(entries, others[:500], half), gain(entries, unsure, half)
    assert chosen.wrong == sum(entries[n].outcome == "vw" for n in unsure)
    assert chosen.wrong > 1.5 * at_random.wrong
    assert at_random.coverage > 0.3
    assert not at_random.is_broken
    assert chosen.coverage < at_random.coverage
