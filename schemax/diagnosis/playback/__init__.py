"""A trace as one page that plays the passes back; and the parts of such a page."""

from __future__ import annotations

from schemax.diagnosis.tracing import Trace
from schemax.pages import asset, page_of, to_json

BODY, STYLE, SCRIPT = (asset(__file__, f"trace.{kind}") for kind in ("html", "css", "js"))
"""The parts of a page that shows a trace; SCRIPT's `mountTrace` is given the trace."""


def playback(trace: Trace, title: str) -> str:
    """The page. Can be encoded as UTF-8, whatever the text holds."""
    return page_of(
        title,
        f"<header>\n  <h1>$title</h1>\n</header>\n{BODY}",
        style=STYLE,
        script=f"{SCRIPT}\nmountTrace(data);\n",
        data=to_json(trace.to_dict()),
    )
