"""The table for a paper: a row for every setting, with means over seeds, in several forms."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from statistics import mean, stdev
from typing import Any, Literal

import numpy as np

from schemax.evaluation.comparison import Comparison
from schemax.evaluation.runs import EvaluationRun
from schemax.evaluation.scores import PairScore, difference_interval, f1_interval

Form = Literal["latex", "csv", "markdown"]

_SEED = re.compile(r"[-_.: ]?seed[-_=]?\d+")
_SPECIAL = re.compile(r"[\\&%$#_{}~^]")


def summaries(
    runs: Sequence[EvaluationRun], comparisons: Sequence[Comparison]
) -> Iterator[dict[str, Any]]:
    """Yields the figures of every setting: means over runs whose names differ in a seed alone.

    comparisons: of the later runs with the first, corrected. Intervals are 95 %, by a bootstrap
    over documents, each with its values of all seeds. A p value compares single runs.
    """
    by_setting: dict[str, list[int]] = {}
    for place, run in enumerate(runs):
        by_setting.setdefault(_SEED.sub("", run.name), []).append(place)
    first = None
    for setting, places in by_setting.items():
        scores = [runs[place].scores for place in places]
        counts = np.sum([item.counts() for item in scores], axis=0)
        low, high = f1_interval(counts)
        f1 = [item.protocol.f1 for item in scores]
        row: dict[str, Any] = {
            "setting": setting,
            "seeds": len(places),
            "F1": mean(f1),
            "sd": stdev(f1) if len(f1) > 1 else None,
            "low": low,
            "high": high,
            "P": _mean("precision", (item.protocol for item in scores)),
            "R": _mean("recall", (item.protocol for item in scores)),
            "strict F1": _mean("f1", (item.strict for item in scores)),
        }
        if first is None:
            first = counts, row["F1"]
        else:
            row["difference"] = row["F1"] - first[1]
            row["from"], row["to"] = difference_interval(first[0], counts)
            if len(places) == 1:
                row["p (Holm)"] = comparisons[places[0] - 1].protocol.holm_p
        yield row


def _mean(name: str, scores: Iterable[PairScore]) -> float:
    return float(mean(getattr(score, name) for score in scores))


def written_table(rows: Sequence[Mapping[str, Any]], form: Form) -> str:
    """Returns the table. LaTeX requires the package booktabs."""
    columns = list(dict.fromkeys(column for row in rows for column in row))
    cells = [columns, *([_cell(row.get(column)) for column in columns] for row in rows)]
    if form == "csv":
        text = StringIO()
        csv.writer(text, lineterminator="\n").writerows(cells)
        return text.getvalue().rstrip("\n")
    if form == "markdown":
        head, *body = (
            f"| {' | '.join(cell.replace('|', '&#124;') for cell in row)} |" for row in cells
        )
        return "\n".join([head, f"| --- |{' ---: |' * (len(columns) - 1)}", *body])
    head, *body = (" & ".join(map(_escaped_cell, row)) + r" \\" for row in cells)
    begin = rf"\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}"
    return "\n".join(
        [begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    )


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.3g}" if 0 < value < 0.001 else f"{value:.3f}"
    return "" if value is None else str(value)


def _escaped_cell(cell: str) -> str:
    named = {"\\": "textbackslash", "~": "textasciitilde", "^": "textasciicircum"}
    return _SPECIAL.sub(
        lambda sign: rf"\{named[sign[0]]}{{}}" if sign[0] in named else rf"\{sign[0]}", cell
    )
