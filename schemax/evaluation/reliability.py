"""The reliability of confidences: calibration, selective prediction, and their plots.

Calibration asks whether values of confidence 0.9 are right nine times in ten: reliability diagrams
and the expected calibration error (Guo et al., On Calibration of Modern Neural Networks, 2017), and
the score of Brier (1950). Selective prediction asks whether wrong values have the lowest
confidences: risk over coverage (El-Yaniv and Wiener, On the Foundations of Noise-free Selective
Classification, 2010) and the area under that curve (Geifman, Uziel and El-Yaniv, 2019).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from schemax.base.messages import counted
from schemax.errors import InputError
from schemax.evaluation.precision import Floats, Ints, share_of
from schemax.evaluation.scores import Scores

BINS = 10
VALUES = ("nv", "vc", "vw")
"""The outcomes of pairs with a predicted value."""


@dataclass(frozen=True, slots=True)
class Bin:
    """A bin of values with a confidence from `low` to below `high`; the last bin includes 1.

    confidence: the mean.
    accuracy: the share of right values, and its interval. None in an empty bin.
    """

    low: float
    high: float
    count: int
    confidence: float | None
    accuracy: float | None
    interval: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Coverage:
    """The most confident values, at least the share `coverage` of all, and their risk.

    risk: the share of wrong values.
    confidence: the lowest.
    interval: of the share of right values among those of at least this confidence.
    """

    coverage: float
    risk: float
    confidence: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Reliability:
    """The reliability of predicted values' confidences.

    confidence, accuracy: means over all values.
    ece: the mean distance of a bin's accuracy from its confidence, bins weighted by their values.
    brier: the mean square of confidence - 1 for right values, and of confidence for wrong values.
    aurc: the mean risk over all coverages; the lower, the better confidences find mistakes.
    curve: risk at coverages of 10 to 100 %.
    """

    values: int
    confidence: float
    accuracy: float
    ece: float
    brier: float
    aurc: float
    bins: tuple[Bin, ...]
    curve: tuple[Coverage, ...]


def reliability(
    confidences: Sequence[float], right: Sequence[bool], documents: Sequence[int] | None = None
) -> Reliability | None:
    """Returns the reliability of values with confidences, right or wrong; None without values.

    documents: of the values, for intervals; None if all are different.
    """
    if not confidences:
        return None
    sure, correct = np.array(confidences, np.float64), np.array(right, np.float64)
    places = np.arange(len(sure)) if documents is None else np.array(documents, np.int64)
    bins, ece = _bins(sure, correct, places)
    descending, risks = _risks(sure, correct)
    ends = [-(-len(sure) * tenth // 10) for tenth in range(1, 11)]
    return Reliability(
        values=len(sure),
        confidence=float(sure.mean()),
        accuracy=float(correct.mean()),
        ece=ece,
        brier=float(np.mean((sure - correct) ** 2)),
        aurc=float(risks.mean()),
        bins=bins,
        curve=tuple(
            Coverage(
                tenth / 10,
                float(risks[end - 1]),
                float(descending[end - 1]),
                share_of(correct[top] > 0, places[top])[1:],
            )
            for tenth, end in enumerate(ends, 1)
            for top in [sure >= descending[end - 1]]
        ),
    )


def reliability_of(
    scores: Scores, confidences: Sequence[Mapping[str, float | None]]
) -> Reliability | None:
    """Returns the reliability of annotated pairs with a confidence; None without such pairs.

    confidences: attribute -> confidence, one mapping per product.
    """
    pairs = [
        (confidence, pair.outcome == "vc", pair.product)
        for pair in scores.pairs
        if pair.annotated and pair.outcome in VALUES
        if (confidence := confidences[pair.product].get(pair.attribute)) is not None
    ]
    return reliability(*map(list, zip(*pairs, strict=True))) if pairs else None


def _bins(sure: Floats, correct: Floats, documents: Ints) -> tuple[tuple[Bin, ...], float]:
    """Returns the bins, and the expected calibration error over them."""
    places = np.minimum((sure * BINS).astype(np.int64), BINS - 1)
    counts, sums, hits = (
        np.bincount(places, weights, BINS) for weights in (None, sure, correct)
    )  # fmt: skip
    means = zip(counts.tolist(), sums.tolist(), hits.tolist(), strict=True)
    bins = tuple(
        Bin(n / BINS, (n + 1) / BINS, count, *(a / count, b / count), share_of(*inside)[1:])
        if count
        else Bin(n / BINS, (n + 1) / BINS, 0, None, None, None)
        for n, (count, a, b) in enumerate(means)
        for inside in [(correct[places == n] > 0, documents[places == n])]
    )
    return bins, float(np.abs(sums - hits).sum()) / len(sure)


def _risks(sure: Floats, correct: Floats) -> tuple[Floats, Floats]:
    """Returns (n,) descending confidences, and (n,) the risk of the first 1, 2, ..., n values.

    Values of equal confidence have no order: each counts as their mean, the expectation over all
    orders.
    """
    levels, which, counts = np.unique(-sure, return_inverse=True, return_counts=True)
    wrong = np.bincount(which, weights=1 - correct) / counts
    risks = np.cumsum(np.repeat(wrong, counts)) / np.arange(1, len(sure) + 1)
    return np.repeat(-levels, counts), np.asarray(risks, np.float64)


SUFFIXES = (".svg", ".png", ".pdf")

_LARGEST_DOT = 200.0  # area in points^2 of a bin that holds all values


def can_plot() -> bool:
    """Returns True if matplotlib is installed."""
    return find_spec("matplotlib") is not None


def check_picture(option: str, path: Path) -> None:
    """Raises InputError for another suffix, and for a missing folder or matplotlib."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{option} takes a file that ends in {', '.join(SUFFIXES)}: {path}")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: there is no folder {path.parent}")
    if not can_plot():
        raise InputError(f"{option} requires matplotlib; pip install '.[plots]' in a checkout")


@contextmanager
def drawing(path: Path, size: tuple[float, float]) -> Iterator[Any]:
    """Yields a figure, and writes it to `path` at the end. size: in inches."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # pyplot would look for a display

    # Text stays text in an SVG, and equal runs give equal files.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "schemax"}):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        # A date would make all files different.
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def plot_reliability(runs: Sequence[tuple[str, Reliability]], path: Path) -> None:
    """Draws runs by name; the suffix of `path`, one of `SUFFIXES`, decides the format.

    Left: accuracy over confidence; a bin is a dot whose area shows its number of values. Right: the
    share of wrong values among the most confident values.
    """
    with drawing(path, (9, 4.5 + 0.25 * len(runs))) as figure:
        left, right = figure.subplots(1, 2)
        left.plot([0, 1], [0, 1], linestyle="--", color="0.7")
        for name, figures in runs:
            values = counted(figures.values, "value")
            label = f"{name}: ECE {figures.ece:.3f}, AURC {figures.aurc:.3f}, {values}"
            _draw_bins(left, figures, label)
            right.plot([point.coverage for point in figures.curve], [p.risk for p in figures.curve])
        left.set(title="Reliability", xlabel="confidence", ylabel="right", xlim=(0, 1), ylim=(0, 1))
        right.set(
            title="Risk over coverage",
            xlabel="share of values, most confident first",
            ylabel="wrong",
            xlim=(0, 1),
        )
        right.set_ylim(bottom=0)
        for axes in (left, right):
            axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower left", frameon=False)


def _draw_bins(axes: Any, figures: Reliability, label: str) -> None:
    bins = [b for b in figures.bins if b.confidence is not None]
    confidences, accuracies = [b.confidence for b in bins], [b.accuracy for b in bins]
    (line,) = axes.plot(confidences, accuracies, label=_plain(label))
    sizes = [_LARGEST_DOT * b.count / figures.values for b in bins]
    axes.scatter(confidences, accuracies, s=sizes, color=line.get_color(), clip_on=False)


def _plain(label: str) -> str:
    """Escapes a name for matplotlib, which reads "$" as mathematics and hides names with a "_"."""
    shown = label.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
