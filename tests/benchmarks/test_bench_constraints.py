"""`python -m benchmarks constraints`: the same tokens with grammars and without."""

from __future__ import annotations

import pytest
from conftest import tiny_model
from families import FORK
from typer.testing import CliRunner

from benchmarks.__main__ import app
from benchmarks.constraints import measure_constraints
from schemax.compiler import TextCodec
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.sampling.sampler import Sampler
from schemax.runtime.sampling.slot_grammars import SlotGrammars


@pytest.mark.slow
def test_both_runs_are_of_the_same_tokens(codec: TextCodec) -> None:
    usual = DecoderModel.run_batch, Sampler.begin, Sampler.finish, SlotGrammars.settle
    told: list[str] = []
    costs = measure_constraints(
        tiny_model("qwen3", codec.vocab_size),
        codec,
        documents=3,
        document_tokens=12,
        repeats=2,
        choices=(20,),
        tell=told.append,
    )
    now = DecoderModel.run_batch, Sampler.begin, Sampler.finish, SlotGrammars.settle
    assert now == usual
    assert told == ["warm-up", "round 1 of 2", "round 2 of 2"]
    with_, without = costs.constrained, costs.free
    assert costs.tokens > 3 * 16
    # Forced tokens are passed together with others.
    assert with_.passes <= without.passes
    assert with_.slots < without.slots
    for run in (with_, without):
        assert 0 < run.choosing < run.decoding < run.whole
        assert 0 < run.steps < run.passes
    assert 0 <= costs.share < 1
    assert list(costs.compiled) == [20]
    assert costs.branches > 0
    assert costs.branched.whole > 0
    assert len(list(costs.lines())) == 6


def test_models_that_fork_are_not_measured(codec: TextCodec) -> None:
    with pytest.raises(ValueError, match="decodes in sequence"):
        measure_constraints(FORK[0].model(codec.vocab_size), codec)


@pytest.mark.slow
def test_the_command(codec: TextCodec) -> None:
    sizes = ("--documents", "2", "--document-tokens", "8", "--repeats", "1")
    result = CliRunner().invoke(app, ["constraints", "-q", *sizes])
    assert result.exit_code == 0, result.output
    assert "masks: " in result.output
    assert "10,000 choices: compiled in" in result.output
    alien = CliRunner().invoke(app, ["constraints", "--shape", "qwen3-tiny", *sizes])
    assert alien.exit_code == 2
    assert "they do not belong together" in alien.output
