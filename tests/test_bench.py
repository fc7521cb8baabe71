"""`schemax bench`: every engine does the same work, and the report says what was measured."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import jsonl, refused, save_model
from conftest import tiny_model
from tokenizers import Tokenizer
from typer.testing import CliRunner

from schemax.benchmark import (
    ENGINES,
    BenchmarkError,
    EngineOptions,
    Report,
    Rules,
    Sizes,
    Workload,
    build_engines,
    generate_work,
    measure_engines,
)
from schemax.benchmark.engines.bounds import Floor, Reading
from schemax.benchmark.engines.generate import Draft
from schemax.benchmark.engines.ours import SchemaxEngine
from schemax.benchmark.listings import annotated_work, value_lengths
from schemax.benchmark.page import BEGIN, END
from schemax.benchmark.plot import can_plot
from schemax.benchmark.random_models import SHAPES, random_model, replica, shape_config
from schemax.benchmark.servers import ABSENT
from schemax.benchmark.workload import Category, Listing
from schemax.cli import app
from schemax.compiler import TextCodec
from schemax.evaluation.examples import Example
from schemax.tokens import DONE, StopTable

CPU = torch.device("cpu")
RUNNING = tuple(name for name in ENGINES if name not in ("llama.cpp", "outlines"))
SMALL = Sizes(documents=5, document_tokens=24, attributes=3, instruction_tokens=20, jitter=0.3)
ROWS = [
    {"id": "1", "category": "Tea", "text": "Tazo Zen 24 ct", "attributes": {"Brand": "Tazo"}},
    {"id": "2", "category": "Tea", "text": "Twinings 20", "attributes": {"Net content": "20"}},
    {"id": "3", "category": "Shoes", "text": "Crocs Clog", "attributes": {"Brand": "Crocs"}},
]


@pytest.fixture(scope="module")
def model(codec: TextCodec) -> Any:
    return tiny_model("qwen3", codec.vocab_size)


@pytest.fixture(scope="module")
def folder(backend: Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(backend, tmp_path_factory.mktemp("model"))


def examples() -> list[Example]:
    return [Example(row["category"], row["text"], row["attributes"]) for row in ROWS]  # type: ignore[arg-type]


def bench(*arguments: str) -> Any:
    return CliRunner().invoke(app, ["bench", *arguments])


def handmade() -> Workload:
    """Two documents, two attributes, few tokens: small enough to count by hand."""
    category = Category(
        instruction=(20, 21, 22), opening=(23,), keys=((24, 25), (26,)), k_max=(5, 5)
    )
    table = torch.zeros(1, 64, dtype=torch.int8)
    table[0, 2] = DONE
    return Workload(
        categories=(category,),
        listings=(
            Listing(0, (30, 31, 32, 33), ((30, 2), (31, 32, 2))),
            Listing(0, (40, 41), ((2,), (41, 2))),
        ),
        stop=StopTable(table.numpy(), ()),
        eos_id=1,
        vocab_size=64,
        facts={"source": "by hand"},
    )


def test_tokens_are_counted() -> None:
    work = handmade()
    counts = work.counts()
    assert (counts.instructions, counts.documents, counts.openings, counts.keys) == (3, 6, 2, 6)
    # What completes a value is never an input: 8 tokens are generated, 4 of them passed.
    assert (counts.values, counts.head) == (4, 8)
    assert counts.passed == 3 + 6 + 2 + 6 + 4
    assert counts.outputs == 6 + 8 + 2
    assert work.output(work.listings[1]) == (24, 25, 2, 26, 41, 2, 1)


def test_the_floor_passes_exactly_these_tokens(model: Any) -> None:
    work = handmade()
    floor, reading = Floor(model), Reading(model)
    assert floor.rows(work) == [(11, 5), (7, 3), (3, 0)]
    assert sum(tokens for tokens, _ in floor.rows(work)) == work.counts().passed
    assert reading.rows(work) == [(4, 0), (3, 0), (2, 0)]
    floor.setup(work)
    shapes: list[Any] = []
    head = floor.module.get_output_embeddings()
    head.register_forward_pre_hook(lambda _, args: shapes.append(args[0].shape[0]))
    floor.module.base_model.register_forward_pre_hook(
        lambda _, args, kwargs: shapes.append(tuple(kwargs["input_ids"].shape)), with_kwargs=True
    )
    floor.batch_size = 2
    floor.run(work)
    assert shapes == [(1, 11), 5, (1, 7), 3, (1, 3)]
    assert list(floor.batches([(20, 1), (19, 1), (18, 1), (17, 1), (9, 0)])) == [
        [(20, 1), (19, 1)],
        [(18, 1), (17, 1)],
        [(9, 0)],
    ]


def test_generated_listings_have_the_sizes_asked_for() -> None:
    sizes = Sizes(documents=6, document_tokens=40, attributes=4, key_tokens=3, seed=1)
    work = generate_work(sizes, 4096)
    assert work.listings == generate_work(sizes, 4096).listings
    assert {len(listing.ids) for listing in work.listings} == {40}
    (category,) = work.categories
    assert len(category.instruction) == 250
    assert [len(key) for key in category.keys] == [3] * 4
    for listing in work.listings:
        text = " ".join(map(str, listing.ids))
        for answer in listing.answers:
            assert " ".join(map(str, answer[:-1])) in text  # values are copies
            assert work.stop.next_state[0, answer[-1]] == DONE
    lengths = {len(listing.ids) for listing in generate_work(SMALL, 4096).listings}
    assert len(lengths) > 1
    assert min(lengths) >= 17
    assert max(lengths) <= 31


def test_annotated_listings_end_where_their_stop_rule_does(codec: TextCodec) -> None:
    work = annotated_work(examples(), codec, codec.vocab_size)
    assert work.facts["stated_values"] == 3
    assert len(work.categories) == 2
    for listing in work.listings:
        for answer in listing.answers:
            state = 0
            for token in answer:
                assert state != DONE
                state = int(work.stop.next_state[state, token])
            assert state == DONE
    assert sum(value_lengths(work).values()) >= 3
    assert len(work.part(2)) == 2


@pytest.mark.parametrize("kind", ["generated", "annotated"])
def test_every_engine_writes_the_given_answers(model: Any, codec: TextCodec, kind: str) -> None:
    names: tuple[str, ...] = RUNNING
    work = generate_work(SMALL, codec.vocab_size)
    if kind == "annotated":  # values and keys of unlike lengths, two categories
        names = ("paper-2", "autoregressive", "generate", "lookup", "per-attribute-cached")
        work = annotated_work(examples(), codec, codec.vocab_size)
    engines = build_engines(names, EngineOptions(model, generate_batches=(1, 2)))
    assert tuple(engine.name for engine in engines) == names
    for outcome in measure_engines(engines, work, Rules(repeats=1, rival_documents=3), CPU):
        # `measure` has compared what they wrote with the answers.
        assert outcome.skipped is None, (outcome.engine.name, outcome.skipped)
        assert len(outcome.seconds) == 1
        assert outcome.documents == (3 if outcome.engine.kind == "rival" else len(work))
        assert outcome.engine.module is None


def test_a_grammar_allows_the_given_answers(model: Any, codec: TextCodec) -> None:
    pytest.importorskip("outlines_core")
    work = annotated_work(examples(), codec, codec.vocab_size)
    (outcome,) = measure_engines(
        build_engines(["outlines"], EngineOptions(model)), work, Rules(repeats=1), CPU
    )
    assert outcome.skipped is None


def test_passes_are_those_of_the_longest_value(model: Any, codec: TextCodec) -> None:
    work = generate_work(SMALL, codec.vocab_size)
    (outcome,) = measure_engines(
        build_engines(["generate"], EngineOptions(model, generate_batches=(5,))), work, Rules(), CPU
    )
    assert outcome.passes == max(len(work.output(listing)) for listing in work.listings)
    assert outcome.tried.keys() == {5}


@pytest.mark.parametrize("name", ["isolated", "paper-2", "autoregressive", "continuous"])
def test_runs_read_no_less_than_the_ones_before(model: Any, codec: TextCodec, name: str) -> None:
    work = generate_work(SMALL, codec.vocab_size).part(3)
    (engine,) = build_engines([name], EngineOptions(model))
    engine.setup(work)
    read: list[int] = []
    embeddings = engine.module.get_input_embeddings()
    embeddings.register_forward_pre_hook(lambda _, args: read.append(args[0].numel()))
    totals = []
    for _ in range(2):
        engine.reset(work)
        read.clear()
        engine.run(work)
        totals.append(sum(read))
    engine.teardown()
    assert totals[0] == totals[1]
    assert totals[0] >= work.counts().passed


def test_drafts_are_right_as_often_as_is_stated(model: Any, codec: TextCodec) -> None:
    work = generate_work(SMALL, codec.vocab_size).part(1)
    passes = []
    for acceptance in (0.0, 1.0):
        field = EngineOptions(model, draft=model, draft_acceptance=acceptance)
        (outcome,) = measure_engines(build_engines(["draft"], field), work, Rules(repeats=1), CPU)
        passes.append(outcome.passes)
    assert passes[0] == len(work.output(work.listings[0]))
    assert passes[1] < passes[0] / 3


def test_a_draft_is_stopped_where_it_is_not_sure(model: Any, codec: TextCodec) -> None:
    work = generate_work(Sizes(documents=2, document_tokens=40, attributes=6), codec.vocab_size)
    (engine,) = build_engines(["draft"], EngineOptions(model, draft=model))
    assert isinstance(engine, Draft)
    engine.setup(work)
    passes = {"draft": 0, "target": 0}

    def count(name: str) -> Any:
        def hook(*_: Any) -> None:
            passes[name] += 1

        return hook

    engine.module.register_forward_pre_hook(count("target"))
    engine._draft.register_forward_pre_hook(count("draft"))
    assert list(engine.run(work)) == list(work.expected("output"))
    # Four of five tokens are right: a draft that is always sure would write 20 each time.
    assert 3 < passes["draft"] / passes["target"] < 12
    tokens = sum(len(output) for (output,) in work.expected("output"))
    assert 2.5 < tokens / passes["target"] < 8


def test_other_answers_stop_the_comparison(model: Any, codec: TextCodec) -> None:
    work = generate_work(SMALL, codec.vocab_size)
    (engine,) = build_engines(["isolated"], EngineOptions(model))
    assert isinstance(engine, SchemaxEngine)
    run = engine.run

    def wrong(work: Workload) -> Any:
        first, *others = run(work)
        return [((7,), *first[1:]), *others]

    engine.run = wrong  # type: ignore[method-assign]
    with pytest.raises(BenchmarkError, match=r"isolated did not .* document 0, slot 0: \(7,\)"):
        measure_engines([engine], work, Rules(repeats=1), CPU)


def test_engines_share_weights_and_nothing_else(model: Any) -> None:
    twin = replica(model)
    for name, weight in twin.named_parameters():
        assert weight.data_ptr() == model.get_parameter(name).data_ptr()
    assert twin.config is not model.config
    assert twin.get_output_embeddings() is not model.get_output_embeddings()


def test_shapes_are_the_published_ones() -> None:
    from transformers import Qwen3ForCausalLM

    published = {"qwen3-0.6b": 596_049_920, "qwen3-8b": 8_190_735_360}
    for name, parameters in published.items():
        with torch.device("meta"):
            made = Qwen3ForCausalLM(shape_config(name))
        assert sum(weight.numel() for weight in made.parameters()) == parameters
    assert all(shape_config(name).vocab_size for name in SHAPES)
    tiny = random_model(shape_config("qwen3-tiny"), torch.float32, CPU)
    assert tiny(input_ids=torch.arange(9)[None]).logits.isfinite().all()
    assert tiny.lm_head.weight is tiny.model.embed_tokens.weight


def test_command_line(tmp_path: Path) -> None:
    page, results = tmp_path / "page.md", tmp_path / "bench.json"
    page.write_text(f"# Speed\n{BEGIN}\nnone yet\n{END}\nthe end\n")
    sizes = ("--documents", "3", "--document-tokens", "20", "--attributes", "2")
    names = "floor,isolated,generate,outlines"
    done = bench(
        *("--shape", "qwen3-tiny", "--dtype", "float32", "--device", "cpu", *sizes),
        *("--engines", names, "--repeats", "2", "--generate-batches", "1,3"),
        *("--price-per-hour", "3.6", "--json", str(results), "--page", str(page)),
    )
    assert done.exit_code == 0, done.output
    assert "outlines: skipped; " in done.stdout
    assert ABSENT in done.stderr
    data = json.loads(results.read_text())
    assert data["schemax_bench"] == 1
    assert data["model"]["parameters"] == 336_256
    assert data["model"]["dtype"] == "float32"
    assert {"cpu", "threads", "torch", "transformers"} <= data["environment"].keys()
    assert data["work"]["tokens"]["documents"] == 60
    rows = {row["name"]: row for row in data["engines"]}
    assert list(rows) == ["floor", "isolated", "generate"]
    for row in rows.values():
        assert len(row["seconds"]) == 2
        assert row["slowest"] <= row["products_per_second"] <= row["fastest"]
        assert row["passes"] >= 1
    assert rows["floor"]["of_floor"] == rows["generate"]["times_generate"] == 1
    isolated = rows["isolated"]
    assert isolated["dollars_per_1000"] == pytest.approx(1 / isolated["products_per_second"])
    assert rows["generate"]["tried"].keys() == {"1", "3"}
    assert json.loads(json.dumps(Report.from_dict(data).to_dict())) == data
    written = page.read_text()
    assert written.startswith("# Speed\n")
    assert written.endswith(f"{END}\nthe end\n")
    assert "none yet" not in written
    assert "| isolated |" in written
    again = bench("--from", str(results), "--page", str(page), "--plot", str(tmp_path / "p.svg"))
    assert again.exit_code == 0, again.output
    assert page.read_text() == written
    assert (tmp_path / "p.svg").exists() == can_plot()
    assert can_plot() or "matplotlib is not installed" in again.stderr


def test_the_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schemax.benchmark.compare.GRID_DOCUMENTS", (1, 2))
    monkeypatch.setattr("schemax.benchmark.compare.GRID_BATCHES", (2,))
    sizes = ("--documents", "3", "--document-tokens", "20", "--attributes", "2", "--repeats", "1")
    done = bench(
        *("--shape", "qwen3-tiny", "--device", "cpu", *sizes, "--engines", "floor", "--sweep"),
        *("--quiet", "--json", str(tmp_path / "b.json")),
    )
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    grid = json.loads((tmp_path / "b.json").read_text())["sweep"]
    assert [row["name"] for row in grid] == ["paper J=1 B=2", "paper J=2 B=2", "isolated J=1 B=2"]
    assert all(row["of_floor"] for row in grid)


class Fake(BaseHTTPRequestHandler):
    """Speaks the protocol, and finds every brand to be Tazo."""

    asked: list[Any] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self._say({"data": [{"id": "fake"}]})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append((self.path, body))
        text = '  "Brand": "Tazo",\n  "Net content": null\n}'
        self._say({"choices": [{"text": text}], "usage": {"completion_tokens": 9}})

    def _say(self, reply: Any) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(reply).encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[str]:
    Fake.asked.clear()
    with HTTPServer(("127.0.0.1", 0), Fake) as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{made.server_port}/v1"
        made.shutdown()
        thread.join()


def test_a_server_is_asked_for_the_same_products(server: str, folder: Path, tmp_path: Path) -> None:
    data = jsonl(tmp_path / "gold.jsonl", ROWS)
    done = bench(
        *("--model", str(folder), "--data", data, "--engines", "isolated", "--repeats", "1"),
        *("--against", server, "--concurrency", "2", "--json", str(tmp_path / "b.json")),
    )
    assert done.exit_code == 0, done.output
    found = json.loads((tmp_path / "b.json").read_text())["server"]
    assert found["products"] == 3
    assert found["model"] == "fake"
    assert found["tokens"] == 27
    assert found["agreement"] == pytest.approx(2 / 5)  # of five fields, both of the first tea
    assert "fake at http://" in done.stdout
    path, body = Fake.asked[-1]
    assert path == "/v1/completions"
    assert body["stop"] == ["\n}"]
    assert any("Tazo Zen 24 ct" in body["prompt"] for _, body in Fake.asked)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--engines", "vllm"), "there is no 'vllm'"),
        (("--engines", "floor,floor"), "named twice"),
        (("--engines", ","), "--engines names none"),
        (("--shape", "gpt-7"), "shape must be one of qwen3-tiny"),
        (("--shape", "qwen3-tiny", "--model", "x"), "not both"),
        (("--shape", "qwen3-tiny", "--dtype", "int8"), "dtype 'int8'"),
        (("--jitter", "2"), "jitter"),
        (("--generate-batches", "a"), "--generate-batches"),
        (("--generate-batches", "0"), "1 or more"),
        (("--against", "http://x/v1"), "--data"),
        (("--data", "nowhere.jsonl"), "nowhere.jsonl"),
        (("--model", "./nowhere"), "no model folder"),
        (("--from", "nowhere.json"), "nowhere.json"),
    ],
)
def test_what_cannot_be_compared(
    arguments: tuple[str, ...], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    refused(bench(*arguments), said)


def test_files_that_are_none(tmp_path: Path) -> None:
    results = tmp_path / "b.json"
    results.write_text("{}")
    refused(bench("--from", str(results)), "not a report")
    data = tmp_path / "empty.jsonl"
    data.write_text("")
    refused(bench("--data", str(data)), "holds no products")
