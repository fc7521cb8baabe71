"""Calibrates a model on annotated documents: extracts values, and fits their confidences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import asdict, dataclass, replace
from math import log
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from pydantic import BaseModel

from schemax.attributes import compile_attributes, settings_of
from schemax.attributes.examples import FewShotExamples
from schemax.base.calibration import LEAST, Calibration, FieldPromise, Promise, logit, per_item
from schemax.base.messages import counted
from schemax.config import DecodingConfig
from schemax.errors import InputError
from schemax.evaluation.datasets import Dataset, dataset
from schemax.evaluation.examples import Example, read_examples
from schemax.evaluation.labelled_schemas import note_misfits
from schemax.evaluation.precision import Bools, choose_thresholds, share_of
from schemax.evaluation.reliability import VALUES, Reliability, reliability
from schemax.evaluation.scores import (
    Counts,
    Outcome,
    by_attribute,
    count_by_product,
    difference_interval,
    extractions_of,
    f1_of,
    labelled_texts,
    outcome_of,
    score_predictions,
    values_of,
)
from schemax.evaluation.seen import unseen_examples
from schemax.evaluation.shots import Shots, shots_for, with_prompts
from schemax.extraction.extractor import Extractor
from schemax.extraction.familiarity import mean_logprob
from schemax.extraction.readout import optional_fields
from schemax.extraction.stated import titles_of
from schemax.results import FieldResult

if TYPE_CHECKING:
    from torch import Tensor

THRESHOLDS = tuple(step / 20 for step in range(20))
FEWEST = 100
"""The fewest annotated pairs for a fit."""
# Bounds of the slope; a steeper or flatter slope is a sign of too little data.
_SLOPES = (0.05, 20.0)
# The least spread of confidences that rank values.
_LEAST_SPREAD = 0.05
_FOLDS = 5


class FitEntry(NamedTuple):
    """An attribute of a product, as a model wrote it.

    product: the product's place.
    outcome: of the written value.
    without: of null in its place.
    confidence: raw; None without a value.
    probability: None without a value, and for an attribute that requires a value.
    category, attribute: as they are annotated.
    """

    product: int
    annotated: bool
    outcome: Outcome
    without: Outcome
    confidence: float | None
    probability: float | None
    category: str = ""
    attribute: str = ""


@dataclass(frozen=True, slots=True)
class Threshold:
    """F1 and strict F1 without values that are less probable than a threshold.

    alike: True if F1 does not differ significantly from the best threshold's.
    """

    min_probability: float
    f1: float
    strict_f1: float
    alike: bool


@dataclass(frozen=True, slots=True)
class Fit:
    """A calibration, and the data of its fit.

    before, after: reliability of raw and of calibrated confidences.
    spread: the range of 90 % of the calibrated confidences.
    losses: the log losses of an earlier calibration and of a new one, of which the better is taken;
        None without an earlier one.
    examples, entries: the documents of the fit, and what the model wrote, with raw confidences.
    """

    calibration: Calibration
    products: int
    before: Reliability
    after: Reliability
    curve: tuple[Threshold, ...]
    spread: tuple[float, float] = (0.0, 1.0)
    losses: tuple[float, float] | None = None
    examples: Sequence[Example] = ()
    entries: Sequence[FitEntry] = ()

    @property
    def is_earlier(self) -> bool:
        """True if the calibration is the earlier one."""
        return self.losses is not None and self.losses[0] <= self.losses[1]

    def __str__(self) -> str:
        calibration, values = self.calibration, counted(self.before.values, "value")
        return (
            f"temperature {calibration.temperature:.3f}, bias {calibration.bias:+.3f}, "
            f"min_probability {calibration.min_probability:.3f}, "
            f"{'measured' if self.is_earlier else 'fitted'} on {values} of "
            f"{counted(self.products, 'document')} (ECE {self.before.ece:.3f} -> "
            f"{self.after.ece:.3f})"
        )

    @property
    def remark(self) -> str | None:
        """The reason why confidences are of little use; None if they are useful."""
        low, high = self.spread
        if 1 / self.calibration.temperature <= _SLOPES[0] * 1.001:
            return (
                f"the temperature is at its bound, {1 / _SLOPES[0]:g}: the model's own confidences "
                "do not tell right values from wrong ones, and calibrated ones are all about "
                f"{(low + high) / 2:.2f}"
            )
        if high - low < _LEAST_SPREAD:
            return (
                f"calibrated confidences are nearly constant ({low:.3f} to {high:.3f}): they say "
                "how often values are right, and hardly which"
            )
        return None


def entries_of(
    examples: Sequence[Example],
    fields: Sequence[Mapping[str, FieldResult | None]],
    predictions: Sequence[Mapping[str, str | None]],
) -> list[FitEntry]:
    """Returns an entry per attribute and product.

    fields, predictions: per product, by attribute, as fields and as texts.
    """
    entries = []
    for pair in score_predictions(examples, predictions).pairs:
        field = fields[pair.product].get(pair.attribute)
        known = field if pair.outcome in VALUES else None
        optional = known is not None and known.null_probability is not None
        entries.append(
            FitEntry(
                **asdict(pair),
                without=outcome_of(examples[pair.product].attributes.get(pair.attribute), None),
                confidence=None if known is None else known.confidence,
                probability=_compared_probability(known) if known and optional else None,
            )
        )
    return entries


def _compared_probability(field: FieldResult) -> float | None:
    """Returns the probability that thresholds are compared with, or None."""
    is_list = isinstance(field.value, list | tuple | set | frozenset)
    if field.probability is None or not is_list:
        return field.probability
    return per_item(field.probability, len(field.value))


def fit_calibration(entries: Sequence[FitEntry], earlier: Calibration | None = None) -> Fit:
    """Fits a calibration to entries of one or several runs on the same products.

    earlier: is kept if its log loss on the entries is no higher than that of a new one.

    Raises InputError if nothing is annotated, or no annotated value has a confidence.
    """
    if not any(entry.annotated for entry in entries):
        raise InputError("no attribute of the schemas is annotated, so nothing can be calibrated")
    pairs = [
        (entry.confidence, entry.outcome == "vc")
        for entry in entries
        if entry.annotated and entry.confidence is not None
    ]
    sure, right = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    before = reliability(sure, right)
    if before is None:
        raise InputError(
            "the model wrote no value with a confidence for any annotated attribute, so nothing "
            "can be calibrated"
        )
    temperature, bias = fit_confidence(sure, right)
    curve = threshold_curve(entries)
    calibration = Calibration(temperature, bias, pick_threshold(curve))
    losses = None if earlier is None else _log_losses(earlier, entries)
    if earlier is not None and losses is not None and losses[0] <= losses[1]:
        calibration = earlier
    calibrated = [calibration.confidence(confidence) for confidence in sure]
    after = reliability(calibrated, right)
    assert after is not None
    products = len({entry.product for entry in entries})
    low, high = np.quantile(calibrated, [0.05, 0.95]).tolist()
    return Fit(calibration, products, before, after, curve, (low, high), losses)


def _log_losses(earlier: Calibration, entries: Sequence[FitEntry]) -> tuple[float, float]:
    """Returns the mean log losses of an earlier calibration and of a new one.

    The new one is fitted on four fifths of the products and measured on the rest, five times: on
    its own data its loss would be too low.
    """
    losses: tuple[list[float], list[float]] = [], []
    pairs = [
        (entry.product % _FOLDS, entry.confidence, entry.outcome == "vc")
        for entry in entries
        if entry.annotated and entry.confidence is not None
    ]
    for fold in range(_FOLDS):
        rest = [(raw, is_right) for part, raw, is_right in pairs if part != fold]
        new = Calibration(*fit_confidence([raw for raw, _ in rest], [right for _, right in rest]))
        for part, raw, is_right in pairs:
            for own, calibration in zip(losses, (earlier, new), strict=True):
                if part == fold:
                    sure = calibration.confidence(raw)
                    own.append(-log(max(LEAST, sure if is_right else 1 - sure)))
    return fmean(losses[0]), fmean(losses[1])


def fit_confidence(confidences: Sequence[float], right: Sequence[bool]) -> tuple[float, float]:
    """Returns the temperature and bias of least log loss, as in Platt's paper.

    A penalty of about one value's weight draws them to 1 and 0 if values are few, or all right.
    The slope, 1 / temperature, stays from 0.05 to 20.
    """
    import torch  # here, since it takes seconds

    x = torch.tensor([logit(confidence) for confidence in confidences], dtype=torch.float64)
    y = torch.tensor(right, dtype=torch.float64)
    slope, bias = _least_loss(x, y, None)
    if not _SLOPES[0] <= slope <= _SLOPES[1]:
        # The loss is convex, so its minimum within bounds is on the bound that was crossed.
        slope, bias = _least_loss(x, y, min(max(slope, _SLOPES[0]), _SLOPES[1]))
    return round(1 / slope, 4), round(bias, 4)


def _least_loss(x: Tensor, y: Tensor, slope: float | None) -> tuple[float, float]:
    """Returns (slope, bias) of least log loss. slope: fixed, or None to fit it."""
    import torch
    from torch.nn.functional import binary_cross_entropy_with_logits

    parameters = torch.tensor([1.0 if slope is None else slope, 0.0], dtype=torch.float64)
    free = torch.tensor([float(slope is None), 1.0], dtype=torch.float64)
    parameters.requires_grad_()
    optimizer = torch.optim.LBFGS([parameters], max_iter=500, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        logits = parameters[0] * x + parameters[1]
        value = binary_cross_entropy_with_logits(logits, y, reduction="sum")
        value = value + ((parameters[0] - 1) ** 2 + parameters[1] ** 2) / 2
        value.backward()  # type: ignore[no-untyped-call]
        parameters.grad = None if parameters.grad is None else parameters.grad * free
        return value

    with torch.enable_grad():
        optimizer.step(loss)  # type: ignore[no-untyped-call]
    slope, bias = parameters.tolist()
    return slope, bias


def threshold_curve(entries: Sequence[FitEntry]) -> tuple[Threshold, ...]:
    """F1 at every threshold of a grid, each compared with the best.

    A threshold is alike if the 95 % interval of the difference (a paired bootstrap over products)
    holds 0.
    """
    protocol = [_counts(entries, least, strict=False) for least in THRESHOLDS]
    strict = [_counts(entries, least, strict=True) for least in THRESHOLDS]
    f1 = [float(f1_of(counts.sum(axis=0))) for counts in protocol]
    best = protocol[int(np.argmax(f1))]
    return tuple(
        Threshold(
            min_probability=least,
            f1=score,
            strict_f1=float(f1_of(all_counts.sum(axis=0))),
            alike=difference_interval(best, counts).high >= 0,
        )
        for least, score, counts, all_counts in zip(THRESHOLDS, f1, protocol, strict, strict=True)
    )


def pick_threshold(curve: Sequence[Threshold]) -> float:
    """Returns the middle of the thresholds that equal the best threshold; 0 if 0 equals it.

    For calibrated probabilities, the best threshold is half of the best F1 (Lipton, Elkan and
    Naryanaswamy, Optimal Thresholding of Classifiers to Maximize F1 Measure, 2014).
    """
    alike = [point.min_probability for point in curve if point.alike]
    return 0.0 if alike[0] == 0 else round((alike[0] + alike[-1]) / 2, 4)


def _counts(entries: Sequence[FitEntry], least: float, *, strict: bool) -> Counts:
    """Returns (products, 5) counts, as `Scores.counts`, of values of at least this probability."""

    def kept(entry: FitEntry) -> bool:
        return entry.probability is None or entry.probability >= least

    scored = [entry for entry in entries if strict or entry.annotated]
    outcomes = ((e.product, e.outcome if kept(e) else e.without) for e in scored)
    return count_by_product(outcomes, max(entry.product for entry in entries) + 1)


def calibrate(
    extractor: Extractor,
    examples: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    formats: Sequence[str | None] = (None,),
    *,
    decoding: DecodingConfig | None = None,
    shots: FewShotExamples | None = None,
    earlier: Calibration | None = None,
    precision: float | None = None,
    show_progress: bool = False,
    **settings: Any,
) -> Fit:
    """Fits one calibration for all formats together.

    examples: products that the model was not trained on.
    shots: the examples that prompts show.
    earlier: a calibration that is kept if it is better.
    precision: is promised of the values kept, in the place of a `min_probability`.
    settings: further arguments of `Extractor.stream`.

    Raises InputError for products without an annotation, for a model that writes no value with a
    confidence, as in the autoregressive layout, and for a precision that keeps no value; ValueError
    for a cascade, whose models each have confidences of their own.
    """
    if extractor.further is not None:
        raise ValueError("calibrate the models of a cascade each by itself, before they are joined")
    raw = copy(extractor)
    raw.defaults = replace(extractor.defaults, calibration=Calibration())
    config = replace(decoding or extractor.defaults.decoding, min_probability=0.0)
    settings |= {"examples": shots, "show_progress": show_progress, "decoding": config}
    entries: list[FitEntry] = []
    logprobs: list[float] = []
    for format in formats:
        items = extractions_of(raw, examples, schemas, **settings, format=format)
        logprobs += [logprob for item in items if (logprob := mean_logprob(item)) is not None]
        fields = by_attribute(examples, [item.fields for item in items], schemas)
        texts = labelled_texts(examples, list(map(values_of, items)), schemas)
        entries += entries_of(examples, fields, texts)
    fit = replace(fit_calibration(entries, earlier), examples=examples, entries=entries)
    calibration = fit.calibration
    if not fit.is_earlier:
        usual, deviation = round(fmean(logprobs), 4), round(pstdev(logprobs), 4)
        calibration = replace(calibration, usual_logprob=usual, usual_deviation=deviation)
    if precision is not None:
        promise = promise_of(entries, schemas, calibration, precision)
        calibration = replace(calibration, min_probability=0.0, promise=promise)
    return replace(fit, calibration=calibration)


def promise_of(
    entries: Sequence[FitEntry],
    schemas: Mapping[str, type[BaseModel]],
    calibration: Calibration,
    precision: float,
) -> Promise:
    """Returns thresholds that promise a precision, with what they keep of the labelled values.

    Fields that require a value are left aside: they keep each of theirs.

    Raises InputError if the thresholds keep nothing.
    """
    named: dict[tuple[str, str], tuple[str, str]] = {}
    for category, schema in schemas.items():
        attributes = compile_attributes(schema)
        labels, called = titles_of(attributes), settings_of(schema).category
        for a, is_optional in zip(attributes, optional_fields(schema, attributes), strict=True):
            if is_optional:
                named[category, a.name] = named[category, labels[a.name]] = called, a.name
    values = [
        (calibration.confidence(entry.confidence), entry.outcome == "vc", entry.product, name)
        for entry in entries
        if entry.annotated and entry.confidence is not None
        if (name := named.get((entry.category, entry.attribute))) is not None
    ]
    if not values:
        raise InputError("all annotated fields require a value, so no precision can be promised")
    sure, right, products, names = zip(*values, strict=True)
    shared, by_field = choose_thresholds(sure, right, products, precision, names)
    default = np.inf if shared is None else shared
    is_kept = np.array(sure) >= [by_field.get(name, default) for name in names]
    is_right, documents = np.array(right), np.array(products)

    def kept(chosen: Bools, threshold: float | None, *, by_itself: bool) -> FieldPromise:
        coverage = share_of(is_kept[chosen], documents[chosen])
        inside = chosen & is_kept
        hits = share_of(is_right[inside], documents[inside]) if inside.any() else None
        return FieldPromise(threshold, by_itself, int(chosen.sum()), coverage, hits)

    if not is_kept.any():
        best = np.argsort(np.negative(sure))[: -(-len(sure) // 5)]
        share, low, high = share_of(is_right[best], documents[best])
        raise InputError(
            f"no threshold proves a precision of {precision:g}: of the {len(best)} most confident "
            f"of {counted(len(sure), 'value')}, {share:.3f} are right ({low:.3f} to {high:.3f}). "
            "A promise for all thresholds that are tried needs more proof than such an interval: "
            "ask for a lower precision, or label more documents"
        )
    fields: dict[str, dict[str, FieldPromise]] = {}
    for name in dict.fromkeys(names):
        own = np.array([at == name for at in names])
        known = kept(own, by_field.get(name, shared), by_itself=name in by_field)
        fields.setdefault(name[0], {})[name[1]] = known
    together = kept(np.full(len(sure), True), shared, by_itself=True)
    return Promise(precision, together, fields)


def calibrate_on(
    data: Dataset,
    load: Callable[[], Extractor],
    formats: Sequence[str | None],
    *,
    limit: int | None = None,
    schema_examples: bool | None = None,
    shots: Path | None = None,
    count: int | None = None,
    decoding: DecodingConfig | None = None,
    **settings: Any,
) -> Fit:
    """Calibrates a model on annotated documents, with progress on stderr.

    shots: a file of examples; prompts show the first `count`.
    schema_examples: see `Dataset.as_shown`.
    settings: further arguments of `calibrate`.
    """
    everything = read_examples(data.file)
    examples = everything[:limit]
    extractor = load()
    if (decoding or extractor.defaults.decoding).layout == "autoregressive":
        raise InputError("values of the autoregressive layout have no confidence to calibrate")
    examples = unseen_examples(extractor, examples, data.file)
    schemas, examples = data.prepared(examples, [extractor])
    note_misfits(examples, schemas)
    extractor = with_prompts(extractor, schemas, examples, data)
    schemas = data.as_shown(schemas, examples, extractor, schema_examples)
    pairs = None
    if shots is not None:
        texts = {example.text for example in everything}
        shown = Shots.read(shots, schemas)
        pairs = shots_for(shown, schemas, data, hidden=texts, count=count).of(schemas)
    return calibrate(
        extractor,
        examples,
        schemas,
        formats,
        decoding=decoding,
        shots=pairs,
        show_progress=True,
        **settings,
    )


def calibrated(
    extractor: Extractor,
    labels: str | Path,
    *,
    precision: float | None = None,
    schemas: str | None = None,
    formats: Sequence[str | None] = (None,),
) -> Extractor:
    """Returns an extractor over the same model whose confidences are fitted to annotated documents.

    labels: a file or folder as of `schemax calibrate`; the model was not trained on it.
    precision: values whose confidence is below a threshold become null, so that of the values kept
        at least this share is right, in 95 of 100 calibrations (docs/evaluate.md).
    schemas: their file or name; None takes those of the labels or of the model's training.
    formats: those that the extractor is used with.

    Raises InputError for labels that cannot be used, and for a precision that no threshold proves;
    ValueError for a cascade.
    """
    data = dataset(Path(labels), "train", schemas)
    fit = calibrate_on(data, lambda: extractor, formats, precision=precision)
    return extractor.with_prompt(replace(extractor.defaults.prompt, calibration=fit.calibration))
