"""The page of a report: takes rows as they come, and returns the page at the end."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

from schemax.base.calibration import PROMISE_COLUMNS, promise_in
from schemax.base.messages import counted
from schemax.errors import InputError
from schemax.io.finished import RunRecord
from schemax.io.storage import filesystem, is_remote, local_path
from schemax.io.summary import Tally
from schemax.report import MOST_ROWS
from schemax.report.pages import asset, page_of, to_json, write_page
from schemax.report.rows import FieldSets, PageImages, plain_row
from schemax.results import Extraction
from schemax.results.list_results import without_items

_MOST = 20
_SETTINGS = ("dtype", "decoding layout", "quantization", "adapter", "on too long", "html", "text")


def facts_of(record: RunRecord, price_per_hour: float | None = None) -> list[tuple[str, str]]:
    """Returns (name, text) facts of a run: model, input, settings, and cost with retries."""
    summary, settings = record.summary, record.settings
    hours = summary.seconds / 3600
    cost = f"{hours:,.3g} hours for {counted(summary.computed, 'computed row')}"
    if price_per_hour is not None:
        cost += f", {hours * price_per_hour:,.2f} at {price_per_hour:g} an hour"
    work = f"{counted(summary.tokens, 'token')}, {counted(summary.passes, 'pass', 'passes')}"
    return [
        ("Finished", record.finished.replace("T", " ").replace("+00:00", " UTC")),
        ("Input", ", ".join(summary.inputs)),
        ("Model", str(record.model or settings.get("model"))),
        ("Cost", f"{cost}; {work}"),
        (
            "Settings",
            _settings_text({key: settings[key] for key in _SETTINGS if settings.get(key)}),
        ),
        ("schemax", str(settings.get("version"))),
    ]


def promised_of(record: RunRecord) -> list[tuple[str, ...]]:
    """Returns the rows of `PROMISE_COLUMNS` of a run's calibration; none without a promise."""
    promise = promise_in(record.settings.get("calibration promise"))
    return [] if promise is None else list(promise.rows())


def _settings_text(settings: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{key} {', '.join(value) if isinstance(value, list) else value}"
        for key, value in settings.items()
    )


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
    """A growing page in bounded memory: rows beyond its limits are only counted.

    is_ranked: True if the rows are shown in the order in which they come, else in the input's.
    facts: (name, text) about the run, shown as they are.
    promised: rows of `PROMISE_COLUMNS`, each with a remark.
    """

    def __init__(
        self, title: str | None = None, *, limit: int = MOST_ROWS, is_ranked: bool = False
    ) -> None:
        self.total = 0
        self._is_ranked = is_ranked
        self.cut = False  # whether the run ended before its last row
        self._title = title or "Extractions"
        self._limit = limit
        self._field_sets = FieldSets()
        self._images = PageImages()
        self._rows: list[str] = []
        self.facts: list[tuple[str, str]] = []
        self.promised: list[tuple[str, ...]] = []
        self._tally = Tally()
        self._counts: dict[str, Counter[str]] = {}  # by field
        self._confidences: dict[str, tuple[float, int, float]] = {}  # sum, number, least
        self._room = MOST_CHARACTERS

    def add(self, item: Extraction[Any]) -> None:
        """Adds a row, or counts it. Rows may come in any order."""
        self.count(item)
        self.show(item)

    def show(self, item: Extraction[Any]) -> None:
        """Adds a row that is counted, if there is room."""
        if len(self._rows) >= self._limit or self._room <= 0:
            return
        room = self._images.room
        row = to_json(plain_row(item, self._field_sets, self._images))
        self._room -= len(row) - (room - self._images.room)
        if self._room >= 0:
            self._rows.append(row)

    def count(self, item: Extraction[Any]) -> None:
        """Counts a row for the overview, which is about all rows."""
        self.total += 1
        errors = [asdict(error) for error in item.errors]
        attributes: dict[str, Any] | None = None if item.value is None else {}
        self._tally.add_row({"id": item.document_id, "attributes": attributes, "errors": errors})
        wrong = {error.field for error in item.errors}
        for name, result in without_items(item.fields).items():
            counts = self._counts.setdefault(name, Counter())
            stated = int(result.value is not None and result.value != [])
            counts.update(rows=1, stated=stated, errors=int(name in wrong))
            if result.confidence is not None:
                total, number, least = self._confidences.get(name, (0.0, 0, 1.0))
                total, least = total + result.confidence, min(least, result.confidence)
                self._confidences[name] = total, number + 1, least

    def _overview(self) -> dict[str, Any]:
        summary = self._tally.summary()
        fields = []
        for name, counts in self._counts.items():
            total, number, least = self._confidences.get(name, (0.0, 0, 1.0))
            mean = round(total / number, 4) if number else None
            sure = {"confidence": mean, "least": round(least, 4) if number else None}
            fields.append({"name": name, **counts, **sure})
        return {
            "facts": self.facts,
            "promised": [[*PROMISE_COLUMNS, ""], *self.promised] if self.promised else [],
            "failed": summary.failed,
            "failures": summary.failure_kinds[:_MOST],
            "errors": summary.error_kinds[:_MOST],
            "duplicates": [summary.duplicates, list(summary.duplicate_ids)],
            "fields": fields,
        }

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
            "overview": self._overview(),
        }
        if self._is_ranked:
            head["ranked"] = True
        return f'{to_json(head)[:-1]},"rows":[{",".join(self._rows)}]}}'


@contextmanager
def open_report(name: str, title: str, *, is_ranked: bool = False) -> Iterator[Report]:
    """Yields a report that is written at the end, even after an error or an interrupt.

    name: a path, or an address such as s3://bucket/page.html.

    Raises InputError at once if a check shows that the page cannot be written.
    """
    _check_writable(name)
    report = Report(title, is_ranked=is_ranked)
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
