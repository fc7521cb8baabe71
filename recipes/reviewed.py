"""Are documents to correct better chosen by `schemax report --review` than at random?

    python -m recipes.reviewed LABELS --model FOLDER [--count 100] [--draws 100]

LABELS are annotated documents that the model was not trained on. It reads them once. Every draw
chooses documents of a random half, and tells of each choice: the wrong answers in it, which a
person would correct; and, with these documents as labels, the Brier score of a calibration on the
other half, the share of its values that `schemax calibrate --precision 0.9` keeps, and whether it
keeps its promise there.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from schemax.evaluation.calibrate import FitEntry, calibrate, fit_calibration
from schemax.evaluation.datasets import dataset
from schemax.evaluation.examples import read_examples
from schemax.evaluation.precision import choose_thresholds, share_of
from schemax.evaluation.scores import extractions_of
from schemax.extraction.extractor import Extractor
from schemax.report.review import Review
from schemax.results import Extraction

PRECISION = 0.9


class Gain(NamedTuple):
    """What a choice of documents is worth.

    wrong: wrong answers in it. brier: of the other half. coverage: of the other half's values,
    those kept. is_broken: whether their precision is below the promise, by its interval.
    """

    wrong: int
    brier: float
    coverage: float
    is_broken: bool


class Page:
    """Takes up what a review chooses, in the place of a report."""

    def __init__(self) -> None:
        self.total, self.shown = 0, list[int]()

    def count(self, _: Extraction[Any]) -> None:
        self.total += 1

    def show(self, item: Extraction[Any]) -> None:
        self.shown.append(item.index)


def reviewed(items: Sequence[Extraction[Any]], count: int) -> list[int]:
    """The indices of the documents that a report would show."""
    page: Any = Page()
    review = Review(page, count)
    for item in items:
        review.add(item)
    review.show()
    shown: list[int] = page.shown
    return shown


def gain(entries: Sequence[FitEntry], chosen: Sequence[int], half: Sequence[int]) -> Gain:
    """What the chosen documents are worth, measured on another half of them all."""
    own, other = ([e for e in entries if e.product in set(part)] for part in (chosen, half))
    calibration = fit_calibration(own).calibration

    def columns(part: Sequence[FitEntry]) -> tuple[Any, Any, Any, list[tuple[str, str]]]:
        known = [e for e in part if e.annotated and e.confidence is not None]
        raw = [e.confidence for e in known if e.confidence is not None]
        sure = np.array(list(map(calibration.confidence, raw)), np.float64)
        right = np.array([e.outcome == "vc" for e in known], np.bool_)
        products = np.array([e.product for e in known], np.int64)
        return sure, right, products, [(e.category, e.attribute) for e in known]

    sure, right, products, names = columns(own)
    shared, by_field = choose_thresholds(
        sure.tolist(), right.tolist(), products.tolist(), PRECISION, names
    )
    sure, right, products, names = columns(other)
    least = [by_field.get(name, np.inf if shared is None else shared) for name in names]
    kept = sure >= np.array(least)
    broken = bool(kept.any()) and share_of(right[kept], products[kept])[2] < PRECISION
    wrong = sum(e.annotated and e.outcome in ("vw", "vn", "nv") for e in own)
    return Gain(wrong, float(np.mean((sure - right) ** 2)), float(kept.mean()), broken)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.reviewed")
    parser.add_argument("labels", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--draws", type=int, default=100)
    given = parser.parse_args()
    extractor = Extractor.from_pretrained(given.model)
    data = dataset(given.labels, "test", None)
    examples = read_examples(data.file)
    schemas = data.schemas_for(examples, [extractor])
    items = extractions_of(extractor, examples, schemas)
    entries = calibrate(extractor, examples, schemas).entries
    gains: dict[str, list[Gain]] = {"review": [], "random": []}
    for seed in range(given.draws):
        drawn = np.random.default_rng(seed).permutation(len(examples))
        pool, half = np.split(drawn, [len(drawn) // 2])
        choices = {
            "review": reviewed([items[n] for n in pool], given.count),
            "random": pool[: given.count].tolist(),
        }
        for name, chosen in choices.items():
            gains[name].append(gain(entries, chosen, half.tolist()))
    for name, measured in gains.items():
        means, spread = np.mean(measured, axis=0), np.std(measured, axis=0)
        print(name, Gain(*means), Gain(*spread), flush=True)


if __name__ == "__main__":
    main()
