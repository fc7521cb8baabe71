"""Playback: a page that plays back the passes of a trace, and the parts of the page."""

from __future__ import annotations

from schemax.evaluation.diagnosis.tracing import Trace
from schemax.report.pages import asset, page_of, to_json

BODY, STYLE, SCRIPT = (asset(__file__, f"trace.{kind}") for kind in ("html", "css", "js"))
"""The parts of a page that shows a trace; SCRIPT has `mountTrace`, which takes the trace."""


def playback(trace: Trace, title: str) -> str:
    """Returns the page. It can be encoded as UTF-8, whatever the text holds."""
    return page_of(
        title,
        f"<header>\n  <h1>$title</h1>\n</header>\n{BODY}",
        style=STYLE,
        script=f"{SCRIPT}\nmountTrace(data);\n",
        data=to_json(trace.to_dict()),
    )
