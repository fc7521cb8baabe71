"""The curve of a cascade: F1 and cost over how many fields the next model is asked for.

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
from schemax.extraction.cascade import sureness
from schemax.formats import OutputFormat
from schemax.results import Extraction

_POINTS = 11


class Point(NamedTuple):
    """A cascade at a threshold.

    below: the sureness below which the next model is asked for a field; None asks for all.
    fields, documents: the shares of fields, and of documents, that it is asked for.
    cost: seconds, relative to the next model alone. Measured at the threshold of the cascade, and
        where no field or every field is asked for; in proportion to fields between these.
    """

    below: float | None
    fields: float
    documents: float
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
    first: EvaluationRun, later: EvaluationRun, cascade: EvaluationRun, least: float
) -> list[Point]:
    """Returns the curve from the first model alone to the next model for all fields.

    cascade: a run of both models with the threshold `least`.
    """
    sure = [
        {name: -1.0 if share is None else share for name, share in row.items()}
        for row in first.sureness
    ]
    known = np.array([share for row in sure for share in row.values()])
    grid = np.quantile(known, np.linspace(0, 1, _POINTS)[1:-1], method="lower")
    marks = sorted({0.0, least, *(round(float(place), 4) for place in grid if place > 0)})
    shares = [float(np.mean(known < mark)) for mark in (*marks, np.inf)]
    own, further, together = (run.seconds or 0.0 for run in (first, later, cascade))  # measured
    spent = sorted([(0.0, own), (shares[marks.index(least)], together), (1.0, own + further)])
    points = []
    for mark, share in zip((*marks, np.inf), shares, strict=True):
        predictions = [
            {name: (below if row[name] < mark else above)[name] for name in above}
            for above, below, row in zip(first.predictions, later.predictions, sure, strict=True)
        ]
        scores = score_predictions(first.examples, predictions)
        documents = np.mean([min(row.values(), default=1.0) < mark for row in sure])
        cost = np.interp(share, *np.array(spent).T) / further
        f1 = scores.protocol.f1, scores.strict.f1
        points.append(
            Point(None if mark == np.inf else mark, share, float(documents), *f1, float(cost))
        )
    return points
