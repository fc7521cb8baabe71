"""Training sees what the decoder sees."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
from conftest import TITLES, tiny_model
from test_exactness import COMBINATIONS, SHORT, settings
from transformers import Qwen3ForCausalLM

from schemax.compiler import TextCodec, compile_schema
from schemax.evaluation.examples import Example
from schemax.evaluation.pairs import PairScore, score_pairs
from schemax.resources import resource_dir
from schemax.runtime.decoder import decode
from schemax.runtime.model import DecoderModel
from schemax.runtime.plan import plan_prompt
from schemax.training.augment import Augmenter
from schemax.training.average import average
from schemax.training.sequences import IGNORE, collate, training_sequence, value_ids
from schemax.training.tasks import compile_tasks, fill
from schemax.training.twins import add_twins, grow


@pytest.mark.parametrize("combination", COMBINATIONS, ids="-".join)
def test_training_logits_choose_the_decoder_s_tokens(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    combination: tuple[str, str, str],
) -> None:
    """Filled with what the decoder wrote, the training form predicts exactly that, everywhere."""
    config = settings(combination, documents_per_prompt=2)
    compiled = compile_schema(small, codec, template=SHORT, decoding=config)
    model = decoder_model()
    prompts = compiled.encode(TITLES[:4])
    decoded = decode(
        model, [plan_prompt(prompt, config) for prompt in prompts], compiled.stop, config
    )
    sequences = [
        training_sequence(compiled, prompt, [slot.ids for slot in slots])
        for prompt, slots in zip(prompts, decoded, strict=True)
    ]
    input_ids, tokens, labels = collate(sequences, pad_id=0)
    rows, columns = torch.nonzero(labels != IGNORE, as_tuple=True)
    assert len(rows) == sum(len(slot.ids) for slots in decoded for slot in slots)
    with torch.inference_mode():
        logits = model.forward(input_ids, tokens, tokens, None, (rows, columns), config)
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
    tasks = list(compile_tasks(TITLES_WITH_VALUES, codec, TWICE, random.Random(0)))
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
    task = next(compile_tasks(TITLES_WITH_VALUES, codec, TWICE, random.Random(0)))
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
    rows = [
        ({"Brand": "LG", "Size": "55", "Color": "n/a"}, {"Brand": "LG", "Size": None}),
        ({"Brand": "Sony"}, {"Brand": "sony", "Size": "65"}),
        ({"Color": "None"}, {"Color": "red"}),
    ]
    score = score_pairs(rows)
    assert score == PairScore(nn=1, nv=1, vn=1, vc=1, vw=1)
    assert score.precision == pytest.approx(1 / 3)
    assert score.recall == pytest.approx(1 / 3)
    strict = score_pairs(rows, attributes=("Brand", "Size", "Color"))
    assert strict == PairScore(nn=4, nv=2, vn=1, vc=1, vw=1)
    assert PairScore().f1 == 0


def test_twins_are_cut_like_their_words() -> None:
    backend = tokenizers.Tokenizer.from_file(str(resource_dir("embedded") / "tokenizer.json"))
    after, _ = add_twins(backend)
    for word in ("Leather", "Sunscreen", "Conditioner"):
        (with_space,) = after.encode(f" {word}").ids
        (without,) = after.encode(word).ids
        assert after.decode([without]) == word == after.decode([with_space]).strip()
    again, pairs = add_twins(after)
    assert pairs == []
    assert again.get_vocab() == after.get_vocab()


def test_a_model_grows_with_its_tokenizer(
    tmp_path: Path, backend: tokenizers.Tokenizer, codec: TextCodec
) -> None:
    tokenizer = tokenizers.Tokenizer.from_str(backend.to_str())
    model = tiny_model("qwen3", codec.vocab_size, tie_word_embeddings=True)
    model.save_pretrained(tmp_path)
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    grow(tmp_path)
    after, pairs = add_twins(tokenizer)
    assert pairs
    grown = Qwen3ForCausalLM.from_pretrained(tmp_path)
    assert grown.config.vocab_size == after.get_vocab_size() == codec.vocab_size + len(pairs)
    old, new = model.get_input_embeddings().weight, grown.get_input_embeddings().weight
    torch.testing.assert_close(new[: len(old)], old)
    moves = torch.stack([new[twin] - new[source] for twin, source in pairs])
    torch.testing.assert_close(moves, moves[:1].expand_as(moves))
    stored = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    assert stored.get_vocab() == after.get_vocab()


def test_averages(tmp_path: Path, codec: TextCodec) -> None:
    models = {name: tiny_model("qwen3", codec.vocab_size) for name in ("a", "b")}
    with torch.no_grad():
        models["b"].lm_head.weight.add_(1.0)
    for name, model in models.items():
        model.save_pretrained(tmp_path / name)
    average(tmp_path / "a", tmp_path / "b", tmp_path / "mean", 0.25)
    mean = Qwen3ForCausalLM.from_pretrained(tmp_path / "mean")
    torch.testing.assert_close(mean.lm_head.weight, models["a"].lm_head.weight + 0.25)


def test_null_values_can_be_left_out(codec: TextCodec, small: Any) -> None:
    """They are read, but nothing is learnt from them."""
    title = Example("television", "LG C3 4K", {"Brand": "LG", "Model": "C3", "Class": "4K"})
    template = "{% for d in documents %}{{ d.text }}\n{% endfor %}"
    (task, *_) = compile_tasks([title], codec, template, random.Random(0))
    known, all_null = fill(task, [title], codec.encode), Example("television", title.text, {})
    silent = fill(task, [all_null], codec.encode, lambda: False)
    spoken = fill(task, [all_null], codec.encode)
    assert (known.labels != IGNORE).any()
    assert (silent.labels == IGNORE).all()
    assert (spoken.labels != IGNORE).any()
    assert silent.input_ids.tolist() == spoken.input_ids.tolist()
