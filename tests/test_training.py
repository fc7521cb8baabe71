"""Training sees what the decoder sees."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from conftest import TITLES
from test_exactness import COMBINATIONS, SHORT, settings

from schemax.attributes import compile_attributes
from schemax.compiler import TextCodec, compile_schema
from schemax.config import PRESETS
from schemax.errors import InputError
from schemax.evaluation.examples import Example, Label, read_examples
from schemax.evaluation.pairs import PairScore
from schemax.evaluation.schemas import annotated_schemas, check_labels, read_attributes
from schemax.evaluation.scores import score_predictions
from schemax.extractor import Extractor
from schemax.resources import resource_dir
from schemax.runtime.engine import decode
from schemax.runtime.model import DecoderModel
from schemax.runtime.plan import plan_prompt
from schemax.training.embedded.augment import Augmenter
from schemax.training.embedded.listings import (
    FOLDER,
    merged,
    read_listings,
    without,
    write_dataset,
)
from schemax.training.embedded.mixture import Variety, batches, compile_tasks, fill
from schemax.training.embedded.tokenizer import add_twins
from schemax.training.embedded.train import UNSEEN, Recipe, read_data, train
from schemax.training.sequences import IGNORE, collate, training_sequence, value_ids


@pytest.mark.parametrize("combination", COMBINATIONS, ids="-".join)
def test_training_logits_choose_the_decoder_s_tokens(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    combination: tuple[str, str, str],
) -> None:
    """Filled with what the decoder wrote, the training form predicts exactly that, everywhere."""
    config = settings(combination, documents_per_prompt=2, constrain=False, max_retries=0)
    compiled = compile_schema(small, codec, template=SHORT, decoding=config)
    model = decoder_model()
    prompts = compiled.encode(TITLES[:4])
    decoded = decode(model, prompts, compiled.stop, config)
    sequences = [
        training_sequence(compiled, prompt, [slot.ids for slot in slots])
        for prompt, slots in zip(prompts, decoded, strict=True)
    ]
    input_ids, tokens, labels = collate(sequences, pad_id=0)
    rows, columns = torch.nonzero(labels != IGNORE, as_tuple=True)
    assert len(rows) == sum(len(slot.ids) for slots in decoded for slot in slots)
    with torch.inference_mode():
        logits = model.forward(input_ids, tokens, (rows, columns), config)
    assert torch.equal(logits.argmax(dim=-1), labels[rows, columns])


def test_values_end_with_the_token_that_completes_the_stop_rule(
    codec: TextCodec, small: Any
) -> None:
    compiled = compile_schema(small, codec)
    ids = value_ids(' "LG",\n', compiled, 30)
    text, complete = compiled.decode_slot(ids)
    assert (text, complete) == (' "LG"', True)
    assert not compiled.decode_slot(ids[:-1])[1]
    assert len(value_ids(' "a long value that does not fit",\n', compiled, 3)) == 3


TITLES_WITH_VALUES = [
    Example("Tea", "Twinings Green Tea, 20 Count", {"Brand": "Twinings", "Size": "20 Count"}),
    Example("Tea", "Tazo Zen Tea Bags - 24 ct", {"Brand": "Tazo", "Size": "24 ct"}),
    Example("Tea", "Assam loose leaf", {"Country": "Assam"}),
]
TWICE = "{% for d in documents %}{{ d.text }}\n{{ d.text }}\n{% endfor %}"


def test_every_task_asks_for_the_annotated_values(codec: TextCodec) -> None:
    """Read back by the code that reads the decoder's outputs, the labels are the annotations."""
    (category,) = merged(TITLES_WITH_VALUES, [], 1).values()
    tasks = list(compile_tasks([category], 64, codec, TWICE, random.Random(0)))
    layouts = {task.compiled.decoding.layout for task in tasks}
    assert layouts == {"branched", "gapped", "autoregressive"}
    for task in tasks[::3]:
        compiled, titles = task.compiled, TITLES_WITH_VALUES
        titles = titles[: compiled.decoding.documents_per_prompt]
        sequence = fill(task, titles, codec.encode)
        plan = plan_prompt(
            compiled.assemble([tuple(codec.encode(title.text)) for title in titles]),
            compiled.decoding,
        )
        for place, slot in enumerate(plan.slot_ids.tolist()):
            inputs = (sequence.slot == slot) & (sequence.step > 0)
            ids = [sequence.labels[plan.last_index[place]], *sequence.labels[inputs]]
            text, complete = compiled.decode_slot(ids)
            title = titles[slot // compiled.num_slots]
            if compiled.decoding.layout == "autoregressive":
                paths = [a.labels for a in compiled.attributes]
                parsed = compiled.format.parse(text, paths)
                values = [compiled.format.unescape(parsed[path]) for path in paths]
                assert values == [title.attributes.get(name) for name in task.names]
            else:
                assert complete
                name = task.names[slot % compiled.num_slots]
                assert compiled.format.unescape(text) == title.attributes.get(name)


def test_second_readings_are_learnt_from_the_first(codec: TextCodec) -> None:
    (category,) = merged(TITLES_WITH_VALUES, [], 1).values()
    tasks = compile_tasks([category], 64, codec, TWICE, random.Random(0))
    task = next(task for task in tasks if task.compiled.decoding == PRESETS["isolated"])
    sequence = fill(task, TITLES_WITH_VALUES[:1], codec.encode)
    ids = codec.encode(TITLES_WITH_VALUES[0].text)
    start = len(codec.encode("\n")) + len(ids)
    assert sequence.input_ids[start : start + len(ids)].tolist() == ids
    assert sequence.labels[start : start + len(ids) - 1].tolist() == ids[1:]
    assert (sequence.labels[:start] == IGNORE).all()


def test_augmented_values_stay_verbatim() -> None:
    titles = [
        Example(
            "Tea", "Twinings Green Tea, 20 Count", {"Brand": "Twinings", "Net content": "20 Count"}
        ),
        Example("Tea", "Tazo Zen Tea Bags - 24 ct", {"Brand": "Tazo", "Net content": "24 ct"}),
        Example("Shoes", "Crocs Clog, Navy", {"Brand": "Crocs", "Color": "Navy"}),
    ]
    augment, rng = Augmenter(titles), random.Random(0)
    variants = [augment(title, rng) for title in titles for _ in range(60)]
    assert all(value in v.text for v in variants for value in v.attributes.values())
    assert len({v.text for v in variants}) > 40
    assert any(len(v.attributes) == 1 for v in variants)


def test_scores_counted_by_hand() -> None:
    labels: list[Mapping[str, Label]] = [
        {"Brand": "LG", "Size": "55", "Color": "n/a"},
        {"Brand": "Sony"},
        {"Color": "None"},
    ]
    predictions = [
        {"Brand": "LG", "Size": None, "Color": None},
        {"Brand": "sony", "Size": "65", "Color": None},
        {"Brand": None, "Size": None, "Color": "red"},
    ]
    examples = [Example("tv", "text", row) for row in labels]
    scores = score_predictions(examples, predictions)
    score = scores.protocol
    assert score == PairScore(nn=1, nv=1, vn=1, vc=1, vw=1)
    assert score.precision == pytest.approx(1 / 3)
    assert score.recall == pytest.approx(1 / 3)
    strict = scores.strict
    assert strict == PairScore(nn=4, nv=2, vn=1, vc=1, vw=1)
    assert PairScore().f1 == 0


def test_twins_are_cut_like_their_words() -> None:
    backend = tokenizers.Tokenizer.from_file(str(resource_dir("embedded") / "tokenizer.json"))
    after = add_twins(backend)
    for word in ("Leather", "Sunscreen", "Conditioner"):
        (with_space,) = after.encode(f" {word}").ids
        (without_space,) = after.encode(word).ids
        assert after.decode([without_space]) == word == after.decode([with_space]).strip()
    assert add_twins(after).get_vocab() == after.get_vocab()


LISTINGS = """# category: Headphones
# Brand: who makes them
# Colour
{Brand|Sony} WH-1000XM4, {Colour|Midnight Blue}

{Brand|JBL} Tune 510BT
# category: Tea
{Brand|Tazo} Zen
"""


def test_listings_are_read_as_examples(tmp_path: Path) -> None:
    path = tmp_path / "listings.txt"
    path.write_text(LISTINGS, "utf-8")
    headphones, tea = read_listings(path)
    assert headphones.attributes == {"Brand": "who makes them", "Colour": None}
    assert headphones.examples[0] == Example(
        "Headphones",
        "Sony WH-1000XM4, Midnight Blue",
        {"Brand": "Sony", "Colour": "Midnight Blue"},
    )
    assert tea.attributes == {"Brand": None}
    (left,) = without([headphones], [Example("x", "jbl  tune-510bt", {})])
    assert [example.attributes["Brand"] for example in left.examples] == ["Sony"]
    both = merged(TITLES_WITH_VALUES, [headphones, tea], 2)
    assert len(both["Tea"].examples) == 7
    assert set(both["Tea"].attributes) == {"Brand", "Size", "Country"}


def test_listings_become_a_dataset(tmp_path: Path) -> None:
    categories = read_listings(FOLDER / UNSEEN)
    write_dataset(categories, tmp_path)
    found = read_examples(tmp_path / "test.jsonl")
    assert found == [example for category in categories for example in category.examples]
    schemas = read_attributes(tmp_path / "attributes.json")
    assert schemas is not None
    check_labels(found, schemas)
    for category in categories:
        attributes = compile_attributes(schemas[category.name])
        assert {a.label: a.description for a in attributes} == category.attributes


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{Brand|Sony}", "line 1: a category comes first"),
        ("# category: A\n{Brand|Sony} {Brand|LG}", "line 2: an attribute is marked twice"),
        ("# category: A\n{Brand|Sony", "line 2: a brace or bar outside of a mark"),
    ],
)
def test_bad_listings_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "listings.txt"
    path.write_text(text, "utf-8")
    with pytest.raises(InputError, match=problem):
        read_listings(path)


def test_the_recipe_s_listings_can_be_read() -> None:
    files = sorted(FOLDER.glob("*.txt"))
    categories = {c.name: c for file in files for c in read_listings(file)}
    assert len(categories) > 60
    seen = {c.name for file in files if file.name != UNSEEN for c in read_listings(file)}
    unseen = {category.name for category in read_listings(FOLDER / UNSEEN)}
    assert unseen
    assert not seen & unseen
    for category in categories.values():
        assert category.examples, category.name
        for example in category.examples:
            assert example.attributes.keys() <= category.attributes.keys()
            assert all(value in example.text for value in example.attributes.values())


def test_the_recipe_trains_from_scratch(tmp_path: Path) -> None:
    """A few seconds of it: data in, a folder out that loads and extracts."""
    rows = [
        {"category": "Tea", "text": f"{brand} Green Tea, {n} Count", "attributes": {"Brand": brand}}
        for n in range(1, 9)
        for brand in ("Twinings", "Tazo")
    ]
    source = tmp_path / "train.jsonl"
    source.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    recipe = Recipe(
        vocab_size=400,
        num_layers=1,
        tokens_per_batch=600,
        variants=4,
        other_variants=1,
        held_out=2,
    )
    data = read_data(source, None, recipe)
    small = replace(data, unseen=data.unseen[:2])
    template = resource_dir("embedded") / "prompt.jinja"
    train(small, tmp_path / "out", recipe, 0.02, template)
    extractor = Extractor.from_pretrained(tmp_path / "out")
    (schema,) = annotated_schemas(small.held_out).values()
    (item,) = extractor.stream([small.held_out[0].text], schema)
    assert len(item.fields) == 1


def test_batches_stay_within_their_budget(codec: TextCodec) -> None:
    categories = merged(TITLES_WITH_VALUES, [], 1)
    rng = random.Random(0)
    tasks = list(compile_tasks([*categories.values()], 24, codec, TWICE, rng))
    stream = batches(categories, tasks, codec, 2000, Variety(), rng)
    for _ in range(40):
        config, sequences = next(stream)
        longest = max(map(len, sequences))
        assert len(sequences) == 1 or longest * len(sequences) <= 2000
        per_prompt = {int(s.document.max()) + 1 for s in sequences}
        assert per_prompt == {config.documents_per_prompt}


def test_null_values_can_be_left_out(codec: TextCodec, small: Any) -> None:
    """They are read, but nothing is learnt from them."""
    title = Example("television", "LG C3 4K", {"Brand": "LG", "Model": "C3", "Class": "4K"})
    template = "{% for d in documents %}{{ d.text }}\n{% endfor %}"
    (category,) = merged([title], [], 1).values()
    tasks = compile_tasks([category], 64, codec, template, random.Random(0))
    task = next(task for task in tasks if task.compiled.decoding == PRESETS["isolated"])
    known, all_null = fill(task, [title], codec.encode), Example("television", title.text, {})
    silent = fill(task, [all_null], codec.encode, lambda: False)
    spoken = fill(task, [all_null], codec.encode)
    assert (known.labels != IGNORE).any()
    assert (silent.labels == IGNORE).all()
    assert (spoken.labels != IGNORE).any()
    assert silent.input_ids.tolist() == spoken.input_ids.tolist()
