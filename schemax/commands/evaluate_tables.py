"""What `schemax evaluate` prints: tables of scores, and how two runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from schemax.commands.console import show, table
from schemax.evaluation.comparison import Comparison, Paired
from schemax.evaluation.intervals import f1_interval
from schemax.evaluation.pairs import OUTCOMES, mean_f1
from schemax.evaluation.runs import EvaluationRun

_MOST_IDS = 20
_MOST, _HALF = 0.8, 0.5
_JUDGED = ("correct", "incorrect", "missing", "correct_null", "hallucination", "unparseable")


def show_runs(
    runs: Sequence[EvaluationRun], comparisons: Sequence[Comparison], setting: str, *, by: str
) -> None:
    """Everything about runs on the same products; comparisons of the later ones with the first.

    by: "attribute" or "confidence" shows more of these.
    """
    show(
        f"{len(runs[0].examples)} products; {setting}",
        _quality(runs),
        _costs(runs),
        _reliability(runs),
    )
    if len(runs[0].scores.by_category) > 1:
        show("F1 by category", _categories(runs))
    for run in runs:
        if by == "attribute":
            show(f"Attributes, {run.decoding}", _attributes(run))
        if by == "confidence":
            show(*_confidence(run))
    if any(run.judged is not None for run in runs):
        show("LLM judge", _judged(runs))
    for run, comparison in zip(runs[1:], comparisons, strict=True):
        show_comparison(comparison, runs[0].decoding, run.decoding)


def show_comparison(comparison: Comparison, first: str, second: str) -> None:
    """How the second differs from the first, in sentences."""
    products = comparison.differing_products
    show(
        f"{second} against {first}: {comparison.differing_pairs} of {comparison.pairs} pairs "
        f"differ, in {len(products)} of {comparison.products} products"
    )
    if products:
        more = f" and {len(products) - _MOST_IDS} more" if len(products) > _MOST_IDS else ""
        show(f"  products: {', '.join(products[:_MOST_IDS])}{more}")
    show(f"  F1: {_sentence(comparison.protocol)}", f"  strict F1: {_sentence(comparison.strict)}")


def _quality(runs: Sequence[EvaluationRun]) -> Any:
    names = ("decoding", "F1", "P", "R", "strict F1")
    more = ("macro F1,\ncategories", "macro F1,\nattributes")

    def row(run: EvaluationRun) -> Iterator[str]:
        scores = run.scores
        yield run.decoding
        for score, strict in ((scores.protocol, False), (scores.strict, True)):
            interval = f1_interval(scores.counts(strict=strict))
            yield f"{score.f1:.3f}\n{interval.low:.3f}-{interval.high:.3f}"
            if not strict:
                yield from _figures(score.precision, score.recall)
        means = (scores.by_category.values(), scores.by_attribute.values())
        yield from _figures(*map(mean_f1, means))

    return table((*names, *more), (tuple(row(run)) for run in runs))


def _costs(runs: Sequence[EvaluationRun]) -> Any:
    ends = ("stop", "eos", "length")
    names = ("decoding", "passes per\nproduct", "products/s", *ends, "invalid\nfields")
    rows = (
        (
            *(run.decoding, f"{run.passes:.1f}", f"{run.products_per_second:.1f}"),
            *(str(run.finish_reasons[name]) for name in ends),
            *(str(run.invalid_fields), str(run.invalid_rows)),
        )
        for run in runs
    )
    return table((*names, "rows in\nerror"), rows)


def _reliability(runs: Sequence[EvaluationRun]) -> Any:
    names = ("decoding", "values", "mean\nconfidence", "right", "ECE", "Brier", "AURC")
    shares = [f"right of\nbest {share:.0%}" for share in (_MOST, _HALF)]

    def row(run: EvaluationRun) -> tuple[str, ...]:
        found = run.reliability
        if found is None:
            return (run.decoding, *["-"] * 8)
        right = {point.coverage: 1 - point.risk for point in found.curve}
        figures = (found.confidence, found.accuracy, found.ece, found.brier, found.aurc)
        return (
            *(run.decoding, str(found.values)),
            *_figures(*figures, right[_MOST], right[_HALF]),
        )

    return table((*names, *shares), map(row, runs))


def _confidence(run: EvaluationRun) -> Iterator[Any]:
    if (found := run.reliability) is None:
        return
    yield f"Confidence, {run.decoding}"
    yield table(
        ("confidence", "values", "mean", "right"),
        (
            (
                f"{part.low:.1f} to {part.high:.1f}",
                str(part.count),
                *("-" if x is None else f"{x:.3f}" for x in (part.confidence, part.accuracy)),
            )
            for part in found.bins
        ),
    )
    yield table(
        ("most confident", "down to", "right", "wrong"),
        (
            (f"{point.coverage:.0%}", *_figures(point.confidence, 1 - point.risk, point.risk))
            for point in found.curve
        ),
    )


def _categories(runs: Sequence[EvaluationRun]) -> Any:
    parts = [run.scores.by_category for run in runs]
    rows = ((name, *_figures(*(part[name].f1 for part in parts))) for name in parts[0])
    return table(("category", *(run.decoding for run in runs)), rows)


def _attributes(run: EvaluationRun) -> Any:
    names = ("category", "attribute", *map(str.upper, OUTCOMES), "P", "R", "F1")
    rows = (
        (
            *key,
            *(str(getattr(score, name)) for name in OUTCOMES),
            *_figures(score.precision, score.recall, score.f1),
        )
        for key, score in run.scores.by_attribute.items()
    )
    return table(names, rows, left=2)


def _judged(runs: Sequence[EvaluationRun]) -> Any:
    names = ("decoding", "LLM-P", "LLM-R", "LLM-F1", "C", "I", "M", "CN", "H", "unparseable")
    scores = [(run.decoding, run.judged.score) for run in runs if run.judged is not None]
    rows = (
        (
            *(name, *_figures(score.precision, score.recall, score.f1)),
            *(str(getattr(score, outcome)) for outcome in _JUDGED),
        )
        for name, score in scores
    )
    return table(names, rows)


def _sentence(paired: Paired) -> str:
    low, high = paired.interval.low, paired.interval.high
    return (
        f"{paired.first_f1:.3f} -> {paired.second_f1:.3f}, difference {paired.difference:+.3f} "
        f"({low:+.3f} to {high:+.3f}); right in the first only: {paired.only_first}, "
        f"in the second only: {paired.only_second}, McNemar p = {paired.p_value:.3g}"
    )


def _figures(*values: float) -> tuple[str, ...]:
    return tuple(f"{value:.3f}" for value in values)
