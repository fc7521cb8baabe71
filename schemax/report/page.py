"""The page of a report: takes rows as they come, and returns the page at the end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from schemax.errors import InputError
from schemax.io.storage import filesystem, is_remote, local_path
from schemax.report.images import PageImages
from schemax.report.overview import Overview
from schemax.report.pages import asset, page_of, to_json, write_page
from schemax.report.rows import FieldSets, plain_row
from schemax.results import Extraction

MOST_ROWS = 20_000
"""The default limit of rows on a page."""

MOST_CHARACTERS = 50_000_000  # of rows on a page: browsers open these without delay

SCRIPTS = (
    "model.js",
    "view.js",
    "grid.js",
    "document.js",
    "distribution.js",
    "overview.js",
    "labels.js",
    "export.js",
    "panel.js",
    "keys.js",
    "main.js",
)


class Report:
    """A growing page, in bounded memory: rows beyond its limits are only counted."""

    def __init__(self, title: str | None = None, *, limit: int = MOST_ROWS) -> None:
        self.total = 0
        self.cut = False  # whether the run ended before its last row
        self._title = title or "Extractions"
        self._limit = limit
        self._field_sets = FieldSets()
        self._images = PageImages()
        self._rows: list[str] = []
        self.overview = Overview()
        self._room = MOST_CHARACTERS

    def add(self, item: Extraction[Any]) -> None:
        """Adds a row, or counts it. Rows may come in any order: the page sorts by index."""
        self.total += 1
        self.overview.add(item)
        if len(self._rows) >= self._limit or self._room <= 0:
            return
        room = self._images.room
        row = to_json(plain_row(item, self._field_sets, self._images))
        self._room -= len(row) - (room - self._images.room)
        if self._room >= 0:
            self._rows.append(row)

    def html(self) -> str:
        """Returns the page. It can be encoded as UTF-8, whatever the texts hold."""
        return page_of(
            self._title,
            asset(__file__, "page.html"),
            style=asset(__file__, "page.css"),
            script=asset(__file__, *SCRIPTS),
            data=self._data(),
            has_images=True,
        )

    def _data(self) -> str:
        head = {
            "total": self.total,
            "cut": self.cut,
            "fields": list(self._field_sets.fields),
            "layouts": self._field_sets.plain(),
            "overview": self.overview.plain(),
        }
        return f'{to_json(head)[:-1]},"rows":[{",".join(self._rows)}]}}'


@contextmanager
def open_report(name: str, title: str) -> Iterator[Report]:
    """Yields a report that is written at the end, even after an error or an interrupt.

    name: a path, or an address such as s3://bucket/page.html.

    Raises InputError at once if a check shows that the page cannot be written.
    """
    _check_writable(name)
    report = Report(title)
    try:
        yield report
    except BaseException as error:
        if report.total:
            report.cut = True
            write_page(name, report.html())
            error.add_note(f"report of the rows so far: {name}")
        raise
    write_page(name, report.html())


def _check_writable(name: str) -> None:
    if is_remote(name):
        filesystem(name)
        return
    path = local_path(name)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"cannot write {name}: it must be a file in a writable folder")
