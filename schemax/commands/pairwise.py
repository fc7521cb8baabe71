"""`schemax pairwise`: people say which of two outputs is better, without knowing whose they are."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from itertools import pairwise as neighbours
from pathlib import Path
from typing import Any

from typer import echo

from schemax.commands.console import UsageError, show, table
from schemax.commands.option_groups import Options, argument, option, verb
from schemax.evaluation.datasets import dataset
from schemax.evaluation.examples import read_examples
from schemax.evaluation.runs import check_alike, read_run
from schemax.evaluation.sheet import PAGE, SHEET, Record, Tally, tally, write_sheet
from schemax.messages import counted
from schemax.report.rows import to_json


class Given(Options):
    """Options"""

    folder: Path = argument("FOLDER")
    """Folder of the sheet: page, CSV, key."""
    results: list[Path] | None = argument("RESULT.json ...", default=None)
    """Two or more that `evaluate --json --details` wrote, of the same documents. Without any,
    answers are counted."""
    data: Path | None = option("INPUT")
    """The evaluated documents, whose texts are shown."""
    limit: int | None = option(min=1)
    """So many documents, drawn at random."""
    seed: int = 0
    """Seed of the draws."""
    answers: list[Path] | None = None
    """Answers of one annotator; may be given again. Default: FOLDER's sheet.csv."""
    as_json: bool = option("--json", default=False)
    """The counts as JSON."""


@verb
def pairwise(given: Given) -> None:
    """A blind comparison of runs by people: win, tie, loss and the score of the paper's figure 8.

    With results it writes a page and a CSV file of the same questions, and key.json, which
    annotators should not see. Without, it counts answers.
    """
    folder, results, data = given.folder, given.results, given.data
    if not results:
        _show(tally(folder, given.answers or ()), given.as_json)
        return
    if len(results) < 2 or data is None:
        raise UsageError("a sheet requires two results or more, and --data")
    runs = [read_run(path) for path in results]
    for (one, first), (other, second) in neighbours(zip(results, runs, strict=True)):
        check_alike(first, second, (str(one), str(other)))
    examples = read_examples(dataset(data, "test", None).file)[: len(runs[0].examples)]
    if [e.attributes for e in examples] != [e.attributes for e in runs[0].examples]:
        raise UsageError(f"{data} is not what {results[0]} is about")
    names = [path.stem for path in results]
    if len(set(names)) < len(names):
        raise UsageError("results must have different names, since runs are called by them")
    found = {name: run.predictions for name, run in zip(names, runs, strict=True)}
    asked, equal = write_sheet(examples, found, folder, limit=given.limit, seed=given.seed)
    show(
        f"{counted(asked, 'question')} in {folder / PAGE} and {folder / SHEET}; two equal "
        f"outputs, which are ties, of {counted(equal, 'document')}",
        f"then: schemax pairwise {folder} --answers answers.csv",
    )


def _show(found: Tally, as_json: bool) -> None:
    if as_json:
        matrix = [{"runs": pair, **asdict(record)} for pair, record in found.matrix.items()]
        overall = {
            name: {**asdict(record), "ratio": record.ratio, "score": record.score}
            for name, record in found.overall.items()
        }
        rest = {name: getattr(found, name) for name in _COUNTS}
        echo(to_json({"matrix": matrix, "overall": overall, **rest}))
        return
    agreeing = ""
    if found.agreement is not None:
        agreeing = f"; two answers to a question are the same in {found.agreement:.0%} of cases"
    show(
        table(
            found.matrix.items(),
            {
                "run": lambda item: item[0][0],
                "against": lambda item: item[0][1],
                **{name: partial(_share, name) for name in ("wins", "ties", "losses")},
                "comparisons": lambda item: sum(asdict(item[1]).values()),
            },
            left=2,
        ),
        table(
            found.overall.items(),
            {
                "run": lambda item: item[0],
                "(W+T)/(T+L)": lambda item: item[1].ratio,
                "score": lambda item: f"{item[1].score:.1f}",
            },
        ),
        f"{found.answered} questions answered, {found.unanswered} not; {found.equal} ties of equal "
        f"outputs{agreeing}",
    )


_COUNTS = ("answered", "unanswered", "equal", "agreement")


def _share(name: str, item: tuple[Any, Record]) -> str:
    counts = asdict(item[1])
    return f"{counts[name] / max(1, sum(counts.values())):.1%}"
