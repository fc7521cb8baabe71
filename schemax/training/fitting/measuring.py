"""Measuring: reads documents with a candidate, by the extractor itself, and counts outcomes."""

from __future__ import annotations

import json
import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Timer
from typing import Any, TextIO

import numpy as np
from pydantic import BaseModel

from schemax.config import DecodingConfig
from schemax.errors import InputError
from schemax.evaluation.examples import Example, shown_record
from schemax.evaluation.scores import scores_of
from schemax.extraction.extractor import Extractor
from schemax.extraction.prompt_file import Demonstration, PromptFile
from schemax.io import fingerprint
from schemax.results import Extraction
from schemax.training.fitting.search import Candidate, Measure, Outcomes, OutOfTime, Trial

OutcomeCounts = tuple[int, ...]
"""The counts of outcomes (`OUTCOMES`) of a document's pairs, by the protocol."""


def sidecar(output: Path) -> Path:
    """Returns the file of measured outcomes and trials that belongs to an output."""
    return output.with_name(f"_{output.name}.fit.jsonl")


class Trials:
    """Outcomes by prompt and document, appended to a file line by line; path None: no file.

    digest: of all that outcomes depend on; a file with another digest is overwritten.
    seconds: spent on measuring by earlier runs, then by this run, too.
    rates: candidate, as text -> seconds per document when it was last read.
    """

    def __init__(self, path: Path | None, digest: str) -> None:
        self.outcomes: dict[tuple[str, int], OutcomeCounts] = {}
        self.seconds = 0.0
        self.rates: dict[str, float] = {}
        self._recorded = 0
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

    def spend(self, candidate: str, seconds: float, documents: int) -> None:
        line = {"seconds": round(seconds, 3), "documents": documents, "candidate": candidate}
        self._take(line)
        self._write(line)

    def record(self, trial: Trial) -> None:
        """Writes a trial for people; a resumed run repeats the trials of the earlier run."""
        if trial.number > self._recorded:
            self._write(
                {"trial": trial.number} | asdict(trial) | {"candidate": str(trial.candidate)}
            )

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _write(self, line: object) -> None:
        if self._file is not None:
            self._file.write(json.dumps(line) + "\n")
            self._file.flush()

    def _read(self, path: Path, digest: str) -> int:
        """Reads a file's lines; returns their length in bytes, 0 for any other file."""
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
        if "trial" in line:
            self._recorded = line["trial"]
        elif "seconds" in line:
            self.seconds += line["seconds"]
            if line["documents"]:
                self.rates[line["candidate"]] = line["seconds"] / line["documents"]
        else:
            self.outcomes[line["key"], line["row"]] = tuple(line["outcome"])


@dataclass(frozen=True, slots=True)
class Work:
    """The documents to read, and the parts of prompt files.

    examples: the labelled documents, as `as_declared` returns them.
    demonstrations: the rows that can be shown.
    templates: name -> text; None is the template without a prompt file.
    current: the candidate that stands for the prompt without a file.
    """

    extractor: Extractor
    examples: Sequence[Example]
    schemas: Mapping[str, type[BaseModel]]
    demonstrations: Mapping[int, Demonstration]
    templates: Mapping[str, str | None]
    format: str | None
    current: Candidate

    def decoding(self, candidate: Candidate) -> DecodingConfig:
        """Returns the extractor's decoding, with the candidate's settings."""
        changes: dict[str, Any] = {
            "constrain": candidate.constrain,
            "contextual_calibration": candidate.contextual_calibration,
            "min_probability": candidate.min_probability,
            "nearest_examples": candidate.nearest or None,
        }
        stated = {name: value for name, value in changes.items() if value is not None}
        return replace(self.extractor.defaults.decoding, **stated)

    def prompt(self, candidate: Candidate) -> PromptFile:
        """Returns a candidate as a prompt file, which chooses nothing for the current prompt."""
        if candidate == self.current:
            return PromptFile(format=self.format, decoding=self.extractor.defaults.decoding)
        return PromptFile(
            template=self.templates[candidate.template],
            format=self.format,
            decoding=self.decoding(candidate),
            demonstrations=tuple(
                self.demonstrations[row]
                for category in self.schemas
                for row in candidate.shown.get(category, ())
            ),
        )

    def content(self, candidate: Candidate) -> dict[str, str]:
        """Returns, by category, a digest of what the model reads and of how it is decoded."""
        prompt = self.prompt(candidate)
        reader = self.extractor.with_prompt(prompt)
        shown, digests = prompt.examples(self.schemas), {}
        for category, schema in self.schemas.items():
            examples = shown.get(category) if isinstance(shown, Mapping) else None
            with _without_warnings():
                compiled = reader.compile(schema, examples=examples)
            config, alike = compiled.decoding, compiled.nearest
            if (least := config.min_probability) is None:
                least = reader.defaults.calibration.min_probability
            content: list[Any] = [replace(config, nearest_examples=0, min_probability=least)]
            content += compiled.instruction, compiled.pieces, compiled.opening
            content += compiled.keys, compiled.k_max
            if alike is not None:
                content += min(alike.count, len(alike.examples)), alike.written
            digests[category] = fingerprint.digest(repr(content))
        return digests

    def outcome(self, row: int, item: Extraction[Any]) -> OutcomeCounts:
        """Returns the outcomes of the pairs of a document."""
        return tuple(scores_of([self.examples[row]], [item], self.schemas).counts()[0].tolist())


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Silences warnings about prompts: most prompts that are tried are never used."""
    package_logger = logging.getLogger("schemax")
    before = package_logger.level
    package_logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        package_logger.setLevel(before)


def measuring(work: Work, trials: Trials, allowed: Callable[[Candidate, int], float]) -> Measure:
    """Returns a `Measure` that reads no document twice with the same prompt.

    allowed: candidate, number of documents -> the seconds that reading them may take now.
    """

    def measure(candidate: Candidate, rows: Sequence[int]) -> Outcomes:
        content = work.content(candidate)
        keys = {row: content[work.examples[row].category] for row in rows}
        missing = [row for row in rows if (keys[row], row) not in trials.outcomes]
        if missing:
            seconds = allowed(candidate, len(missing))
            if seconds <= 0:
                raise OutOfTime
            _read(work, trials, seconds, candidate, keys, missing)
        outcomes = [trials.outcomes[keys[row], row] for row in rows]
        return np.array(outcomes, np.int64)

    return measure


def _read(
    work: Work,
    trials: Trials,
    seconds: float,
    candidate: Candidate,
    keys: Mapping[int, str],
    rows: Sequence[int],
) -> None:
    """Reads documents with a candidate. Raises OutOfTime if the time ends before the last."""
    started, left = time.monotonic(), len(rows)
    wanted = {work.examples[row].category for row in rows}
    schemas = {name: schema for name, schema in work.schemas.items() if name in wanted}
    records = (shown_record(work.examples[row]) for row in rows)
    prompt = work.prompt(candidate)
    with _without_warnings():
        try:
            reader = work.extractor.with_prompt(prompt)
            reading = reader.extractions(records, schemas, category="category")
        except InputError:  # more demonstrations than the model's context holds
            if not prompt.demonstrations:
                raise
            for row in rows:
                unread: Extraction[Any] = Extraction(None, 0, None)
                trials.add(keys[row], row, work.outcome(row, unread))
            return
        # Documents are read side by side, so the time may end before the first is done.
        timer = Timer(started + seconds - time.monotonic(), reading.close)
        timer.daemon = True
        timer.start()
        try:
            for item in reading:
                row = rows[item.index]
                trials.add(keys[row], row, work.outcome(row, item))
                left -= 1
        finally:
            timer.cancel()
    trials.spend(str(candidate), time.monotonic() - started, len(rows) - left)
    if left:
        raise OutOfTime
