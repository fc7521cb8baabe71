"""The report as a picture, where matplotlib is installed."""

from __future__ import annotations

from pathlib import Path

from schemax.benchmark.report import Report
from schemax.benchmark.table import headline, number

_COLOURS = {"ours": "#1b7f5c", "rival": "#8a8f98", "bound": "#d9c79a"}


def plot(report: Report, path: Path) -> None:
    """Bars of documents/s, on a logarithmic axis; the format goes by the file's name.

    Raises ValueError for a suffix that matplotlib does not know.
    """
    from matplotlib.figure import Figure  # pyplot would look for a display

    rows = sorted(report.engines, key=lambda row: row.products_per_second)
    figure = Figure(figsize=(9, 1.6 + 0.34 * len(rows)), layout="constrained")
    axes = figure.subplots()
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
    axes.set_title(headline(report), fontsize=8, wrap=True)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)
