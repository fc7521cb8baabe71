"""The search for a prompt: independent of models, it sees candidates through `measure` alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from schemax.base.messages import counted
from schemax.config import Constrain
from schemax.evaluation.scores import f1_interval, f1_of, resampled_counts

RowNumbers = tuple[int, ...]
"""Places in the sequence of labelled documents."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A prompt: settings for all categories, and the demonstrations of each category.

    template: the name of a template that is tried.
    constrain, contextual_calibration, min_probability: as in `DecodingConfig`.
    shown: category -> demonstrated rows, in order.
    nearest: the number of rows, the most similar ones, that a document is shown; 0 shows all.
    """

    template: str
    constrain: Constrain | None = None
    contextual_calibration: bool | None = None
    min_probability: float | None = None
    shown: Mapping[str, RowNumbers] = field(default_factory=dict)
    nearest: int = 0

    def with_rows(self, shown: Mapping[str, RowNumbers]) -> Candidate:
        """Returns the candidate with other demonstrations in the categories of `shown`."""
        return replace(self, shown={**self.shown, **shown})

    def __str__(self) -> str:
        """Returns a description; rows are counted from 1, as lines of a file are."""
        parts = [self._demonstrations(), self.template]
        if self.constrain is not None:
            parts.append(f"constrain={self.constrain}")
        if self.contextual_calibration is not None:
            parts.append(f"{'' if self.contextual_calibration else 'not '}contextually calibrated")
        if self.min_probability is not None:
            parts.append(f"min_probability={self.min_probability:g}")
        return ", ".join(parts)

    def _demonstrations(self) -> str:
        if not any(self.shown.values()):
            return "demonstrations as now"
        counts = {len(rows) for rows in self.shown.values()}
        count = "-".join(map(str, sorted({min(counts), max(counts)})))
        if self.nearest:
            count = f"the {self.nearest} most alike of {count}"
        text = "1 demonstration" if count == "1" else f"{count} demonstrations"
        if len(self.shown) > 1:
            return f"{text} in each of {len(self.shown)} categories"
        (rows,) = self.shown.values()
        if self.nearest:
            return text
        word = "row" if len(rows) == 1 else "rows"
        return f"{text} ({word} {', '.join(str(row + 1) for row in rows)})"


Outcomes: TypeAlias = npt.NDArray[np.int64]
"""(rows, 5): counts of the outcomes of a document's pairs, by the protocol."""

Measure: TypeAlias = Callable[[Candidate, Sequence[int]], Outcomes]
"""A function that reads documents with a candidate. Raises OutOfTime."""

SURE = 0.75
"""Other demonstrations of the same number replace the best if they win at least this share of the
bootstrap draws, because most of them differ by chance."""

LIKELY = 0.55
"""Another setting replaces the best if it wins at least this share of the bootstrap draws."""

HOPELESS = 0.1
"""A candidate that wins a smaller share of the draws is dropped after the first documents."""


SIZES = (4, 8, 16, 32, 64)

_MORE = 3
"""The first sizes, which are tried even if smaller sizes did not win."""

_FEWEST = 12
"""The fewest documents that a comparison begins with; a smaller set is read as a whole."""


class OutOfTime(Exception):
    """The time for measuring is over."""


FEWEST_FOR_INTERVAL = 10
"""The fewest documents whose bootstrap gives an interval worth showing."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A measured candidate: its F1 on the documents that it was compared on.

    half_width: of the 95 % interval.
    best_f1: that of the best candidate before it, on the same documents; None for the first trial.
    better: True if the candidate became the best so far.
    """

    number: int
    candidate: Candidate
    f1: float
    half_width: float
    documents: int
    best_f1: float | None
    better: bool

    def __str__(self) -> str:
        width = f" +- {self.half_width:.3f}" if self.documents >= FEWEST_FOR_INTERVAL else ""
        text = f"{self.candidate}: F1 {self.f1:.3f}{width} on {counted(self.documents, 'document')}"
        if self.best_f1 is not None:
            text += f", the best before it {self.best_f1:.3f}"
        return text + ("; it is the best so far" if self.better and self.number > 1 else "")


@dataclass(slots=True)
class Search:
    """A search that replaces the best candidate by better candidates.

    rows: category -> documents on which candidates are compared; the pool holds none of them.
    pool: category -> rows that may be shown, in the order of their coverage.
    best: the start, then the best candidate so far.
    tell: receives every trial.
    sizes: numbers of demonstrations, ascending.
    nearest: numbers of demonstrations that each document chooses by similarity.
    rounds: of other demonstrations, which come last.
    content: returns what a candidate's prompts say, and how they are decoded. No content is tried
        twice: a template may leave the demonstrations out, or say what another one says.

    Numbers of demonstrations and settings change for all categories together. The rows to show are
    chosen category by category, since a category's answers depend on its own rows alone.
    """

    measure: Measure
    rows: Mapping[str, Sequence[int]]
    pool: Mapping[str, Sequence[int]]
    best: Candidate
    templates: Sequence[str] = ()
    constrain: Sequence[Constrain] = ("document",)
    contextual_calibration: Sequence[bool] = ()
    min_probability: Sequence[float] = ()
    sizes: Sequence[int] = SIZES
    nearest: Sequence[int] = ()
    rounds: int = 6
    tell: Callable[[Trial], None] = lambda _: None
    content: Callable[[Candidate], Any] = lambda candidate: candidate
    seed: int = 0
    trials: list[Trial] = field(default_factory=list)
    tried: list[Any] = field(default_factory=list)

    @property
    def expected(self) -> int:
        """The approximate number of candidates that a complete search measures."""
        first = len(self.sizes) + len(self.templates) + len(self.constrain) + len(self.nearest)
        first += len(self.contextual_calibration) + len(self.min_probability)
        return 1 + first + 5 * self.rounds

    def run(self) -> Candidate:
        """Returns the best candidate when all are tried or the time is over.

        Many small wins by chance do not replace the start: the best must surely beat it.
        """
        start = self.best
        try:
            self.tried.append(self.content(start))
            outcomes = self.measure(start, self.all_rows)
            self._record(start, outcomes, None, better=True)
            self.search()
        except OutOfTime:
            pass
        if self.best != start:
            share = better_share(outcomes, self.measure(self.best, self.all_rows))
            self.best = self.best if share >= SURE else start
        return self.best

    def search(self) -> None:
        """Tries the settings with the largest gains first, since the time may end at any moment."""
        most = max(map(len, self.pool.values()), default=0)
        sizes = [size for size in self.sizes if size <= most] or [most] * bool(most)
        self._challenge([self.sized(size) for size in sizes[:1]])
        self._challenge([self.by_likeness(count) for count in self.nearest])
        if not self.best.nearest:
            self._challenge_sizes(sizes)
        for setting in ("min_probability", "constrain", "contextual_calibration"):
            values = getattr(self, setting)
            self._challenge([replace(self.best, **{setting: value}) for value in values])
        self._challenge([replace(self.best, template=name) for name in self.templates])
        for proposals in self._proposals():
            self._challenge_rows(proposals)

    def _challenge_sizes(self, sizes: Sequence[int]) -> None:
        """Tries numbers of demonstrations; a larger number only if half of it has won."""
        self._challenge([self.sized(size) for size in sizes[1:_MORE]])
        for size in sizes[_MORE:]:
            if len(max(self.best.shown.values(), key=len, default=())) < size // 2:
                break
            self._challenge([self.sized(size)])

    def by_likeness(self, count: int) -> Candidate:
        pool = {category: tuple(rows) for category, rows in self.pool.items()}
        return replace(self.best.with_rows(pool), nearest=count)

    def sized(self, size: int) -> Candidate:
        return self.best.with_rows(
            {category: tuple(rows[:size]) for category, rows in self.pool.items()}
        )

    @property
    def all_rows(self) -> list[int]:
        """The rows, in turn of each category: any first part has rows of all categories."""
        longest = max(map(len, self.rows.values()))
        columns = self.rows.values()
        return [
            column[place] for place in range(longest) for column in columns if place < len(column)
        ]

    @property
    def _part(self) -> list[int]:
        """The rows that candidates are compared on first."""
        return self.all_rows[: max(_FEWEST, len(self.all_rows) // 3)]

    def _challenge(self, candidates: Sequence[Candidate]) -> None:
        """Replaces the best candidate by better candidates.

        Successive halving (Jamieson and Talwalkar, 2016): all candidates read a part of the
        documents; the better half of the candidates that are not hopeless read all.
        """
        left = self._untried(candidates)
        part = self._part
        if len(part) < len(self.all_rows) and left:
            rated = []
            for candidate in left:
                outcomes = self.measure(candidate, part)
                before = self.measure(self.best, part)
                hopeless = better_share(before, outcomes) < HOPELESS
                if hopeless or len(left) > 1:
                    self._record(candidate, outcomes, before)
                if not hopeless:
                    rated.append((score(outcomes), candidate))
            rated.sort(key=lambda pair: -pair[0])
            left = [candidate for _, candidate in rated[: (len(left) + 1) // 2]]
        for candidate in left:
            outcomes, before = (
                self.measure(which, self.all_rows) for which in (candidate, self.best)
            )
            better = better_share(before, outcomes) >= LIKELY
            self._record(candidate, outcomes, before, better=better)
            if better:
                self.best = candidate

    def _challenge_rows(self, proposals: Sequence[Mapping[str, RowNumbers]]) -> None:
        """Replaces demonstrations in the categories where a proposal is surely better.

        All proposals read a part of the documents; each category's best proposal reads all.
        """
        part = self._part
        read = []
        for proposal in proposals:
            candidate = self.best.with_rows(proposal)
            if not self._untried([candidate]):
                continue
            outcomes = self.measure(candidate, part)
            if len(part) < len(self.all_rows):
                self._record(candidate, outcomes, self.measure(self.best, part))
            read.append((proposal, outcomes))
        if not read:
            return
        chosen = {}
        for category in self.best.shown:
            at = self._places(category, part)
            rated = [
                (score(outcomes[at]), -number, proposal[category])
                for number, (proposal, outcomes) in enumerate(read)
                if category in proposal and at
            ]
            if rated:
                chosen[category] = max(rated)[2]
        candidate = self.best.with_rows(chosen)
        outcomes, before = (self.measure(which, self.all_rows) for which in (candidate, self.best))
        places = {category: self._places(category, self.all_rows) for category in chosen}
        better = {
            category: rows
            for category, rows in chosen.items()
            if better_share(before[places[category]], outcomes[places[category]]) >= SURE
        }
        self._record(candidate, outcomes, before, better=bool(better))
        self.best = self.best.with_rows(better)

    def _untried(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        """Returns the candidates with a new content, which from now on is a tried one."""
        new = []
        for candidate in candidates:
            if (content := self.content(candidate)) not in self.tried:
                self.tried.append(content)
                new.append(candidate)
        return new

    def _places(self, category: str, rows: Sequence[int]) -> list[int]:
        own = set(self.rows.get(category, ()))
        return [place for place, row in enumerate(rows) if row in own]

    def _proposals(self) -> Iterator[list[Mapping[str, RowNumbers]]]:
        """Yields rounds of proposals: rows added, a part replaced, all replaced, reordered.

        Yields nothing if each document chooses its demonstrations.
        """
        if self.best.nearest:
            return
        generator = random.Random(f"{self.seed}, demonstrations")
        for _ in range(self.rounds):
            proposals: list[Mapping[str, RowNumbers]] = []
            for change in (_grown_rows, _swapped_rows, _replaced_rows, _reordered_rows):
                proposal = {}
                for category, rows in self.best.shown.items():
                    left = [row for row in self.pool[category] if row not in rows]
                    if (changed := change(rows, left, generator)) != rows:
                        proposal[category] = changed
                if proposal:
                    proposals.append(proposal)
            if proposals:
                yield proposals

    def _record(
        self,
        candidate: Candidate,
        outcomes: Outcomes,
        before: Outcomes | None,
        *,
        better: bool = False,
    ) -> None:
        """before: the outcomes of the best so far on the same documents."""
        low, high = f1_interval(outcomes)
        best_f1 = None if before is None else score(before)
        number, half, count = len(self.trials) + 1, (high - low) / 2, len(outcomes)
        trial = Trial(number, candidate, score(outcomes), half, count, best_f1, better)
        self.trials.append(trial)
        self.tell(trial)


def score(outcomes: Outcomes) -> float:
    """Returns F1 over all documents."""
    return float(f1_of(outcomes.sum(axis=0)))


def better_share(before: Outcomes, after: Outcomes) -> float:
    """Returns the share of bootstrap draws, paired by document, in which `after` is better."""
    pair = np.concatenate((before, after), axis=1)
    drawn = resampled_counts(pair)
    first, second = f1_of(drawn[:, :5]), f1_of(drawn[:, 5:])
    return float(np.mean(second > first))


def _grown_rows(rows: RowNumbers, left: Sequence[int], generator: random.Random) -> RowNumbers:
    """Adds a quarter more rows, at least 1, drawn from the unused rows that cover most."""
    count = max(1, len(rows) // 4)
    likely = left[: 2 * count]
    return (*rows, *generator.sample(likely, min(count, len(likely))))


def _swapped_rows(rows: RowNumbers, left: Sequence[int], generator: random.Random) -> RowNumbers:
    """Replaces a quarter of the rows, at least 1, by unused rows."""
    count = min(max(1, len(rows) // 4), len(left))
    gone = generator.sample(range(len(rows)), min(count, len(rows)))
    there = generator.sample(left, len(gone)) if len(left) >= len(gone) else []
    changed = list(rows)
    for place, row in zip(gone, there, strict=False):
        changed[place] = row
    return tuple(changed)


def _replaced_rows(rows: RowNumbers, left: Sequence[int], generator: random.Random) -> RowNumbers:
    """Replaces all rows, or as many as there are unused rows."""
    there = generator.sample(left, min(len(rows), len(left)))
    return (*there, *rows[: len(rows) - len(there)])


def _reordered_rows(rows: RowNumbers, left: Sequence[int], generator: random.Random) -> RowNumbers:
    return tuple(generator.sample(rows, len(rows)))
