"""Every row of results that a test writes is judged by the jsonschema package.

A row that contradicts the schema of its own class fails the test that wrote it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import jsonschema
from pydantic import TypeAdapter

from schemax.results import Extraction


@lru_cache(maxsize=256)
def _judge_of(kind: Any) -> jsonschema.Draft202012Validator:
    # Rows call fields by their names, unless the class says otherwise.
    config = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", {})
    by_alias = bool(config.get("serialize_by_alias"))
    return jsonschema.Draft202012Validator(TypeAdapter(kind).json_schema(by_alias=by_alias))


def judge_rows() -> None:
    """From now on, in this process."""
    usual = Extraction.to_row

    def to_row(self: Extraction[Any], *, details: bool = False) -> dict[str, Any]:
        row = usual(self, details=details)
        if row["attributes"] is not None and not isinstance(self.value, dict):
            _judge_of(type(self.value)).validate(row["attributes"])
        return row

    Extraction.to_row = to_row  # type: ignore[method-assign]
