"""Documents that a model was not calibrated on are warned of, once, and others are not."""

from __future__ import annotations

import logging
from math import exp
from statistics import mean
from weakref import WeakSet

import pytest

from recipes.embedded.familiarity import shoes
from schemax import AttrSchema, Extractor, load_schema
from schemax.base.calibration import Calibration
from schemax.base.resources import resource_dir
from schemax.compiler import CompiledSchema, compile_schema
from schemax.extraction.familiarity import DOCUMENTS, Familiarity, least_logprob, mean_logprob
from schemax.results import Extraction, SlotText

USUAL = Calibration(usual_logprob=-0.1, usual_deviation=0.1)


class Tea(AttrSchema):
    brand: str | None = None


class Priced(AttrSchema):
    brand: str | None = None
    colors: list[str]
    price: float | None = None


@pytest.fixture(scope="module")
def embedded() -> Extractor:
    return Extractor.from_pretrained(resource_dir("embedded"), device="cpu")


@pytest.fixture(scope="module")
def tea(embedded: Extractor) -> CompiledSchema:
    return compile_schema(Tea, embedded.tokenizer)


def written(*logprobs: float) -> Extraction[Tea]:
    """A document with a slot of two tokens for every log-probability, the mean of both."""
    slots = tuple(SlotText("x", "stop", 2, True, probability=exp(2 * x)) for x in logprobs)
    return Extraction(Tea(), 0, None, slots=slots)


def test_the_mean_over_slots() -> None:
    assert mean_logprob(written(-0.5, -0.25)) == pytest.approx(-0.375)
    assert mean_logprob(written(-0.5, -1.5)) == pytest.approx(-0.75)  # of a slot at least -1
    assert mean_logprob(written()) is None
    lost = SlotText("x", "length", 4000, False, probability=0.0)
    assert mean_logprob(Extraction(None, 0, None, slots=(None, lost))) == pytest.approx(-0.17, 0.1)


@pytest.mark.parametrize(("documents", "least"), [(1, -0.4), (9, -0.2)])
def test_fewer_documents_must_be_less_usual(documents: int, least: float) -> None:
    assert least_logprob(USUAL, documents) == pytest.approx(least)


@pytest.mark.parametrize(
    ("logprobs", "calibration", "warned"),
    [
        ([-0.39], USUAL, False),
        ([-0.41], USUAL, True),
        ([-0.41, -0.1], USUAL, False),
        ([-0.3] * 10, USUAL, True),
        ([-0.1] * 10 + [-9] * 90, USUAL, False),
        ([-9] * 10, Calibration(), False),
    ],
)
def test_the_first_documents_of_a_schema_decide(
    tea: CompiledSchema,
    caplog: pytest.LogCaptureFixture,
    logprobs: list[float],
    calibration: Calibration,
    warned: bool,
) -> None:
    told: WeakSet[CompiledSchema] = WeakSet()
    for _ in range(2):
        run = Familiarity(calibration, told)
        for logprob in logprobs:
            run.saw(tea, written(logprob))
        if len(logprobs) < DOCUMENTS:
            assert len(caplog.records) == len(told)
            run.end()
        run.end()
    assert len(caplog.records) == warned
    assert all(record.levelno == logging.WARNING for record in caplog.records)


@pytest.mark.parametrize(("legal", "warned"), [([0.9, 0.2], False), ([0.6, 0.3], True)])
def test_what_a_type_forbids_is_warned_of(
    tea: CompiledSchema, caplog: pytest.LogCaptureFixture, legal: list[float], warned: bool
) -> None:
    """Also of a model that was never measured."""
    told: WeakSet[CompiledSchema] = WeakSet()
    for _ in range(2):
        run = Familiarity(Calibration(), told)
        for share in legal:
            slot = SlotText("x", "stop", 2, True, probability=0.9, legal_probability=share)
            run.saw(tea, Extraction(Tea(), 0, None, slots=(slot,)))
        run.end()
    assert ["brand 45%" in message for message in caplog.messages] == [True] * warned


def test_texts_are_not_to_be_declared_as_text(
    embedded: Extractor, caplog: pytest.LogCaptureFixture
) -> None:
    schema = compile_schema(Priced, embedded.tokenizer)
    run = Familiarity(Calibration(), WeakSet())
    slot = SlotText("x", "stop", 2, True, probability=0.9, legal_probability=0.25)
    run.saw(schema, Extraction(None, 0, None, slots=(slot,) * 3))
    run.end()
    of_types, of_format = caplog.messages
    assert "price 25%. " in of_types
    assert "as text" in of_types
    assert "brand 25%, colors 25%. " in of_format
    assert "'json'" in of_format
    assert "as text" not in of_format


@pytest.mark.slow
def test_a_language_that_the_embedded_model_does_not_know(
    embedded: Extractor, caplog: pytest.LogCaptureFixture
) -> None:
    found, said = {}, {}
    for language in ("en", "de", "zh", "ru"):
        schema = load_schema("shoes")  # a new class, so nothing was said of it
        items = [item for _ in range(2) for item in embedded.stream(shoes(language)[:4], schema)]
        found[language] = mean(mean_logprob(item) or 0 for item in items)
        said[language] = list(caplog.messages)
        caplog.clear()
    assert min(found["en"], found["de"]) > max(found["zh"], found["ru"])
    assert not said["en"]
    for language in ("zh", "ru"):
        assert any("the language of the documents is far" in text for text in said[language])
