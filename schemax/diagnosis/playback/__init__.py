"""A trace as one page that plays it back, in one file that loads nothing."""

from __future__ import annotations

from pathlib import Path

from schemax.diagnosis.tracing import Trace
from schemax.report.page import page_of
from schemax.report.rows import to_json


def playback(trace: Trace, title: str) -> str:
    """The page. Can be encoded as UTF-8, whatever the text holds."""
    template, style = asset("page.html"), asset("page.css")
    script = "\n" + asset("trace.js") + asset("page.js")
    return page_of(template, style, script, title=title, data=to_json(trace.to_dict()))


def asset(name: str) -> str:
    """One of the files that pages with a trace are made of."""
    return (Path(__file__).parent / name).read_text("utf-8")
