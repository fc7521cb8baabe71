"""How often a promised precision holds on other documents, and how many values it keeps.

    python -m recipes.promises LABELS --model FOLDER [--draws 100] [--precision 0.9,0.95]

LABELS are annotated documents that the model was not trained on. It reads them once. Every draw
chooses the thresholds of `schemax calibrate --precision` on a random half of the documents, and
measures them on the other half: a violation is an upper end of the 95 % interval of precision below
the promise. The oracle is the loosest threshold that keeps the precision on the measured half.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from schemax.evaluation.calibrate import FitEntry, calibrate
from schemax.evaluation.datasets import dataset
from schemax.evaluation.examples import read_examples
from schemax.evaluation.precision import choose_thresholds, share_of
from schemax.extraction.extractor import Extractor


class Measured(NamedTuple):
    """What thresholds of a precision did in a number of draws.

    violations: measured halves whose precision is below the promise, by its interval.
    below: measured halves of a lower precision than promised, by chance or not.
    nothing: draws whose thresholds keep nothing.
    coverage, oracle: mean shares of the values kept by the thresholds and by the oracle.
    ratio: the mean of coverage / oracle, 0 for a draw that keeps nothing.
    """

    precision: float
    draws: int
    violations: int
    below: int
    nothing: int
    coverage: float
    oracle: float
    ratio: float


def measure(entries: Sequence[FitEntry], precision: float, draws: int) -> Measured:
    """Measures draws. Confidences are raw: a calibration keeps their order."""
    values = [entry for entry in entries if entry.annotated and entry.confidence is not None]
    sure = np.array([entry.confidence for entry in values], np.float64)
    right = np.array([entry.outcome == "vc" for entry in values], np.bool_)
    products = np.array([entry.product for entry in values], np.int64)
    names = [(entry.category, entry.attribute) for entry in values]
    violations = below = nothing = 0
    coverages, oracles = [], []
    for seed in range(draws):
        drawn = np.random.default_rng(seed).permutation(np.unique(products))
        first = np.isin(products, drawn[: len(drawn) // 2])
        thresholds = choose_thresholds(
            sure[first].tolist(),
            right[first].tolist(),
            products[first].tolist(),
            precision,
            [name for name, is_first in zip(names, first, strict=True) if is_first],
        )
        shared = np.inf if thresholds.shared is None else thresholds.shared
        least = np.array([thresholds.by_field.get(name, shared) for name in names])
        kept = ~first & (sure >= least)
        ordered = right[~first][np.argsort(-sure[~first])]
        precisions = np.cumsum(ordered) / np.arange(1, len(ordered) + 1)
        oracles.append(np.max(np.flatnonzero(precisions >= precision) + 1, initial=0))
        coverages.append(kept.sum())
        if not kept.any():
            nothing += 1
            continue
        below += bool(right[kept].mean() < precision)
        violations += share_of(right[kept], products[kept])[2] < precision
    half = len(values) / 2
    ratio = np.mean(np.divide(coverages, oracles))
    means = float(np.mean(coverages) / half), float(np.mean(oracles) / half), float(ratio)
    return Measured(precision, draws, violations, below, nothing, *means)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.promises")
    parser.add_argument("labels", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--draws", type=int, default=100)
    parser.add_argument("--precision", default="0.9,0.95")
    given = parser.parse_args()
    extractor = Extractor.from_pretrained(given.model)
    data = dataset(given.labels, "test", None)
    examples = read_examples(data.file)
    schemas = data.schemas_for(examples, [extractor])
    entries = calibrate(extractor, examples, schemas).entries
    for precision in map(float, given.precision.split(",")):
        print(measure(entries, precision, given.draws), flush=True)


if __name__ == "__main__":
    main()
