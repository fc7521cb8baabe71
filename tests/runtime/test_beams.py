"""Beam search, beside a search that runs every hypothesis through the model by itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from conftest import TITLES, tiny_model
from constrained import TEMPLATE, allowed_after, forked, head_of, teacher_forced
from decoding import filled, outputs_of
from oracle import forced_token
from seams import search_with_one_beam
from transformers import PreTrainedTokenizerFast

from schemax import AttrSchema, Extractor, attr
from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.runtime.sampling.beams import is_searched
from schemax.tokens import DONE, PromptIds, SlotOutput

Ids = tuple[int, ...]


class Offer(AttrSchema):
    brand: str | None = attr(k_max=5)
    price: float | None = attr(k_max=6)
    count: int | None = attr(k_max=4)
    colour: Literal["red", "blue"] | None = None


def compiled_with(codec: TextCodec, **settings: Any) -> CompiledSchema:
    config = DecodingConfig(**{"max_retries": 0, **settings})
    return compile_schema(Offer, codec, template=TEMPLATE, decoding=config, eos_ids=(0,))


def searched(
    model: Any, compiled: CompiledSchema, prompt: PromptIds, n: int
) -> list[tuple[float, Ids]]:
    """The W best values of a slot, best first, without cache, batch or numbers of slots."""
    spec, stop, width = prompt.slots[n], compiled.stop, compiled.decoding.beams
    head = head_of(prompt, n)

    def is_done(ids: Ids) -> bool:
        state = 0
        for token in ids:
            state = int(stop.next_state[state, token])
            if state == DONE or token in stop.eos_ids:
                return True
        return len(ids) >= prompt.k_max[n]

    def extended(score: float, ids: Ids) -> list[tuple[float, Ids]]:
        # The token behind them is any one, since only its logits count.
        logits = teacher_forced(model, head, [*ids, 0])[-1]
        shares = logits.log_softmax(dim=-1)
        if spec.grammar is not None:
            allowed = torch.tensor(allowed_after(spec, ids))
            held = torch.full_like(logits, -torch.inf)
            held[allowed] = (logits if spec.grammar.strict else shares)[allowed]
            shares = held.log_softmax(dim=-1) if spec.grammar.strict else held
        best = shares.topk(min(width, int(torch.isfinite(shares).sum())))
        found = []
        for value, token in zip(best.values.tolist(), best.indices.tolist(), strict=True):
            written = (*ids, token)
            while not is_done(written) and spec.grammar is not None:
                forced = forced_token(spec.grammar, written, stop)
                if forced is None:
                    break
                written = (*written, forced)
            found.append((score + value, written))
        return found

    kept: list[tuple[float, Ids]] = [(0.0, ())]
    while any(not ids or not is_done(ids) for _, ids in kept):
        ways: list[tuple[float, Ids]] = []
        for score, ids in kept:
            ways += [(score, ids)] if ids and is_done(ids) else extended(score, ids)
        kept = sorted(ways, key=lambda way: -way[0])[:width]
    return kept


def told(slot: SlotOutput) -> list[Ids]:
    return [slot.ids, *(beam.ids for beam in slot.beams)]


@pytest.mark.parametrize("settings", [{}, {"strict": True}, {"constrain": False}], ids=str)
@pytest.mark.parametrize("width", [2, 5])
def test_values_are_those_of_a_plain_search(
    decoder_model: Callable[..., Any], codec: TextCodec, width: int, settings: dict[str, Any]
) -> None:
    model = decoder_model()
    compiled = compiled_with(codec, beams=width, **settings)
    prompts = compiled.encode(TITLES[:3])
    checked = 0
    for prompt, output in zip(prompts, filled(model, compiled, prompts), strict=True):
        for n, slot in enumerate(output.slots):
            if not is_searched(prompt.slots[n]):
                assert slot.beams == ()
                continue
            expected = searched(model, compiled, prompt, n)
            assert told(slot) == [ids for _, ids in expected]
            scores = [sum(one.logprobs) for one in (slot, *slot.beams)]
            assert scores == pytest.approx([score for score, _ in expected], abs=2e-4)
            checked += 1
    assert checked >= 9


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
def test_one_beam_is_greedy(
    decoder_model: Callable[..., Any],
    codec: TextCodec,
    format: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = decoder_model()
    config = DecodingConfig(max_retries=1)
    compiled = compile_schema(Offer, codec, format=format, template=TEMPLATE, decoding=config)
    greedy = outputs_of(model, compiled, TITLES)
    search_with_one_beam(monkeypatch)
    assert outputs_of(model, compiled, TITLES) == greedy


def test_beams_depend_on_no_neighbour(decoder_model: Callable[..., Any], codec: TextCodec) -> None:
    """Nor on documents in flight, and all memory is given back."""
    model = decoder_model()
    alone = compiled_with(codec, beams=4, batch_size=1, max_retries=1)
    together = compiled_with(codec, beams=4, max_retries=1)
    one_by_one, at_once = outputs_of(model, alone, TITLES), outputs_of(model, together, TITLES)
    assert one_by_one == at_once
    pairs = [(one.slots, other.slots) for one, other in zip(one_by_one, at_once, strict=True)]
    for mine, others in pairs:
        assert [told(slot) for slot in mine] == [told(slot) for slot in others]


def test_a_wider_beam_finds_nothing_worse(
    decoder_model: Callable[..., Any], codec: TextCodec
) -> None:
    """A beam of all that can be is exhaustive; a narrow one is at least as good as greedy here."""
    model = decoder_model()

    def scores(width: int) -> list[float]:
        compiled = compiled_with(codec, beams=width)
        outputs = outputs_of(model, compiled, TITLES[:4])
        return [sum(output.slots[1].logprobs) for output in outputs]

    assert all(wide >= narrow - 1e-4 for wide, narrow in zip(scores(32), scores(1), strict=True))


@pytest.mark.filterwarnings("ignore:using the embedded model")
def test_fields_tell_of_all_beams() -> None:
    extractor, title = Extractor.default(), "Nike Air Max 90 white, size 42"
    (item,) = extractor.stream([title], Pair, decoding="isolated:beams=4")
    brand = item.fields["brand"]
    assert brand.value in brand.alternatives
    shares = [*brand.alternatives.values()]
    assert shares == sorted(shares, reverse=True)
    assert 1 < len(shares) <= 4
    assert sum(shares) <= 1 + 1e-5
    named = {"null" if text is None else text: p for text, p in brand.alternatives.items()}
    assert item.to_row(details=True)["fields"]["brand"]["alternatives"] == named
    greedy = next(iter(extractor.stream([title], Pair)))
    assert greedy.fields["brand"].alternatives == {}
    gender = greedy.fields["gender"].alternatives
    assert item.fields["gender"].alternatives == pytest.approx(gender, abs=1e-5)


class Pair(AttrSchema, category="shoe"):
    brand: str | None = None
    size: float | None = None
    gender: Literal["Men", "Women"] | None = None


@pytest.mark.parametrize(
    "settings",
    [
        {"layout": "gapped"},
        {"documents": "stacked", "layout": "gapped"},
        {"temperature": 1.0},
        {"layout": "autoregressive"},
    ],
)
def test_what_beams_require_is_said(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="beams requires"):
        DecodingConfig(beams=2, **settings)


def test_models_of_one_row_per_slot_refuse_beams(codec: TextCodec) -> None:
    refusal = forked(codec).refusal(DecodingConfig(beams=2))
    assert refusal is not None
    assert "beams" in refusal


def test_cancelled_documents_give_back_what_their_beams_had(codec: TextCodec, backend: Any) -> None:
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    extractor = Extractor(tiny_model("qwen3", codec.vocab_size), fast)
    decoding = DecodingConfig(beams=3, batch_size=3)
    stream = extractor.stream(TITLES * 4, Offer, template=TEMPLATE, decoding=decoding)
    first = next(iter(stream))
    stream.close()
    items = list(extractor.stream(TITLES, Offer, template=TEMPLATE, decoding=decoding))
    again = next(item for item in items if item.index == first.index)
    assert again.fields["brand"] == first.fields["brand"]
