"""The search for a prompt: independent of models, it sees candidates through `measure` alone."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from schemax.config import Constrain
from schemax.evaluation.scores import f1_interval, f1_of, resampled

RowNumbers = tuple[int, ...]
"""Places in the sequence of labelled documents."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Settings for all categories, and the demonstrations of each.

    template: the name of a template that is tried. constrain, contextual_calibration: as in
    `DecodingConfig`. shown: category -> rows, in the order in which they are
    shown; a category without rows has no demonstration. nearest: the number of rows that a document
    is shown, the most similar ones; 0 shows all.
    """

    template: str
    constrain: Constrain | None = None
    contextual_calibration: bool | None = None
    shown: Mapping[str, RowNumbers] = field(default_factory=dict)
    nearest: int = 0

    def key(self, category: str) -> str:
        """Returns, as text, all that the answers for documents of a category depend on."""
        rows = self.shown.get(category, ())
        settings = self.constrain, self.contextual_calibration, self.nearest
        return json.dumps([self.template, *settings, category, rows])

    def with_rows(self, shown: Mapping[str, RowNumbers]) -> Candidate:
        """Returns the candidate with other demonstrations in the categories of `shown`."""
        return replace(self, shown={**self.shown, **shown})

    def __str__(self) -> str:
        """Returns a description; rows are counted from 1, as lines of a file are."""
        counts = {len(rows) for rows in self.shown.values()} or {0}
        several = "-".join(map(str, dict.fromkeys((min(counts), max(counts)))))
        if self.nearest:
            several = f"the {self.nearest} most alike of {several}"
        said = "1 demonstration" if several == "1" else f"{several} demonstrations"
        if len(self.shown) == 1:
            (rows,) = self.shown.values()
            if rows and not self.nearest:
                word = "row" if len(rows) == 1 else "rows"
                said += f" ({word} {', '.join(str(row + 1) for row in rows)})"
        elif len(self.shown) > 1:
            said += f" in each of {len(self.shown)} categories"
        if not any(self.shown.values()):
            said = "as it is now"
        said += f", {self.template}"
        if self.constrain is not None:
            said += f", constrain={self.constrain}"
        if self.contextual_calibration is not None:
            said += f", {'' if self.contextual_calibration else 'not '}contextually calibrated"
        return said


Outcomes: TypeAlias = npt.NDArray[np.int64]
"""(rows, 5): counts of the outcomes of a document's pairs, by the protocol."""

Measure: TypeAlias = Callable[[Candidate, Sequence[int]], Outcomes]
"""A function that reads documents with a candidate. Raises OutOfTime."""

SURE = 0.75
"""The share of bootstrap draws in which other demonstrations of the same number must be better:
most of them differ by chance."""

LIKELY = 0.55
"""The share in which another setting must be better, which differs by more than chance."""

HOPELESS = 0.1
"""The share below which a candidate is dropped after a part of the documents."""


SIZES = (4, 8, 16, 32, 64)

_MORE = 3
"""The number of sizes that are tried whether or not the sizes before them were better."""

_FEWEST = 12
"""The fewest documents of the first part; a smaller set is read as a whole."""


class OutOfTime(Exception):
    """Raised when the given time is over."""


@dataclass(frozen=True, slots=True)
class Space:
    """The settings and demonstrations that are tried.

    pool: category -> rows that may be shown, in the order of their coverage.
    sizes: numbers of demonstrations, ascending. nearest: numbers of demonstrations chosen by
    similarity for each document. rounds: of other demonstrations, after all else.
    """

    pool: Mapping[str, Sequence[int]]
    templates: Sequence[str] = ()
    constrain: Sequence[Constrain] = ("document",)
    contextual_calibration: Sequence[bool] = ()
    sizes: Sequence[int] = SIZES
    nearest: Sequence[int] = ()
    rounds: int = 6

    @property
    def trials(self) -> int:
        """The approximate number of candidates that a search with enough time measures."""
        first = len(self.sizes) + len(self.templates) + len(self.constrain) + len(self.nearest)
        then = len(self.contextual_calibration)
        return 1 + first + then + 5 * self.rounds


@dataclass(frozen=True, slots=True)
class Trial:
    """A measured candidate: its F1 on the documents that it was compared on.

    half_width: of the 95 % interval.
    better: True if the candidate became the best so far.
    """

    number: int
    candidate: Candidate
    f1: float
    half_width: float
    documents: int
    better: bool


@dataclass(slots=True)
class Search:
    """A search that replaces the best candidate by better ones.

    rows: category -> documents on which candidates are compared; none of them is in the pool.
    best: the start, then the best candidate so far. tell: is called with every trial.

    Numbers of demonstrations and settings change for all categories together. The rows to show are
    chosen category by category, since a category's answers depend on its own rows alone.
    """

    measure: Measure
    rows: Mapping[str, Sequence[int]]
    space: Space
    best: Candidate
    tell: Callable[[Trial], None] = lambda _: None
    seed: int = 0
    trials: list[Trial] = field(default_factory=list)

    def run(self) -> Candidate:
        """Returns the best candidate found until all was tried or the time was over."""
        try:
            self._told(self.best, self.measure(self.best, self._all), better=True)
            self.search()
        except OutOfTime:
            pass
        return self.best

    def search(self) -> None:
        """Tries what brings most first, since the time may end at any moment."""
        space = self.space
        most = max(map(len, space.pool.values()), default=0)
        sizes = [size for size in space.sizes if size <= most] or [most] * bool(most)
        self._challenge([self._sized(size) for size in sizes[:1]])
        self._challenge([replace(self.best, constrain=one) for one in space.constrain])
        self._challenge(
            [replace(self.best, contextual_calibration=one) for one in space.contextual_calibration]
        )
        self._challenge([self.by_likeness(count) for count in space.nearest])
        if not self.best.nearest:
            self._challenge_sizes(sizes)
        self._challenge([replace(self.best, template=name) for name in space.templates])
        rounds = self._proposals()
        for proposals in islice(rounds, 1):
            self._challenge_rows(proposals)
        for proposals in rounds:
            self._challenge_rows(proposals)

    def _challenge_sizes(self, sizes: Sequence[int]) -> None:
        """Tries numbers of demonstrations; larger, costlier ones only if smaller ones have won."""
        self._challenge([self._sized(size) for size in sizes[1:_MORE]])
        for size in sizes[_MORE:]:
            if len(max(self.best.shown.values(), key=len, default=())) < size // 2:
                break
            self._challenge([self._sized(size)])

    def by_likeness(self, count: int) -> Candidate:
        pool = {category: tuple(rows) for category, rows in self.space.pool.items()}
        return replace(self.best.with_rows(pool), nearest=count)

    def _sized(self, size: int) -> Candidate:
        return self.best.with_rows(
            {category: tuple(rows[:size]) for category, rows in self.space.pool.items()}
        )

    @property
    def _all(self) -> list[int]:
        """The rows, one of each category in turn, so that any first part has some of each."""
        longest = max(map(len, self.rows.values()))
        columns = self.rows.values()
        return [some[place] for place in range(longest) for some in columns if place < len(some)]

    @property
    def _part(self) -> list[int]:
        """The rows that candidates are compared on first."""
        return self._all[: max(_FEWEST, len(self._all) // 3)]

    def _challenge(self, candidates: Sequence[Candidate]) -> bool:
        """Takes the best candidate if it is better than the best so far; True if one was taken.

        Successive halving (Jamieson and Talwalkar, 2016): all candidates are read on a part of the
        documents; on the others, the better half of the candidates that are not hopeless.
        """
        left = [
            one
            for place, one in enumerate(candidates)
            if one != self.best and one not in candidates[:place]
        ]
        part = self._part
        if len(part) < len(self._all) and left:
            rated = []
            for one in left:
                found = self.measure(one, part)
                share = better_share(self.measure(self.best, part), found)
                hopeless = share < HOPELESS
                if hopeless or len(left) > 1:
                    self._told(one, found)
                if not hopeless:
                    rated.append((score(found), one))
            rated.sort(key=lambda pair: -pair[0])
            left = [one for _, one in rated[: (len(left) + 1) // 2]]
        is_changed = False
        for one in left:
            found, before = (self.measure(which, self._all) for which in (one, self.best))
            better = better_share(before, found) >= LIKELY
            self._told(one, found, better=better)
            if better:
                self.best, is_changed = one, True
        return is_changed

    def _challenge_rows(self, proposals: Sequence[Mapping[str, RowNumbers]]) -> None:
        """Takes other demonstrations in the categories where they are surely better.

        All proposals are read on a part of the documents; each category's best, on the rest.
        """
        part = self._part
        read = []
        for proposal in proposals:
            one = self.best.with_rows(proposal)
            found = self.measure(one, part)
            if len(part) < len(self._all):
                self._told(one, found)
            read.append((proposal, found))
        chosen = {}
        for category in self.best.shown:
            at = self._places(category, part)
            rated = [
                (score(found[at]), -number, proposal[category])
                for number, (proposal, found) in enumerate(read)
                if category in proposal and at
            ]
            if rated:
                chosen[category] = max(rated)[2]
        one = self.best.with_rows(chosen)
        found, before = (self.measure(which, self._all) for which in (one, self.best))
        places = {category: self._places(category, self._all) for category in chosen}
        better = {
            category: rows
            for category, rows in chosen.items()
            if better_share(before[places[category]], found[places[category]]) >= SURE
        }
        self._told(one, found, better=bool(better))
        self.best = self.best.with_rows(better)

    def _places(self, category: str, rows: Sequence[int]) -> list[int]:
        own = set(self.rows.get(category, ()))
        return [place for place, row in enumerate(rows) if row in own]

    def _proposals(self) -> Iterator[list[Mapping[str, RowNumbers]]]:
        """Yields, per round, other demonstrations for all categories: more, a part replaced, all
        replaced, reordered. Yields nothing if each document has its own."""
        if self.best.nearest:
            return
        generator = random.Random(f"{self.seed}, demonstrations")
        for _ in range(self.space.rounds):
            proposals: list[Mapping[str, RowNumbers]] = []
            for other in (_grown, _swapped, _replaced, _reordered):
                made = {}
                for category, rows in self.best.shown.items():
                    left = [row for row in self.space.pool[category] if row not in rows]
                    if (changed := other(rows, left, generator)) != rows:
                        made[category] = changed
                if made:
                    proposals.append(made)
            if proposals:
                yield proposals

    def _told(self, candidate: Candidate, found: Outcomes, *, better: bool = False) -> None:
        low, high = f1_interval(found)
        number = len(self.trials) + 1
        half = (high - low) / 2
        trial = Trial(number, candidate, score(found), half, len(found), better)
        self.trials.append(trial)
        self.tell(trial)


def score(found: Outcomes) -> float:
    """Returns F1 over all documents."""
    return float(f1_of(found.sum(axis=0)))


def better_share(before: Outcomes, after: Outcomes) -> float:
    """Returns the share of bootstrap draws, paired by document, in which `after` is better."""
    pair = np.concatenate((before, after), axis=1)
    drawn = resampled(pair)
    first, second = f1_of(drawn[:, :5]), f1_of(drawn[:, 5:])
    return float(np.mean(second > first))


def _grown(rows: RowNumbers, left: Sequence[int], generator: random.Random) -> RowNumbers:
    """Adds a quarter more rows, at least one, drawn from the rows left that cover most."""
    count = max(1, len(rows) // 4)
    likely = left[: 2 * count]
    return (*rows, *generator.sample(likely, min(count, len(likely))))


def _swapped(rows: RowNumbers, left: Sequence[int], generator: random.Random) -> RowNumbers:
    """Replaces a quarter of the rows, at least one, by others."""
    count = min(max(1, len(rows) // 4), len(left))
    gone = generator.sample(range(len(rows)), min(count, len(rows)))
    there = generator.sample(left, len(gone)) if len(left) >= len(gone) else []
    changed = list(rows)
    for place, row in zip(gone, there, strict=False):
        changed[place] = row
    return tuple(changed)


def _replaced(rows: RowNumbers, left: Sequence[int], generator: random.Random) -> RowNumbers:
    """Replaces all rows, or as many as there are others."""
    there = generator.sample(left, min(len(rows), len(left)))
    return (*there, *rows[: len(rows) - len(there)])


def _reordered(rows: RowNumbers, left: Sequence[int], generator: random.Random) -> RowNumbers:
    return tuple(generator.sample(rows, len(rows)))
