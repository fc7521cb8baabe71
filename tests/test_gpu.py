"""All that touches a device, on a simulated one: outputs as on the CPU, and what a pass costs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import pytest
from conftest import TITLES, slow_but, tiny_model
from decoding import TEMPLATE, WAYS, Outputs, compiled_in, run
from families import FORK, IN_SEQUENCE, Family
from simulated_gpu import HAS_COMPILER, Event, simulated_gpu

from schemax import AttrSchema, Extractor, attr, doctor
from schemax.compiler import TextCodec, compile_schema
from schemax.resources import resource_dir
from schemax.runtime.self_test import prepare

pytestmark = pytest.mark.skipif(not HAS_COMPILER, reason="a simulated device requires g++")

EMBEDDED = {"name": resource_dir("embedded"), "dtype": "float32"}


class Typed(AttrSchema, category="television"):
    """Every kind of slot: free text, numbers, booleans, choices, lists read in two phases."""

    brand: str | None = attr("Manufacturer", k_max=6)
    size: float | None = attr("Diagonal, inches", k_max=4)
    smart: bool | None = None
    resolution: Literal["720p", "4K"] | None = None
    ports: list[str] = attr("Connectors", default_factory=list)


def written(outputs: Outputs) -> Any:
    return [
        [(slot.ids, slot.finish_reason, written([slot.children])) for slot in slots]
        for slots in outputs
    ]


def assert_alike(found: Outputs, expected: Outputs) -> None:
    """The same tokens, and their probabilities nearly."""
    assert written(found) == written(expected)
    for slots, others in zip(found, expected, strict=True):
        for slot, other in zip(slots, others, strict=True):
            assert slot.logprobs == pytest.approx(other.logprobs, abs=1e-3)


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("way", slow_but({"branched", "paper"}, WAYS))
def test_every_way_to_decode_equals_the_cpu(way: str, sampled: bool, codec: TextCodec) -> None:
    drawn = {"temperature": 0.8, "top_p": 0.9} if sampled else {}
    compiled = compiled_in(way, Typed, codec, k_max=4, **drawn)
    expected = run(prepare(tiny_model("qwen3", codec.vocab_size)), compiled, TITLES[:3], 2)
    with simulated_gpu():
        model = prepare(tiny_model("qwen3", codec.vocab_size).to("cuda"))
        assert model.device.type == "cuda"
        assert_alike(run(model, compiled, TITLES[:3], 2), expected)


@pytest.mark.parametrize(
    "family",
    slow_but({"gpt_oss", "gemma2", "bloom"}, [*IN_SEQUENCE, *FORK], lambda family: family.name),
    ids=lambda family: family.name,
)
def test_every_family_equals_the_cpu(family: Family, codec: TextCodec) -> None:
    """Windows, sinks, soft caps and states of other kinds."""
    model = prepare(family.model(codec.vocab_size))
    compiled = compile_schema(Typed, codec, template=TEMPLATE, vocab_size=model.vocab_size)
    expected = run(model, compiled, TITLES[:3])
    with simulated_gpu():
        moved = prepare(family.model(codec.vocab_size).to("cuda"))
        assert type(moved) is type(model)
        assert_alike(run(moved, compiled, TITLES[:3]), expected)


def test_what_users_do_equals_the_cpu(saved_model: Path) -> None:
    """Loading by default, examples in the instruction, typed values with their confidences."""
    loading: dict[str, Any] = {"name": saved_model, "dtype": "float32"}
    examples = [("Bosch drill 18 V", Typed(brand="Bosch"))]
    extractor = Extractor.from_pretrained(**loading, device="cpu")
    expected = list(extractor.stream(TITLES[:3], Typed, examples=examples))
    with simulated_gpu():
        extractor = Extractor.from_pretrained(**loading)
        assert extractor.model.device.type == "cuda"
        found = list(extractor.stream(TITLES[:3], Typed, examples=examples))
        found.sort(key=lambda item: item.index)
        del extractor
    for item, other in zip(found, sorted(expected, key=lambda item: item.index), strict=True):
        assert item.value == other.value
        for name, result in item.fields.items():
            assert result.raw == other.fields[name].raw
            assert result.confidence == pytest.approx(other.fields[name].confidence, abs=1e-3)


@pytest.mark.slow
def test_the_doctor_finds_the_device_exact() -> None:
    with simulated_gpu():
        diagnosis = doctor(Extractor.from_pretrained(**EMBEDDED))
        assert not diagnosis.problems
        assert all(item.exact for item in diagnosis.agreements)


def split(events: Sequence[Event]) -> list[tuple[list[Event], list[Event]]]:
    """The events of each pass, and those from its end to the next one's beginning."""
    found: list[tuple[list[Event], list[Event]]] = []
    inside = True
    for event in events:
        if event.kind == "begin":
            found.append(([], []))
            inside = True
        elif event.kind == "end":
            inside = False
        elif found:
            found[-1][not inside].append(event)
    return found[:-1]


class Choices(AttrSchema, category="television"):
    """Slots of which all is known before the choice."""

    smart: bool | None = None
    resolution: Literal["720p", "4K"] | None = None


@pytest.mark.parametrize(
    ("schema", "constrained", "copies", "waits"),
    [(Typed, False, 2, 1), (Choices, True, 2, 1), (Typed, True, 3, 2)],
    ids=["no grammars", "choices", "texts, some tokens of which are refused and chosen anew"],
)
@pytest.mark.parametrize("documents", [2, 30])
def test_what_a_pass_copies_and_waits_for(
    documents: int, schema: Any, constrained: bool, copies: int, waits: int, codec: TextCodec
) -> None:
    """As much for many slots as for few; nothing is waited for inside a forward pass."""
    compiled = compiled_in("branched", schema, codec, constrain=constrained, k_max=4)
    with simulated_gpu() as gpu:
        module = tiny_model("qwen3", codec.vocab_size).to("cuda")
        model = prepare(module)
        module.register_forward_pre_hook(lambda *_: gpu.mark("begin"))
        module.register_forward_hook(lambda *_: gpu.mark("end"))
        texts = [f"{TITLES[place % len(TITLES)]} {place}" for place in range(documents)]
        run(model, compiled, texts, 200)
        found = split(gpu.events)
    assert len(found) > 3
    for inside, outside in found:
        kinds = Counter(event.kind for event in inside)
        assert not kinds.keys() & {"to_device", "to_host", "wait"}, inside
        assert kinds["launch"] <= 60 + 2 * 130  # 54 of a layer are the model's own
        moved = sum("kv_pool" in event.line for event in outside if event.kind == "to_device")
        kinds = Counter(event.kind for event in outside)
        assert kinds["to_device"] <= copies + moved <= copies + 1
        assert kinds["to_host"] == kinds["wait"] <= waits
