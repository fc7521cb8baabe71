"""Calibrates a model on annotated products: extracts from them, and fits what comes out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import replace
from statistics import fmean, pstdev
from typing import Any

from pydantic import BaseModel

from schemax.calibration import Calibration
from schemax.config import DecodingConfig
from schemax.evaluation.calibration_fit import Fit, FitEntry, entries_of, fit_calibration
from schemax.evaluation.examples import Example, shown_record
from schemax.evaluation.scores import by_attribute, labelled
from schemax.extractor import Extractor
from schemax.familiarity import mean_logprob
from schemax.progress import track

FEWEST = 100
"""Annotated pairs below which a fit says more of the pairs than of the model."""


def calibrate(
    extractor: Extractor,
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    formats: Sequence[str | None] = (None,),
    *,
    decoding: DecodingConfig | None = None,
    show_progress: bool = False,
    **settings: Any,
) -> Fit:
    """A calibration for all of these formats together.

    examples: products that the model was not trained on. settings: others of `Extractor.stream`.

    Raises InputError for products without an annotation, and for a model that writes no value, or
    none with a confidence, as in the autoregressive layout.
    """
    raw = copy(extractor)
    raw.calibration = Calibration()
    decoding = replace(decoding or extractor.decoding, min_probability=0.0)
    entries: list[FitEntry] = []
    logprobs: list[float] = []
    for format in formats:
        stream = raw.stream(
            map(shown_record, examples),
            schemas,
            category="category",
            format=format,
            decoding=decoding,
            **settings,
        )
        if show_progress:
            stream = track(stream, total=len(examples), unit="documents")
        items = sorted(stream, key=lambda item: item.index)
        logprobs += [found for item in items if (found := mean_logprob(item)) is not None]
        fields = [item.fields for item in items]
        values = [{name: field.value for name, field in row.items()} for row in fields]
        entries += entries_of(
            examples,
            by_attribute(examples, fields, schemas),
            labelled(examples, values, schemas),
        )
    fit = fit_calibration(entries)
    usual, deviation = round(fmean(logprobs), 4), round(pstdev(logprobs), 4)
    fitted = replace(fit.calibration, usual_logprob=usual, usual_deviation=deviation)
    return replace(fit, calibration=fitted)
