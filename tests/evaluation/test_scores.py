"""Scores, intervals and comparisons, against cases counted by hand."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from schemax.evaluation.comparison import compare, mcnemar
from schemax.evaluation.examples import Example
from schemax.evaluation.scores import (
    OUTCOMES,
    PairScore,
    Scores,
    difference_interval,
    f1_interval,
    f1_of,
    mean_f1,
    outcome_of,
    score_predictions,
)
from schemax.extraction.stated import Label

EXAMPLES = [
    Example("Tea", "a", {"Brand": "Tazo", "Flavor": None, "Size": ("24 ct", "24")}, id="one"),
    Example("Tea", "b", {"Brand": "Twinings"}, id="two"),
    Example("Shoes", "c", {"Brand": "n/a"}),
    Example("Shoes", "d", {"Brand": "Crocs"}, id="four"),
]
PREDICTIONS: list[dict[str, Any]] = [
    {"Brand": "Tazo", "Flavor": "Zen", "Size": "24"},
    {"Brand": None, "Flavor": "Peach", "Size": None},
    {"Brand": "None"},
    {"Brand": "crocs"},
]


@pytest.fixture
def scores() -> Scores:
    return score_predictions(EXAMPLES, PREDICTIONS)


def counts(rng: np.random.Generator, products: int) -> Any:
    return rng.multinomial(5, [0.2, 0.1, 0.2, 0.4, 0.1], size=products)


@pytest.mark.parametrize(
    ("label", "prediction", "outcome"),
    [
        (None, None, "nn"),
        ("n/a", " N/A ", "nn"),
        ("", "none", "nn"),
        (None, "Zen", "nv"),
        ("null", "Zen", "nv"),
        ("Zen", None, "vn"),
        ("Zen", "n/a", "vn"),
        ("Zen", "Zen", "vc"),
        ("Zen", "zen", "vw"),
        (("24 ct", "24"), "24 ct", "vc"),
        (("24 ct", "24"), "24", "vc"),
        (("24 ct", "24"), "24ct", "vw"),
        (("24 ct", "24"), None, "vn"),
        (("24 ct", "n/a"), None, "nn"),
        (("24 ct", "n/a"), "24 ct", "vc"),
        (("24 ct", "n/a"), "20", "vw"),
        (("n/a", "24 ct"), "20", "nv"),
        (("24 ct", None), None, "nn"),
        (("24 ct", None), "24 ct", "vc"),
        (("24 ct", None), "20", "vw"),
        ((None, "24 ct"), None, "nn"),
        ((None, "24 ct"), "24 ct", "vc"),
        ((None, "24 ct"), "20", "nv"),
    ],
)
def test_outcomes(label: Any, prediction: str | None, outcome: str) -> None:
    assert outcome_of(label, prediction) == outcome


def test_an_absent_label_counts_strictly_only(scores: Scores) -> None:
    assert scores.protocol == PairScore(nn=1, nv=1, vn=1, vc=2, vw=1)
    assert scores.strict == PairScore(nn=2, nv=2, vn=1, vc=2, vw=1)
    assert (scores.protocol.precision, scores.protocol.recall) == (0.5, 0.5)
    assert scores.protocol.f1 == 0.5
    assert (scores.strict.precision, scores.strict.recall) == (0.4, 0.5)
    assert scores.strict.f1 == pytest.approx(4 / 9)


def test_parts_and_their_means(scores: Scores) -> None:
    assert scores.by_category == {
        "Tea": PairScore(nv=1, vn=1, vc=2),
        "Shoes": PairScore(nn=1, vw=1),
    }
    assert scores.by_attribute == {
        ("Tea", "Brand"): PairScore(vc=1, vn=1),
        ("Tea", "Flavor"): PairScore(nv=1),
        ("Tea", "Size"): PairScore(vc=1),
        ("Shoes", "Brand"): PairScore(nn=1, vw=1),
    }
    assert mean_f1(scores.by_category.values()) == pytest.approx((2 / 3 + 0) / 2)
    assert mean_f1(scores.by_attribute.values()) == pytest.approx((2 / 3 + 0 + 1 + 0) / 4)


def test_a_part_where_all_is_null_is_in_no_mean() -> None:
    assert mean_f1([PairScore(nn=3), PairScore(vc=1)]) == 1
    assert mean_f1([PairScore(nn=3)]) == 0


def test_counts_per_product(scores: Scores) -> None:
    assert scores.counts().tolist() == [
        [0, 1, 0, 2, 0],
        [0, 0, 1, 0, 0],
        [1, 0, 0, 0, 0],
        [0, 0, 0, 0, 1],
    ]
    assert scores.counts(strict=True).tolist()[1] == [1, 1, 1, 0, 0]


# Intervals


def test_f1_of_counts_is_that_of_a_score() -> None:
    table = counts(np.random.default_rng(3), 20)
    assert f1_of(table).tolist() == [PairScore(*map(int, row)).f1 for row in table]


def test_intervals_are_deterministic_and_hold_the_estimate() -> None:
    table = counts(np.random.default_rng(1), 60)
    found = f1_interval(table)
    assert found == f1_interval(table)
    assert 0 < found.low < float(f1_of(table.sum(axis=0))) < found.high < 1


def test_an_interval_is_what_drawing_products_one_by_one_gives() -> None:
    table = counts(np.random.default_rng(2), 40)
    rng = np.random.default_rng(5)
    drawn = [f1_of(table[rng.integers(0, 40, 40)].sum(axis=0)) for _ in range(4000)]
    found = f1_interval(table)
    assert found.low == pytest.approx(np.percentile(drawn, 2.5), abs=0.02)
    assert found.high == pytest.approx(np.percentile(drawn, 97.5), abs=0.02)


def test_more_products_say_more() -> None:
    table = counts(np.random.default_rng(1), 30)
    few, many = f1_interval(table), f1_interval(np.tile(table, (16, 1)))
    assert (many.high - many.low) == pytest.approx((few.high - few.low) / 4, rel=0.2)


def test_products_that_are_all_alike_leave_no_doubt() -> None:
    found = f1_interval(np.tile([1, 1, 1, 3, 0], (9, 1)))
    assert found.low == found.high == 6 / 8


def test_of_one_prediction_in_two_the_difference_is_certain() -> None:
    table = counts(np.random.default_rng(1), 30)
    same = difference_interval(table, table)
    assert (same.low, same.high) == (0, 0)
    # Every product gains one right value where one was missing: hard products cancel out.
    first, second = np.tile([0, 0, 1, 4, 0], (30, 1)), np.tile([0, 0, 0, 5, 0], (30, 1))
    better = difference_interval(first, second)
    assert better.low == better.high == pytest.approx(1 - 8 / 9)


# Comparisons


@pytest.mark.parametrize(
    ("first", "second", "p_value"),
    [
        (0, 0, 1.0),
        (0, 1, 1.0),
        (0, 5, 2 * 1 / 32),
        (1, 6, 2 * (1 + 7) / 128),
        (2, 8, 2 * (1 + 10 + 45) / 1024),
        (3, 3, 1.0),
    ],
)
def test_mcnemar(first: int, second: int, p_value: float) -> None:
    assert mcnemar(first, second) == mcnemar(second, first) == p_value


def test_mcnemar_on_many_pairs() -> None:
    exact = 2 * sum(math.comb(3000, k) for k in range(1401)) / (1 << 3000)
    assert mcnemar(1400, 1600) == pytest.approx(exact)
    assert mcnemar(0, 3000) == 0.0  # too small for a float


def test_a_comparison_by_hand() -> None:
    other: list[dict[str, Any]] = [
        {"Brand": "Tazo", "Flavor": "n/a", "Size": "20"},  # one right now, one wrong now
        {"Brand": "Twinings", "Flavor": None, "Size": ""},  # right now; strictly another as well
        {"Brand": None},  # written otherwise, and the same
        {"Brand": "CROCS"},  # another value, wrong as before
    ]
    found = compare(EXAMPLES, PREDICTIONS, other)
    assert (found.pairs, found.products) == (8, 4)
    assert found.differing_pairs == 5
    assert found.differing_products == ("one", "two", "four")
    assert (found.protocol.right_only_in_first, found.protocol.right_only_in_second) == (1, 2)
    assert (found.strict.right_only_in_first, found.strict.right_only_in_second) == (1, 3)
    # Now: NN 2, VC 2, VW 2 of six annotated pairs.
    assert found.protocol.f1[1] == 0.5
    assert found.protocol.f1_difference == 0
    assert found.protocol.mcnemar_p == 1
    assert found.strict.mcnemar_p == 2 * (1 + 4) / 16
    assert found.strict.f1_difference == pytest.approx(0.5 - 4 / 9)
    assert found.strict.f1_difference_interval.low < found.strict.f1_difference
    assert found.strict.f1_difference < found.strict.f1_difference_interval.high


def test_products_without_an_id_go_by_their_place() -> None:
    changed = [*PREDICTIONS[:2], {"Brand": "Nike"}, PREDICTIONS[3]]
    assert compare(EXAMPLES, PREDICTIONS, changed).differing_products == ("#3",)


def test_predictions_of_other_attributes_are_not_comparable() -> None:
    with pytest.raises(ValueError, match="document two"):
        compare(EXAMPLES, PREDICTIONS, [PREDICTIONS[0], {"Brand": None}, *PREDICTIONS[2:]])


def test_outcomes_are_the_fields_of_a_score() -> None:
    assert tuple(PairScore.__dataclass_fields__) == OUTCOMES


def test_scores_counted_by_hand() -> None:
    labels: list[Mapping[str, Label]] = [
        {"Brand": "LG", "Size": "55", "Color": "n/a"},
        {"Brand": "Sony"},
        {"Color": "None"},
    ]
    predictions = [
        {"Brand": "LG", "Size": None, "Color": None},
        {"Brand": "sony", "Size": "65", "Color": None},
        {"Brand": None, "Size": None, "Color": "red"},
    ]
    examples = [Example("tv", "text", row) for row in labels]
    scores = score_predictions(examples, predictions)
    score = scores.protocol
    assert score == PairScore(nn=1, nv=1, vn=1, vc=1, vw=1)
    assert score.precision == pytest.approx(1 / 3)
    assert score.recall == pytest.approx(1 / 3)
    strict = scores.strict
    assert strict == PairScore(nn=4, nv=2, vn=1, vc=1, vw=1)
    assert PairScore().f1 == 0
