"""What `schemax evaluate` prints: tables of scores, and how two runs differ."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from schemax.evaluation.comparison import Comparison, Paired
from schemax.evaluation.intervals import Interval, f1_interval
from schemax.evaluation.pairs import OUTCOMES, PairScore, mean_f1
from schemax.evaluation.reliability import Reliability
from schemax.evaluation.runs import EvaluationRun
from schemax.messages import some_of

_MOST, _HALF = 0.8, 0.5


def show(
    runs: Sequence[EvaluationRun], comparisons: Sequence[Comparison], setting: str, *, by: str
) -> None:
    """Everything about runs on the same products; comparisons of the later ones with the first.

    by: "attribute" or "confidence" shows more of these.
    """
    console = Console()
    _say(console, f"{len(runs[0].examples)} products; {setting}")
    console.print(_quality(runs))
    console.print(_costs(runs))
    console.print(_reliability(runs))
    if len(runs[0].scores.by_category) > 1:
        _say(console, "F1 by category")
        console.print(_categories(runs))
    for run in runs:
        if by == "attribute":
            _say(console, f"Attributes, {run.decoding}")
            console.print(_attributes(run))
        if by == "confidence" and (found := run.reliability) is not None:
            _say(console, f"Confidence, {run.decoding}")
            console.print(_bins(found))
            console.print(_coverages(found))
    if any(run.judged is not None for run in runs):
        _say(console, "LLM judge")
        console.print(_judged(runs))
    for run, comparison in zip(runs[1:], comparisons, strict=True):
        _show_comparison(console, comparison, runs[0].decoding, run.decoding)


def show_comparison(comparison: Comparison, first: str, second: str) -> None:
    """How the second differs from the first, in sentences."""
    _show_comparison(Console(), comparison, first, second)


def _quality(runs: Sequence[EvaluationRun]) -> Table:
    table = _table("decoding", "F1", "P", "R", "strict F1")
    table.add_column("macro F1,\ncategories", justify="right")
    table.add_column("macro F1,\nattributes", justify="right")
    for run in runs:
        scores = run.scores
        protocol, strict = scores.protocol, scores.strict
        table.add_row(
            Text(run.decoding),
            _with_interval(protocol.f1, f1_interval(scores.counts())),
            *(f"{protocol.precision:.3f}", f"{protocol.recall:.3f}"),
            _with_interval(strict.f1, f1_interval(scores.counts(strict=True))),
            f"{mean_f1(scores.by_category.values()):.3f}",
            f"{mean_f1(scores.by_attribute.values()):.3f}",
        )
    return table


def _costs(runs: Sequence[EvaluationRun]) -> Table:
    table = _table("decoding", "passes per\nproduct", "products/s", "stop", "eos", "length")
    table.add_column("invalid\nfields", justify="right")
    table.add_column("rows in\nerror", justify="right")
    for run in runs:
        ends = (str(run.finish_reasons[name]) for name in ("stop", "eos", "length"))
        table.add_row(
            Text(run.decoding),
            *(f"{run.passes:.1f}", f"{run.products_per_second:.1f}"),
            *ends,
            *(str(run.invalid_fields), str(run.invalid_rows)),
        )
    return table


def _reliability(runs: Sequence[EvaluationRun]) -> Table:
    table = _table("decoding", "values", "mean\nconfidence", "right", "ECE", "Brier", "AURC")
    for share in (_MOST, _HALF):
        table.add_column(f"right of\nbest {share:.0%}", justify="right")
    for run in runs:
        found = run.reliability
        if found is None:
            table.add_row(Text(run.decoding), *["-"] * 8)
            continue
        right = {point.coverage: 1 - point.risk for point in found.curve}
        figures = (found.confidence, found.accuracy, found.ece, found.brier, found.aurc)
        shares = (right[_MOST], right[_HALF])
        table.add_row(
            *(Text(run.decoding), str(found.values)), *(f"{x:.3f}" for x in figures + shares)
        )
    return table


def _bins(found: Reliability) -> Table:
    table = _table("confidence", "values", "mean", "right")
    for part in found.bins:
        means = (
            "-" if mean is None else f"{mean:.3f}" for mean in (part.confidence, part.accuracy)
        )
        table.add_row(f"{part.low:.1f} to {part.high:.1f}", str(part.count), *means)
    return table


def _coverages(found: Reliability) -> Table:
    table = _table("most confident", "down to", "right", "wrong")
    for point in found.curve:
        figures = (point.confidence, 1 - point.risk, point.risk)
        table.add_row(f"{point.coverage:.0%}", *(f"{figure:.3f}" for figure in figures))
    return table


def _categories(runs: Sequence[EvaluationRun]) -> Table:
    table = _table("category", *(run.decoding for run in runs))
    parts = [run.scores.by_category for run in runs]
    for name in parts[0]:
        table.add_row(Text(name), *(f"{part[name].f1:.3f}" for part in parts))
    return table


def _attributes(run: EvaluationRun) -> Table:
    table = _table("category", "attribute", *map(str.upper, OUTCOMES), "P", "R", "F1")
    table.columns[1].justify = "left"
    for (category, attribute), score in run.scores.by_attribute.items():
        table.add_row(Text(category), Text(attribute), *_counts(score), *_rates(score))
    return table


def _judged(runs: Sequence[EvaluationRun]) -> Table:
    table = _table("decoding", "LLM-P", "LLM-R", "LLM-F1")
    for name in ("C", "I", "M", "CN", "H", "unparseable"):
        table.add_column(name, justify="right")
    for run in runs:
        if run.judged is None:
            continue
        score = run.judged.score
        table.add_row(
            Text(run.decoding),
            *(f"{value:.3f}" for value in (score.precision, score.recall, score.f1)),
            *map(str, (score.correct, score.incorrect, score.missing, score.correct_null)),
            *map(str, (score.hallucination, score.unparseable)),
        )
    return table


def _show_comparison(console: Console, comparison: Comparison, first: str, second: str) -> None:
    products = comparison.differing_products
    _say(
        console,
        f"{second} against {first}: {comparison.differing_pairs} of {comparison.pairs} pairs "
        f"differ, in {len(products)} of {comparison.products} products",
    )
    if products:
        _say(console, f"  products: {some_of(products)}")
    for name, paired in (("F1", comparison.protocol), ("strict F1", comparison.strict)):
        _say(console, f"  {name}: {_sentence(paired)}")


def _sentence(paired: Paired) -> str:
    low, high = paired.f1_difference_interval
    return (
        f"{paired.f1[0]:.3f} -> {paired.f1[1]:.3f}, difference {paired.f1_difference:+.3f} "
        f"({low:+.3f} to {high:+.3f}); right in the first only: {paired.right_only_in_first}, "
        f"in the second only: {paired.right_only_in_second}, McNemar p = {paired.mcnemar_p:.3g}"
    )


def _with_interval(value: float, interval: Interval) -> str:
    return f"{value:.3f}\n{interval.low:.3f}-{interval.high:.3f}"


def _counts(score: PairScore) -> list[str]:
    return [str(getattr(score, name)) for name in OUTCOMES]


def _rates(score: PairScore) -> list[str]:
    return [f"{value:.3f}" for value in (score.precision, score.recall, score.f1)]


def _table(first: str, *others: str) -> Table:
    # Narrow enough for 80 columns.
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(Text(first))
    for name in others:
        table.add_column(Text(name), justify="right")
    return table


def _say(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
