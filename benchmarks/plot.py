"""Draws the report; requires matplotlib."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from schemax.evaluation.benchmark.report import Report, headline, number
from schemax.evaluation.reliability import drawing

_COLOURS = {"ours": "#1b7f5c", "rival": "#8a8f98", "bound": "#d9c79a"}
_WIDTH = 9.0


def plot(report: Report, path: Path) -> None:
    """Draws bars of documents/s on a logarithmic axis, and the grid of a sweep below them.

    The file's suffix decides the format. Raises ValueError for a suffix that matplotlib lacks.
    """
    from matplotlib.ticker import LogFormatter

    heights = [1.6 + 0.34 * len(report.engines), *([4.5] if report.sweep else [])]
    with drawing(path, (_WIDTH, sum(heights))) as figure:
        axes = figure.subplots(len(heights), squeeze=False, height_ratios=heights)[:, 0]
        _bars(axes[0], report)
        if report.sweep:
            _grid(axes[1], report)
        figure.suptitle(headline(report), fontsize=8, wrap=True)
        for one, rates in zip(axes, (axes[0].xaxis, axes[-1].yaxis), strict=False):
            one.spines[["top", "right"]].set_visible(False)
            rates.set_major_formatter(LogFormatter())  # plain numbers, no powers of ten
            rates.set_minor_formatter(LogFormatter(labelOnlyBase=False, minor_thresholds=(2, 0.5)))


def _bars(axes: Any, report: Report) -> None:
    rows = sorted(report.engines, key=lambda row: row.products_per_second)
    rates = [row.products_per_second for row in rows]
    bars = axes.barh([row.title for row in rows], rates, color=[_COLOURS[row.kind] for row in rows])
    errors = (
        [row.products_per_second - row.slowest for row in rows],
        [row.fastest - row.products_per_second for row in rows],
    )
    axes.errorbar(rates, range(len(rows)), xerr=errors, fmt="none", ecolor="#333333", capsize=2)
    axes.bar_label(bars, [f" {number(rate)}" for rate in rates], padding=4)
    axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel("documents per second")


def _grid(axes: Any, report: Report) -> None:
    """Draws figure 4 of the paper: over documents per prompt, a line for every batch size.

    The paper's setting has solid lines, isolated documents are dots at 1, rivals dashed lines.
    """
    for size in sorted({row.batch_size or 0 for row in report.sweep}):
        own = [row for row in report.sweep if row.batch_size == size]
        paper = [row for row in own if row.name.startswith("paper")]
        places = [row.documents_per_prompt for row in paper]
        rates = [row.products_per_second for row in paper]
        (line,) = axes.plot(places, rates, marker="o", label=str(size))
        alone = [row.products_per_second for row in own if row not in paper]
        axes.plot([1] * len(alone), alone, marker="x", linestyle="", color=line.get_color())
    for row in report.engines:
        if row.kind == "rival":
            axes.axhline(row.products_per_second, linestyle="--", color=_COLOURS["rival"])
            axes.annotate(row.title, (1, row.products_per_second), fontsize=7, va="bottom")
    axes.set(
        xlabel="documents per prompt (x: isolated)", ylabel="documents per second", yscale="log"
    )
    axes.legend(title="prompts a batch", frameon=False, fontsize=7, bbox_to_anchor=(1, 1))
