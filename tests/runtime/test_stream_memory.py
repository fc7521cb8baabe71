"""Where memory runs out: all in flight begin again, and nothing is lost."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import TITLES, slow_but
from decoding import compiled_in, filled, in_some_ways, limited, outputs_of, windowed
from seams import flight, replaced

from schemax.compiler import TextCodec
from schemax.runtime.attention.kv_pool import KVPool
from schemax.runtime.engine.limits import AdmissionControl, DecodingLimits
from schemax.runtime.engine.stream import stream
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.requests import Request, new_request
from schemax.tokens import ChildSlot, SlotOutput


@in_some_ways
@pytest.mark.parametrize(
    ("error", "flights"),
    [
        (torch.OutOfMemoryError("scarce"), 1),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory"), 2),
    ],
    ids=["accelerator", "cpu"],
)
@pytest.mark.parametrize("after", slow_but({2}, [0, 2]))
def test_out_of_memory_halves_what_is_in_flight(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    error: RuntimeError,
    after: int,
    flights: int,
    way: str,
) -> None:
    """At the first pass or in the middle: all in flight begin again, and nothing is lost."""
    model = decoder_model()
    compiled = compiled_in(way, small, codec)
    texts = [f"{title} {number}" for number in range(4) for title in TITLES]
    expected = outputs_of(model, compiled, texts)
    limited(monkeypatch, flights=flights)
    usual, passes, failed = model.run_batch, 0, 0

    def scarce(batch: Any, cache: Any) -> torch.Tensor:
        nonlocal passes, failed
        passes += 1
        if passes > after and len(batch.selection) > 20:
            failed += 1
            raise error
        return usual(batch, cache)

    monkeypatch.setattr(model, "run_batch", scarce)
    assert outputs_of(model, compiled, texts) == expected
    assert 1 <= failed <= 4


class Scarce:
    """Waves that find no memory on the host, once, after others were done in the same pass."""

    extent = 0

    def __init__(self, failures: list[int]) -> None:
        self.failures = failures

    def next_wave(self, outputs: tuple[SlotOutput, ...], room: int | None) -> tuple[ChildSlot, ...]:
        return ()

    def final_outputs(self, outputs: tuple[SlotOutput, ...]) -> tuple[SlotOutput, ...]:
        if self.failures:
            self.failures.pop()
            raise MemoryError
        return outputs


@pytest.mark.parametrize("flights", [1, 2])
def test_what_was_done_before_memory_ran_out_is_handed_over(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    flights: int,
) -> None:
    compiled = compiled_in("branched", small, codec, k_max=1, max_retries=0)
    limited(monkeypatch, flights=flights)
    prompts = compiled.encode(TITLES)
    expected = filled(decoder_model(), compiled, prompts)
    failures = [1]
    prompts[3] = replace(prompts[3], waves=Scarce(failures))
    assert filled(decoder_model(), compiled, prompts) == expected
    assert not failures


def test_memory_that_only_cancelled_documents_take_halves_nothing(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """They leave with the next admission, and memory may run out there."""
    model, compiled = decoder_model(), compiled_in("branched", small, codec)
    stop, config = compiled.stop, compiled.decoding
    prompts = compiled.encode(TITLES)
    requests = [new_request(prompt, stop, config, n) for n, prompt in enumerate(prompts)]
    cancelled: deque[Request] = deque()
    watched = flight()
    usual, begun = watched.admit, 0

    def admit(flight: Any) -> None:
        nonlocal begun
        begun += 1
        if begun == 2:
            raise torch.OutOfMemoryError("scarce")
        usual(flight)
        cancelled.extend(requests)

    monkeypatch.setattr(watched, "admit", admit)
    assert not any(stream(model, iter(requests), config, cancelled))
    assert begun == 3
    assert "out of memory" not in caplog.text


@pytest.mark.slow
@in_some_ways
def test_what_memory_was_short_of_for_a_while_is_tried_again(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    """Others may have taken the memory, and given it back."""
    replaced(monkeypatch, "passes until more is tried", 1)
    model = decoder_model()
    compiled = compiled_in(way, small, codec)
    texts = [f"{title} {number}" for number in range(12) for title in TITLES]
    expected = outputs_of(model, compiled, texts)
    usual, sizes, scarcities = model.run_batch, [], 3

    def scarce(batch: Any, cache: Any) -> torch.Tensor:
        nonlocal scarcities
        sizes.append(len(batch.selection))
        if scarcities and sizes[-1] > 4:
            scarcities -= 1
            raise torch.OutOfMemoryError("scarce")
        return usual(batch, cache)

    monkeypatch.setattr(model, "run_batch", scarce)
    assert outputs_of(model, compiled, texts) == expected
    failed = [at for at, size in enumerate(sizes) if size > 4][2]
    assert sizes[failed] < sizes[0] / 3
    assert max(sizes[failed + 1 :]) > 0.8 * sizes[0]


def test_memory_that_stays_short_is_tried_ever_less() -> None:
    control = AdmissionControl(DecodingLimits(1 << 30, 1024, 10_000))
    failures, done = [], 0
    while done < 1_000_000:
        control.count(100)
        done += 100
        if control.now.documents > 80:
            failures.append(done)
            control.halve(100)
            assert control.now.documents == 50
    assert 5 < len(failures) < 30
    between = np.diff(failures)
    assert (between[1:6] > 1.9 * between[:5]).all()
    assert between[-1] > 1000 * 50


def test_a_shortage_that_passes_is_forgotten() -> None:
    """However small the limits had become."""
    control = AdmissionControl(DecodingLimits(1 << 30, 1024, 10_000))
    in_flight = 1024
    while in_flight > 1:
        control.halve(in_flight)
        in_flight = control.now.documents
    done = 0
    while control.now.documents < 1024:
        control.count(control.now.documents)
        done += control.now.documents
    assert done < 50_000
    assert control.now.pass_tokens == 1024


@pytest.mark.release
@pytest.mark.parametrize("way", slow_but({"causal"}, ["branched", "causal", "paper"]))
@pytest.mark.parametrize("lasting", [False, True])
def test_a_store_that_cannot_grow_loses_nothing(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    lasting: bool,
    way: str,
) -> None:
    """Documents that are refused among them; and if it never can, they fail one by one."""
    model = decoder_model("qwen3", max_position_embeddings=300)
    compiled = compiled_in(way, small, codec, documents_per_prompt=1)
    long = "Sony " * 400
    titles = [f"LG {number} {'OLED ' * (number // 2)}" for number in range(40)]
    texts = [text for title in titles for text in (title, f"{long}{title}", f"TCL {title}")]
    expected = outputs_of(model, compiled, texts)
    assert [bool(output.slots) for output in expected] == [len(text) < 600 for text in texts]
    usual, moves = KVPool.resize, 0

    def scarce(*arguments: Any) -> None:
        nonlocal moves
        moves += 1
        if lasting or moves == 2:
            raise torch.OutOfMemoryError("scarce")
        usual(*arguments)

    monkeypatch.setattr(KVPool, "resize", scarce)
    limited(monkeypatch, pass_tokens=200)
    found = outputs_of(model, compiled, texts)
    assert moves > 2
    if lasting:
        assert all(output.problem for output in found)
    else:
        assert found == expected


@in_some_ways
def test_a_document_too_large_for_memory_costs_itself_only(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    model = decoder_model()
    usual = model.run_batch

    def scarce(batch: Any, cache: Any) -> torch.Tensor:
        if len(batch.input_ids) > 500:
            raise torch.OutOfMemoryError("scarce")
        return usual(batch, cache)

    monkeypatch.setattr(model, "run_batch", scarce)
    compiled = compiled_in(way, small, codec, documents_per_prompt=1)
    outputs = outputs_of(model, compiled, ["LG", "Sony " * 600, "TCL"])
    assert [bool(output.slots) for output in outputs] == [True, False, True]
    assert "memory" in str(outputs[1].problem)


@pytest.mark.slow
@in_some_ways
def test_after_a_document_too_large_all_goes_on_as_before(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    """It sorts among the last of its window; later windows are not read one by one for it."""
    windowed(monkeypatch, 12)
    model = decoder_model()
    usual, passes = model.run_batch, 0

    def scarce(batch: Any, cache: Any) -> torch.Tensor:
        nonlocal passes
        passes += 1
        if len(batch.input_ids) > 500:
            raise torch.OutOfMemoryError("scarce")
        return usual(batch, cache)

    monkeypatch.setattr(model, "run_batch", scarce)
    limited(monkeypatch, pass_tokens=400)
    compiled = compiled_in(way, small, codec, documents_per_prompt=1)
    texts = [f"{TITLES[number % 7]} {number}" for number in range(36)]
    expected = outputs_of(model, compiled, texts)
    alone, passes = passes, 0
    found = outputs_of(model, compiled, [*texts[:11], "Sony " * 600, *texts[11:]])
    assert "memory" in str(found.pop(11).problem)
    assert found == expected
    assert passes < 5 * alone  # one by one: sixteen times


@in_some_ways
def test_other_failures_are_not_taken_for_a_lack_of_memory(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    def broken(*_: Any) -> torch.Tensor:
        raise RuntimeError("a bug")

    model = decoder_model()
    monkeypatch.setattr(model, "run_batch", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        outputs_of(model, compiled_in(way, small, codec), TITLES)
