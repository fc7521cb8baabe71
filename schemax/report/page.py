"""The page itself: rows, looks and behaviour put together in one file that loads nothing."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from schemax.errors import InputError
from schemax.io.storage import filesystem, is_remote, local_path, writing
from schemax.report.overview import Overview
from schemax.report.pages import PageImages
from schemax.report.rows import FieldSets, plain_row, to_json
from schemax.results import Extraction

MOST_ROWS = 20_000
"""Rows on a page, unless another number is asked for."""

MOST_CHARACTERS = 50_000_000  # of rows on a page: what a browser still opens in a moment

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
    """A page in the making, in bounded memory: rows beyond its limits are only counted."""

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
        """Takes up a row, or counts it. Rows may come in any order: the page sorts by index."""
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
        """The page. Can be encoded as UTF-8, whatever the texts hold."""
        script = "\n".join(["", '"use strict";', *map(asset, SCRIPTS)])
        return page_of(
            asset("page.html"),
            asset("page.css"),
            script,
            title=self._title,
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


def page_of(
    template: str,
    style: str,
    script: str,
    *,
    title: str,
    data: str,
    connect: str = "'none'",
    has_images: bool = False,
) -> str:
    """A page that loads nothing, and runs no other script than its own.

    template: with $policy, $title, $style, $data and $script. data: JSON, of `to_json`.
    connect: what the policy lets the script ask. has_images: whether images stand in the data.
    """
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        f"connect-src {connect}; {'img-src data:; ' if has_images else ''}base-uri 'none'; "
        "form-action 'none'"
    )
    shown = escape(title).encode("utf-8", "replace").decode()
    return Template(template).substitute(
        policy=policy, title=shown, style=style, data=data, script=script
    )


@contextmanager
def open_report(name: str, title: str) -> Iterator[Report]:
    """A report that is written in the end, even if an error or an interrupt is that end.

    name: a path, or an address such as s3://bucket/page.html.

    Raises InputError at once where nothing could be written, as far as that can be told.
    """
    _check_writable(name)
    report = Report(title)
    try:
        yield report
    except BaseException as error:
        if report.total:
            report.cut = True
            write_whole(name, report.html())
            error.add_note(f"report of the rows so far: {name}")
        raise
    write_whole(name, report.html())


def _check_writable(name: str) -> None:
    if is_remote(name):
        filesystem(name)
        return
    path = local_path(name)
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise InputError(f"cannot write {name}: it must be a file in a writable folder")


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Writes a file that is never half there: it gets its name only when it is complete."""
    with writing(os.fspath(path)) as handle:
        handle.write(text.encode())


def asset(name: str, beside: str = __file__) -> str:
    """A file that pages are made of, in the folder of a module."""
    return Path(beside).with_name(name).read_text("utf-8")


def _hash(text: str) -> str:
    """How a content security policy names an inline script or style that it allows."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
