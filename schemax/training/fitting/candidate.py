"""`Candidate`: a prompt that the search may choose."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from schemax.config import Constrain

RowNumbers = tuple[int, ...]
"""Places in the sequence of labelled documents."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """Settings for all categories, and the demonstrations of each.

    template: the name of a template that is tried. constrain, contextual_calibration: as in
    `DecodingConfig`. shown: category -> rows, in the order in which they are
    shown; a category without rows has no demonstration. nearest: the number of rows that a document
    is shown, the most similar ones; 0 shows all.
    """

    template: str
    constrain: Constrain | None = None
    contextual_calibration: bool | None = None
    shown: Mapping[str, RowNumbers] = field(default_factory=dict)
    nearest: int = 0

    def key(self, category: str) -> str:
        """Returns, as text, all that the answers for documents of a category depend on."""
        rows = self.shown.get(category, ())
        settings = self.constrain, self.contextual_calibration, self.nearest
        return json.dumps([self.template, *settings, category, rows])

    def with_rows(self, shown: Mapping[str, RowNumbers]) -> Candidate:
        """Returns the candidate with other demonstrations in the categories of `shown`."""
        return replace(self, shown={**self.shown, **shown})

    def __str__(self) -> str:
        """Returns a description; rows are counted from 1, as lines of a file are."""
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
        if self.constrain is not None:
            said += f", constrain={self.constrain}"
        if self.contextual_calibration is not None:
            said += f", {'' if self.contextual_calibration else 'not '}contextually calibrated"
        return said
