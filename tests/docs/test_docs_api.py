"""The table of public names in docs/api.md."""

from __future__ import annotations

import inspect
from pathlib import Path

import schemax

PAGE = Path(__file__).resolve().parents[2] / "docs" / "api.md"


def test_the_table_names_all_that_is_public() -> None:
    rows = [line for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| `")]
    assert rows == [
        f"| `{name}` | {(inspect.getdoc(getattr(schemax, name)) or '').splitlines()[0]} |"
        for name in sorted(schemax.__all__)
    ]
