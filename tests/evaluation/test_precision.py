"""Thresholds that promise a precision: drawn with known truth, and counted by hand."""

from __future__ import annotations

import numpy as np
import pytest

from schemax.evaluation.precision import Bools, Floats, Ints, choose_thresholds

FIELDS = 6


def drawn(rng: np.random.Generator, documents: int) -> tuple[Floats, Bools, Ints, Ints]:
    """Confidences, whether values are right, documents and fields of values.

    A document lacks a third of its fields, and most documents lack the last two. Confidences are
    too high for the fields 1 and 3; 1 document of 50 is unlike the others, and all is wrong.
    """
    field_of = np.tile(np.arange(FIELDS), documents)
    numbers = np.repeat(np.arange(documents), FIELDS)
    sure = rng.beta(6, 1, field_of.size)
    chance = np.where(field_of % 2, sure**1.5, sure**0.3)
    chance[np.isin(numbers, np.flatnonzero(rng.random(documents) < 0.02))] = 0
    right = rng.random(field_of.size) < chance
    stated = rng.random(field_of.size) < np.where(field_of >= 4, 0.1, 0.67)
    return sure[stated], right[stated], numbers[stated], field_of[stated]


@pytest.mark.release
@pytest.mark.parametrize("precision", [0.9, 0.95])
def test_a_promise_holds_as_often_as_it_says(precision: float) -> None:
    """Of 1,000 sets of 250 labelled documents, thresholds break a promise in 50 at most."""
    sure, right, _, field_of = drawn(np.random.default_rng(0), 20_000)
    broken, of_fields = 0, np.zeros(FIELDS)
    for seed in range(1, 1001):
        confidences, correct, documents, fields = drawn(np.random.default_rng(seed), 250)
        thresholds = choose_thresholds(
            confidences.tolist(), correct.tolist(), documents.tolist(), precision, fields.tolist()
        )
        shared = 2.0 if thresholds.shared is None else thresholds.shared
        least = np.array([thresholds.by_field.get(field, shared) for field in range(FIELDS)])
        kept = sure >= least[field_of]
        values, hits = (np.bincount(field_of, weights, FIELDS) for weights in (kept, kept & right))
        broken += hits.sum() < precision * values.sum()
        own = np.array([field in thresholds.by_field for field in range(FIELDS)])
        of_fields += own & (hits < precision * values)
    assert broken <= 50
    assert of_fields.max() <= 50


def test_thresholds_by_hand() -> None:
    """Sixty right values prove 0.95, and with a wrong one more they do not; of two fields the one
    with 60 values has a threshold by itself."""
    right = [True] * 60
    assert choose_thresholds([0.9] * 60, right, range(60), 0.95).shared == pytest.approx(0.9)
    assert choose_thresholds([0.9] * 60, [False, *right[1:]], range(60), 0.95).shared is None
    assert choose_thresholds([0.9] * 58, right[:58], range(58), 0.95).shared is None
    fields = ["brand"] * 60 + ["size"] * 59
    sure = [0.9] * 60 + [0.8] * 59
    thresholds = choose_thresholds(sure, [True] * 119, [*range(60), *range(59)], 0.9, fields)
    assert thresholds.by_field == {"brand": pytest.approx(0.9)}
    assert thresholds.shared == pytest.approx(0.8)


def test_values_of_a_document_count_as_fewer() -> None:
    """Of 60 documents 1 is wrong: with one value each, or ten that are right and wrong together,
    0.95 is not proven; 600 independent values prove it."""
    right = np.arange(600) >= 10
    alike, apart = np.arange(600) // 10, np.arange(600)
    assert choose_thresholds([0.9] * 600, right.tolist(), apart.tolist(), 0.95).shared is not None
    assert choose_thresholds([0.9] * 600, right.tolist(), alike.tolist(), 0.95).shared is None
