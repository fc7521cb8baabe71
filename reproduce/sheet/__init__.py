"""Blind comparisons: people judge which of two outputs is better (figure 8 of the paper).

`write_sheet` writes a page and a CSV file of the same questions, and a key with the run on each
side; `tally` reads and counts answers.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, Literal, cast, get_args

from schemax.errors import InputError
from schemax.evaluation.examples import Example, row_ids
from schemax.evaluation.scores import is_null
from schemax.io.storage import writing
from schemax.io.writers import escaped
from schemax.report.pages import asset, page_of, to_json

Answer = Literal["left", "tie", "right"]
PAGE, SHEET, KEY = "index.html", "sheet.csv", "key.json"
_COLUMNS = ("item", "category", "text", "attribute", "left", "right", "answer")

Predictions = Sequence[Mapping[str, str | None]]


@dataclass(frozen=True, slots=True)
class WinRecord:
    """The wins, ties and losses of a run, against another run or all others."""

    wins: int = 0
    ties: int = 0
    losses: int = 0

    @property
    def ratio(self) -> float | None:
        """The paper's (W + T) / (T + L); None without a tie or loss."""
        lost = self.ties + self.losses
        return (self.wins + self.ties) / lost if lost else None

    @property
    def score(self) -> float:
        """The ratio r as 100 r / (1 + r): 50 for a run that wins as often as it loses."""
        total = self.wins + 2 * self.ties + self.losses
        return 100 * (self.wins + self.ties) / total if total else 50.0


@dataclass(frozen=True, slots=True)
class AnswerTally:
    """Counts of answers. matrix: (run, other run) -> record of the run. overall: of each run.

    answered, unanswered: questions; equal: comparisons that were not asked, since both outputs are
    equal: they count as ties. agreement: the share of equal pairs among answers to one question;
    None if no question has two answers.
    """

    matrix: Mapping[tuple[str, str], WinRecord]
    overall: Mapping[str, WinRecord]
    answered: int
    unanswered: int
    equal: int
    agreement: float | None


def write_sheet(
    examples: Sequence[Example],
    runs: Mapping[str, Predictions],
    out: Path,
    *,
    limit: int | None = None,
    seed: int = 0,
) -> tuple[int, int]:
    """Writes a sheet: two runs per document, drawn and put left and right at random.

    runs: name -> predictions, one mapping per example. limit: the number of documents, also drawn.
    Returns the number of questions, and the number of documents with two equal outputs.

    Raises InputError for a folder with a sheet, whose answers would be lost.
    """
    if (out / SHEET).exists():
        raise InputError(f"{out} has a sheet already; name another folder")
    rng = random.Random(seed)
    pairs = list(combinations(runs, 2))
    places = rng.sample(range(len(examples)), min(limit or len(examples), len(examples)))
    asked: list[dict[str, Any]] = []
    key: dict[str, Any] = {"runs": list(runs), "asked": {}, "equal": []}
    names = row_ids(examples)
    for place in places:
        left, right = rng.sample(rng.choice(pairs), 2)
        sides = runs[left][place], runs[right][place]
        rows = [
            (name, *(None if is_null(side.get(name)) else side.get(name) for side in sides))
            for name in dict.fromkeys((*sides[0], *sides[1]))
        ]
        if all(one == other for _, one, other in rows):
            key["equal"].append({"document": names[place], "runs": [left, right]})
            continue
        item = str(len(asked) + 1)
        example = examples[place]
        shown = {"category": example.category, "text": example.whole_text, "rows": rows}
        asked.append({"item": item, **shown})
        key["asked"][item] = {"document": names[place], "left": left, "right": right}
    out.mkdir(parents=True, exist_ok=True)
    files = {PAGE: _page(asked), SHEET: _csv(asked), KEY: json.dumps(key, indent=1)}
    for name, content in files.items():
        with writing(str(out / name)) as handle:
            handle.write(content.encode("utf-8", "replace"))
    return len(asked), len(key["equal"])


def tally(folder: Path, answers: Sequence[Path] = ()) -> AnswerTally:
    """Counts answers to a folder's questions.

    answers: files of one annotator each, as the page writes them or filled-in sheets; none: the
    folder's own sheet. Of several answers to a question each counts.

    Raises InputError, naming the line, for an invalid answer or an unknown question.
    """
    try:
        key = json.loads((folder / KEY).read_bytes())
        asked, names = key["asked"], key["runs"]
    except (OSError, ValueError, LookupError) as error:
        raise InputError(f"{folder} has no sheet: {KEY} cannot be read ({error})") from error
    given: dict[str, list[Answer]] = {item: [] for item in asked}
    for path in answers or (folder / SHEET,):
        for item, answer in _answers(path, given):
            given[item].append(answer)
    counts: dict[tuple[str, str], Counter[str]] = {}
    for item, found in given.items():
        sides = asked[item]["left"], asked[item]["right"]
        for answer in found:
            _count(counts, sides, answer)
    for one in key["equal"]:
        _count(counts, tuple(one["runs"]), "tie")
    matrix = {pair: WinRecord(**count) for pair, count in sorted(counts.items())}
    overall = {
        name: _total(record for (run, _), record in matrix.items() if run == name) for name in names
    }
    doubles = [a == b for found in given.values() for a, b in combinations(found, 2)]
    return AnswerTally(
        matrix,
        overall,
        answered=sum(bool(found) for found in given.values()),
        unanswered=sum(not found for found in given.values()),
        equal=len(key["equal"]),
        agreement=sum(doubles) / len(doubles) if doubles else None,
    )


def _count(
    counts: dict[tuple[str, str], Counter[str]], sides: tuple[str, str], answer: str
) -> None:
    left, right = sides
    first, second = {"left": ("wins", "losses"), "right": ("losses", "wins")}.get(
        answer, ("ties", "ties")
    )
    counts.setdefault((left, right), Counter())[first] += 1
    counts.setdefault((right, left), Counter())[second] += 1


def _total(records: Iterable[WinRecord]) -> WinRecord:
    found = list(records)
    return WinRecord(
        sum(one.wins for one in found), sum(one.ties for one in found), sum(o.losses for o in found)
    )


def _answers(path: Path, known: Mapping[str, Any]) -> list[tuple[str, Answer]]:
    """Reads an answer per question; a sheet has a line per attribute, any with the answer."""
    found: dict[str, Answer] = {}
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}") from error
    for number, row in enumerate(csv.DictReader(io.StringIO(text)), 2):
        item = (row.get("item") or "").strip()
        answer = (row.get("answer") or "").strip().lower()
        if item and item not in known:
            raise InputError(f"{path}, row {number}: there is no item {item!r}")
        if not answer:
            continue
        if answer not in get_args(Answer) or found.get(item, answer) != answer:
            raise InputError(
                f"{path}, row {number}: the answer to item {item!r} must be left, tie or right, "
                f"and one alone, not {answer!r}"
            )
        found[item] = cast(Answer, answer)
    return list(found.items())


def _csv(asked: Sequence[Mapping[str, Any]]) -> str:
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for one in asked:
        for place, (name, left, right) in enumerate(one["rows"]):
            shown = (one["category"], one["text"]) if place == 0 else ("", "")
            cells = (*shown, name, left or "", right or "")
            writer.writerow((one["item"], *map(escaped, cells), ""))
    return written.getvalue()


def _page(asked: Sequence[Mapping[str, Any]]) -> str:
    body, style, script = (asset(__file__, f"page.{kind}") for kind in ("html", "css", "js"))
    data = to_json(list(asked))
    return page_of("Which output is better?", body, style=style, script=script, data=data)
