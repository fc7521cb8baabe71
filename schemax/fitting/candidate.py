"""A prompt that could be chosen."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

RowNumbers = tuple[int, ...]
"""Places among the labelled documents."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Settings for all categories, and the demonstrations of each.

    template: its name among those that are tried. extractive, contextual_calibration,
    null_penalty: as of `DecodingConfig`. shown: category -> rows, in the order in which they are
    shown; a category without rows has no demonstration. nearest: how many of these rows a document
    is shown, those that are most like it; 0 shows all.
    """

    template: str
    extractive: bool | None = None
    contextual_calibration: bool | None = None
    null_penalty: float = 0.0
    shown: Mapping[str, RowNumbers] = field(default_factory=dict)
    nearest: int = 0

    def key(self, category: str) -> str:
        """All that the answers for documents of a category depend on, as text."""
        rows = self.shown.get(category, ())
        settings = self.extractive, self.contextual_calibration, self.null_penalty, self.nearest
        return json.dumps([self.template, *settings, category, rows])

    def with_rows(self, shown: Mapping[str, RowNumbers]) -> Candidate:
        """A candidate with other demonstrations in these categories."""
        return replace(self, shown={**self.shown, **shown})

    def __str__(self) -> str:
        """For people; rows are counted from 1, as the lines of a file are."""
        counts = {len(rows) for rows in self.shown.values()} or {0}
        several = "-".join(map(str, dict.fromkeys((min(counts), max(counts)))))
        if self.nearest:
            several = f"the {self.nearest} most alike of {several}"
        said = "1 demonstration" if several == "1" else f"{several} demonstrations"
        if len(self.shown) == 1:
            (rows,) = self.shown.values()
            if rows and not self.nearest:
                word = "row" if len(rows) == 1 else "rows"
                said += f" ({word} {', '.join(str(row + 1) for row in rows)})"
        elif len(self.shown) > 1:
            said += f" in each of {len(self.shown)} categories"
        if not any(self.shown.values()):
            said = "as it is now"
        said += f", {self.template}"
        if self.extractive is not None:
            said += ", extractive" if self.extractive else ", not extractive"
        if self.contextual_calibration is not None:
            said += f", {'' if self.contextual_calibration else 'not '}contextually calibrated"
        if self.null_penalty:
            said += f", null_penalty {self.null_penalty:g}"
        return said
