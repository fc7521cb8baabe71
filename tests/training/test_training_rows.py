"""What training sees is what the decoder sees: every layout, alone and packed, token by token."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from conftest import TITLES
from decoding import watched
from test_exactness import COMBINATIONS, SHORT, settings
from torch import Tensor

from schemax.attributes import attr
from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.config import PRESETS, DecodingConfig
from schemax.extraction.schema import AttrSchema
from schemax.runtime.engine.decode import decode
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.plan import plan_prompt
from schemax.training.features import Features, fill_row, make_features
from schemax.training.schedule import (
    BatchDataset,
    RowLimits,
    batches_of,
    pack,
    padded_length,
    padding_share,
    plan_schedule,
)
from schemax.training.sequences import (
    IGNORE,
    TrainingSequence,
    collate,
    slot_targets,
    training_sequence,
    value_ids,
)
from schemax.training.settings import TrainingSettings
from schemax.training.training_examples import TrainingExample

AUTOREGRESSIVE = ("autoregressive", "isolated", "independent")


class Roomy(AttrSchema, category="television"):
    """Budgets that every value fits."""

    brand: str | None = attr(k_max=12)
    size: float | None = attr(k_max=12)
    smart: bool | None = attr(k_max=12)
    resolution: str | None = attr(k_max=12)


VALUES = {"brand": "Samsung", "size": 55, "smart": True, "resolution": "4K"}


def label_logits(
    model: DecoderModel, sequences: Sequence[TrainingSequence], config: DecodingConfig
) -> list[Tensor]:
    """Per sequence, the logits at its labels, in order."""
    input_ids, tokens, labels = collate(sequences, pad_id=0)
    rows, columns = torch.nonzero(labels != IGNORE, as_tuple=True)
    with torch.inference_mode():
        logits = model.forward(input_ids, tokens, (rows, columns), config)
    return [logits[rows == row] for row in range(len(sequences))]


@pytest.mark.parametrize("num_documents", [1, 2, 3])
@pytest.mark.parametrize("combination", [*COMBINATIONS, AUTOREGRESSIVE], ids="-".join)
@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_training_logits_are_the_decoder_s_at_every_step(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    family: str,
    combination: tuple[str, str, str],
    num_documents: int,
) -> None:
    """In the decoder values come one token a pass, out of order, into a cache."""
    alone = combination == AUTOREGRESSIVE
    # Unconstrained, so that every token is one that the model was asked for.
    config = settings(
        combination,
        documents_per_prompt=1 if alone else num_documents,
        constrain="nothing",
        max_retries=0,
    )
    compiled = compile_schema(small, codec, template=SHORT, decoding=config)
    model = decoder_model(family)
    documents = [tuple(codec.encode(text)) for text in TITLES[:num_documents]]
    # Where a prompt of the decoder holds one document, a row of training may hold several.
    prompt = compiled.assemble(documents)
    plan = plan_prompt(prompt, config)
    decoded, seen = watched(model, compiled, TITLES[:num_documents])
    slots = [slot for row in decoded for slot in row]
    sequence = training_sequence(compiled, prompt, [slot.ids for slot in slots])
    (logits,) = label_logits(model, [sequence], config)
    places = {(slot, 0): plan.last_index[at] for at, slot in enumerate(plan.slot_ids.tolist())}
    columns = (sequence.labels != IGNORE).nonzero()[0].tolist()
    where = {column: place for place, column in enumerate(columns)}
    compared = 0
    for at, slot in enumerate(plan.slot_ids.tolist()):
        for step in range(len(slots[at].ids)):
            column = places[slot, 0]
            if step:
                mask = (sequence.slot == slot) & (sequence.step == step)
                (column,) = mask.nonzero()[0].tolist()
            assert sequence.labels[column] == slots[at].ids[step]
            torch.testing.assert_close(
                logits[where[int(column)]].log_softmax(-1), seen[at, step], rtol=1e-3, atol=1e-3
            )
            compared += 1
    assert compared == len(columns) == sum(len(slot.ids) for slot in slots)


def features_of(
    compiled: CompiledSchema, model: DecoderModel, titles: Sequence[str] = TITLES
) -> list[Features]:
    examples = [TrainingExample(text[:8], "tv", text, VALUES) for text in titles]
    return make_features(examples, {"tv": compiled}, model, 1.0)["tv"]


@pytest.mark.parametrize(
    "combination",
    [*(c for c in COMBINATIONS if c[1] == "isolated"), AUTOREGRESSIVE],
    ids="-".join,
)
def test_packed_rows_are_as_many_prompts(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    combination: tuple[str, str, str],
) -> None:
    """Behind one instruction: the same labels, positions and logits as behind one each."""
    config = settings(combination)
    compiled = compile_schema(Roomy, codec, decoding=config)
    model = decoder_model()
    features = features_of(compiled, model)
    rng = random.Random(0)
    packed = fill_row(compiled, features, rng)
    alone = [fill_row(compiled, [one], rng) for one in features]
    head = len(compiled.instruction)
    assert len(packed) == head + sum(len(sequence) - head for sequence in alone)
    assert [len(sequence) - head for sequence in alone] == [one.tokens for one in features]
    (together,) = label_logits(model, [packed], config)
    # The labels at the ends of keys come document by document, and so do those of values.
    places = [
        (int(packed.document[column]), bool(packed.step[column]))
        for column in (packed.labels != IGNORE).nonzero()[0]
    ]
    for j, (sequence, logits) in enumerate(
        zip(alone, label_logits(model, alone, config), strict=True)
    ):
        mine = [at for at, (document, _) in enumerate(places) if document == j]
        torch.testing.assert_close(together[mine], logits, rtol=1e-3, atol=1e-3)
        own = packed.document == j
        assert packed.position_ids[own].tolist() == sequence.position_ids[head:].tolist()
        assert packed.position_ids[own].min() == head
        assert packed.labels[own].tolist() == sequence.labels[head:].tolist()


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
@pytest.mark.parametrize("combination", [*COMBINATIONS, AUTOREGRESSIVE], ids="-".join)
@pytest.mark.parametrize("constrain", ["types", "nothing"])
def test_targets_read_back_as_the_values(
    codec: TextCodec, combination: tuple[str, str, str], format: str, constrain: str
) -> None:
    alone = combination == AUTOREGRESSIVE
    if alone and constrain == "nothing":
        pytest.skip("the layout has no slots to constrain")
    count = 1 if alone else 2
    config = settings(combination, documents_per_prompt=count, constrain=constrain)
    compiled = compile_schema(Roomy, codec, format=format, decoding=config)
    rows = [["LG", 5, True, "4K"], [None, 5, None, None]][:count]
    literals = [[compiled.format.escape(value) for value in row] for row in rows]
    values, _ = slot_targets(compiled, literals, [[True] * 4] * count)
    read: list[Any] = []
    for ids in values:
        text, complete = compiled.decode_slot(ids)
        assert complete or ids[-1] in compiled.stop.eos_ids or len(ids) in compiled.k_max
        if alone:
            paths = [attribute.labels for attribute in compiled.attributes]
            parsed = compiled.format.parse(text, paths)
            read += [compiled.format.unescape(parsed[path]) for path in paths]
        elif complete:
            read.append(compiled.format.unescape(text))
    expected = ["LG", "5", "true", "4K", None, "5", None, None][: 4 * count]
    assert read == expected


def test_autoregressive_outputs_leave_out_what_is_not_learnt(codec: TextCodec) -> None:
    compiled = compile_schema(Roomy, codec, decoding="autoregressive")
    literals = [compiled.format.escape(value) for value in ("LG", 5, None, "4K")]
    (ids,), (flags,) = slot_targets(compiled, [literals], [[True, True, False, True]])
    silent = b"".join(
        compiled.codec.token_bytes[i] for i, wanted in zip(ids, flags, strict=True) if not wanted
    )
    assert b"null" in silent
    assert b"LG" not in silent
    assert b"resolution" not in silent


def test_rows_hold_what_they_may_and_batches_are_hardly_padded(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any
) -> None:
    compiled = compile_schema(Roomy, codec)
    rng = random.Random(0)
    words = " ".join(TITLES).split()
    titles = [" ".join(rng.choices(words, k=rng.randrange(2, 30))) for _ in range(200)]
    features = features_of(compiled, decoder_model(), titles)
    head = len(compiled.instruction)
    limits = RowLimits(batch_tokens=4000, documents=8)
    batches = batches_of({"tv": features}, {"tv": compiled}, limits, rng)
    rows = [row for batch in batches for row in batch]
    assert sorted(one.name for row in rows for one in row.features) == sorted(
        one.name for one in features
    )
    assert all(len(row.features) <= 8 and len(row) <= 4000 for row in rows)
    assert all(len(batch) * padded_length(max(map(len, batch))) <= 4000 for batch in batches)
    assert padding_share(batches) < 0.1
    dataset = BatchDataset(batches, {"tv": compiled}, 0)
    batch = dataset[0]
    assert batch["input_ids"].shape == (len(batches[0]), padded_length(max(map(len, batches[0]))))
    assert batch["real"].sum() == sum(map(len, batches[0]))
    # One document is longer than a batch may be: it is a row, and a batch, of its own.
    assert [len(r.features) for r in pack(features[:3], head, RowLimits(10, 8))] == [1, 1, 1]


def test_schedules_are_fixed_by_the_seed(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any
) -> None:
    compiled = {"tv": compile_schema(Roomy, codec)}
    features = {"tv": features_of(compiled["tv"], decoder_model())}
    limits = RowLimits(batch_tokens=900, documents=2)

    def schedule(**changes: Any) -> list[list[list[str]]]:
        settings = TrainingSettings(**{"epochs": 2.0, "steps": None, "seed": 0, **changes})
        options = {"num_steps": settings.num_steps, "seed": settings.seed, "batches_per_step": 2}
        batches, steps, _ = plan_schedule(features, compiled, limits, **options)
        assert len(batches) == steps * options["batches_per_step"]
        return [[[p.name for p in row.features] for row in batch] for batch in batches]

    assert schedule() == schedule()
    assert schedule(seed=1) != schedule()
    longer = schedule(epochs=4.0)
    assert longer[: len(schedule())] == schedule()
    assert len(schedule(steps=3)) == 6


def test_stacked_documents_are_never_packed_further(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any
) -> None:
    config = PRESETS["paper"]
    compiled = compile_schema(Roomy, codec, decoding=config)
    features = features_of(compiled, decoder_model())
    limits = RowLimits(4096, config.documents_per_prompt, extent=4096, stacked=True)
    rows = list(pack(features, len(compiled.instruction), limits))
    assert [len(row.features) for row in rows] == [6, 1]
    # Their positions add up, so that fewer fit where the context is short.
    needed = len(compiled.instruction) + sum(one.extent for one in features[:2])
    limits = RowLimits(4096, 6, extent=needed, stacked=True)
    assert len(next(iter(pack(features, len(compiled.instruction), limits))).features) == 2


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
