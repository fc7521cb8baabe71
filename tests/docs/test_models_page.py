"""The table of tested families in docs/models.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from families import FAMILIES
from models_page import models_page

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "models.md").read_text("utf-8")


def test_the_page_names_every_family() -> None:
    assert [name for name in FAMILIES if f"`{name}`" not in PAGE] == []


def test_results_replace_the_table_and_nothing_else() -> None:
    exact = {"decodes": "in sequence", "outcome": "passed"}
    rows: dict[str, dict[str, Any]] = dict.fromkeys(FAMILIES, exact)
    rows["rwkv"] = {"decodes": "one row per slot", "outcome": "failed"}
    page = models_page(PAGE, rows)
    assert "| one row per slot | **not exact** | `rwkv` |\n" in page
    before, after = "Measured with", "## A model as it is"
    assert page.partition(before)[0] == PAGE.partition(before)[0]
    assert page.partition(after)[1:] == PAGE.partition(after)[1:]
