"""`Trials`: measured outcomes in a file beside the output, with which a killed run goes on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TextIO

OutcomeCounts = tuple[int, ...]
"""The counts of outcomes (`OUTCOMES`) of a document's pairs, by the protocol."""


def sidecar(output: Path) -> Path:
    """Returns the file of measured outcomes that belongs to an output."""
    return output.with_name(f"_{output.name}.fit.jsonl")


class Trials:
    """Outcomes by prompt and document, appended to a file line by line; None keeps no file.

    digest: of all that outcomes depend on. A file with another digest is begun anew.
    """

    def __init__(self, path: Path | None, digest: str) -> None:
        self.outcomes: dict[tuple[str, int], OutcomeCounts] = {}
        self.seconds = 0.0  # spent on measuring, in earlier runs and this one
        self._file: TextIO | None = None
        if path is not None:
            end = self._read(path, digest)
            self._file = path.open("r+" if end else "w", encoding="utf-8")
            self._file.seek(end)
            self._file.truncate()  # drops a line that was cut off
            if not end:
                self._write({"digest": digest})
        self.known = len(self.outcomes)

    def add(self, key: str, row: int, outcome: OutcomeCounts) -> None:
        self.outcomes[key, row] = outcome
        self._write({"key": key, "row": row, "outcome": outcome})

    def spend(self, seconds: float) -> None:
        self.seconds += seconds
        self._write({"seconds": round(seconds, 3)})

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: object) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def _read(self, path: Path, digest: str) -> int:
        """Reads a file's lines; returns their length in bytes, 0 for a file of anything else."""
        try:
            lines = path.read_bytes().splitlines(keepends=True)
            if not lines or json.loads(lines[0]) != {"digest": digest}:
                return 0
        except (OSError, ValueError, RecursionError):
            return 0
        end = len(lines[0])
        for line in lines[1:]:
            try:
                if not line.endswith(b"\n"):
                    break
                self._take(json.loads(line))
            except (ValueError, KeyError, TypeError, RecursionError):
                break
            end += len(line)
        return end

    def _take(self, line: Any) -> None:
        if "seconds" in line:
            self.seconds += line["seconds"]
        else:
            self.outcomes[line["key"], line["row"]] = tuple(line["outcome"])
