"""Tables of scores, and how two runs differ, as `schemax evaluate` shows them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from operator import itemgetter
from typing import Any

from rich.table import Table

from schemax.base.messages import counted, some_of
from schemax.base.terminal import Columns, in_blocks, table
from schemax.evaluation.cascades import Point
from schemax.evaluation.comparison import Comparison, Paired
from schemax.evaluation.judge import agreement
from schemax.evaluation.paper_table import summaries
from schemax.evaluation.reliability import Reliability
from schemax.evaluation.runs import EvaluationRun, Judged
from schemax.evaluation.scores import OUTCOMES, PairScore, f1_interval, mean_f1


def runs_shown(
    runs: Sequence[EvaluationRun], comparisons: Sequence[Comparison], setting: str, *, by: str
) -> Iterator[str | Table]:
    """Yields the tables and sentences about runs on the same documents.

    comparisons: of the later runs with the first.
    by: "attribute" or "confidence" adds tables.
    """
    yield "; ".join(filter(None, (counted(len(runs[0].examples), "document"), setting)))
    measured = [run for run in runs if run.seconds is not None]
    reliability = [(run.name, run.reliability) for run in runs]
    costs = _COSTS if runs[0].dollars_per_hour is None else {**_COSTS, **_DOLLARS}
    yield from _by_setting(runs, _QUALITY)
    means = [*summaries(runs, comparisons)]
    if len(means) < len(runs):
        yield "Means over seeds"
        yield from _by_setting(means, _MEANS)
    if measured:
        yield from _by_setting(measured, costs)
        yield from _by_setting(measured, _ENDS)
        yield from _by_setting(reliability, _RELIABILITY)
    categories = runs[0].scores.by_category
    if len(categories) > 1:
        columns: dict[str, Any] = {"category": lambda name: name}
        for run in runs:
            f1 = {name: score.f1 for name, score in run.scores.by_category.items()}
            columns[_lines(run.name)] = f1.get
        yield from ("F1 by category", table(categories, columns))
    for run, (name, figures) in zip(runs, reliability, strict=True):
        if by == "attribute":
            scores = run.scores.by_attribute.items()
            yield from (f"Attributes, {name}", table(scores, _ATTRIBUTES, left=2))
        if by == "confidence" and figures is not None:
            yield from (
                f"Confidence, {name}",
                table(figures.bins, _BINS),
                table(figures.curve, _CURVE),
            )
    if judged := [(run, verdicts) for run in runs for verdicts in run.judged]:
        yield from ("LLM judge", table(judged, _JUDGED), table(judged, _AGREEMENT))
    for run, comparison in zip(runs[1:], comparisons, strict=True):
        yield from comparison_shown(comparison, runs[0].name, run.name)


def curve_shown(curve: Sequence[Point]) -> Iterator[str | Table]:
    """Yields the table of a cascade's curve."""
    yield "The cascade by --read-below; costs relative to the next model alone"
    yield table(curve, _CASCADE)


def comparison_shown(comparison: Comparison, first: str, second: str) -> Iterator[str]:
    """Yields the differences of the second run from the first, as sentences."""
    products = comparison.differing_products
    low, high = comparison.differing_share_interval
    pairs, documents = (
        counted(comparison.pairs, "pair"),
        counted(comparison.products, "document"),
    )
    yield (
        f"{second} against {first}: {comparison.differing_pairs} of {pairs} differ, in "
        f"{len(products)} of {documents} ({low:.1%} to {high:.1%})"
    )
    if products:
        yield f"  documents: {some_of(products)}"
    yield f"  F1: {_sentence(comparison.protocol)}"
    yield f"  strict F1: {_sentence(comparison.strict)}"


def _by_setting(items: Sequence[Any], columns: Columns) -> Iterator[Table]:
    """Yields a table, or several where its columns do not fit beside the names of settings."""
    (title, name), *figures = columns.items()
    beside = max(len(line) for item in items for line in (title, *name(item).split("\n")))
    for block in in_blocks(items, dict(figures), beside=beside):
        yield table(items, {title: name, **block})


def _lines(name: str) -> str:
    """Breaks the name of a setting behind its parts, so that no table breaks it elsewhere."""
    return re.sub(r"(?<=[:,]) ?", "\n", name)


def _quality(run: EvaluationRun, *, strict: bool) -> str:
    """Returns F1 and its interval."""
    score = run.scores.strict if strict else run.scores.protocol
    interval = f1_interval(run.scores.counts(strict=strict))
    return f"{score.f1:.3f}\n{interval.low:.3f}-{interval.high:.3f}"


def _right(share: float, item: tuple[str, Reliability | None]) -> float | None:
    """Returns the share of right values among the most confident values."""
    curve = item[1].curve if item[1] else ()
    return next((1 - point.risk for point in curve if point.coverage == share), None)


def _count(name: str, item: tuple[Any, PairScore]) -> Any:
    return getattr(item[1], name)


_QUALITY: Columns = {
    "setting": lambda run: _lines(run.name),
    "F1": partial(_quality, strict=False),
    "P": lambda run: run.scores.protocol.precision,
    "R": lambda run: run.scores.protocol.recall,
    "strict F1": partial(_quality, strict=True),
    "macro F1,\ncategories": lambda run: mean_f1(run.scores.by_category.values()),
    "macro F1,\nattributes": lambda run: mean_f1(run.scores.by_attribute.values()),
}
# Items: of `summaries`.
_MEANS: Columns = {
    "setting": lambda row: _lines(row["setting"]),
    **{
        name: itemgetter(name)
        for name in ("seeds", "F1", "sd", "low", "high", "P", "R", "strict F1")
    },
}
_COSTS: Columns = {
    "setting": lambda run: _lines(run.name),
    "F1": lambda run: run.scores.protocol.f1,
    "passes per\ndocument": lambda run: f"{run.passes:.1f}",
    "documents/s": lambda run: f"{run.products_per_second:.1f}",
}
_DOLLARS: Columns = {"$ per\n1,000": lambda run: f"{run.dollars_per_1000:.3g}"}
_ENDS: Columns = {
    "setting": lambda run: _lines(run.name),
    "stop": lambda run: run.finish_reasons["stop"],
    "eos": lambda run: run.finish_reasons["eos"],
    "length": lambda run: run.finish_reasons["length"],
    "invalid\nfields": lambda run: run.invalid_fields,
    "rows in\nerror": lambda run: run.invalid_rows,
}
_CASCADE: Columns = {
    "read below": lambda point: "all" if point.read_below is None else f"{point.read_below:.4g}",
    "documents\nread again": lambda point: f"{point.documents:.1%}",
    "fields\nasked again": lambda point: f"{point.fields:.1%}",
    "F1": lambda point: point.f1,
    "strict F1": lambda point: point.strict_f1,
    "cost": lambda point: f"{point.cost:.2f}",
}
# Items: (name, reliability or None).
_RELIABILITY: Columns = {
    "setting": lambda item: _lines(item[0]),
    "values": lambda item: item[1] and item[1].values,
    "mean\nconfidence": lambda item: item[1] and item[1].confidence,
    "right": lambda item: item[1] and item[1].accuracy,
    "ECE": lambda item: item[1] and item[1].ece,
    "Brier": lambda item: item[1] and item[1].brier,
    "AURC": lambda item: item[1] and item[1].aurc,
    "right of\nbest 80%": partial(_right, 0.8),
    "right of\nbest 50%": partial(_right, 0.5),
}
_BINS: Columns = {
    "confidence": lambda part: f"{part.low:.1f} to {part.high:.1f}",
    "values": lambda part: part.count,
    "mean": lambda part: part.confidence,
    "right": lambda part: part.accuracy,
    "95 %": lambda part: part.interval and "{:.3f} to {:.3f}".format(*part.interval),
}
_CURVE: Columns = {
    "most confident": lambda point: f"{point.coverage:.0%}",
    "down to": lambda point: point.confidence,
    "right": lambda point: 1 - point.risk,
    "95 %": lambda point: "{:.3f} to {:.3f}".format(*point.interval),
    "wrong": lambda point: point.risk,
}
# Items: ((category, attribute), score), as `by_attribute` has them.
_ATTRIBUTES: Columns = {
    "category": lambda item: item[0][0],
    "attribute": lambda item: item[0][1],
    **{name.upper(): partial(_count, name) for name in OUTCOMES},
    "P": lambda item: item[1].precision,
    "R": lambda item: item[1].recall,
    "F1": lambda item: item[1].f1,
}


def _agreement(item: tuple[EvaluationRun, Judged]) -> dict[str, float]:
    return agreement(item[1].cases, item[1].verdicts, item[0].scores)


def _agrees(name: str, item: tuple[EvaluationRun, Judged]) -> float:
    """Returns a share of the annotated pairs."""
    labelled = _agreement(item)
    return labelled[name] / max(1, labelled["pairs"])


# Items: (run, one of its judges).
_JUDGED: Columns = {
    "setting": lambda item: _lines(item[0].name),
    "at once": lambda item: "a " + item[1].form,
    "LLM-P": lambda item: item[1].score.precision,
    "LLM-R": lambda item: item[1].score.recall,
    "LLM-F1": lambda item: item[1].score.f1,
    "C": lambda item: item[1].score.correct,
    "I": lambda item: item[1].score.incorrect,
    "M": lambda item: item[1].score.missing,
    "CN": lambda item: item[1].score.correct_null,
    "H": lambda item: item[1].score.hallucination,
    "unparseable": lambda item: item[1].score.unparseable,
}
_AGREEMENT: Columns = {
    "setting": lambda item: _lines(item[0].name),
    "at once": lambda item: "a " + item[1].form,
    "class as\nlabelled": partial(_agrees, "same_class"),
    "right or wrong\nas labelled": partial(_agrees, "same_side"),
    "Cohen's\nkappa": lambda item: _agreement(item)["kappa"],
}


def _sentence(paired: Paired) -> str:
    low, high = paired.f1_difference_interval
    return (
        f"{paired.f1[0]:.3f} -> {paired.f1[1]:.3f}, difference {paired.f1_difference:+.3f} "
        f"({low:+.3f} to {high:+.3f}); right in the first only: {paired.right_only_in_first}, "
        f"in the second only: {paired.right_only_in_second}, McNemar p = {paired.mcnemar_p:.3g}"
        + (f", {paired.holm_p:.3g} after Holm" if paired.holm_p > paired.mcnemar_p else "")
    )
