"""`python -m benchmarks waves` and `served`: small runs, and that they measure what they say."""

from __future__ import annotations

import re

import pytest
from conftest import tiny_model
from typer.testing import CliRunner

from benchmarks import served as served_cost
from benchmarks.__main__ import app
from benchmarks.served import measure_served
from benchmarks.waves import WAVES, measure_waves, schema_in_waves
from schemax.attributes import compile_attributes
from schemax.attributes.attributes import waves_of
from schemax.compiler import TextCodec, compile_schema
from schemax.errors import SchemaxError


def test_the_same_fields_are_read_in_so_many_waves() -> None:
    for count in WAVES:
        attributes = compile_attributes(schema_in_waves(count))
        after = [attribute.after for attribute in attributes]
        assert len(attributes) == 16
        assert max(waves_of([one.path for one in attributes], after)) == count


@pytest.mark.slow
def test_waves_cost_passes_and_tokens() -> None:
    told: list[str] = []
    with pytest.warns(UserWarning, match="6.6 million"):
        rows = list(measure_waves(2, 1, device="cpu", tell=told.append))
    assert told == ["warm-up", "round 1 of 1"]
    assert [row.waves for row in rows] == [1, 2, 3, 4]
    assert rows[0].time == 1
    assert rows[0].passes < rows[1].passes < rows[3].passes
    assert rows[0].read < rows[1].read < rows[2].read < rows[3].read


@pytest.mark.slow
def test_the_server_and_generate_write_the_same(
    codec: TextCodec, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("uvicorn")
    model = tiny_model("qwen3", codec.vocab_size)
    cost = measure_served(model, codec, 2, 200)
    assert cost.document >= 190
    assert (cost.fields, len(cost.served), len(cost.generated)) == (16, 2, 2)
    assert cost.keys + cost.values > 64
    assert min(*cost.served, *cost.generated) > 0
    assert re.search(r"ratio: [\d.]+ \([\d.]+ to [\d.]+ in 2 rounds\)", [*cost.lines()][-1])
    # Whoever writes something else is not measured.
    monkeypatch.setattr(served_cost, "answer_of", lambda compiled, value: (1, 2, 3))
    with pytest.raises(SchemaxError, match="the server gave"):
        measure_served(model, codec, 1)
    assert all(
        prompt.answers is None for prompt in compile_schema(schema_in_waves(1), codec).encode(["a"])
    )


@pytest.mark.release
def test_the_commands() -> None:
    waves = CliRunner().invoke(app, ["waves", "-q", "--documents", "2", "--repeats", "1"])
    assert waves.exit_code == 0, waves.output
    assert "tokens read" in waves.output
    sizes = ("--repeats", "1", "--document-tokens", "20")
    served = CliRunner().invoke(app, ["served", "-q", *sizes])
    assert served.exit_code == 0, served.output
    assert "16 fields" in served.output
