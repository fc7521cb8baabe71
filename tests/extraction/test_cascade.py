"""Cascades: fields that a model is unsure of have the answers of the next model alone."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from dataclasses import replace
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import Any, Literal

import pytest
from conftest import TITLES, slow_but, tiny_model

from schemax import AttrSchema, Extraction, Extractor, ModelError, attr
from schemax.base.calibration import Calibration, FieldPromise, Promise
from schemax.compiler import TextCodec
from schemax.evaluation.calibrate import calibrate
from schemax.io.fingerprint import differences
from schemax.io.task import Task
from schemax.training.fitting import fit

SOME = TITLES[:4]


class Size(AttrSchema):
    width: float | None = attr("Width", k_max=4)
    unit: Literal["inch", "cm"] | None = attr(k_max=4)


class Set(AttrSchema, category="television"):
    """Fields of many kinds."""

    brand: str | None = attr("Manufacturer", k_max=6)
    smart: bool | None = attr(k_max=3)
    resolution: Literal["720p", "4K"] | None = attr(k_max=7)
    ports: list[str] = attr("Connectors", default_factory=list, k_max=8)
    size: Size | None = None
    year: int = attr("Year", default=0, k_max=4)


class Priced(AttrSchema, category="television"):
    """A field that looks at another."""

    brand: str | None = attr("Manufacturer", k_max=6)
    price: float | None = attr(k_max=4)
    currency: str | None = attr(after="price", k_max=4)


@pytest.fixture
def models(codec: TextCodec) -> list[Extractor]:
    """Models that disagree."""
    configs = ({}, {"num_hidden_layers": 1}, {"hidden_size": 48})
    return [
        Extractor(tiny_model(family, codec.vocab_size, **config), codec)
        for family, config in zip(("qwen3", "llama", "llama"), configs, strict=True)
    ]


def in_order(stream: Iterator[Extraction[Any]]) -> list[Extraction[Any]]:
    return sorted(stream, key=lambda item: item.index)


def sureness(item: Extraction[Any], name: str) -> float:
    """What a user compares with the threshold, by the names of the page."""
    field = item.fields[name]
    is_null = field.left_out or str(field.raw).strip() == "null"
    sure = field.null_probability if is_null else field.confidence
    return -1.0 if sure is None or any(e.field == name for e in item.errors) else sure


def usual(items: list[Extraction[Any]]) -> float:
    """Random models are sure of nothing, but surer of some fields than of others."""
    sure = [sureness(item, name) for item in items for name in item.fields]
    return median(sure for sure in sure if sure >= 0)


def holds(first: Extractor, second: Extractor, schema: Any, **options: Any) -> tuple[int, int]:
    """Holds a cascade against its models alone; counts fields kept, and fields asked again."""
    alone = [in_order(each.stream(SOME, schema, **options)) for each in (first, second)]
    least = usual(alone[0])
    both = Extractor.cascade([first, second], confidence=least)
    kept = asked = 0
    items = in_order(both.stream(SOME, schema, **options))
    for small, large, item in zip(*alone, items, strict=True):
        names = [name for name in item.fields if not name[-1].isdigit()]
        places = zip(names, small.slots, large.slots, item.slots, strict=True)
        for name, before, after, slot in places:
            assert slot is not None
            if sureness(small, name) < least:
                asked += 1
                assert after is not None
                assert (slot.raw, slot.finish_reason) == (after.raw, after.finish_reason), name
                assert slot.confidence == pytest.approx(after.confidence, abs=1e-4)
                assert item.fields[name].model == second.name
                assert f"answered by {second.name}" in str(item.fields[name].note)
            else:
                kept += 1
                assert slot == before
                assert item.fields[name].model is None
        assert item.texts == small.texts
    return kept, asked


WAYS: dict[str, dict[str, Any]] = {
    "branched": {},
    "yaml, drawn": {"format": "yaml", "decoding": "isolated:temperature=1.0"},
    "causal": {"decoding": "isolated:layout=gapped:slots=causal"},
}


@pytest.mark.slow
@pytest.mark.parametrize("way", slow_but({"branched", "causal"}, WAYS))
def test_unsure_fields_are_the_next_models_and_all_others_the_first_ones(
    models: list[Extractor], way: str
) -> None:
    kept, asked = holds(models[0], models[1], Set, **WAYS[way])
    assert kept
    assert asked


def test_fields_that_look_at_others_see_the_next_models_values(models: list[Extractor]) -> None:
    kept, asked = holds(models[0], models[1], Priced)
    assert kept
    assert asked


@pytest.mark.slow
def test_three_models(models: list[Extractor]) -> None:
    """The third is asked what both others are unsure of."""
    alone = [in_order(model.stream(TITLES, Set)) for model in models]
    least = usual(alone[0])
    items = in_order(Extractor.cascade(models, confidence=least).stream(TITLES, Set))
    answered = set()
    for item, *rows in zip(items, *alone, strict=True):
        for name, field in item.fields.items():
            ways = [sureness(row, name) < least for row in rows]
            place = next((n for n, unsure in enumerate(ways) if not unsure), len(models) - 1)
            assert field.raw == rows[place].fields[name].raw
            answered.add(place)
    assert answered == {0, 1, 2}


def test_a_model_that_fails_leaves_the_answers_of_others(codec: TextCodec) -> None:
    def model(context: int) -> Extractor:
        config = {"max_position_embeddings": context}
        return Extractor(tiny_model("llama", codec.vocab_size, **config), codec)

    long, short = model(4096), model(64)
    (alone,) = long.stream(TITLES[:1], Set)
    (item,) = Extractor.cascade([short, long], confidence=0).stream(TITLES[:1], Set)
    assert item.value == alone.value
    assert {field.model for field in item.fields.values()} == {long.name}
    (item,) = Extractor.cascade([long, short], confidence=1).stream(TITLES[:1], Set)
    assert item.value == alone.value
    assert {field.model for field in item.fields.values()} == {None}
    (error,) = [error for error in item.errors if error not in alone.errors]
    assert error.field is None
    assert error.message.startswith(f"{short.name}: the document is too long")
    (item,) = Extractor.cascade([short, short], confidence=1).stream(TITLES[:1], Set)
    assert not item.ok
    assert len(item.errors) == 2


@pytest.mark.slow
def test_an_endless_input_is_read_a_little_ahead(models: list[Extractor]) -> None:
    read = count()

    def texts() -> Iterator[str]:
        while True:
            yield f"{TITLES[0]} {next(read)}"

    class Short(AttrSchema):
        smart: bool | None = attr(k_max=3)

    least = usual(list(models[0].stream(islice(texts(), 20), Short)))
    stream = Extractor.cascade(models[:2], confidence=least).stream(texts(), Short)
    answering = {item.fields["smart"].model for item in islice(stream, 300)}
    assert answering == {None, models[1].name}
    assert next(read) < 4000


@pytest.mark.slow
def test_it_travels(saved_model: Path) -> None:
    parts = [Extractor.from_pretrained(saved_model) for _ in range(2)]
    both = Extractor.cascade(parts, confidence=0.7)
    there = pickle.loads(pickle.dumps(both))
    assert there.further.least == both.further.least
    assert there.extract(TITLES[:2], Set) == both.extract(TITLES[:2], Set)


@pytest.mark.slow
def test_what_does_not_fit_is_refused(models: list[Extractor]) -> None:
    for parts in (models[:1], [Extractor.cascade(models[:2], confidence=0.5), models[2]]):
        with pytest.raises(ValueError, match="two extractors or more"):
            Extractor.cascade(parts, confidence=0.5)
    with pytest.raises(ValueError, match="from 0 to 1, not 95"):
        Extractor.cascade(models, confidence=95)
    both = Extractor.cascade(models[:2], confidence=0.5)
    with pytest.raises(ModelError, match="cannot be stacked"):
        both.stream([], Set, decoding="paper")
    with pytest.raises(ValueError, match="calibrate the models of a cascade each by itself"):
        calibrate(both, [], {})
    with pytest.raises(ValueError, match="fit the models of a cascade each by itself"):
        fit(both, [], {})
    models[1].defaults = models[0].defaults.changed(
        None, format="xml", template=None, decoding=None
    )
    with pytest.raises(ModelError, match=r"writes json and .* xml"):
        both.stream([], Set)
    assert both.extract(TITLES[:1], Set, format="json")


def test_a_run_knows_all_of_its_models(models: list[Extractor]) -> None:
    """So that it does not go on with another next model, or with another threshold."""
    task = Task(Set, {}, lambda: models[0], None)

    def changes(after: Extractor) -> list[str]:
        before = Extractor.cascade(models[:2], confidence=0.5)
        return differences(task.model_fingerprint(before), task.model_fingerprint(after))

    assert changes(Extractor.cascade(models[:2], confidence=0.5)) == []
    assert changes(Extractor.cascade(models[:2], confidence=0.7, read_below=0.5)) == [
        "escalate below was 0.5, is 0.7"
    ]
    (changed,) = changes(Extractor.cascade([models[0], models[2]], confidence=0.5))
    assert changed.startswith("next model")


class Words(AttrSchema, category="television"):
    brand: str | None = attr("Manufacturer", k_max=6)
    screen: str | None = attr("Screen", k_max=6)
    kind: Literal["television", "monitor", "projector"] | None = attr(k_max=7)
    color: str | None = attr("Color", k_max=5)


def test_a_promised_precision_decides_on_values(models: list[Extractor]) -> None:
    second, _, first = models
    with pytest.raises(ValueError, match=r"LlamaForCausalLM promises no precision of 0\.9"):
        Extractor.cascade([first, second], precision=0.9)
    with pytest.raises(ValueError, match="either a confidence or a precision"):
        Extractor.cascade([first, second])
    plain = in_order(first.stream(SOME, Words))
    fields = [field for item in plain for field in item.fields.values() if field.value is not None]
    least = median(field.confidence or 0.0 for field in fields)
    share = (0.5, 0.4, 0.6)
    together = FieldPromise(least, False, 100, share, share)
    promise = Promise(0.9, together, {"television": dict.fromkeys(Words.model_fields, together)})
    first.defaults = replace(first.defaults, calibration=Calibration(promise=promise))
    both = Extractor.cascade([first, second], precision=0.9)
    models_of_values = []
    for before, item in zip(plain, in_order(both.stream(SOME, Words)), strict=True):
        for name, field in before.fields.items():
            is_null = str(field.raw).strip() == "null"
            sure = field.null_probability if is_null else field.confidence
            is_faulty = any(error.field == name for error in before.errors)
            asks = is_faulty or sure is None or sure < (0.9 if is_null else least)
            assert item.fields[name].model == (second.name if asks else None), name
            if not is_null:
                models_of_values.append(item.fields[name].model)
    assert {None, second.name} == set(models_of_values)


@pytest.mark.slow
def test_documents_are_read_again_below_a_mark_of_their_own(models: list[Extractor]) -> None:
    first, second, _ = models
    plain, later = (in_order(each.stream(SOME, Words)) for each in (first, second))
    least = usual(plain)
    names = [name for name in plain[0].fields if not name[-1].isdigit()]
    lowest = [min(sureness(item, name) for name in names) for item in plain]
    mark = median(lowest)
    assert mark < least
    both = Extractor.cascade([first, second], confidence=least, read_below=mark)
    for low, before, after, item in zip(
        lowest, plain, later, in_order(both.stream(SOME, Words)), strict=True
    ):
        for name in names:
            asks = sureness(before, name) < least and (low < mark or not before.ok)
            answer = (after if asks else before).fields[name]
            assert item.fields[name].raw == answer.raw
            assert item.fields[name].model == (second.name if asks else None), name
    with pytest.raises(ValueError, match=r"read_below must be from 0 to 0\.5, .* not 0\.6"):
        Extractor.cascade([first, second], confidence=0.5, read_below=0.6)
