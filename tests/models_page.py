"""The table of tested families in docs/models.md, made of test results."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import torch
import transformers
from families import FAMILIES

_MEASURED = re.compile(r"^Measured with transformers .*?(?=^## )", re.DOTALL | re.MULTILINE)


def models_page(page: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Returns the page with a new table: each way to decode, its result, and its families."""
    families: dict[tuple[str, str], list[str]] = {}
    for name in FAMILIES:
        row = rows.get(name, {})
        families.setdefault((row.get("decodes", ""), _result(row)), []).append(f"`{name}`")
    versions = f"transformers {transformers.__version__}, torch {torch.__version__}"
    table = "".join(
        f"| {decodes} | {result} | {', '.join(names)} |\n"
        for (decodes, result), names in families.items()
    )
    head = "| decodes | result | families |\n| --- | --- | --- |\n"
    return _MEASURED.sub(f"Measured with {versions}, on a CPU.\n\n{head}{table}\n", page)


def _result(row: Mapping[str, Any]) -> str:
    if not row:
        return "not run"
    if row["outcome"] == "failed":
        return "**not exact**"
    return str(row.get("refused") or "exact")
