"""Writes reports as Markdown: sections of a page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from schemax.evaluation.benchmark.engines import BenchmarkError
from schemax.evaluation.benchmark.report import Report, columns, headline, notes, table_rows

BEGIN, END = "<!-- bench:results -->", "<!-- bench:end -->"


def markdown(report: Report) -> str:
    """The report as a section of a page."""
    lines = [headline(report) + ".", "", *markdown_table(columns(report), table_rows(report))]
    if report.sweep:
        lines += ["", "Documents per prompt (J) and prompts per batch (B):", ""]
        lines += markdown_table(columns(report), table_rows(report, report.sweep))
    said = [f"- {note}" for note in notes(report)]
    return "\n".join([*lines, *(["", *said] if said else [])])


def markdown_table(names: Sequence[str], rows: Iterable[tuple[str, ...]]) -> list[str]:
    """The lines of a table, numbers to the right."""
    rule = ["---", *("---:" for _ in names[1:])]
    return ["| " + " | ".join(row) + " |" for row in (names, rule, *rows)]


def write_page(path: Path, report: Report) -> None:
    """Puts the report's section between a page's two marks, in the place of one of the same name.

    Raises BenchmarkError for a page without the marks, OSError if it cannot be read.
    """
    page = path.read_text("utf-8")
    head, begin, rest = page.partition(BEGIN)
    body, end, tail = rest.partition(END)
    if not begin or not end:
        raise BenchmarkError(
            f"{path} has no place for results; add a line {BEGIN} and a line {END}"
        )
    parts = re.split(r"^### (.+)$", body, flags=re.MULTILINE)[1:]
    sections = {name: text.strip() for name, text in zip(parts[::2], parts[1::2], strict=True)}
    sections[section_name(report)] = markdown(report)
    written = "\n\n".join(f"### {name}\n\n{text}" for name, text in sections.items())
    path.write_text(f"{head}{begin}\n\n{written}\n\n{end}{tail}", "utf-8")


def section_name(report: Report) -> str:
    """The section's name, unique on the page: model, work and hardware."""
    work, place = report.work, report.environment
    return (
        f"{report.model['name']}, {report.model['dtype']}, {work['source']}, "
        f"{work['mean_document_tokens']:.0f} tokens x {work['slots'] / work['listings']:.0f} "
        f"attributes, {place['accelerator'] or place['cpu']}"
    )
