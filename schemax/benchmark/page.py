"""Writes results into a page of documentation, where the page says that they belong."""

from __future__ import annotations

import re
from pathlib import Path

from schemax.benchmark.engines.base import BenchmarkError
from schemax.benchmark.report import Report
from schemax.benchmark.table import markdown

BEGIN, END = "<!-- bench:results -->", "<!-- bench:end -->"


def write_page(path: Path, report: Report) -> None:
    """Puts the report's section between the page's two marks; one of the same name is replaced.

    Raises BenchmarkError for a page without the marks, and OSError for one that cannot be read.
    """
    page = path.read_text("utf-8")
    head, begin, rest = page.partition(BEGIN)
    body, end, tail = rest.partition(END)
    if not begin or not end:
        raise BenchmarkError(
            f"{path} has no place for results; add a line {BEGIN} and a line {END}"
        )
    sections = dict(_sections(body))
    sections[section_name(report)] = markdown(report)
    written = "\n\n".join(f"### {name}\n\n{text}" for name, text in sections.items())
    path.write_text(f"{head}{begin}\n\n{written}\n\n{end}{tail}", "utf-8")


def section_name(report: Report) -> str:
    """Tells a comparison from others on the page: model, work and hardware."""
    work, place = report.work, report.environment
    return (
        f"{report.model['name']}, {report.model['dtype']}, {work['source']}, "
        f"{work['mean_document_tokens']:.0f} tokens x {work['slots'] / work['listings']:.0f} "
        f"attributes, {place['accelerator'] or place['cpu']}"
    )


def _sections(body: str) -> list[tuple[str, str]]:
    parts = re.split(r"^### (.+)$", body, flags=re.MULTILINE)[1:]
    return [(name, text.strip()) for name, text in zip(parts[::2], parts[1::2], strict=True)]
