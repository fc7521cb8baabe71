"""OUT.run.json: what a table of results was made with, and what became of its rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from schemax.errors import InputError
from schemax.io.columns import Column
from schemax.io.storage import reading, writing
from schemax.io.summary import Summary
from schemax.io.table_schema import TableSchema

_VERSION = 1


def record_name(output: str) -> str:
    return f"{output}.run.json"


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The run that has finished a table.

    finished: when, in ISO 8601. settings: what its rows depend on, as the manifest of parts has it.
    model: its folder, Hub id or server. table: its columns; None where rows have none in common.
    category: of the only schema; rows of several tell theirs.
    command: what was named on the command line, if it was that.
    """

    summary: Summary
    settings: Mapping[str, Any]
    model: str | None
    table: TableSchema | None
    category: str | None = None
    command: Mapping[str, Any] = field(default_factory=dict)
    finished: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))

    def write(self, scratch: str) -> None:
        """scratch: its name until all is written."""
        data = {"version": _VERSION, **asdict(self)}
        with writing(record_name(self.summary.output), scratch) as handle:
            handle.write(json.dumps(data, indent=1, default=str).encode() + b"\n")


def read_run_record(output: str) -> RunRecord:
    """Raises InputError for a table that no run over files has made, and says so."""
    name = record_name(output)
    try:
        with reading(name) as handle:
            data = json.load(handle)
    except InputError as error:
        with reading(output):  # which says so, where there is no such table
            pass
        raise InputError(
            f"cannot tell how {output} was made: {error.message}; a run of schemax extract from "
            "files to a file writes it"
        ) from None
    except ValueError as error:
        raise InputError(f"cannot read {name}: {error}") from error
    if not isinstance(data, dict) or data.pop("version", None) != _VERSION:
        raise InputError(f"cannot read {name}: it was not written by this version of schemax")
    data["summary"] = Summary(**_tuples(data["summary"], Summary))
    if data["table"] is not None:
        data["table"] = _table(data["table"])
    return RunRecord(**data)


def _table(data: dict[str, Any]) -> TableSchema:
    columns = {key: tuple(map(_column, data[key])) for key in ("fields", "kept")}
    return TableSchema(**{**data, **columns, "read": tuple(data["read"])})


def _column(data: dict[str, Any]) -> Column:
    children = tuple(map(_column, data["children"]))
    return Column(**{**_tuples(data, Column), "children": children})


def _tuples(data: Mapping[str, Any], kind: Any) -> dict[str, Any]:
    found = {one.name: data[one.name] for one in fields(kind)}
    return {
        key: tuple(tuple(item) if isinstance(item, list) else item for item in value)
        if isinstance(value, list)
        else value
        for key, value in found.items()
    }
