"""The curve of a cascade: F1 and cost over how many documents the next model reads.

Fields are read independently, so the answers of both models alone say what a cascade of them
answers at every threshold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel

from schemax.attributes import compile_attributes
from schemax.evaluation.examples import Example
from schemax.evaluation.runs import EvaluationRun
from schemax.evaluation.scores import by_attribute, score_predictions
from schemax.extraction.cascade import Further, sureness
from schemax.formats import OutputFormat
from schemax.results import Extraction

_POINTS = 11


class Point(NamedTuple):
    """A cascade at a threshold.

    read_below: the sureness of a field below which the next model reads the document; None: it is
        asked for all fields of all documents.
    documents, fields: the shares of documents that it reads, and of fields that it is asked for.
    cost: seconds, relative to the next model alone. Measured at the threshold of the cascade, and
        where no field or every field is asked for; elsewhere from these, in proportion to documents
        and to fields.
    """

    read_below: float | None
    documents: float
    fields: float
    f1: float
    strict_f1: float
    cost: float


def surenesses(
    examples: Sequence[Example],
    items: Sequence[Extraction[Any]],
    schemas: Mapping[str, type[BaseModel]],
    format: OutputFormat,
) -> list[dict[str, float | None]]:
    """Returns attribute -> sureness of its answer, one mapping per example."""
    null = format.escape(None).strip()
    rows = []
    for example, item in zip(examples, items, strict=True):
        attributes = compile_attributes(schemas[example.category])
        names = (attribute.name for attribute in attributes)
        rows.append(dict(zip(names, sureness(item, attributes, null), strict=False)))
    return by_attribute(examples, rows, schemas)


def curve_of(
    first: EvaluationRun, later: EvaluationRun, cascade: EvaluationRun, further: Further
) -> list[Point]:
    """Returns the curve from the first model alone to the next model for all fields.

    cascade: a run of both models with the thresholds of `further`, whose `least` is that of every
        point but the last.
    """
    sure = [
        {name: -1.0 if share is None else share for name, share in row.items()}
        for row in first.sureness
    ]
    lowest = np.array([min(row.values(), default=1.0) for row in sure])  # (documents,)
    grid = np.quantile(lowest, np.linspace(0, 1, _POINTS)[1:-1], method="lower")
    inner = {round(float(mark), 4) for mark in grid if 0 < mark < further.least}
    marks = [(mark, further.least) for mark in sorted({0.0, further.read_below, *inner})]
    points = []
    for mark, least in (*marks, (np.inf, np.inf)):
        is_asked = [
            {name: low < mark and share < least for name, share in row.items()}
            for low, row in zip(lowest, sure, strict=True)
        ]
        predictions = [
            {name: (below if again[name] else above)[name] for name in above}
            for above, below, again in zip(
                first.predictions, later.predictions, is_asked, strict=True
            )
        ]
        scores = score_predictions(first.examples, predictions)
        points.append(
            Point(
                None if mark == np.inf else mark,
                documents=float(np.mean(lowest < mark)),
                fields=float(np.mean([again for row in is_asked for again in row.values()])),
                f1=scores.protocol.f1,
                strict_f1=scores.strict.f1,
                cost=0.0,
            )
        )
    own, alone, together = (run.seconds or 0.0 for run in (first, later, cascade))  # measured
    costs = _costs(
        points, marks.index((further.read_below, further.least)), (together - own) / alone
    )
    return [
        point._replace(cost=own / alone + cost) for point, cost in zip(points, costs, strict=True)
    ]


def _costs(points: Sequence[Point], measured: int, cost: float) -> list[float]:
    """What the next model costs at each point, relative to all fields of all documents.

    A document costs a share of 1 to read, its fields the rest; the point at the place `measured`,
    whose `cost` is known, tells how much.
    """
    known = points[measured]
    gap = known.documents - known.fields
    reading = min(max((cost - known.fields) / gap, 0.0), 1.0) if gap else 1.0
    costs = [reading * point.documents + (1 - reading) * point.fields for point in points]
    return [*costs[:measured], cost, *costs[measured + 1 :]]
