"""The overview of a report: outcomes of all rows, and settings of the run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from schemax.base.messages import counted
from schemax.io.finished import RunRecord
from schemax.io.summary import Tally
from schemax.results import Extraction
from schemax.results.list_results import without_items

_MOST = 20
_SETTINGS = ("dtype", "decoding layout", "quantization", "adapter", "on too long", "html", "text")


@dataclass(slots=True)
class _Field:
    rows: int = 0
    stated: int = 0
    errors: int = 0
    known: int = 0
    confidence: float = 0.0
    least: float = 1.0


@dataclass(slots=True)
class Overview:
    """Counts over all rows, including rows that the page does not hold.

    facts: (name, text), shown as they are.
    """

    facts: list[tuple[str, str]] = field(default_factory=list)
    _fields: dict[str, _Field] = field(default_factory=dict)
    _tally: Tally = field(default_factory=Tally)

    def add(self, item: Extraction[Any]) -> None:
        errors = [asdict(error) for error in item.errors]
        attributes: dict[str, Any] | None = None if item.value is None else {}
        self._tally.add_row({"id": item.document_id, "attributes": attributes, "errors": errors})
        wrong = {error.field for error in item.errors}
        for name, result in without_items(item.fields).items():
            counts = self._fields.setdefault(name, _Field())
            counts.rows += 1
            counts.stated += result.value is not None and result.value != []
            counts.errors += name in wrong
            if result.confidence is not None:
                counts.known += 1
                counts.confidence += result.confidence
                counts.least = min(counts.least, result.confidence)

    def plain(self) -> dict[str, Any]:
        found = self._tally.summary()
        return {
            "facts": self.facts,
            "failed": found.failed,
            "failures": found.failure_kinds[:_MOST],
            "errors": found.error_kinds[:_MOST],
            "duplicates": [found.duplicates, list(found.duplicate_ids)],
            "fields": [
                {
                    "name": name,
                    "rows": one.rows,
                    "stated": one.stated,
                    "errors": one.errors,
                    "confidence": round(one.confidence / one.known, 4) if one.known else None,
                    "least": round(one.least, 4) if one.known else None,
                }
                for name, one in self._fields.items()
            ],
        }


def facts_of(record: RunRecord, price_per_hour: float | None = None) -> list[tuple[str, str]]:
    """Returns (name, text) facts of a run: model, input, settings, and cost with retries."""
    summary, settings = record.summary, record.settings
    hours = summary.seconds / 3600
    cost = f"{hours:,.3g} hours for {counted(summary.computed, 'computed row')}"
    if price_per_hour is not None:
        cost += f", {hours * price_per_hour:,.2f} at {price_per_hour:g} an hour"
    return [
        ("Finished", record.finished.replace("T", " ").replace("+00:00", " UTC")),
        ("Input", ", ".join(summary.inputs)),
        ("Model", str(record.model or settings.get("model"))),
        ("Cost", f"{cost}; {summary.tokens:,} tokens, {summary.passes:,} passes"),
        ("Settings", _said({key: settings[key] for key in _SETTINGS if settings.get(key)})),
        ("schemax", str(settings.get("version"))),
    ]


def _said(settings: Mapping[str, Any]) -> str:
    return "; ".join(
        f"{key} {', '.join(value) if isinstance(value, list) else value}"
        for key, value in settings.items()
    )
