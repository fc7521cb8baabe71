"""Measures whether a model knows the kind of a schema and its documents.

With an unknown schema, template or language, a model is less sure of the tokens that it writes,
null included. `schemax calibrate` measures how sure it is of documents that it knows.
"""

from __future__ import annotations

import logging
from math import log, sqrt
from statistics import fmean
from typing import Any
from weakref import WeakSet

from schemax.base.calibration import Calibration
from schemax.compiler import CompiledSchema
from schemax.results import Extraction

logger = logging.getLogger(__name__)

DOCUMENTS = 10
"""The number of first documents by which a schema is judged."""

LEAST_LEGAL = 0.5
"""The least share of the model's probability that a field's type should allow."""

FLOOR = -1.0
"""The least mean log-probability of a slot, so that no single slot outweighs all others."""

_LEAST = 1e-300
"""A probability of very many tokens may be rounded to 0."""


def mean_logprob(item: Extraction[Any]) -> float | None:
    """The mean over a document's slots of the mean log-probability of a token, at least `FLOOR`.

    None for an unread document, and for an autoregressive output.
    """
    logprobs = [
        max(log(max(slot.probability, _LEAST)) / slot.tokens, FLOOR)
        for slot in item.slots
        if slot is not None and slot.probability is not None and slot.tokens
    ]
    return fmean(logprobs) if logprobs else None


def least_logprob(calibration: Calibration, documents: int) -> float:
    """The bound of the mean over usual documents: three standard errors below the usual mean."""
    return calibration.usual_logprob - 3 * calibration.usual_deviation / sqrt(documents)


class Familiarity:
    """Warns once about a schema whose documents make the model unsure, and once about fields whose
    types forbid what the model would write.

    told: the schemas that it has warned of, across runs.
    """

    def __init__(self, calibration: Calibration, told: WeakSet[CompiledSchema]) -> None:
        self._calibration, self._told = calibration, told
        # The first documents per schema.
        self._first: dict[CompiledSchema, list[Extraction[Any]]] = {}

    def saw(self, schema: CompiledSchema, item: Extraction[Any]) -> None:
        documents = self._first.setdefault(schema, [])
        if len(documents) < DOCUMENTS and item.slots:
            documents.append(item)
            if len(documents) == DOCUMENTS:
                self._judge(schema, documents)

    def end(self) -> None:
        """Judges the schemas of few documents."""
        for schema, documents in self._first.items():
            if 0 < len(documents) < DOCUMENTS:
                self._judge(schema, documents)

    def _judge(self, schema: CompiledSchema, items: list[Extraction[Any]]) -> None:
        if schema in self._told:
            return
        name = schema.category
        if forbidden := _forbidden(schema, items):
            self._told.add(schema)
            _warn_of_forbidden(schema, forbidden)
        means = [mean for item in items if (mean := mean_logprob(item)) is not None]
        if not means or not self._calibration.usual_deviation:  # never measured
            return
        least = least_logprob(self._calibration, len(means))
        if fmean(means) < least:
            self._told.add(schema)
            logger.warning(
                "%s: the schema, its template or the language of the documents is far from what "
                "the model was calibrated on: the tokens of its values have a mean "
                "log-probability of %.2f, below %.2f. Check the values; train the model on such "
                "documents, or name another one",
                name,
                fmean(means),
                least,
            )


_OF_TYPES = (
    "%s: the model would rather write what the types of some fields forbid, so do not rely on "
    "their values. The types allow this share of the model's probability: %s. Say in the fields' "
    "descriptions how values are written, or declare the fields as text"
)
# Text types forbid nothing.
_OF_FORMATS = (
    "%s: the model would rather write some texts otherwise than the format %r does, so check "
    "their values. The format allows this share of the model's probability: %s. Show the model "
    "examples of filled outputs, or take another format or template"
)


def _warn_of_forbidden(schema: CompiledSchema, forbidden: dict[str, float]) -> None:
    typed = {attribute.name for attribute in schema.attributes if attribute.is_typed}
    by_types = {name: share for name, share in forbidden.items() if name in typed}
    by_format = {name: share for name, share in forbidden.items() if name not in typed}
    if by_types:
        logger.warning(_OF_TYPES, schema.category, _shown(by_types))
    if by_format:
        logger.warning(_OF_FORMATS, schema.category, schema.format.name, _shown(by_format))


def _shown(shares: dict[str, float]) -> str:
    return ", ".join(f"{name} {share:.0%}" for name, share in shares.items())


def _forbidden(schema: CompiledSchema, items: list[Extraction[Any]]) -> dict[str, float]:
    """The fields whose grammars allow little of what a model would write, with the mean share."""
    legal: dict[str, list[float]] = {}
    # Copied slots forbid most texts, whatever their type.
    specs = zip(schema.attributes, schema.slots, strict=False)
    copied = {attribute.name for attribute, spec in specs if spec.copying is not None}
    for item in items:
        for attribute, slot in zip(schema.attributes, item.slots, strict=True):
            if attribute.name in copied or slot is None:
                continue
            if slot.legal_probability is not None:
                legal.setdefault(attribute.name, []).append(slot.legal_probability)
    shares = {name: fmean(probabilities) for name, probabilities in legal.items()}
    return {name: share for name, share in shares.items() if share < LEAST_LEGAL}
