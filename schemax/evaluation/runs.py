"""Runs over annotated documents: their figures as JSON, and predictions read back from files."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from schemax.base.messages import counted, some_of
from schemax.errors import InputError
from schemax.evaluation.examples import Example, row_ids
from schemax.evaluation.judge import (
    Case,
    JudgeForm,
    JudgeScore,
    Verdict,
    agreement,
    score_verdicts,
)
from schemax.evaluation.reliability import Reliability, reliability_of
from schemax.evaluation.scores import PairScore, Scores, f1_interval, mean_f1
from schemax.extraction.stated import Label


@dataclass(frozen=True, slots=True)
class Judged:
    """The verdicts of a judge: one per case, None for an unparseable reply."""

    model: str
    form: JudgeForm
    cases: Sequence[Case]
    verdicts: Sequence[Verdict | None]

    @property
    def suffix(self) -> str:
        """The suffix of the judge's keys in JSON."""
        return "_by_product" if self.form == "product" else ""

    @property
    def score(self) -> JudgeScore:
        return score_verdicts(self.verdicts)


@dataclass(frozen=True, slots=True)
class EvaluationRun:
    """A decoding setting of a model on all examples.

    predictions: attribute -> value or None, one mapping per example.
    confidences: attribute -> confidence of its prediction; None without one.
    failed_rows: products without an instance.
    passes: the mean number of forward passes of a product; None if unknown.
    seconds: for all products; None for predictions of a file, which were not measured.
    finish_reasons: counts of fields by "stop", "eos" and "length".
    invalid_fields: counts fields whose value could not be used.
    invalid_rows: products with any error.
    model: the model's name, if several models read the examples.
    dollars_per_hour: of the machine; None if unknown.
    shots: the most examples in a prompt; None if not set.
    sureness: attribute -> how sure the model is of its answer, null included; () for fields asked
        for separately.
    legal_mass: the mean probability of tokens that fields' types allow; None if unknown.
    seed: of sampling.
    seen: counts of the examples that the model was "trained" and "calibrated" on.
    file: of the predictions of another system; None for a model's.
    """

    decoding: str
    examples: Sequence[Example]
    predictions: Sequence[Mapping[str, Any]]
    confidences: Sequence[Mapping[str, float | None]]
    scores: Scores
    failed_rows: int
    passes: float | None = None
    seconds: float | None = None
    finish_reasons: Mapping[str, int] = field(default_factory=dict)
    invalid_fields: int = 0
    invalid_rows: int = 0
    judged: tuple[Judged, ...] = ()
    model: str | None = None
    dollars_per_hour: float | None = None
    shots: int | None = None
    legal_mass: float | None = None
    sureness: Sequence[Mapping[str, float | None]] = ()
    seed: int = 0
    seen: Mapping[str, int] = field(default_factory=dict)
    file: Path | None = None

    @property
    def name(self) -> str:
        """The name of the run in tables."""
        shots = "" if self.shots is None else counted(self.shots, "example")
        return ", ".join(filter(None, (self.model, self.decoding, shots)))

    @property
    def names(self) -> dict[str, Any]:
        """The names of the setting: model, decoding, number of examples, as far as they are set."""
        of_model = {} if self.model is None else {"model": self.model}
        of_shots = {} if self.shots is None else {"examples": self.shots}
        return of_model | {"decoding": self.decoding} | of_shots

    @property
    def dollars_per_1000(self) -> float | None:
        """The dollars for 1,000 products on a machine that does nothing else."""
        if self.dollars_per_hour is None or self.seconds is None:
            return None
        return 1000 * self.dollars_per_hour / 3600 * self.seconds / len(self.examples)

    @property
    def products_per_second(self) -> float | None:
        return None if self.seconds is None else len(self.examples) / self.seconds

    @property
    def reliability(self) -> Reliability | None:
        """The reliability of annotated pairs with a predicted value; None without confidences."""
        return reliability_of(self.scores, self.confidences)

    def to_data(self, *, details: bool = False) -> dict[str, Any]:
        """Returns the figures as JSON; with details, "predictions" holds labels and predictions."""
        protocol, strict = self.scores.protocol, self.scores.strict
        by_category, by_attribute = self.scores.by_category, self.scores.by_attribute
        strict_by_category = self.scores.by_part(lambda pair: pair.category, strict=True)
        reliability = self.reliability
        nested: dict[str, dict[str, Any]] = {name: {} for name in by_category}
        for (category, attribute), score in by_attribute.items():
            nested[category][attribute] = asdict(score) | _rates(score)
        data: dict[str, Any] = {
            **self.names,
            "products": len(self.examples),
            "seed": self.seed,
            "seen": dict(self.seen),
            **_rates(protocol),
            "f1_interval": f1_interval(self.scores.counts()),
            "counts": asdict(protocol),
            **{f"strict_{name}": rate for name, rate in _rates(strict).items()},
            "strict_f1_interval": f1_interval(self.scores.counts(strict=True)),
            "strict_counts": asdict(strict),
            "macro_f1_over_categories": mean_f1(by_category.values()),
            "macro_f1_over_attributes": mean_f1(by_attribute.values()),
            "passes_per_product": self.passes,
            "seconds": self.seconds,
            "products_per_second": self.products_per_second,
            "dollars_per_1000": self.dollars_per_1000,
            "legal_mass": self.legal_mass,
            "finish_reasons": dict(self.finish_reasons),
            "invalid": {
                "fields": self.invalid_fields,
                "rows": self.invalid_rows,
                "failed_rows": self.failed_rows,
            },
            "f1_by_category": {name: score.f1 for name, score in by_category.items()},
            "strict_f1_by_category": {n: score.f1 for n, score in strict_by_category.items()},
            "by_attribute": nested,
            "reliability": None if reliability is None else asdict(reliability),
        }
        for judged in self.judged:
            data[f"judge{judged.suffix}"] = {
                "model": judged.model,
                **_rates(judged.score),
                "verdicts": asdict(judged.score),
                "agreement": agreement(judged.cases, judged.verdicts, self.scores),
            }
        if details:
            data["predictions"] = self._rows()
        return data

    def _rows(self) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = [
            {
                "id": name,
                "category": example.category,
                "labels": dict(example.attributes),
                "predicted": dict(predicted),
                "confidences": dict(confidences),
            }
            for name, example, predicted, confidences in zip(
                *(row_ids(self.examples), self.examples, self.predictions, self.confidences),
                strict=True,
            )
        ]
        for judged in self.judged:
            for case, verdict in zip(judged.cases, judged.verdicts, strict=True):
                verdicts = rows[case.product].setdefault(f"verdicts{judged.suffix}", {})
                verdicts[case.attribute] = verdict
        return rows


def _rates(score: PairScore | JudgeScore) -> dict[str, float]:
    return {"f1": score.f1, "precision": score.precision, "recall": score.recall}


@dataclass(frozen=True, slots=True)
class SavedRun:
    """A run read from a file, which holds no texts of its examples."""

    name: str
    examples: Sequence[Example]
    predictions: Sequence[Mapping[str, str | None]]


def read_runs(path: Path) -> list[SavedRun]:
    """Reads the settings of a file that `schemax evaluate --json --details` wrote, in order.

    Raises InputError for any other file.
    """
    try:
        data = json.loads(path.read_bytes())
        if not isinstance(data, list) or not data:
            raise ValueError("it contains no list of settings")
        return [_saved_run(item) for item in data]
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError) as error:
        problem = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise InputError(
            f"{path}: not a result of `schemax evaluate --json --details` ({problem})"
        ) from error


def read_run(path: Path) -> SavedRun:
    """Reads the only setting of a file, as `read_runs`. Raises InputError for any other file."""
    runs = read_runs(path)
    if len(runs) > 1:
        names = ", ".join(run.name for run in runs)
        raise InputError(f"{path}: it contains {len(runs)} settings ({names}), not one")
    return runs[0]


def _saved_run(item: Any) -> SavedRun:
    rows = [_saved_row(row) for row in item["predictions"]]
    return SavedRun(
        str(item["decoding"]),
        [example for example, _ in rows],
        [predicted for _, predicted in rows],
    )


def check_alike(first: SavedRun, second: SavedRun, names: tuple[str, str]) -> None:
    """Raises InputError unless two runs have the same products and labels, in the same order."""
    if len(first.examples) != len(second.examples):
        raise InputError(
            f"{names[0]} has {counted(len(first.examples), 'document')}, "
            f"{names[1]} has {counted(len(second.examples), 'document')}"
        )
    everything = zip(
        first.examples, second.examples, first.predictions, second.predictions, strict=True
    )
    for place, (first_example, second_example, first_row, second_row) in enumerate(everything, 1):
        if first_example == second_example and (odd := first_row.keys() ^ second_row.keys()):
            raise InputError(
                f"{names[0]} and {names[1]} are not about the same attributes: only one has "
                f"{some_of(sorted(odd))} for {first_example.id!r}; evaluate both with the same "
                "--schemas"
            )
        if first_example != second_example:
            raise InputError(
                f"{names[0]} and {names[1]} are not about the same documents: number {place} is "
                f"{first_example.id!r} ({first_example.category}) in one and {second_example.id!r} "
                f"({second_example.category}) in the other, or has other labels"
            )


def _saved_row(row: Any) -> tuple[Example, dict[str, str | None]]:
    labels = {name: _saved_label(value) for name, value in row["labels"].items()}
    predicted = dict(row["predicted"])
    if not all(value is None or isinstance(value, str) for value in predicted.values()):
        raise ValueError(f"document {row['id']}: a prediction is neither text nor null")
    return Example(str(row["category"]), "", labels, id=str(row["id"])), predicted


def _saved_label(value: Any) -> Label:
    several = isinstance(value, list) and value
    if all(item is None or isinstance(item, str) for item in (value if several else [value])):
        return tuple(value) if several else value
    raise ValueError(f"{value!r} is not a label")
