"""A report that is open in a browser."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chromium import Browser

import schemax
from schemax import Extraction, FieldResult
from schemax.results import SlotText, Span


def result(
    raw: str, value: Any, spans: tuple[Span | None, ...] = (), *, tokens: int = 0, **facts: Any
) -> FieldResult:
    """A field's result; facts: of its slot."""
    return FieldResult(SlotText(raw, "stop", tokens, complete=True, **facts), value, spans)


class Page:
    """What stands in the page, and what a reader does to it."""

    def __init__(self, browser: Browser, path: Path) -> None:
        self.browser, self.path = browser, path
        self.press, self.click, self.wait = browser.press, browser.click, browser.wait

    def open(self, items: list[Extraction[Any]], **settings: Any) -> None:
        schemax.report(items, self.path)
        self.browser.open(self.path, **settings)

    def text(self, selector: str) -> str:
        return str(self.browser.run(f"document.querySelector({json.dumps(selector)}).textContent"))

    def texts(self, selector: str) -> list[str]:
        script = f"[...document.querySelectorAll({json.dumps(selector)})].map(x => x.textContent)"
        return list(self.browser.run(script))

    def count(self, selector: str) -> int:
        return int(self.browser.run(f"document.querySelectorAll({json.dumps(selector)}).length"))

    def ids(self) -> list[str]:
        """Of the rows that are in the page, from the top."""
        return list(
            self.browser.run(
                "[...document.querySelectorAll('#body .row:not([hidden])')]"
                ".sort((a, b) => a.ariaRowIndex - b.ariaRowIndex)"
                ".map(row => row.querySelector('.id').textContent)"
            )
        )

    def column(self, number: int) -> list[str]:
        return list(
            self.browser.run(
                "[...document.querySelectorAll('#body .row:not([hidden])')]"
                ".sort((a, b) => a.ariaRowIndex - b.ariaRowIndex)"
                f".map(row => row.children[{number}].textContent)"
            )
        )

    def here(self) -> str:
        """What the cursor is on."""
        return self.text("#" + self.attribute("#grid", "aria-activedescendant"))

    def attribute(self, selector: str, name: str) -> str:
        return str(
            self.browser.run(
                f"document.querySelector({json.dumps(selector)}).getAttribute({json.dumps(name)})"
            )
        )

    def choose(self, selector: str, value: str) -> None:
        """Sets a control as a user would."""
        self.browser.run(
            f"(() => {{const one = document.querySelector({json.dumps(selector)});"
            f"one.value = {json.dumps(value)};"
            "for (const kind of ['input', 'change']) one.dispatchEvent(new Event(kind))})()"
        )

    def shown(self, count: str) -> None:
        self.wait(f"document.getElementById('count').textContent === {json.dumps(count)}")
