"""Decoding as users have it, and what its oracle says of the same tokens."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any

import pytest
import torch
from conftest import slow_but
from extractive import copied_of
from oracle import oracle_outputs
from seams import replaced
from torch import Tensor

from schemax import Extraction, Extractor
from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.extraction import pipeline
from schemax.runtime.engine import stream as stream_module
from schemax.runtime.engine.decode import (
    Model,
    Placed,
    Windows,
    checked_request,
    decode,
    outputs,
    passes,
)
from schemax.runtime.engine.limits import DecodingLimits
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.outputs import DocumentOutput, Progress, Watcher
from schemax.runtime.slots.requests import Request, new_request
from schemax.tokens import PromptIds, SlotOutput, StopTable, child_number

Outputs = list[tuple[SlotOutput, ...]]

TEMPLATE = "Read the attributes.\n{% for d in documents %}{{ d.text }}\n{% endfor %}"
# Slots apart in a pool, keys in the document's row, values there too, and documents together.
WAYS = {
    "branched": DecodingConfig(),
    "gapped": DecodingConfig(layout="gapped"),
    "causal": DecodingConfig(layout="gapped", slots="causal"),
    "autoregressive": DecodingConfig(layout="autoregressive", max_retries=0),
    "stacked": DecodingConfig(documents="stacked", documents_per_prompt=2),
    "paper": DecodingConfig(
        layout="gapped", documents="stacked", slots="causal", documents_per_prompt=2
    ),
}
in_each_way = pytest.mark.parametrize("way", slow_but({"branched", "causal", "paper"}, WAYS))
in_some_ways = pytest.mark.parametrize(
    "way", slow_but({"branched", "paper"}, ["branched", "causal", "paper"])
)


def compiled_in(way: str, schema: Any, codec: TextCodec, **changes: Any) -> CompiledSchema:
    config = replace(WAYS[way], **changes)
    return compile_schema(schema, codec, template=TEMPLATE, decoding=config)


def run(
    model: Model, compiled: CompiledSchema, texts: Sequence[str], in_flight: int | None = None
) -> Outputs:
    """The slots of every prompt of these texts, so many documents in flight."""
    config = compiled.decoding
    if in_flight is not None:
        config = replace(config, batch_size=in_flight)
    return decode(model, compiled.encode(texts), compiled.stop, config)


def watched(
    model: Model, compiled: CompiledSchema, texts: Sequence[str]
) -> tuple[Outputs, dict[tuple[int, int], Tensor]]:
    """The slots of every prompt, and (V,) log-probabilities by which each token was chosen, without
    its grammar, by the slot's number among all slots and by step; none for forced tokens."""
    config = compiled.decoding
    requests: list[Request] = []
    seen: dict[tuple[int, int], Tensor] = {}
    for place, prompt in enumerate(compiled.encode(texts)):
        request = checked_request(model, new_request(prompt, compiled.stop, config, place), config)
        assert isinstance(request, Request)
        first = sum(earlier.num_slots for earlier in requests)

        def tell(progress: Progress, first: int = first) -> None:
            for step in progress.steps:
                ids, shares = map(torch.tensor, zip(*step.rivals, strict=True))
                logprobs = torch.empty(model.vocab_size).index_put((ids,), shares.log())
                seen[first + step.slot_index, step.start] = logprobs

        request.watcher = Watcher(tell, model.vocab_size)
        requests.append(request)
    slots = dict(item for done in passes(model, iter(requests), config) for item in done)
    return [slots[request] for request in requests], seen


def expected(
    model: Model, compiled: CompiledSchema, texts: Sequence[str], outputs: Outputs
) -> Outputs:
    """What the oracle says should have been written, given what was."""
    config = compiled.decoding
    factor = 2**config.max_retries
    copied = copied_of(compiled, texts)
    found, at = [], 0
    for prompt, slots in zip(compiled.encode(texts), outputs, strict=True):
        budgets = [factor * budget for budget in prompt.k_max * len(prompt.keys)]
        mine = copied[at : at + len(slots)]
        at += len(slots)
        found.append(oracle_outputs(model, prompt, compiled.stop, config, slots, budgets, mine))
    return found


def assert_right(
    model: Model, compiled: CompiledSchema, texts: Sequence[str], in_flight: int | None = None
) -> Outputs:
    """Decodes, and compares with the oracle."""
    outputs = run(model, compiled, texts, in_flight)
    assert outputs == expected(model, compiled, texts, outputs)
    return outputs


def outputs_of(
    model: Model, compiled: CompiledSchema, texts: Sequence[str]
) -> list[DocumentOutput]:
    """What users get of each text, in order."""
    return filled(model, compiled, compiled.encode(texts))


def filled(
    model: Model, compiled: CompiledSchema, prompts: Iterable[PromptIds]
) -> list[DocumentOutput]:
    """What users get of each document of these prompts, in order."""
    found = dict(streamed(model, prompts, compiled.stop, compiled.decoding))
    return [found[place] for place in range(len(found))]


def streamed(
    model: Model, prompts: Iterable[PromptIds], stop: StopTable, config: DecodingConfig
) -> Iterator[Placed]:
    """Each document's output as it is done, with its place: what the engine's thread runs.

    prompts: laid out window by window, as those of a call; the passes take them as they have room.
    """
    windows, rest = Windows(model, config), iter(prompts)
    refused: list[Placed] = []

    def requests() -> Iterator[Request]:
        while window := list(islice(rest, windows.size)):
            found, too_long = windows.requests((prompt, stop) for prompt in window)
            refused.extend(too_long)
            yield from found

    for done in passes(model, requests(), config):
        yield from outputs(done)
    yield from refused


def decoded(
    extractor: Extractor, products: Sequence[Any], schema: Any, **options: Any
) -> list[tuple[Extraction[Any], tuple[SlotOutput, ...]]]:
    """Extractions in order, each with what was decoded for its slots; () of one that was not run.

    The one seam between the engine and the results that tests of both look through.
    """
    written: dict[int, tuple[SlotOutput, ...]] = {}
    usual = pipeline.read_out

    def read_out(document: Any, output: DocumentOutput, *rest: Any) -> Extraction[Any]:
        written[document.index] = output.slots
        return usual(document, output, *rest)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pipeline, "read_out", read_out)
        items = sorted(extractor.stream(products, schema, **options), key=lambda item: item.index)
    return [(item, written.get(item.index, ())) for item in items]


def written_slot(slot: SlotOutput) -> dict[str, Any]:
    """A slot's output in plain data, with all that it called for."""
    called = {
        "children": [written_slot(one) for one in slot.items],
        "branches": [written_slot(one) for one in slot.branches],
        "as_text": [written_slot(one) for one in (slot.free_text,) if one is not None],
        "repaired": [written_slot(one) for one in (slot.repaired,) if one is not None],
    }
    return {
        "ids": list(slot.ids),
        "finish_reason": slot.finish_reason,
        "logprobs": list(slot.logprobs),
        "null_logprob": slot.null_logprob,
        "legal_logprobs": list(slot.legal_logprobs),
        "passes": slot.passes,
        "before": slot.passes_before,
        **{name: some for name, some in called.items() if some},
    }


def by_prompt(outputs: Sequence[DocumentOutput], counts: Sequence[int]) -> Outputs:
    """The slots of all documents of each prompt; counts: how many it has."""
    rest = iter(outputs)
    return [tuple(slot for _ in range(n) for slot in next(rest).slots) for n in counts]


def called_prompt(prompt: PromptIds, slots: Sequence[SlotOutput]) -> PromptIds | None:
    """The document once more, with what its slots call for in their place; None for nothing."""
    children, numbers = [], []
    parents = prompt.numbers or range(len(slots))
    for parent, spec, slot in zip(parents, prompt.slots, slots, strict=True):
        if not spec.is_count or spec.follow_ups is None or slot.finish_reason == "length":
            continue
        called = spec.follow_ups.after(slot)
        children += called
        numbers += [child_number(parent, place) for place in range(len(called))]
    if not children:
        return None
    return replace(
        prompt,
        keys=(tuple(child.key for child in children),),
        k_max=tuple(child.k_max or 0 for child in children),
        slots=tuple(child.spec for child in children),
        numbers=tuple(numbers),
        answers=None,
    )


def limited(monkeypatch: pytest.MonkeyPatch, **changes: int) -> None:
    """Limits of a smaller machine."""
    usual = DecodingLimits.of

    def of(*arguments: Any) -> DecodingLimits:
        return replace(usual(*arguments), **changes)

    monkeypatch.setattr(stream_module.DecodingLimits, "of", of)


def counted(monkeypatch: pytest.MonkeyPatch, model: DecoderModel) -> list[int]:
    """How many tokens each pass takes."""
    tokens: list[int] = []
    usual = model.run_batch

    def run_batch(batch: Any, cache: Any) -> Tensor:
        tokens.append(len(batch.input_ids))
        return usual(batch, cache)

    monkeypatch.setattr(model, "run_batch", run_batch)
    return tokens


def follow_branches(monkeypatch: pytest.MonkeyPatch, least: float) -> None:
    """Follows branches of choices from this probability on; 1 follows none."""
    monkeypatch.setattr("schemax.compiler.choices.LEAST_PROBABLE", least)


def windowed(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Fewer prompts are taken from the input at a time."""
    replaced(monkeypatch, "prompts of a window", size)
