"""`python -m benchmarks host` and `transfers`: what everything but the model costs."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from conftest import tiny_model
from seams import pass_tokens
from torch import Tensor
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.host import Setting, measure_host, settings
from benchmarks.host.clock import model_clock
from benchmarks.host.settings import (
    KINDS,
    SlotType,
    host_codec,
    host_documents,
    host_extractor,
    host_schema,
    sizes_of_cuda,
)
from benchmarks.passes import measure_passes
from benchmarks.transfers import TransferCounter
from schemax.compiler import TextCodec
from schemax.results import Extraction


@pytest.fixture(scope="module")
def codec() -> TextCodec:
    return host_codec()


def written(codec: TextCodec, kind: SlotType, documents: int = 20) -> list[Extraction[Any]]:
    setting = Setting(kind, 5, None, documents)
    extractor = host_extractor(codec, setting, 0)
    texts = host_documents(codec, documents, 0)
    assert len(set(texts)) == documents
    return list(extractor.stream(texts, host_schema(setting)))


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_writes_values_that_differ_and_are_valid(
    codec: TextCodec, kind: SlotType
) -> None:
    fields = [field for item in written(codec, kind) for field in item.fields.values()]
    raw = [(field.raw or "").strip() for field in fields]
    assert len(set(raw)) > 20
    assert 0.1 < raw.count("null") / len(raw) < 0.6
    assert 2 < sum(field.tokens for field in fields) / len(fields) < 6
    # Some strings are longer than their budget; nothing else goes wrong.
    assert sum(field.finish_reason == "stop" for field in fields) > 0.9 * len(fields)


def test_every_part_of_the_time_is_measured() -> None:
    (row,) = measure_host([Setting("free", 4, 8, 24)])
    model = row.model
    assert model.forward > 0
    assert model.logits > 0
    assert model.seconds < row.cpu_seconds
    assert 0 < row.model_share < 1
    assert row.host_documents_per_cpu_second > row.documents_per_cpu_second > 0
    assert model.most_slots == 32
    # All but what is added to the last tokens: more passes than tokens of the longest value.
    assert 6 <= model.passes < 200
    assert row.to_dict()["model"]["passes"] == model.passes


def test_operations_on_logits_are_clocked_wherever_they_are() -> None:
    model = tiny_model("qwen3", 300)
    ids = torch.arange(9)[None]
    with model_clock(model) as spent, torch.inference_mode():
        before = model(input_ids=ids).logits
        forward = spent.forward
        best = before[0].float().softmax(-1).argmax(-1)
        after = spent.logits
        assert after > 0
        assert type(best.cpu().numpy()) is np.ndarray
        assert spent.logits > after
        torch.ones(3) + 1
    assert (spent.forward, spent.passes, spent.slots) == (forward, 1, 9)
    assert type(model(input_ids=ids).logits) is Tensor


def test_settings_are_the_grid() -> None:
    found = settings()
    assert len(found) == 2 + 2 * 3 * 3
    assert all(s.documents >= 600 and s.documents > (s.in_flight or 0) for s in found)
    assert {s.documents for s in settings(9)} == {9}
    assert len({s.name for s in found}) == len(found)


def test_sizes_are_put_back() -> None:
    usual = dict(pass_tokens())
    with sizes_of_cuda(99_999):
        assert pass_tokens()["cpu"] == 99_999
    assert usual == pass_tokens()


@pytest.mark.parametrize("kind", KINDS)
def test_staged_copies_and_large_passes_change_no_output(codec: TextCodec, kind: SlotType) -> None:
    def raw() -> dict[int, list[str | None]]:
        items = written(codec, kind)
        return {item.index: [field.raw for field in item.fields.values()] for item in items}

    expected = raw()
    with sizes_of_cuda():
        assert raw() == expected


class Toy(torch.nn.Module):
    """A model of one layer, which does as many things as the counter should tell apart."""

    def __init__(self) -> None:
        super().__init__()
        self.base_model = torch.nn.Module()
        self.base_model.layers = torch.nn.ModuleList([torch.nn.Linear(4, 4)])

    def forward(self, input_ids: Tensor) -> Any:
        hidden = input_ids.float()[..., None].expand(-1, -1, 4)
        return SimpleNamespace(logits=self.base_model.layers[0](hidden).exp())  # type: ignore[index, operator]


def counted(act: Any) -> Any:
    """What the counter makes of one action behind a forward pass."""
    toy, device = Toy(), torch.device("cpu")
    with torch.inference_mode(), TransferCounter(toy) as counter:
        logits = toy(input_ids=torch.ones(1, 3, device=device)).logits
        before = counter.passes[0].other_ops
        act(logits, device)
    (count,) = counter.passes
    return count, count.other_ops - before


@pytest.mark.parametrize(
    ("act", "sent", "fetched", "waits", "operations"),
    [
        (lambda x, d: torch.from_numpy(np.arange(3)).to(d) + 1, 1, 0, 0, 1),
        (lambda x, d: torch.from_numpy(np.arange(3)) + 1, 0, 0, 0, 0),  # the host's own
        (lambda x, d: torch.tensor([1, 2]).add(1).to(device=d), 1, 0, 0, 0),
        (lambda x, d: torch.tensor([1, 2], device=d), 1, 0, 0, 0),
        (lambda x, d: torch.zeros(2, device=d), 0, 0, 0, 1),
        (lambda x, d: x.to(d), 0, 0, 0, 0),
        (lambda x, d: torch.from_numpy(np.arange(3)).to(d).to(d), 1, 0, 0, 0),
        (lambda x, d: torch.zeros(3, device=d).copy_(torch.zeros(3)), 1, 0, 0, 2),
        (lambda x, d: x[:, np.array([0, 1])], 1, 0, 0, 1),
        (lambda x, d: x[:, 1:], 0, 0, 0, 0),
        (lambda x, d: x.argmax().item(), 0, 1, 0, 1),
        (lambda x, d: bool(x[0, 0, 0] > 0), 0, 1, 0, 1),
        (lambda x, d: x.cpu().numpy().tolist(), 0, 1, 0, 0),
        (lambda x, d: torch.tensor([3]).tolist(), 0, 0, 0, 0),
        (lambda x, d: x[x > 0], 0, 0, 1, 2),
        (lambda x, d: x.nonzero(), 0, 0, 1, 1),
    ],
)
def test_sides_are_told_by_origin(
    act: Any, sent: int, fetched: int, waits: int, operations: int
) -> None:
    count, launched = counted(act)
    assert (count.total("to_device"), count.total("to_host")) == (sent, fetched)
    assert count.total("waits") == waits
    assert launched == operations
    assert (count.tokens, count.slots) == (3, 3)
    assert count.layer_ops >= 1  # the linear layer
    assert count.model_ops >= 1  # the exponential


def test_torch_is_left_as_it_was() -> None:
    usual = torch.from_numpy
    with TransferCounter(Toy()):
        assert torch.from_numpy is not usual
    assert torch.from_numpy is usual


@pytest.mark.slow
def test_passes_are_counted_by_line() -> None:
    rows = list(measure_passes((32,), ("free",)))
    assert [row.reads for row in rows] == [False, True]
    alone, reading = rows
    assert alone.count.tokens == alone.count.slots <= 32
    assert reading.count.tokens > reading.count.slots + 50
    for row in rows:
        assert row.ops_per_layer > 10
        assert row.count.total("to_host") >= 1
        lines = [line for cause in row.count.CAUSES for line in getattr(row.count, cause)]
        assert all("runtime/" in line for line in lines)


@pytest.mark.release
def test_the_commands(tmp_path: Path) -> None:
    path = tmp_path / "host.json"
    done = CliRunner().invoke(app, ["host", "--documents", "3", "-q", "--json", str(path)])
    assert done.exit_code == 0, done.output
    assert "16 typed" in done.stdout
    found = json.loads(path.read_text())
    assert found["schemax_bench_host"] == 1
    assert len(found["rows"]) == len(settings())
    assert found["rows"][0]["setting"] == {
        "kind": "free",
        "slots": 16,
        "in_flight": None,
        "documents": 3,
    }
    assert 0 < found["rows"][0]["model_share"] < 1
