"""Scores of predictions for annotated examples, given or extracted here."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel

from schemax.attributes import Attribute, compile_attributes
from schemax.attributes.examples import plain_value
from schemax.base.messages import track
from schemax.evaluation.examples import Example, shown_record
from schemax.evaluation.intervals import Counts, count_by_product
from schemax.evaluation.pairs import Outcome, PairScore, count_outcomes, is_null, outcome_of
from schemax.extraction.extractor import Extractor
from schemax.extraction.stated import Label, as_text, named_rows, titles_of
from schemax.results import Extraction
from schemax.results.values import reading_language

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Pair:
    """The outcome of an attribute of a product.

    product: the product's place among the examples. annotated: whether there is a label.
    """

    product: int
    category: str
    attribute: str
    outcome: Outcome
    annotated: bool


@dataclass(frozen=True, slots=True)
class Scores:
    """The outcomes of every attribute of every product.

    products: their number. pairs: all attributes of their categories, labelled or not.

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
        """Scores of pairs grouped by `part`, in order of appearance."""
        found: dict[K, list[Outcome]] = {}
        for pair in self.pairs:
            outcomes = found.setdefault(part(pair), [])
            if strict or pair.annotated:
                outcomes.append(pair.outcome)
        return {key: count_outcomes(outcomes) for key, outcomes in found.items()}

    def counts(self, *, strict: bool = False) -> Counts:
        """(products, 5) counts of each product's pairs by outcome, in the order of `OUTCOMES`."""
        kept = (pair for pair in self.pairs if strict or pair.annotated)
        return count_by_product(((pair.product, pair.outcome) for pair in kept), self.products)


def labelled(
    examples: Sequence[Example],
    predictions: Sequence[Mapping[str, Any]],
    schemas: Mapping[str, type[BaseModel]],
) -> list[dict[str, Any]]:
    """Predictions as texts by attribute, named as in labels, for all attributes of the category.

    A field without a prediction, as of a product that could not be read, gets None. A number, bool
    or date that equals an accepted value takes its spelling: 55.0 becomes "55", true "yes".
    """
    attributes = {category: compile_attributes(schema) for category, schema in schemas.items()}
    titles = {category: titles_of(found) for category, found in attributes.items()}
    texts = []
    for example, row in zip(examples, predictions, strict=True):
        labels, named = example.attributes, titles[example.category]
        written: dict[str, str | None] = {}
        for a in attributes[example.category]:
            value = row.get(a.name)
            if a.fields and value is not None:  # the same form for pairs and lists of models
                value = named_rows(a, plain_value(a, value))
            label = labels.get(a.name, labels.get(named[a.name]))
            written[a.name] = _as_labelled(a, as_text(value), label, example.whole_text)
        texts.append(written)
    return by_attribute(examples, texts, schemas)


def _as_labelled(attribute: Attribute, text: str | None, label: Label, document: str) -> str | None:
    if text is None or attribute.is_list or (value := _value_of(attribute, text)) is None:
        return text
    accepted = label if isinstance(label, tuple) else (label,)
    stated = (one for one in accepted if one is not None and not is_null(one))
    return next((one for one in stated if _value_of(attribute, one, document) == value), text)


def _value_of(attribute: Attribute, text: str, document: str = "") -> Any:
    """The number, bool, date or moment that a text states; None if it states none."""
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
    """Values of fields by attribute, as `labelled` names attributes; None without a value."""
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
