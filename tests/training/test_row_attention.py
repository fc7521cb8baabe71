"""Attention over the parts of packed rows: losses and gradients are those of the dense mask."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from conftest import TITLES, combinations, tiny_model
from families import FAMILIES
from test_training_rows import VALUES, Roomy

from schemax.attributes import attr
from schemax.compiler import TextCodec, compile_schema
from schemax.config import PRESETS, DecodingConfig
from schemax.extraction.schema import AttrSchema
from schemax.training import row_attention
from schemax.training.features import make_features
from schemax.training.models import TrainableModel
from schemax.training.schedule import BatchDataset, RowLimits, batches_of
from schemax.training.training_examples import TrainingExample

WORDS = " ".join(TITLES).split()
COLORS = ["red", "dark blue"]


class Colorful(AttrSchema):
    """A list whose items are slots of their own, where the layout has them."""

    brand: str | None = attr("Manufacturer", k_max=6)
    colors: list[str] | None = attr("Colours", long=True, max_length=6, k_max=30)


def titles(count: int, seed: int = 0) -> Iterator[str]:
    rng = random.Random(seed)
    for _ in range(count):
        yield " ".join(rng.choices(WORDS, k=rng.randrange(1, 30)))


def batches(
    codec: TextCodec, model: TrainableModel, config: DecodingConfig, **limits: Any
) -> list[Any]:
    """Rows of several categories, lengths and numbers of documents, some with lists."""
    compiled = {
        "tv": compile_schema(Roomy, codec, decoding=config),
        "colors": compile_schema(Colorful, codec, decoding=config),
    }
    examples = [TrainingExample(str(at), "tv", text, VALUES) for at, text in enumerate(titles(17))]
    examples += [
        TrainingExample(str(at), "colors", text, {"brand": "LG", "colors": COLORS[: at % 3]})
        for at, text in enumerate(titles(9, 1), 17)
    ]
    features = make_features(examples, compiled, model, 1.0)
    made = batches_of(features, compiled, RowLimits(**limits), random.Random(0))
    return list(BatchDataset(made, compiled, None))


def gradients(
    model: TrainableModel, batch: Any, config: DecodingConfig
) -> tuple[float, dict[str, torch.Tensor]]:
    model.model.requires_grad_(True)
    model.model.zero_grad()
    summed, _ = model.loss(model.model, batch, config)
    summed.backward()
    return float(summed.detach()), {
        name: weight.grad.clone()
        for name, weight in model.model.named_parameters()
        if weight.grad is not None
    }


def dense(model: TrainableModel, *_: Any) -> None:
    return None


def test_rows_without_an_instruction(codec: TextCodec, monkeypatch: pytest.MonkeyPatch) -> None:
    model = TrainableModel(tiny_model("llama", codec.vocab_size))
    bare = compile_schema(
        Roomy, codec, template="{% for d in documents %}{{ d.text }}\n{% endfor %}"
    )
    assert not bare.instruction
    examples = [TrainingExample(str(at), "tv", text, VALUES) for at, text in enumerate(titles(4))]
    features = make_features(examples, {"tv": bare}, model, 1.0)
    (made,) = batches_of(features, {"tv": bare}, RowLimits(900, 5), random.Random(0))
    batch = BatchDataset([made], {"tv": bare}, None)[0]
    fast = gradients(model, batch, bare.decoding)
    monkeypatch.setattr(TrainableModel, "rows_of", dense)
    slow = gradients(model, batch, bare.decoding)
    assert fast[0] == pytest.approx(slow[0], rel=1e-5)
    for name, gradient in slow[1].items():
        torch.testing.assert_close(fast[1][name], gradient, rtol=1e-3, atol=1e-4)


@pytest.mark.slow
@combinations(
    "layout, family",
    ["branched", "gapped", "autoregressive"],
    ["qwen3", "llama", "gemma3", "mistral (window)"],
)
def test_losses_and_gradients_are_those_of_the_dense_mask(
    codec: TextCodec, monkeypatch: pytest.MonkeyPatch, family: str, layout: str
) -> None:
    """gemma3 and mistral see through windows, which bite here."""
    made = (
        tiny_model(family, codec.vocab_size)
        if family in ("qwen3", "llama")
        else FAMILIES[family].model(codec.vocab_size)
    )
    made.config._attn_implementation = "sdpa"
    model = TrainableModel(made.float())
    config = DecodingConfig(layout=layout)  # type: ignore[arg-type]
    found = batches(codec, model, config, batch_tokens=3000, documents=5)
    assert max(int(batch["document"].max()) for batch in found) == 4
    assert max(len(batch["document"]) for batch in found) > 1
    used = 0
    original = row_attention.attend_row

    def counted(*given: Any) -> Any:
        nonlocal used
        used += 1
        return original(*given)

    monkeypatch.setattr(row_attention, "attend_row", counted)
    for batch in found:
        fast = gradients(model, batch, config)
        assert used
        with monkeypatch.context() as patch:
            patch.setattr(TrainableModel, "rows_of", dense)
            before = used
            slow = gradients(model, batch, config)
            assert used == before
        assert fast[0] == pytest.approx(slow[0], rel=1e-5)
        assert fast[1].keys() == slow[1].keys()
        for name, gradient in slow[1].items():
            scale = float(gradient.abs().max())
            torch.testing.assert_close(fast[1][name], gradient, rtol=1e-4, atol=1e-4 * scale)


def test_documents_that_see_each_other_keep_the_mask(codec: TextCodec) -> None:
    model = TrainableModel(tiny_model("llama", codec.vocab_size))
    config = PRESETS["paper"]
    (batch, *_) = batches(codec, model, config, batch_tokens=900, documents=6, stacked=True)
    from schemax.training.schedule import token_info

    assert row_attention.parts_of(token_info(batch), config, model.windows) is None
    gradients(model, batch, config)
