"""Two groups of documents that take turns: outputs of one, and a device that is never idle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from conftest import TITLES, slow_but, tiny_model
from decoding import WAYS, compiled_in, limited, run
from seams import flight, replaced, watch_second_choices
from simulated_gpu import simulated_gpu
from simulated_guard import HAS_COMPILER
from test_gpu import Typed, written

from schemax.compiler import TextCodec
from schemax.runtime.engine.limits import DecodingLimits
from schemax.runtime.engine.self_test import prepare
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.sampling import sampler

TEXTS = [f"{title} {number}" for number in range(2) for title in TITLES[:4]]


@pytest.fixture
def under_way(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many flights have a pass under way, as each pass begins."""
    counts: list[int] = []
    flying: set[Any] = set()
    watched = flight()
    begin, finish = watched.begin, watched.finish

    def begun(flight: Any) -> None:
        begin(flight)
        if flight.is_under_way:
            flying.add(flight)
            counts.append(len(flying))

    def finished(flight: Any) -> Any:
        flying.discard(flight)
        return finish(flight)

    monkeypatch.setattr(watched, "begin", begun)
    monkeypatch.setattr(watched, "finish", finished)
    return counts


@pytest.mark.parametrize("sampled", slow_but({False}, [False, True]))
@pytest.mark.parametrize("way", slow_but({"branched", "causal"}, WAYS))
def test_outputs_are_those_of_one_flight(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    monkeypatch: pytest.MonkeyPatch,
    under_way: list[int],
    way: str,
    sampled: bool,
) -> None:
    """With grammars, retries, and lists whose items are called for."""
    drawn = {"temperature": 0.8} if sampled else {}
    model, compiled = decoder_model(), compiled_in(way, Typed, codec, k_max=3, **drawn)
    expected = run(model, compiled, TEXTS, 6)
    assert set(under_way) == {1}
    under_way.clear()
    limited(monkeypatch, flights=2)
    assert written(run(model, compiled, TEXTS, 6)) == written(expected)
    assert max(under_way) == 2


@pytest.mark.parametrize("most", [1, 1000])
def test_texts_that_are_checked_on_a_device_are_those_of_the_host(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    """Where all that is refused is chosen once more there, and where the host has to."""
    model, compiled = decoder_model(), compiled_in("branched", Typed, codec, k_max=6)
    expected = run(model, compiled, TEXTS, 6)
    looks: list[None] = []
    watch_second_choices(monkeypatch, lambda: looks.append(None))
    monkeypatch.setattr(sampler, "SHARED", frozenset())
    replaced(monkeypatch, "texts that a device checks again", most)
    found = run(model, compiled, TEXTS, 6)
    assert len(looks) > 3
    assert found == expected
    for slots, others in zip(found, expected, strict=True):
        for slot, other in zip(slots, others, strict=True):
            assert slot.logprobs == pytest.approx(other.logprobs, abs=1e-5)
            assert slot.legal_logprobs == pytest.approx(other.legal_logprobs, abs=1e-4)
    assert any(slot.legal_logprobs[1] < 0 for slots in found for slot in slots)


def test_flights_share_what_may_be_in_flight() -> None:
    for documents in (1, 2, 7, 1 << 30):
        limits = DecodingLimits(documents, 1024, 1001, flights=2)
        parts = [limits.of_flight(place) for place in range(2)]
        assert sum(part.documents for part in parts) == documents
        assert parts[0].documents - parts[1].documents in (0, 1)
        assert {part.capacity for part in parts} == {500}


@pytest.mark.slow
@pytest.mark.skipif(not HAS_COMPILER, reason="a simulated device requires g++")
@pytest.mark.parametrize("flights", slow_but({2}, [1, 2]))
def test_a_device_has_work_while_the_host_chooses(
    codec: TextCodec, monkeypatch: pytest.MonkeyPatch, flights: int
) -> None:
    """Once the host has waited for one flight's tokens, the other's pass is still to be done."""
    limited(monkeypatch, flights=flights)
    compiled = compiled_in("branched", Typed, codec, k_max=4)
    with simulated_gpu() as gpu:
        model = prepare(tiny_model("qwen3", codec.vocab_size).to("cuda"))
        gpu.events.clear()
        run(model, compiled, TEXTS, 8)
        waits = [event for event in gpu.events if event.kind == "wait"]
        waits = [event for event in waits if "kernels.py" not in event.line]
        del model
    assert {event.name for event in waits} == {"event"}
    idle = sum(event.size < 100 for event in waits)
    # The last passes of one flight have nothing beside them.
    assert idle == len(waits) if flights == 1 else idle < len(waits) / 3
