"""The search for a prompt, on objectives whose best prompt is known; no model runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from schemax.errors import InputError
from schemax.evaluation.examples import Example
from schemax.training.fitting.measuring import Trials
from schemax.training.fitting.search import (
    Candidate,
    Outcomes,
    OutOfTime,
    Search,
    better_share,
    score,
)
from schemax.training.fitting.split import coverage_order, split_rows

PAIRS = 10
NAMES = ("verbatim", "standard", "plain")


@dataclass
class Objective:
    """Answers whose share of right ones is the worth of the candidate, for the row's category.

    worth: of a candidate and a category. most: rows that may be read until time is over.
    """

    worth: Callable[[Candidate, str], float]
    categories: dict[int, str]
    most: int = 10**9
    read: list[tuple[Candidate, int]] = field(default_factory=list)

    def __call__(self, candidate: Candidate, rows: Sequence[int]) -> Outcomes:
        found = np.zeros((len(rows), 5), np.int64)
        for place, row in enumerate(rows):
            if (candidate, row) not in self.read:
                if len(self.read) >= self.most:
                    raise OutOfTime
                self.read.append((candidate, row))
            # Every document has a hardness of its own, the same for all candidates.
            luck = np.random.default_rng(row).uniform(size=PAIRS)
            right = int((luck < self.worth(candidate, self.categories[row])).sum())
            found[place, 3], found[place, 4] = right, PAIRS - right
        return found


def rows_of(*names: str, each: int) -> dict[str, list[int]]:
    return {name: list(range(n * 1000, n * 1000 + each)) for n, name in enumerate(names)}


def search(
    worth: Callable[[Candidate, str], float],
    rows: dict[str, list[int]],
    pool: dict[str, list[int]],
    most: int = 10**9,
    **space: Any,
) -> tuple[Search, Objective]:
    categories = {row: name for name, some in rows.items() for row in some}
    objective = Objective(worth, categories, most)
    return Search(objective, rows, pool, Candidate("verbatim"), **space), objective


def test_it_finds_the_settings_that_are_worth_most() -> None:
    def worth(one: Candidate, category: str) -> float:
        shown = {0: 0.1, 4: 0.3, 8: 0.4, 16: 0.5, 32: 0.45}.get(len(one.shown.get(category, ())), 0)
        best = 0.15 * (one.template == "plain") + 0.1 * (one.constrain == "document")
        best += 0.1 * bool(one.contextual_calibration) + 0.1 * (one.min_probability == 0.1)
        return shown + best

    rows, pool = rows_of("tea", each=40), {"tea": list(range(100, 164))}
    found, objective = search(
        worth,
        rows,
        pool,
        templates=NAMES,
        rounds=0,
        contextual_calibration=(True,),
        min_probability=(0.0, 0.1, 0.3),
    )
    best = found.run()
    assert (best.template, best.constrain) == ("plain", "document")
    assert best.contextual_calibration
    assert "contextually calibrated, min_probability=0.1" in str(best)
    assert best.shown == {"tea": tuple(range(100, 116))}
    assert {row for _, row in objective.read} == set(rows["tea"])
    # Half of the templates were given up after a part of the documents.
    read = {name: {row for one, row in objective.read if one.template == name} for name in NAMES}
    assert len(read["standard"]) < len(rows["tea"]) == len(read["plain"])


@pytest.mark.slow
def test_every_category_keeps_the_demonstrations_that_are_good_for_it() -> None:
    """The good rows are those of odd numbers, of which the beginning has none."""
    pool = {"tea": [*range(2, 40, 2), *range(1, 41, 2)], "shoes": [*range(1, 41)]}

    def worth(one: Candidate, category: str) -> float:
        if category == "shoes":
            return 0.2 + 0.1 * (one.shown.get(category, ()) == (1, 2, 3, 4))
        shown = one.shown.get(category, ())
        return 0.1 + 0.1 * bool(shown) + 0.15 * sum(row % 2 for row in shown)

    rows = rows_of("tea", "shoes", each=48)
    found, _ = search(worth, rows, pool, sizes=(4,), rounds=12, constrain=())
    best = found.run()
    assert sum(row % 2 for row in best.shown["tea"]) >= 3
    assert best.shown["shoes"] == (1, 2, 3, 4)
    again, _ = search(worth, rows, pool, sizes=(4,), rounds=12, constrain=())
    assert again.run() == best
    assert [one.f1 for one in again.trials] == [one.f1 for one in found.trials]


def test_examples_by_likeness_take_the_place_of_fixed_ones() -> None:
    def worth(one: Candidate, category: str) -> float:
        fixed = 0.1 + 0.05 * bool(one.shown) + 0.1 * (one.template == "plain")
        return fixed + {0: 0, 4: 0.3, 8: 0.5}[one.nearest]

    rows, pool = rows_of("tea", each=40), {"tea": list(range(100, 300))}
    found, objective = search(worth, rows, pool, templates=NAMES, nearest=(4, 8))
    best = found.run()
    assert (best.template, best.nearest, best.shown) == (
        "plain",
        8,
        {"tea": tuple(range(100, 300))},
    )
    assert "the 8 most alike of 200 demonstrations, plain" in str(best)
    # Neither more fixed ones, nor others of them, are tried beside them.
    assert max(len(one.shown.get("tea", ())) for one, _ in objective.read if not one.nearest) == 4


def test_nothing_is_tried_twice_that_reads_the_same() -> None:
    """The model's own template leaves demonstrations out."""

    def content(one: Candidate) -> Candidate:
        return replace(one, shown={}, nearest=0) if one.template == "verbatim" else one

    rows, pool = rows_of("tea", each=10), {"tea": list(range(100, 200))}
    found, objective = search(
        lambda one, _: 0.5, rows, pool, templates=NAMES, nearest=(4, 8), content=content, rounds=2
    )
    found.run()
    assert [str(trial.candidate) for trial in found.trials] == [
        "demonstrations as now, verbatim",
        "demonstrations as now, verbatim, constrain=document",
        "demonstrations as now, standard",
        "demonstrations as now, plain",
    ]
    assert len(objective.read) == 4 * len(rows["tea"])


def test_demonstrations_that_only_harm_are_not_shown() -> None:
    rows, pool = rows_of("tea", each=20), {"tea": list(range(100, 120))}
    found, _ = search(lambda one, _: 0.2 if one.shown else 0.6, rows, pool)
    assert not found.run().shown


def test_wins_by_chance_do_not_replace_the_start() -> None:
    """Demonstrations win in 22 documents and lose in 18."""
    rows, pool = rows_of("tea", each=40), {"tea": list(range(100, 104))}
    shares = {0: [5] * 40, 4: [6 if row % 20 < 11 else 4 for row in range(40)]}

    def measure(candidate: Candidate, chosen: Sequence[int]) -> Outcomes:
        right = shares[len(candidate.shown.get("tea", ()))]
        return np.array([(0, 0, 0, right[row], 10 - right[row]) for row in chosen], np.int64)

    found = Search(measure, rows, pool, start := Candidate("verbatim"), constrain=(), rounds=0)
    assert found.run() == start
    assert any(trial.better for trial in found.trials[1:])
    assert [trial.best_f1 for trial in found.trials[:2]] == [None, 0.5]


def test_a_search_ends_when_its_time_is_over_with_the_best_so_far() -> None:
    rows, pool = rows_of("tea", each=10), {"tea": list(range(100, 140))}

    def worth(one: Candidate, category: str) -> float:
        return 0.1 + len(one.shown.get(category, ())) / 50

    for most, size in ((5, 0), (15, 0), (25, 4), (10_000, 32)):
        found, _ = search(worth, rows, pool, most, rounds=0, constrain=(), templates=())
        assert len(found.run().shown.get("tea", ())) == size, most
        assert bool(found.trials) == (most >= 10)


def test_shares_of_draws() -> None:
    weak, strong = np.zeros((30, 5), np.int64), np.zeros((30, 5), np.int64)
    weak[:, 3:], strong[:, 3:] = (3, 7), (6, 4)
    assert better_share(weak, strong) == 1
    assert better_share(strong, weak) == better_share(weak, weak) == 0
    assert score(weak) == pytest.approx(0.3)


def test_rows_that_show_most_come_first() -> None:
    names = ["brand", "size", "color"]
    labels: dict[int, dict[str, str | None]] = {
        1: {"brand": "a"},
        2: {"brand": "b", "size": "8"},
        3: {"brand": "c", "size": "9"},
        4: {"color": "red"},
        5: {},
    }
    order = coverage_order([1, 2, 3, 4, 5], labels, names)
    assert order[:2] == [2, 4]  # all three are stated, and each is absent once
    assert sorted(order) == [1, 2, 3, 4, 5]
    assert coverage_order([], {}, names) == []


def labelled(category: str, count: int) -> list[Example]:
    return [Example(category, f"{category} {n % (count - 2)}", {}) for n in range(count)]


def test_no_text_is_in_two_parts() -> None:
    examples = labelled("tea", 30) + labelled("shoes", 300)
    split = split_rows(examples, 0)
    for category in ("tea", "shoes"):
        parts = split.pool[category], split.deciding[category], split.held_out[category]
        texts = [{examples[row].text for row in part} for part in parts]
        assert all(texts)
        assert sum(map(len, texts)) == len(set().union(*texts)) == sum(map(len, parts))
        assert {examples[row].category for part in parts for row in part} == {category}
    assert max(map(len, (*split.deciding.values(), *split.held_out.values()))) == 48
    assert split_rows(examples, 0) == split
    assert split_rows(examples, 1) != split


def test_too_few_documents_are_refused() -> None:
    with pytest.raises(InputError, match=r"'tea' has 5 different documents.* 8 or more"):
        split_rows(labelled("tea", 7), 0)


OUTCOME = (0, 0, 1, 2, 0)


def measured(path: Path, *rows: tuple[str, int], digest: str = "digest") -> dict[Any, Any]:
    """What a run to there knows in the beginning, before it measures these."""
    with closing(Trials(path, digest)) as trials:
        known = dict(trials.outcomes)
        for key, row in rows:
            trials.add(key, row, OUTCOME)
        trials.spend("a prompt", 1.5, 3)
    return known


def test_what_was_measured_is_known_again(tmp_path: Path) -> None:
    path = tmp_path / "_p.json.fit.jsonl"
    assert measured(path, ("a", 3), ("b", 4)) == {}
    assert measured(path, ("b", 5)) == {("a", 3): OUTCOME, ("b", 4): OUTCOME}
    with closing(Trials(path, "digest")) as trials:
        assert (len(trials.outcomes), trials.seconds) == (3, 3.0)
        assert trials.rates == {"a prompt": 0.5}


@pytest.mark.parametrize("cut", range(1, 95, 9))
def test_a_line_that_was_cut_off_is_measured_again(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "_p.json.fit.jsonl"
    measured(path, ("a", 3), ("b", 4))
    path.write_bytes(path.read_bytes()[:-cut])
    known = measured(path, ("b", 4))
    assert ("a", 3) in known
    assert (("b", 4) in known) == (
        cut <= len('{"seconds": 1.5, "documents": 3, "candidate": "a prompt"}\n')
    )
    assert measured(path) == {("a", 3): OUTCOME, ("b", 4): OUTCOME}


@pytest.mark.parametrize("text", [b"", b"{}\n", b'{"digest": "other"}\n', b"\xff\n", b"[" * 99_999])
def test_a_file_of_something_else_is_begun_anew(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "_p.json.fit.jsonl"
    path.write_bytes(text)
    assert measured(path, ("a", 3)) == {}
    assert measured(path) == {("a", 3): OUTCOME}
