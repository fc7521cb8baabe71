"""Reliability and risk over coverage as one SVG, side by side, for light and dark pages alike."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from schemax.evaluation.reliability import Reliability

_SIDE = 240
_LEFT, _TOP, _BETWEEN = 48, 34, 72
_WIDTH = 2 * (_LEFT + _SIDE) + _BETWEEN - 28
_LEGEND = 18

_STYLE = """
svg { --ink: #24292f; --faint: #d0d7de; --a: #0969da; --b: #bc4c00; --c: #1a7f37; --d: #8250df;
  font: 12px system-ui, sans-serif; fill: var(--ink); }
@media (prefers-color-scheme: dark) {
  svg { --ink: #e6edf3; --faint: #3d444d; --a: #58a6ff; --b: #f0883e; --c: #56d364; --d: #d2a8ff; }
}
.axis { fill: none; stroke: var(--faint); }
.even { stroke: var(--faint); stroke-dasharray: 4 4; }
.title { font-weight: 600; }
.small { font-size: 11px; }
polyline { fill: none; stroke-width: 2; }
"""
_COLOURS = ("--a", "--b", "--c", "--d")

Point = tuple[float, float]


def reliability_svg(runs: Sequence[tuple[str, Reliability]]) -> str:
    """An SVG of runs by name. In the left half, a dot is a bin, as large as it has values."""
    first, second = _LEFT, _LEFT + _SIDE + _BETWEEN
    most = max((point.risk for _, found in runs for point in found.curve), default=0.0)
    top = min(1.0, max(0.1, -(-most * 10 // 1) / 10))  # the next tenth
    parts = [
        *_frame(first, "Reliability", "confidence", "right", 1.0),
        *_frame(
            second, "Risk over coverage", "share of values, most confident first", "wrong", top
        ),
        f'<line class="even" x1="{first}" y1="{_TOP + _SIDE}" x2="{first + _SIDE}" y2="{_TOP}"/>',
    ]
    for number, (name, found) in enumerate(runs):
        colour = f"var({_COLOURS[number % len(_COLOURS)]})"
        bins = [
            (b.confidence, b.accuracy, b.count)
            for b in found.bins
            if b.confidence is not None and b.accuracy is not None
        ]
        parts.append(_line(first, 1.0, ((x, y) for x, y, _ in bins), colour))
        for x, y, count in bins:
            across, down = _place(first, 1.0, (x, y))
            size = 2 + 7 * (count / found.values) ** 0.5
            said = f"{count} values of confidence {x:.2f}: {y:.2f} right"
            parts.append(
                f'<circle cx="{across:.1f}" cy="{down:.1f}" r="{size:.1f}" fill="{colour}">'
                f"<title>{said}</title></circle>"
            )
        parts.append(_line(second, top, ((p.coverage, p.risk) for p in found.curve), colour))
        down = _TOP + _SIDE + 56 + number * _LEGEND
        figures = f"ECE {found.ece:.3f}, AURC {found.aurc:.3f}, {found.values} values"
        parts.append(
            f'<rect x="{first}" y="{down - 9}" width="10" height="10" fill="{colour}"/>'
            f'<text x="{first + 16}" y="{down}">{escape(name)}: {figures}</text>'
        )
    height = _TOP + _SIDE + 56 + len(runs) * _LEGEND
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height}" '
        f'width="{_WIDTH}" height="{height}" role="img">\n'
        f"<title>Reliability, and risk over coverage</title>\n<style>{_STYLE}</style>\n"
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _frame(left: int, title: str, across: str, up: str, top: float) -> Iterable[str]:
    bottom = _TOP + _SIDE
    yield f'<rect class="axis" x="{left}" y="{_TOP}" width="{_SIDE}" height="{_SIDE}"/>'
    yield f'<text class="title" x="{left}" y="{_TOP - 14}">{title}</text>'
    middle = left + _SIDE / 2
    yield f'<text class="small" x="{middle}" y="{bottom + 34}" text-anchor="middle">{across}</text>'
    turned = f"translate({left - 34} {_TOP + _SIDE / 2}) rotate(-90)"
    yield f'<text class="small" transform="{turned}" text-anchor="middle">{up}</text>'
    for share in (0.0, 0.5, 1.0):
        x, y = left + share * _SIDE, bottom - share * _SIDE
        yield f'<text class="small" x="{x}" y="{bottom + 16}" text-anchor="middle">{share:g}</text>'
        mark = f"{share * top:g}"
        yield f'<text class="small" x="{left - 6}" y="{y + 4}" text-anchor="end">{mark}</text>'


def _line(left: int, top: float, points: Iterable[Point], colour: str) -> str:
    placed = (_place(left, top, point) for point in points)
    text = " ".join(f"{x:.1f},{y:.1f}" for x, y in placed)
    return f'<polyline points="{text}" stroke="{colour}"/>'


def _place(left: int, top: float, point: Point) -> Point:
    return left + point[0] * _SIDE, _TOP + _SIDE * (1 - point[1] / top)
