"""Requests that call for many slots share passes with those that come behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from conftest import TITLES
from decoding import compiled_in, counted, limited, streamed, windowed

from schemax.compiler import TextCodec
from schemax.runtime.engine import stream as stream_module
from schemax.runtime.engine.scheduler import Scheduler
from schemax.runtime.models.model import DecoderModel
from schemax.tokens import ChildSlot, PromptIds, SlotOutput, SlotSpec

CALLED = 1_500


class Many:
    """A wave of many slots: as a list of thousands of items."""

    extent = 100

    def next_wave(self, outputs: tuple[SlotOutput, ...], room: int | None) -> tuple[ChildSlot, ...]:
        keys = [(5, number % 50 + 6, 7) for number in range(CALLED)] if len(outputs) == 4 else []
        return tuple(ChildSlot(key, 3, SlotSpec(), "wave") for key in keys)

    def final_outputs(self, outputs: tuple[SlotOutput, ...]) -> tuple[SlotOutput, ...]:
        return outputs


@pytest.fixture
def schedulers(monkeypatch: pytest.MonkeyPatch) -> list[Scheduler]:
    made: list[Scheduler] = []

    def scheduler(*given: Any, **more: Any) -> Scheduler:
        made.append(Scheduler(*given, **more))
        return made[-1]

    monkeypatch.setattr(stream_module, "Scheduler", scheduler)
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    ("huge", "limits"),
    [
        pytest.param(1, {}, id="one", marks=pytest.mark.slow),
        pytest.param(1, {"capacity": 1_000}, id="little memory", marks=pytest.mark.slow),
        pytest.param(6, {}, id="several"),
    ],
)
def test_a_small_request_behind_huge_ones_is_done_soon(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
    schedulers: list[Scheduler],
    huge: int,
    limits: dict[str, int],
) -> None:
    windowed(monkeypatch, 1)
    limited(monkeypatch, pass_tokens=128, **limits)
    compiled = compiled_in("branched", small, codec, k_max=3)
    model = decoder_model()
    passes = counted(monkeypatch, model)
    prompts = compiled.encode([f"{TITLES[n % 7]} {n}" for n in range(huge + 20)])
    first = [replace(prompt, waves=Many()) for prompt in prompts[:huge]]

    def requests() -> Iterator[PromptIds]:
        yield from first
        yield from prompts[huge:]

    found = {}
    for place, output in streamed(model, requests(), compiled.stop, compiled.decoding):
        found[place] = output.slots, len(passes)
    last = max(after for slots, after in found.values() if len(slots) == 4)
    assert all(len(found[place][0]) == 4 + CALLED for place in range(huge))
    assert last < 0.3 * min(found[place][1] for place in range(huge))
    assert max(passes) <= 128
    assert all(scheduler.follow_ups.footprint == 0 for scheduler in schedulers)
    # Shares change when a slot is filled, and not what with.
    alone = dict(streamed(model, iter(first[:1]), compiled.stop, compiled.decoding))
    assert [slot.ids for slot in alone[0].slots] == [slot.ids for slot in found[0][0]]


@pytest.mark.slow
def test_an_only_request_has_whole_passes(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limited(monkeypatch, pass_tokens=128)
    compiled = compiled_in("branched", small, codec, k_max=3)
    model = decoder_model()
    passes = counted(monkeypatch, model)
    (prompt,) = compiled.encode(TITLES[:1])
    list(streamed(model, iter([replace(prompt, waves=Many())]), compiled.stop, compiled.decoding))
    assert sum(passes[10:-10]) / len(passes[10:-10]) > 120
