"""Draws reliability, and risk over coverage, side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from schemax.base.messages import counted
from schemax.errors import InputError
from schemax.evaluation.reliability import Reliability

SUFFIXES = (".svg", ".png", ".pdf")

_LARGEST_DOT = 200.0  # area in points^2 of a bin that holds all values


def can_plot() -> bool:
    """True if matplotlib is installed."""
    return find_spec("matplotlib") is not None


def check_picture(option: str, path: Path) -> None:
    """Raises InputError for a file with another suffix than `SUFFIXES`, for a folder that is not
    there, and without matplotlib."""
    if path.suffix not in SUFFIXES:
        raise InputError(f"{option} takes a file that ends in {', '.join(SUFFIXES)}: {path}")
    if not path.parent.is_dir():
        raise InputError(f"{option} {path}: there is no folder {path.parent}")
    if not can_plot():
        raise InputError(f"{option} requires matplotlib; pip install '.[plots]' in a checkout")


@contextmanager
def drawing(path: Path, size: tuple[float, float]) -> Iterator[Any]:
    """Yields a figure, and writes it to `path` in the end. size: in inches."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure  # pyplot would look for a display

    # Text stays text in an SVG, and equal runs give equal files.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "schemax"}):
        figure = Figure(figsize=size, layout="constrained")
        yield figure
        # Without the date, which would make all files different.
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def plot_reliability(runs: Sequence[tuple[str, Reliability]], path: Path) -> None:
    """Draws runs by name; the suffix of `path`, one of `SUFFIXES`, decides the format.

    Left: accuracy over confidence, a dot per bin, its area by the number of values. Right: the
    share of wrong values among the most confident ones.
    """
    with drawing(path, (9, 4.5 + 0.25 * len(runs))) as figure:
        left, right = figure.subplots(1, 2)
        left.plot([0, 1], [0, 1], linestyle="--", color="0.7")
        for name, found in runs:
            values = counted(found.values, "value")
            label = f"{name}: ECE {found.ece:.3f}, AURC {found.aurc:.3f}, {values}"
            _draw_bins(left, found, label)
            right.plot([point.coverage for point in found.curve], [p.risk for p in found.curve])
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


def _draw_bins(axes: Any, found: Reliability, label: str) -> None:
    bins = [b for b in found.bins if b.confidence is not None]
    confidences, accuracies = [b.confidence for b in bins], [b.accuracy for b in bins]
    (line,) = axes.plot(confidences, accuracies, label=_plain(label))
    sizes = [_LARGEST_DOT * b.count / found.values for b in bins]
    axes.scatter(confidences, accuracies, s=sizes, color=line.get_color(), clip_on=False)


def _plain(label: str) -> str:
    """Escapes a name for matplotlib, which reads "$" as mathematics and hides names with a "_"."""
    shown = label.replace("$", r"\$")
    return f" {shown}" if shown.startswith("_") else shown
