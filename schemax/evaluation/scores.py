"""Exact-match scores of predictions: outcomes of attribute-value pairs, F1 and its intervals.

Outcomes follow the protocol of ExtractGPT (Brinkmann et al., 2024), as the HPD paper does: every
annotated (product, attribute) pair is one of NN (both null), NV (target null), VN (prediction
null), VC (exact match) and VW (another value); P = VC / (NV + VC + VW), R = VC / (VN + VC + VW).

Intervals are bootstrap intervals over products: products are drawn with replacement, with all their
pairs, since the pairs of a product depend on each other. An interval is the middle 95 % of the F1s
of all draws (the percentile bootstrap; Efron and Tibshirani, An Introduction to the Bootstrap,
1993).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from schemax.attributes import Attribute, compile_attributes
from schemax.attributes.examples import plain_value
from schemax.base.messages import track
from schemax.evaluation.examples import Example, shown_record
from schemax.extraction.extractor import Extractor
from schemax.extraction.stated import Label, as_text, named_rows, titles_of
from schemax.results import Extraction
from schemax.results.values import reading_language

Outcome = Literal["nn", "nv", "vn", "vc", "vw"]
OUTCOMES: tuple[Outcome, ...] = get_args(Outcome)

_NULLS = {"", "n/a", "none", "null"}


@dataclass(frozen=True, slots=True)
class PairScore:
    """Counts of pairs by outcome, with precision, recall and F1."""

    nn: int = 0
    nv: int = 0
    vn: int = 0
    vc: int = 0
    vw: int = 0

    @property
    def precision(self) -> float:
        """The share of predicted values that are right."""
        return self.vc / max(1, self.nv + self.vc + self.vw)

    @property
    def recall(self) -> float:
        """The share of stated values that were found."""
        return self.vc / max(1, self.vn + self.vc + self.vw)

    @property
    def f1(self) -> float:
        """The harmonic mean of precision and recall; 0 if no value is stated or predicted."""
        # 2PR / (P + R) in one division.
        return 2 * self.vc / max(1, self.nv + self.vn + 2 * (self.vc + self.vw))

    @property
    def defined(self) -> bool:
        """True if any value is stated or predicted; otherwise F1 means nothing."""
        return bool(self.nv or self.vn or self.vc or self.vw)


def outcome_of(label: str | None | tuple[str | None, ...], prediction: str | None) -> Outcome:
    """Returns the outcome of a prediction. label: a value, None, or several accepted values.

    A prediction that equals any accepted value is right. All spellings of null are equal. If both
    values and null are accepted, the first of them decides whether the label is null.
    """
    accepted = label if isinstance(label, tuple) else (label,)
    if is_null(prediction):
        return "nn" if any(map(is_null, accepted)) else "vn"
    if prediction in accepted:
        return "vc"
    return "nv" if is_null(accepted[0]) else "vw"


def is_null(value: str | None) -> bool:
    """Returns True for None, "", "n/a", "none" and "null"."""
    return value is None or value.strip().lower() in _NULLS


def count_outcomes(outcomes: Iterable[Outcome]) -> PairScore:
    """Counts outcomes; the scores of the counts are micro averages."""
    counts = Counter(outcomes)
    return PairScore(*(counts[name] for name in OUTCOMES))


def mean_f1(scores: Iterable[PairScore]) -> float:
    """Returns macro F1: the mean over defined scores; 0 if no score is defined."""
    defined = [score.f1 for score in scores if score.defined]
    return sum(defined) / len(defined) if defined else 0.0


RESAMPLES = 1_000
LEVEL = 0.95

Counts = npt.NDArray[np.int64]


class Interval(NamedTuple):
    """A 95 % interval."""

    low: float
    high: float


def count_by_product(outcomes: Iterable[tuple[int, Outcome]], products: int) -> Counts:
    """(product, outcome) of pairs -> (products, 5) counts of each product's outcomes."""
    counts = np.zeros((products, len(OUTCOMES)), np.int64)
    for product, outcome in outcomes:
        counts[product, OUTCOMES.index(outcome)] += 1
    return counts


def f1_of(counts: Counts) -> npt.NDArray[np.float64]:
    """Returns (...) F1 of (..., 5) counts, in the order of `OUTCOMES`; 0 if undefined."""
    _, nv, vn, vc, vw = np.moveaxis(counts, -1, 0)
    # 2PR / (P + R) in one division, as in `PairScore.f1`.
    return np.asarray(2 * vc / np.maximum(1, nv + vn + 2 * (vc + vw)), np.float64)


def f1_interval(counts: Counts) -> Interval:
    """Returns the interval of F1. counts: (products, 5), as of `Scores.counts`."""
    return _middle(f1_of(resampled_counts(counts)))


def difference_interval(first: Counts, second: Counts) -> Interval:
    """Returns the interval of F1(second) - F1(first), both (products, 5) on the same products.

    Each draw has the same products for both, so that products that are hard for both cancel out.
    """
    drawn = resampled_counts(np.concatenate((first, second), axis=1))
    ours, theirs = drawn[:, : len(OUTCOMES)], drawn[:, len(OUTCOMES) :]
    return _middle(f1_of(theirs) - f1_of(ours))


def share_interval(parts: Sequence[int], wholes: Sequence[int]) -> Interval:
    """Returns the interval of sum(parts) / sum(wholes), both counted by product."""
    drawn = resampled_counts(np.stack((parts, wholes), axis=1).astype(np.int64))
    return _middle(drawn[:, 0] / np.maximum(1, drawn[:, 1]))


def resampled_counts(counts: Counts) -> Counts:
    """(products, columns) -> (RESAMPLES, columns): sums over products drawn with replacement."""
    # Drawing distinct rows by their shares equals drawing products, and is cheap.
    distinct, sizes = np.unique(counts, axis=0, return_counts=True)
    generator = np.random.default_rng(0)
    weights = generator.multinomial(len(counts), sizes / len(counts), size=RESAMPLES)
    return np.asarray(weights @ distinct, np.int64)


def _middle(values: npt.NDArray[np.float64]) -> Interval:
    tail = 50 * (1 - LEVEL)
    low, high = np.percentile(values, [tail, 100 - tail])
    return Interval(float(low), float(high))


K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Pair:
    """The outcome of an attribute of a product.

    product: the product's place among the examples.
    annotated: whether there is a label.
    """

    product: int
    category: str
    attribute: str
    outcome: Outcome
    annotated: bool


@dataclass(frozen=True, slots=True)
class Scores:
    """The outcomes of every attribute of every product.

    products: the number of products.
    pairs: all attributes of their categories, labelled or not.

    The protocol counts annotated pairs only; the strict variant counts all pairs, with null for a
    missing label.
    """

    products: int
    pairs: tuple[Pair, ...]

    @property
    def protocol(self) -> PairScore:
        """The score over all categories, by the protocol of ExtractGPT."""
        return count_outcomes(pair.outcome for pair in self.pairs if pair.annotated)

    @property
    def strict(self) -> PairScore:
        """The score over all categories, with null for a missing label."""
        return count_outcomes(pair.outcome for pair in self.pairs)

    @property
    def by_category(self) -> dict[str, PairScore]:
        """Scores by category, by the protocol, in order of appearance."""
        return self.by_part(lambda pair: pair.category)

    @property
    def by_attribute(self) -> dict[tuple[str, str], PairScore]:
        """Scores by (category, attribute), by the protocol."""
        return self.by_part(lambda pair: (pair.category, pair.attribute))

    def by_part(self, part: Callable[[Pair], K], *, strict: bool = False) -> dict[K, PairScore]:
        """Returns scores of pairs grouped by `part`, in order of appearance."""
        groups: dict[K, list[Outcome]] = {}
        for pair in self.pairs:
            outcomes = groups.setdefault(part(pair), [])
            if strict or pair.annotated:
                outcomes.append(pair.outcome)
        return {key: count_outcomes(outcomes) for key, outcomes in groups.items()}

    def counts(self, *, strict: bool = False) -> Counts:
        """Returns (products, 5) counts of pairs by outcome, in the order of `OUTCOMES`."""
        kept = (pair for pair in self.pairs if strict or pair.annotated)
        return count_by_product(((pair.product, pair.outcome) for pair in kept), self.products)


def labelled_texts(
    examples: Sequence[Example],
    predictions: Sequence[Mapping[str, Any]],
    schemas: Mapping[str, type[BaseModel]],
) -> list[dict[str, Any]]:
    """Returns predictions as texts by attribute, named as in labels, for all attributes.

    A field without a prediction is None. A number, bool or date that equals an accepted value gets
    the value's spelling: 55.0 becomes "55", true "yes".
    """
    attributes = {category: compile_attributes(schema) for category, schema in schemas.items()}
    titles = {category: titles_of(fields) for category, fields in attributes.items()}
    texts = []
    for example, row in zip(examples, predictions, strict=True):
        labels, named = example.attributes, titles[example.category]
        written: dict[str, str | None] = {}
        for a in attributes[example.category]:
            value = row.get(a.name)
            # Pairs and lists of models get the same form; a text has it already.
            if a.fields and value is not None and not isinstance(value, str):
                value = named_rows(a, plain_value(a, value))
            label = labels.get(a.name, labels.get(named[a.name]))
            written[a.name] = _as_labelled(a, as_text(value), label, example.whole_text)
        texts.append(written)
    return by_attribute(examples, texts, schemas)


def _as_labelled(attribute: Attribute, text: str | None, label: Label, document: str) -> str | None:
    if text is None or attribute.is_list or (value := _value_of(attribute, text)) is None:
        return text
    accepted = label if isinstance(label, tuple) else (label,)
    stated = (spelling for spelling in accepted if spelling is not None and not is_null(spelling))
    return next(
        (spelling for spelling in stated if _value_of(attribute, spelling, document) == value), text
    )


def _value_of(attribute: Attribute, text: str, document: str = "") -> Any:
    """Returns the number, bool, date or moment that a text states; None if it states none."""
    if attribute.scalar is None:
        return None
    try:
        language = reading_language(attribute, text, [document])
        return attribute.scalar.compared(
            attribute.scalar.read(text, attribute.unit, language).value
        )
    except (ValueError, ArithmeticError):
        return None


def by_attribute(
    examples: Sequence[Example],
    rows: Sequence[Mapping[str, V]],
    schemas: Mapping[str, type[BaseModel]],
) -> list[dict[str, V | None]]:
    """Returns values by attribute, named as by `labelled_texts`; None without a value."""
    names = {category: titles_of(compile_attributes(s)) for category, s in schemas.items()}
    return [
        {
            name if name in example.attributes else label: row.get(name)
            for name, label in names[example.category].items()
        }
        for example, row in zip(examples, rows, strict=True)
    ]


def score_predictions(
    examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]
) -> Scores:
    """Scores predictions: attribute -> value or None, one per example, with all attributes."""
    pairs = (
        Pair(
            product=place,
            category=example.category,
            attribute=name,
            outcome=outcome_of(example.attributes.get(name), predicted.get(name)),
            annotated=name in example.attributes,
        )
        for place, (example, predicted) in enumerate(zip(examples, predictions, strict=True))
        for name in dict.fromkeys((*predicted, *example.attributes))
    )
    return Scores(len(examples), tuple(pairs))


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
    """Returns values by field, from extractions that each hold a part of a document's fields."""
    return {name: field.value for item in items for name, field in item.fields.items()}


def scores_of(
    examples: Sequence[Example],
    items: Sequence[Extraction[Any]],
    schemas: Mapping[str, type[BaseModel]],
) -> Scores:
    """Scores extractions against the labels of their examples."""
    values = [values_of(item) for item in items]
    return score_predictions(examples, labelled_texts(examples, values, schemas))
