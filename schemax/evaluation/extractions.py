"""Extracts values from annotated examples, and scores them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from schemax.evaluation.examples import Example, shown_record
from schemax.evaluation.scores import Scores, labelled, score_predictions
from schemax.extractor import Extractor
from schemax.progress import track
from schemax.results import Extraction


def extractions_of(
    extractor: Extractor,
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    /,
    *,
    show_progress: bool = False,
    **settings: Any,
) -> list[Extraction[Any]]:
    """Extracts from examples: one extraction each, in order. settings: of `Extractor.stream`."""
    records = map(shown_record, examples)
    stream = extractor.stream(records, schemas, category="category", **settings)
    if show_progress:
        stream = track(stream, total=len(examples), unit="documents")
    return sorted(stream, key=lambda item: item.index)


def values_of(*items: Extraction[Any]) -> dict[str, Any]:
    """Values by field, from extractions that each hold a part of a document's fields."""
    return {name: field.value for item in items for name, field in item.fields.items()}


def scores_of(
    examples: Sequence[Example],
    items: Sequence[Extraction[Any]],
    schemas: Mapping[str, type[BaseModel]],
) -> Scores:
    """Scores extractions against the labels of their examples."""
    values = [values_of(item) for item in items]
    return score_predictions(examples, labelled(examples, values, schemas))
