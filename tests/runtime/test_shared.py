"""Calls that share passes: the results of each alone, whoever comes, goes, fails or dawdles."""

from __future__ import annotations

import asyncio
import gc
import random
import subprocess
import sys
import threading
import weakref
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from itertools import chain
from typing import Any

import pytest
import torch
from conftest import TITLES, Small, slow_but, tiny_model
from constrained import forked
from decoding import WAYS, compiled_in, counted, limited, windowed
from list_models import Television
from seams import assert_all_is_given_back, calls_of, replaced
from transformers import PreTrainedTokenizerFast

from schemax import AttrSchema, DecodingConfig, Extraction, Extractor, ModelError, attr
from schemax.compiler import TextCodec
from schemax.runtime.engine import shared
from schemax.runtime.engine.decode import Windows, passes
from schemax.runtime.engine.scheduler import Scheduler
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.slots.requests import Request


class Loose(AttrSchema, category="television"):
    """Whatever a random model writes is a value of it."""

    brand: str | None = attr("Manufacturer", k_max=6)
    model: str | None = attr(k_max=6)


class Priced(AttrSchema):
    """A random model never writes one of these."""

    price: float = attr("Price", k_max=5, strict=True)


DECODINGS: list[Any] = [
    "isolated:k_max=8",
    "paper:k_max=8",
    DecodingConfig(temperature=1.1, seed=3),
    DecodingConfig(temperature=1.1, seed=4),
    DecodingConfig(temperature=0.7, top_p=0.6),
    DecodingConfig(k_max=8),
    DecodingConfig(layout="gapped"),
    DecodingConfig(documents="stacked", documents_per_prompt=2),
]


@pytest.fixture(scope="module")
def make(codec: TextCodec, backend: Any) -> Callable[..., Extractor]:
    def make(model: Any = None) -> Extractor:
        fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
        return Extractor(model or tiny_model("qwen3", codec.vocab_size), fast)

    return make


@pytest.fixture(scope="module")
def extractor(make: Callable[..., Extractor]) -> Extractor:
    return make()


def said(items: Iterable[Extraction[Any]]) -> list[Any]:
    """What was written, by place: probabilities apart, whose last digits a batch may change."""
    return [
        (item.index, item.value, item.errors, [slot and (slot.raw, slot.tokens) for slot in slots])
        for item in sorted(items, key=lambda item: item.index)
        for slots in [item.slots]
    ]


def ended() -> bool:
    """Whether no thread decodes, soon."""
    for thread in threading.enumerate():
        if thread.name == shared.THREAD_NAME:
            thread.join(timeout=60)
    return not any(thread.name == shared.THREAD_NAME for thread in threading.enumerate())


def some_calls(seed: int, count: int) -> list[tuple[list[Any], Any, dict[str, Any]]]:
    """Documents, a schema and options: of every decoding, with rows that fail among them."""
    rng = random.Random(seed)
    calls = []
    for number in range(count):
        rows: list[Any] = [f"{rng.choice(TITLES)} {number}" for _ in range(rng.randint(1, 4))]
        rows += rng.sample(["", 7, {"title": "LG"}, TITLES[0], "Sony " * 2000], 2)
        schema = rng.choice([Loose, Small, Priced, Television])
        decoding = rng.choice(DECODINGS if schema is not Television else DECODINGS[:1])
        calls.append((rows, schema, {"decoding": decoding}))
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("seed", slow_but({0}, range(4)))
@pytest.mark.parametrize("room", slow_but({1024}, [100, 1024]))
@pytest.mark.parametrize("flights", slow_but({2}, [1, 2]))
def test_results_are_those_of_each_call_alone(
    extractor: Extractor, monkeypatch: pytest.MonkeyPatch, seed: int, room: int, flights: int
) -> None:
    """Threads and tasks at once, some of which leave early or read slowly."""
    calls = some_calls(seed, 8)
    expected = [said(extractor.stream(rows, schema, **o)) for rows, schema, o in calls]
    limited(monkeypatch, pass_tokens=room, flights=flights)

    def in_thread(number: int) -> list[Any]:
        rows, schema, options = calls[number]
        stream = extractor.stream(rows, schema, **options)
        if number % 8 == 3:
            next(stream)
            stream.close()  # type: ignore[attr-defined]
        return said(extractor.stream(rows, schema, **options))

    async def in_task(number: int) -> list[Any]:
        rows, schema, options = calls[number]
        if number % 8 == 4:
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(extractor.aextract(TITLES * 500, Small), 0.05)
        found = []
        async for item in extractor.astream(rows, schema, **options):
            found.append(item)
            await asyncio.sleep(0.01 if number % 6 == 0 else 0)
        return said(found)

    async def all_tasks() -> list[Any]:
        return await asyncio.gather(*(in_task(number) for number in range(0, len(calls), 2)))

    with ThreadPoolExecutor(len(calls)) as pool:
        tasks = pool.submit(asyncio.run, all_tasks())
        threads = list(pool.map(in_thread, range(1, len(calls), 2)))
    assert tasks.result() == expected[0::2]
    assert threads == expected[1::2]
    assert ended()


@pytest.mark.slow
def test_a_model_that_decodes_one_row_per_slot_is_shared_as_well(
    codec: TextCodec, make: Callable[..., Extractor]
) -> None:
    extractor = make(forked(codec).model)
    calls = [TITLES[at : at + 3] for at in range(4)]
    expected = [said(extractor.stream(texts, Small)) for texts in calls]
    with ThreadPoolExecutor(5) as pool:
        gone = extractor.stream(TITLES * 40, Small)
        next(gone)
        found = pool.map(lambda texts: said(extractor.stream(texts, Small)), calls)
        gone.close()  # type: ignore[attr-defined]
        assert list(found) == expected


def test_calls_join_the_passes_of_others(
    make: Callable[..., Extractor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight at a time take as many passes as the longest of them, and one that they wait for."""
    extractor = make()
    alone = extractor.extract(TITLES, Loose)
    tokens = counted(monkeypatch, extractor.model)
    assert extractor.extract(TITLES, Loose) == alone
    together = len(tokens)
    usual = extractor.model.run_batch
    all_in = threading.Event()

    def run_batch(batch: Any, cache: Any) -> Any:
        assert all_in.wait(60)
        return usual(batch, cache)

    monkeypatch.setattr(extractor.model, "run_batch", run_batch)
    tokens.clear()
    with ThreadPoolExecutor(len(TITLES)) as pool:
        found = [pool.submit(extractor.extract, [title], Loose) for title in TITLES]
        while len(calls := calls_of(extractor)) < len(TITLES) or any(c.is_open for c in calls):
            threading.Event().wait(0.01)
        all_in.set()
        assert [value for one in found for value in one.result()] == alone
    assert together <= len(tokens) <= together + 1


@pytest.mark.slow
def test_calls_of_all_decodings_share_passes(
    make: Callable[..., Extractor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """How tokens are chosen, what they see, and where keys stand, is a matter of each slot."""
    extractor = make()
    tokens = counted(monkeypatch, extractor.model)
    alone, most = [], 0
    for decoding in DECODINGS:
        tokens.clear()
        alone.append(said(extractor.stream(TITLES[:2], Loose, decoding=decoding)))
        most = max(most, len(tokens))
    usual = extractor.model.run_batch
    all_in = threading.Event()

    def run_batch(batch: Any, cache: Any) -> Any:
        assert all_in.wait(60)
        return usual(batch, cache)

    def read(decoding: Any) -> list[Any]:
        return said(extractor.stream(TITLES[:2], Loose, decoding=decoding))

    monkeypatch.setattr(extractor.model, "run_batch", run_batch)
    tokens.clear()
    with ThreadPoolExecutor(len(DECODINGS)) as pool:
        found = [pool.submit(read, decoding) for decoding in DECODINGS]
        while len(calls := calls_of(extractor)) < len(DECODINGS) or any(c.is_open for c in calls):
            threading.Event().wait(0.01)
        all_in.set()
        assert [one.result() for one in found] == alone
    assert len(tokens) <= most + 2


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("flights", [1, 2])
def test_requests_that_are_cancelled_leave_nothing_behind(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
    flights: int,
) -> None:
    """Rows, slots, places in the pool: all free. What remains is what it is without them."""
    limited(monkeypatch, pass_tokens=150)
    schema = Television if way == "branched" else Small
    model, compiled = decoder_model(), compiled_in(way, schema, codec)
    prompts = compiled.encode([f"{title} {n}" for n in range(2) for title in TITLES[:5]])
    windows = Windows(model, compiled.decoding)
    requests, refused = windows.requests((prompt, compiled.stop) for prompt in prompts)
    assert not refused
    schedulers = []
    usual = Scheduler.__init__

    def kept(self: Any, *arguments: Any, **named: Any) -> None:
        schedulers.append(self)
        usual(self, *arguments, **named)

    alone = dict(chain.from_iterable(passes(model, iter(requests), compiled.decoding)))
    rng = random.Random(0)
    monkeypatch.setattr(Scheduler, "__init__", kept)
    limited(monkeypatch, pass_tokens=150, flights=flights)
    cancelled: deque[Request] = deque()
    gone, found = set(), {}
    for done in passes(model, iter(requests), compiled.decoding, cancelled=cancelled):
        found.update(dict(done))
        flying = [request for scheduler in schedulers for request in scheduler.requests]
        running = [request for request in flying if request not in found and request not in gone]
        if running and rng.random() < 0.3:
            gone.add(running[0])
            cancelled.append(running[0])
    assert gone
    # What is under way in the other flight may end by itself.
    assert flights == 2 or not gone & found.keys()
    assert gone - found.keys()
    assert gone | found.keys() == set(requests)
    assert found == {request: slots for request, slots in alone.items() if request in found}
    assert len(schedulers) == flights
    for scheduler in schedulers:
        assert_all_is_given_back(scheduler)


@pytest.mark.slow
def test_a_slow_reader_holds_up_nobody(
    make: Callable[..., Extractor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it does not read piles up to a bound, and is there when it goes on."""
    replaced(monkeypatch, "results that a call leaves unread", 4)
    replaced(monkeypatch, "requests that a call gives ahead", 4)
    limited(monkeypatch, pass_tokens=100)
    extractor = make()
    texts = [f"{title} {n}" for n in range(15) for title in TITLES]
    expected = said(extractor.stream(texts, Loose))
    slow = extractor.stream(texts, Loose)
    first = next(slow)
    assert len(extractor.extract(texts, Loose)) == len(texts)
    (call,) = calls_of(extractor)
    assert len(call.results) + len(call.in_flight) < 40
    assert said([first, *slow]) == expected


@pytest.mark.slow
def test_a_closed_extractor_finishes_what_it_was_given(
    make: Callable[..., Extractor], monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(monkeypatch, "requests that a call gives ahead", 16)
    windowed(monkeypatch, 16)
    expected = said(make().stream([f"{TITLES[n % 7]} {n}" for n in range(400)], Loose))
    with make() as extractor:
        stream = extractor.stream((f"{TITLES[n % 7]} {n}" for n in range(400)), Loose)
        found = [next(stream)]
        whole = extractor.stream(TITLES, Small)
        others = [next(whole)]
    with pytest.raises(ModelError, match="was closed before it had read all documents"):
        found.extend(stream)
    assert ended()
    others += whole
    assert said(others) == said(make().stream(TITLES, Small))
    with pytest.raises(ModelError, match="is closed"):
        extractor.extract(TITLES, Loose)
    extractor.close()
    assert said(found) == [expected[index] for index in sorted(item.index for item in found)]


@pytest.mark.parametrize("mates", [0, 3])
def test_a_pass_that_fails_ends_no_other_call(
    make: Callable[..., Extractor], monkeypatch: pytest.MonkeyPatch, mates: int
) -> None:
    """Its error is raised behind what was done before; calls that shared the pass go on."""
    extractor = make()
    expected = said(extractor.stream(TITLES, Loose))
    usual = extractor.model.run_batch
    poison = set(extractor.compile(Loose).codec.encode(" poison"))

    def run_batch(batch: Any, cache: Any) -> Any:
        if poison <= set(torch.as_tensor(batch.input_ids).tolist()):
            raise RuntimeError("no such kernel")
        return usual(batch, cache)

    monkeypatch.setattr(extractor.model, "run_batch", run_batch)

    def others() -> list[Any]:
        return said(extractor.stream(TITLES, Loose))

    with ThreadPoolExecutor(4) as pool:
        found = [pool.submit(others) for _ in range(mates)]
        with pytest.raises(RuntimeError, match="no such kernel"):
            extractor.extract([*TITLES, "what a poison"], Loose)
        assert all(mate.result() == expected for mate in found)
    assert others() == expected
    assert ended()


@pytest.mark.slow
def test_schemas_without_end_leave_nothing_behind(
    extractor: Extractor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lane's tables are made anew now and then, while calls come and go."""
    replaced(monkeypatch, "layouts of a lane", 2)
    begun = []
    usual = shared.passes

    def counting(*arguments: Any, **named: Any) -> Any:
        begun.append(1)
        return usual(*arguments, **named)

    monkeypatch.setattr(shared, "passes", counting)
    schemas = [
        type(f"T{n}", (Loose,), {"__annotations__": {f"f{n}": str | None}, f"f{n}": attr(k_max=4)})
        for n in range(8)
    ]
    expected = [said(extractor.stream(TITLES[:3], schema)) for schema in schemas]
    begun.clear()
    with ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda schema: said(extractor.stream(TITLES[:3], schema)), schemas * 3)
        assert list(found) == expected * 3
    assert len(begun) > 2


def test_unreadable_records_wait_for_nothing(extractor: Extractor) -> None:
    """The input never ends, and no document of it is any good."""

    def endless() -> Iterator[int]:
        while True:
            yield 7

    stream = extractor.stream(endless(), Loose)
    assert [next(stream).index for _ in range(100)] == list(range(100))
    stream.close()  # type: ignore[attr-defined]
    assert ended()


# Tasks


def test_a_task_that_is_cancelled_gives_its_room_back(extractor: Extractor) -> None:
    async def cancelled() -> None:
        task = asyncio.create_task(extractor.aextract(TITLES * 1000, Small))
        while not any(call.in_flight for call in calls_of(extractor)):
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert ended()


def test_a_task_that_breaks_off_ends_the_passes(extractor: Extractor) -> None:
    async def first() -> int:
        async with aclosing(extractor.astream(TITLES * 1000, Small)) as items:
            async for item in items:
                return item.index
        raise AssertionError

    assert asyncio.run(first()) >= 0
    assert ended()


@pytest.mark.slow
def test_the_event_loop_goes_on_meanwhile(extractor: Extractor) -> None:
    """Reading, decoding and building block no other task."""

    async def beats() -> int:
        count = 0
        task = asyncio.create_task(extractor.aextract([f"{n}" for n in range(300)], Small))
        while not task.done():
            await asyncio.sleep(0.005)
            count += 1
        assert len(task.result()) == 300
        return count

    assert asyncio.run(beats()) > 20


def test_tasks_are_told_what_is_wrong(extractor: Extractor) -> None:
    async def first(**options: Any) -> Any:
        return await anext(extractor.astream(TITLES, Loose, **options))

    with pytest.raises(ValueError, match="toml"):
        asyncio.run(first(format="toml"))
    with pytest.raises(ValueError, match="on_error"):
        asyncio.run(extractor.aextract(TITLES, Loose, on_error="ignore"))  # type: ignore[call-overload]

    def broken() -> Iterator[str]:
        yield from TITLES
        raise OSError("the disk is gone")

    async def all_of(items: AsyncIterator[Any], found: list[int]) -> None:
        async for item in items:
            found.append(item.index)

    found: list[int] = []
    with pytest.raises(OSError, match="the disk is gone"):
        asyncio.run(all_of(extractor.astream(broken(), Loose), found))
    assert sorted(found) == list(range(len(TITLES)))


@pytest.mark.slow
def test_a_loop_that_ends_ends_its_calls(extractor: Extractor) -> None:
    """A task that nobody waits for is cancelled with its loop."""

    async def leaves() -> None:
        task = asyncio.create_task(extractor.aextract(TITLES * 1000, Small))
        await asyncio.sleep(0.1)
        assert not task.done()

    asyncio.run(leaves())
    gc.collect()
    assert ended()


@pytest.mark.slow
def test_a_forgotten_extractor_is_let_go(make: Callable[..., Extractor]) -> None:
    extractor = make()
    stream = extractor.stream((f"LG {n}" for n in range(100_000)), Loose)
    next(stream)
    seen = weakref.ref(extractor.model)
    del stream, extractor
    gc.collect()
    assert ended()
    gc.collect()
    assert seen() is None


UNFINISHED = """
import sys
import torch
from schemax import Extractor, load_schema
torch.set_num_threads(int(sys.argv[1]))
texts = [f"Nike Men's shoe {number}, black" for number in range(3000)]
calls = [Extractor.default().stream(texts, load_schema("shoes")) for _ in range(2)]
print(next(calls[0]).index)
"""


POOL = """
import os, time
import torch
from schemax import Extractor, load_schema
torch.set_num_threads(4)
extractor, text = Extractor.default(), "Nike Men's shoe, black"
extractor.extract([text], load_schema("shoes"))
torch.ones(1 << 20).add_(1)
before = count = len(os.listdir("/proc/self/task"))
extractor.extract([text], load_schema("shoes"))
ends = time.monotonic() + 60
while count > before - 3 and time.monotonic() < ends:
    time.sleep(0.01)
    count = len(os.listdir("/proc/self/task"))
print(count <= before - 3)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="counts threads as Linux does")
def test_a_call_ends_the_threads_of_its_caller() -> None:
    """Else the engine's own would not spin."""
    done = subprocess.run(
        [sys.executable, "-c", POOL], capture_output=True, text=True, timeout=300, check=True
    )
    assert done.stdout.split() == ["True"]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 2])
def test_a_program_may_end_while_calls_are_under_way(count: int) -> None:
    command = [sys.executable, "-c", UNFINISHED, str(count)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().isdigit()
    assert "terminate" not in done.stderr
