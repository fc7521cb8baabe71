"""A blind comparison of runs by people: win, tie, loss and the score of the paper's figure 8.

python -m reproduce.sheet FOLDER a.json b.json --data gold.jsonl   # makes the sheet
python -m reproduce.sheet FOLDER --answers anna.csv --answers ben.csv   # counts answers

With results it writes a page and a CSV file of the same questions, and key.json, which annotators
should not see. Without results it counts answers.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

from reproduce.sheet import PAGE, SHEET, AnswerTally, WinRecord, tally, write_sheet
from schemax.base.messages import counted
from schemax.base.terminal import show, table
from schemax.commands.options import UsageError
from schemax.errors import SchemaxError
from schemax.evaluation.datasets import dataset
from schemax.evaluation.examples import read_examples
from schemax.evaluation.runs import check_alike, read_run
from schemax.report.pages import to_json

_COUNTS = ("answered", "unanswered", "equal", "agreement")


def parser() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(
        prog="python -m reproduce.sheet",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_argument("folder", type=Path, help="of the sheet: page, CSV file and key")
    options.add_argument(
        "results",
        type=Path,
        nargs="*",
        metavar="RESULT.json",
        help="two or more that `schemax evaluate --json --details` wrote, of the same documents",
    )
    options.add_argument("--data", type=Path, help="what was evaluated; its texts are shown")
    options.add_argument("--limit", type=int, help="so many documents, drawn at random")
    options.add_argument("--seed", type=int, default=0, help="of the draws")
    options.add_argument(
        "--answers",
        type=Path,
        action="append",
        default=[],
        metavar="CSV",
        help="answers of one annotator; may be given again; default: FOLDER's sheet.csv",
    )
    options.add_argument("--json", action="store_true", help="the counts as JSON")
    return options


def main(arguments: Sequence[str] | None = None) -> None:
    options = parser()
    given = options.parse_args(arguments)
    try:
        if given.results:
            _write(given.folder, given.results, given.data, given.limit, given.seed)
        else:
            (_print if given.json else _show)(tally(given.folder, given.answers))
    except (SchemaxError, OSError) as error:
        options.error(str(error))


def _write(
    folder: Path, results: Sequence[Path], data: Path | None, limit: int | None, seed: int
) -> None:
    if len(results) < 2 or data is None:
        raise UsageError("a sheet requires two results or more, and --data")
    if limit is not None and limit < 1:
        raise UsageError(f"--limit must be at least 1, not {limit}")
    names = [path.stem for path in results]
    if len(set(names)) < len(names):
        raise UsageError("results must have different names, since runs are called by them")
    runs = [read_run(path) for path in results]
    for (one, first), (other, second) in pairwise(zip(results, runs, strict=True)):
        check_alike(first, second, (str(one), str(other)))
    examples = read_examples(dataset(data, "test", None).file)[: len(runs[0].examples)]
    if [e.attributes for e in examples] != [e.attributes for e in runs[0].examples]:
        raise UsageError(f"{data} is not what {results[0]} is about")
    found = {name: run.predictions for name, run in zip(names, runs, strict=True)}
    asked, equal = write_sheet(examples, found, folder, limit=limit, seed=seed)
    show(
        f"{counted(asked, 'question')} in {folder / PAGE} and {folder / SHEET}; two equal "
        f"outputs, which are ties, of {counted(equal, 'document')}",
        f"then: python -m reproduce.sheet {folder} --answers answers.csv",
    )


def _print(found: AnswerTally) -> None:
    matrix = [{"runs": pair, **asdict(record)} for pair, record in found.matrix.items()]
    overall = {
        name: {**asdict(record), "ratio": record.ratio, "score": record.score}
        for name, record in found.overall.items()
    }
    rest = {name: getattr(found, name) for name in _COUNTS}
    print(to_json({"matrix": matrix, "overall": overall, **rest}))


def _show(found: AnswerTally) -> None:
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


def _share(name: str, item: tuple[Any, WinRecord]) -> str:
    counts = asdict(item[1])
    return f"{counts[name] / max(1, sum(counts.values())):.1%}"


if __name__ == "__main__":
    main()
