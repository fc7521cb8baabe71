"""Training sees what the decoder sees."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from conftest import TITLES
from test_exactness import COMBINATIONS, SHORT, settings

from schemax.compiler import TextCodec, compile_schema
from schemax.evaluation.examples import Example
from schemax.evaluation.pairs import PairScore
from schemax.evaluation.scores import score_predictions
from schemax.extraction.stated import Label
from schemax.runtime.engine.decode import decode
from schemax.runtime.models.model import DecoderModel
from schemax.training.sequences import IGNORE, collate, training_sequence, value_ids


@pytest.mark.parametrize("combination", COMBINATIONS, ids="-".join)
def test_training_logits_choose_the_decoder_s_tokens(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    combination: tuple[str, str, str],
) -> None:
    """Filled with what the decoder wrote, the training form predicts exactly that, everywhere."""
    config = settings(combination, documents_per_prompt=2, constrain="nothing", max_retries=0)
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
