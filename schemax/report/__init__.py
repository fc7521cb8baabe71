"""Extractions as one page to look through, which needs nothing but a browser."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import Any

from schemax.pages import write_page
from schemax.report.page import MOST_ROWS, Report, open_report
from schemax.results import Extraction

__all__ = ["MOST_ROWS", "Report", "open_report", "report"]


def report(
    extractions: Iterable[Extraction[Any]],
    path: str | PathLike[str] | None = None,
    *,
    title: str | None = None,
    limit: int = MOST_ROWS,
) -> str:
    """A self-contained HTML page of what was read: values, confidences, errors, marked texts.

    Takes what `Extractor.stream` gives, of one schema or several; shown in the order of the input.
    Returns the page, and writes it to `path` if one is named. It holds the first `limit` rows that
    come (fewer where texts are very long) and says how many there are beside them.
    """
    page = Report(title, limit=limit)
    for item in extractions:
        if not isinstance(item, Extraction):
            raise TypeError(
                f"report() shows extractions, as Extractor.stream gives them, not "
                f"{type(item).__name__}"
            )
        page.add(item)
    text = page.html()
    if path is not None:
        write_page(path, text)
    return text
