"""The recipe of the embedded model: pages become prompts, prompts are trained on, runs go on."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Literal

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional

from recipes.embedded.data import Data, read_data
from recipes.embedded.mixture import Reader, Templates, Variety, batches
from recipes.embedded.network import Shape, rounded_attention
from recipes.embedded.prompts import LAYOUTS, NoisyTokenizer, Page, written
from recipes.embedded.questions import Question
from recipes.embedded.shelves import About, Document, Library, Shelf
from recipes.embedded.timed import STATE, schedule
from recipes.embedded.train import Recipe, train
from schemax.base.resources import resource_dir
from schemax.compiler import TextCodec
from schemax.compiler.prompt import load_template
from schemax.config import DecodingConfig
from schemax.evaluation.labelled_schemas import annotated_schemas
from schemax.extraction.extractor import Extractor
from schemax.training.sequences import IGNORE, TrainingSequence

TWICE = load_template("{% for d in documents %}{{ d.text }}\n{{ d.text }}\n{% endfor %}")
TEXTS = ("Tazo Zen 24 ct, 3 March 2024, ports: HDMI, USB", "no values here")
QUESTIONS = (
    Question("Brand", str | None, ("Tazo", None), (True, True)),
    Question("Count", int | None, (Decimal(24), None), (True, True)),
    Question("Fresh", bool | None, (True, False), (True, True)),
    Question("Day", date | None, (date(2024, 3, 3), None), (True, True)),
    Question("Size", Literal["S", "L"] | None, ("L", None), (True, True), "how large"),
    Question("Ports", list[str], (["HDMI", "USB"], None), (True, True)),
)
LITERALS = {
    "json": [' "Tazo"', " 24", " true", ' "2024-03-03"', ' "L"', ' ["HDMI", "USB"]'],
    "yaml": [" Tazo", " 24", " true", " 2024-03-03", " L", " [HDMI, USB]"],
    "xml": [" Tazo", " 24", " true", " 2024-03-03", " L", " HDMI | USB"],
}
BRANCHED = next(layout for layout in LAYOUTS if layout.layout == "branched")


def sequence_of(
    page: Page, codec: TextCodec, format: str, layout: DecodingConfig, read_twice: bool = False
) -> TrainingSequence:
    return written(
        page,
        codec,
        codec.encode,
        format=format,
        template=TWICE,
        layout=layout,
        read_twice=read_twice,
    )


def learnt_text(codec: TextCodec, sequence: TrainingSequence, slot: int) -> str:
    """What one slot of a branched prompt is taught, its first token apart."""
    inside = (sequence.slot == slot) & (sequence.step > 0)
    return codec.decode_bytes(sequence.labels[inside].tolist()).decode()


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
def test_every_type_is_taught_as_its_format_writes_it(codec: TextCodec, format: str) -> None:
    page = Page("Tea", TEXTS, QUESTIONS)
    sequence = sequence_of(page, codec, format, BRANCHED)
    for slot, literal in enumerate(LITERALS[format]):
        text = learnt_text(codec, sequence, slot)
        assert text
        assert any(literal[cut:] in text for cut in range(1, len(literal))), (literal, text)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.layout)
def test_every_layout_teaches_values(codec: TextCodec, layout: DecodingConfig) -> None:
    texts = (TEXTS * 3)[: layout.documents_per_prompt]
    questions = [
        replace(
            q, values=(*q.values, *q.values, *q.values)[: len(texts)], learnt=[True] * len(texts)
        )
        for q in QUESTIONS
    ]
    sequence = sequence_of(Page("Tea", texts, questions), codec, "json", layout)
    assert (sequence.labels != IGNORE).sum() > len(texts)
    silent = [replace(question, learnt=[False] * len(texts)) for question in questions]
    untaught = sequence_of(Page("Tea", texts, silent), codec, "json", layout)
    assert untaught.input_ids.tolist() == sequence.input_ids.tolist()
    if layout.layout != "autoregressive":
        assert (untaught.labels == IGNORE).all()


def test_second_readings_are_learnt_from_the_first(codec: TextCodec) -> None:
    page = Page("Tea", TEXTS[:1], [Question("Brand", str | None, ("Tazo",), (True,))])
    sequence = sequence_of(page, codec, "json", BRANCHED, read_twice=True)
    ids = codec.encode(TEXTS[0])
    start = len(codec.encode("\n")) + len(ids)
    assert sequence.input_ids[start : start + len(ids)].tolist() == ids
    assert sequence.labels[start : start + len(ids) - 1].tolist() == ids[1:]
    assert (sequence.labels[:start] == IGNORE).all()


def library() -> Library:
    goods = Shelf(
        "Tea",
        [Document(f"Tazo Zen {n} ct", {"Brand": "Tazo", "Size": f"{n} ct"}) for n in range(1, 9)],
        {"Brand": About(("who makes it",)), "Size": About(), "Country": About()},
        0.5,
        "goods",
        "titles",
    )
    requests = Shelf(
        "Bus",
        [Document("two seats to Leeds", {"seats": "two", "to": "Leeds"})],
        {"seats": About(), "to": About(("where to",), ("Leeds", "York"))},
        1.0,
        "requests",
        "sgd",
    )
    sources = {"titles": [goods], "sgd": [requests]}
    return Library(sources, {"titles": 0.4, "sgd": 0.3, "invented": 0.2, "letters": 0.1})


def templates() -> Templates:
    return Templates(TWICE, {"verbatim": load_template("verbatim")}, {"verbatim": 1.0})


@pytest.mark.release
def test_batches_are_of_one_layout_and_within_their_budget(codec: TextCodec) -> None:
    variety = Variety()
    reader = Reader(library(), variety)
    stream = batches(reader, codec, templates(), 2000, variety, random.Random(0))
    seen = set()
    for _ in range(180):
        config, sequences = next(stream)
        seen.add((config.layout, config.documents))
        longest = max(map(len, sequences))
        assert len(sequences) == 1 or longest * len(sequences) <= 2000
        assert all((sequence.labels != IGNORE).any() for sequence in sequences)
    assert ("branched", "isolated") in seen
    assert len(seen) > 2


def test_pages_of_a_shelf_ask_for_what_it_states() -> None:
    """Values are the texts' own, and nulls of another shelf's attributes are learnt."""
    variety = Variety(foreign=1, featured=0, padded=0, varied=0)
    shelves = library()
    reader, rng = Reader(shelves, variety), random.Random(0)
    (tea,), foreign = shelves.shelves["titles"], 0
    for _ in range(100):
        page = reader.page_of(tea, 2, rng)
        assert any(any(question.learnt) for question in page.questions)
        for question in page.questions:
            for text, value in zip(page.texts, question.values, strict=True):
                if isinstance(value, str) and "Literal" not in str(question.annotation):
                    assert value in text
            foreign += "seats" in question.label.lower()
    assert foreign


def test_cuts_of_words_differ_where_merges_are_skipped(codec: TextCodec) -> None:
    noisy = NoisyTokenizer(codec, 0.5)
    cuts = {tuple(noisy.encode("Samsung 55 inch 4K Smart TV, black")) for _ in range(20)}
    assert len(cuts) > 1
    assert {codec.decode_bytes(ids) for ids in cuts} == {b"Samsung 55 inch 4K Smart TV, black"}


def test_the_learning_rate_falls_at_the_end() -> None:
    assert [schedule(done, 0.25) for done in (0, 0.5, 0.75)] == [1, 1, 1]
    assert schedule(0.9, 0.25) == pytest.approx(0.02 + 0.98 * 0.4)
    assert schedule(1.2, 0.25) == pytest.approx(0.02)


def small_data(folder: Path) -> Data:
    rows = [
        {"category": "Tea", "text": f"{brand} Green Tea, {n} Count", "attributes": {"Brand": brand}}
        for n in range(1, 9)
        for brand in ("Twinings", "Tazo")
    ]
    source = folder / "train.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    data = read_data(source, None, None, held_out=2, titles_times=1, seed=0)
    return replace(data, new=[replace(s, documents=s.documents[:2]) for s in data.new[:1]])


@pytest.mark.release
def test_a_run_is_gone_on_with(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A few seconds of it: data in, a folder out that loads and extracts; and then some more."""
    data, out = small_data(tmp_path), tmp_path / "out"
    recipe = Recipe(
        minutes=0.03,
        tokens_per_batch=1200,
        check_minutes=9,
        watched_pages=2,
        shape=Shape(vocab_size=400, num_layers=1),
    )
    train(data, out, recipe)
    first = load_file(out / "model.safetensors")
    state = torch.load(out / STATE, weights_only=True)
    assert state["step"] > 0
    assert "titles" in capsys.readouterr().out
    further = (
        state["minutes"] + 0.02
    )  # of processor time: a first step may take longer than the run
    train(data, out, replace(recipe, minutes=further))
    again = torch.load(out / STATE, weights_only=True)
    assert again["step"] > state["step"]
    assert again["minutes"] >= further
    second = load_file(out / "model.safetensors")
    assert any(not torch.equal(second[name], tensor) for name, tensor in first.items())
    extractor = Extractor.from_pretrained(out)
    (schema,) = annotated_schemas(data.titles).values()
    (item,) = extractor.stream([data.titles[0].text], schema)
    assert len(item.fields) == 1


@pytest.mark.release
def test_a_run_may_start_from_a_model(tmp_path: Path) -> None:
    """It takes up weights and tokenizer, so that nothing is lost at the start."""
    start, out = resource_dir("embedded"), tmp_path / "out"
    recipe = Recipe(minutes=0, watched_pages=2)
    train(small_data(tmp_path), out, recipe, start)
    written, known = (load_file(folder / "model.safetensors") for folder in (out, start))
    assert written.keys() == known.keys()
    assert all(torch.equal(written[name], tensor) for name, tensor in known.items())
    assert (out / "tokenizer.json").read_bytes() == (start / "tokenizer.json").read_bytes()


def test_rounded_attention_is_attention() -> None:
    """In float32, where nothing is rounded."""
    torch.manual_seed(0)
    query, key = torch.randn(2, 4, 30, 64), torch.randn(2, 2, 30, 64)
    value = torch.randn_like(key)
    allowed = (torch.rand(2, 1, 30, 30) < 0.5) | torch.eye(30, dtype=torch.bool)
    found, _ = rounded_attention(None, query, key, value, allowed, 0.125)
    expected = functional.scaled_dot_product_attention(
        query, key, value, attn_mask=allowed, enable_gqa=True
    )
    torch.testing.assert_close(found, expected.transpose(1, 2))
