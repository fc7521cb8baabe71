"""Draws F1 over forward passes of every decoding that a table of docs/quality.md has measured.

    python -m recipes.f1_over_passes docs/images/f1_over_passes.svg

The figures are those of the page, the rows of 100 titles; whoever changes these draws it again.
Requires matplotlib.
"""

from __future__ import annotations

import re
import sys
from dataclasses import dataclass
from pathlib import Path

from schemax.evaluation.reliability import check_picture, drawing

PAGE = Path(__file__).parents[1] / "docs" / "quality.md"
_HEAD = "| decoding | titles | F1 | strict F1 | passes per title |"
_F1 = re.compile(r"([\d.]+) \(([\d.]+) to ([\d.]+)\)")


@dataclass(frozen=True, slots=True)
class Point:
    """A decoding: F1, both ends of its interval, and forward passes per title."""

    name: str
    f1: float
    low: float
    high: float
    passes: float


def points(page: str, titles: str = "100") -> list[Point]:
    """Reads the table's rows with this number of titles. Raises ValueError without the table."""
    _, found, rest = page.partition(f"{_HEAD}\n")
    if not found:
        raise ValueError(f"the page has no table that begins with {_HEAD}")
    read = []
    for line in rest.splitlines()[1:]:
        if not line.startswith("|"):
            break
        name, count, f1, _, passes = (cell.strip() for cell in line.strip("|").split("|"))
        if count == titles and (match := _F1.fullmatch(f1)):
            middle, low, high = map(float, match.groups())
            shown = re.sub(r"`|\s*\(.*\)", "", name)
            read.append(Point(shown, middle, low, high, float(passes)))
    return read


def main(path: Path) -> None:
    check_picture("the recipe", path)
    with drawing(path, (7, 4.5)) as figure:
        axes = figure.subplots()
        for place, point in enumerate(points(PAGE.read_text("utf-8"))):
            error = [[point.f1 - point.low], [point.high - point.f1]]
            label = f"{place + 1}: {point.name}"
            axes.errorbar(point.passes, point.f1, yerr=error, fmt="o", capsize=3, label=label)
            beside = {"textcoords": "offset points", "xytext": (6, 4)}
            axes.annotate(str(place + 1), (point.passes, point.f1), **beside)
        axes.set(xscale="log", xlabel="forward passes a title", ylabel="F1")
        axes.set_ylim(bottom=0)
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside lower left", frameon=False, ncols=2, fontsize="small")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
