"""A trace as one page that plays it back, in one file that loads nothing."""

from __future__ import annotations

from pathlib import Path

from schemax.diagnosis.tracing import Trace
from schemax.report.page import page_of
from schemax.report.rows import to_json


def playback(trace: Trace, title: str) -> str:
    """The page. Can be encoded as UTF-8, whatever the text holds."""
    folder = Path(__file__).parent
    parts = ((folder / f"page.{kind}").read_text("utf-8") for kind in ("html", "css", "js"))
    template, style, script = parts
    data = trace.to_dict() | {"field": next(iter(trace.extraction.texts), "text")}
    return page_of(template, style, "\n" + script, title=title, data=to_json(data))
