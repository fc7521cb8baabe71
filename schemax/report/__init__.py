"""Reports: extractions as one self-contained page to look through in a browser."""

from __future__ import annotations

from collections.abc import Iterable
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from schemax.results import Extraction

MOST_ROWS = 20_000
"""The default limit of rows on a page."""


def report(
    extractions: Iterable[Extraction[Any]],
    path: str | PathLike[str] | None = None,
    *,
    title: str | None = None,
    limit: int = MOST_ROWS,
) -> str:
    """Makes a self-contained HTML page of extractions: values, confidences, errors, marked texts.

    extractions: of `Extractor.stream`, of one schema or several; the page shows them in the order
    of the input. Returns the page, and writes it to `path`, if given. The page holds the first
    `limit` rows (fewer if texts are very long) and the number of rows left out.
    """
    from schemax.report.page import Report  # `import schemax` imports this module
    from schemax.report.pages import write_page
    from schemax.results import Extraction

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
