"""Self-contained HTML pages: markup, style, script and data in one file that loads nothing.

All pages share `page.html` (the frame), `page.css` (colours, font, controls) and `page.js` (the
embedded data as `data`, and helpers that put texts into the page as text nodes).
"""

from __future__ import annotations

import json
import os
import re
from base64 import b64encode
from hashlib import sha256
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from schemax.io.storage import writing

_SURROGATE = re.compile("[\ud800-\udfff]")


def page_of(
    title: str,
    body: str,
    *,
    style: str,
    script: str,
    data: str = "null",
    connect: str = "'none'",
    has_images: bool = False,
) -> str:
    """Returns a page that runs no script but its own; UTF-8 can encode it, whatever it holds.

    body: markup, with `$title` for the title.
    style, script: in addition to those that all pages share.
    data: JSON from `to_json`.
    connect: the addresses that the content security policy lets the script request.
    has_images: True if the data hold images.
    """
    style = asset(__file__, "page.css") + style
    script = "\n" + asset(__file__, "page.js") + script
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; "
        f"connect-src {connect}; {'img-src data:; ' if has_images else ''}base-uri 'none'; "
        "form-action 'none'"
    )
    shown = escape(title).encode("utf-8", "replace").decode()
    return Template(asset(__file__, "page.html")).substitute(
        policy=policy,
        title=shown,
        style=style,
        body=Template(body).substitute(title=shown),
        data=data,
        script=script,
    )


def asset(beside: str, *names: str) -> str:
    """Returns the text of files in the folder of a module, one after another."""
    return "\n".join(Path(beside).with_name(name).read_text("utf-8") for name in names)


def to_json(value: Any) -> str:
    """Returns JSON that is safe inside <script>: "<" and lone surrogates are escaped."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    text = text.replace("<", "\\u003c")
    return _SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def write_page(path: str | os.PathLike[str], page: str) -> None:
    """Writes a file atomically: it gets its name only when it is complete."""
    with writing(os.fspath(path)) as handle:
        handle.write(page.encode())


def _hash(text: str) -> str:
    """Returns the hash by which a content security policy allows an inline script or style."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
