"""The cost of constraints: decodes the same tokens with and without grammars, by turns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Literal
from unittest.mock import patch

import torch
from pydantic import create_model

from schemax.attributes import attr
from schemax.compiler import CompiledSchema, as_codec, compile_schema
from schemax.compiler.choices import Branches
from schemax.config import DecodingConfig
from schemax.evaluation.benchmark.measure import synchronize
from schemax.extraction.schema import AttrSchema
from schemax.runtime.engine.decode import decode
from schemax.runtime.engine.self_test import prepare
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.sampling.sampler import Choice, Sampler
from schemax.runtime.sampling.slot_grammars import SlotGrammars
from schemax.tokens import PromptIds, SlotOutput

_TEMPLATE = "Read the attributes.\n{% for d in documents %}{{ d.text }}\n{% endfor %}"
_WORDS = ("black", "steel", "cotton", "4K", "wireless", "2024", "mini", "USB-C", "55", "inch")


class Product(AttrSchema):
    """The types of a usual product; its texts have usual lengths."""

    colour: Literal["black", "white", "dark red", "dark blue", "silver", "multicolour"] | None
    material: Literal["cotton", "linen", "leather", "steel", "oak", "glass", "plastic"] | None
    resolution: Literal["720p", "1080p", "4K", "8K"] | None
    energy_class: Literal["A", "B", "C", "D", "E", "F", "G"]
    smart: bool | None
    waterproof: bool
    pieces: int | None = attr(ge=1, le=999)
    warranty: int = attr(ge=0, le=120)
    weight: float | None
    price: float = attr(ge=0)
    released: date | None
    code: str | None = attr(pattern="^[A-Z]{2,3}-[0-9]{3,5}$")
    brand: str | None = attr(k_max=6)
    model: str | None = attr(k_max=6)
    style: str | None = attr(k_max=6)
    ports: list[str] = attr(default_factory=list, k_max=8)


@dataclass(slots=True)
class TimedRun:
    """A run; times in seconds.

    whole: of the run; passes: of the model. steps: passes that read no document; decoding: time of
    steps with choosing; choosing: time of choosing alone, for `slots` slots in all.
    """

    whole: float = 0.0
    passes: int = 0
    steps: int = 0
    decoding: float = 0.0
    choosing: float = 0.0
    slots: int = 0


@dataclass(frozen=True, slots=True)
class Costs:
    """The costs of constraints, in runs of median length.

    branched: with branches of choices, the default; other runs are without.
    branches: the number of decoded branches per slot with choices.
    compiled: number of choices -> seconds to compile them, seconds of the first mask.
    """

    documents: int
    tokens: int
    constrained: TimedRun
    free: TimedRun
    branched: TimedRun
    branches: float
    compiled: dict[int, tuple[float, float]]

    @property
    def share(self) -> float:
        """The share of constrained decode steps that choosing takes beyond free choosing.

        It is computed per slot and step, since forced tokens reduce their number.
        """
        with_, without = self.constrained, self.free
        more = with_.choosing / with_.slots - without.choosing / without.slots
        return max(0.0, more) * with_.slots / with_.decoding

    def lines(self) -> Iterator[str]:
        yield f"{self.documents} documents, 16 typed attributes each, {self.tokens:,} value tokens"
        for name, run in (("with constraints", self.constrained), ("without", self.free)):
            yield (
                f"{name:>16}: {run.whole:.2f} s, {run.passes} passes; a decode step "
                f"{1e3 * run.decoding / max(1, run.steps):.1f} ms, "
                f"{run.choosing / run.decoding:.1%} of it choosing "
                f"({1e6 * run.choosing / run.slots:.0f} us per slot)"
            )
        yield f"masks: {self.share:.1%} of a decode step"
        more = self.branched.whole / self.constrained.whole - 1
        yield (
            f"branches: {self.branches:.1f} per slot with choices, {more:+.1%} of the time "
            "with constraints"
        )
        for count, (compiling, masking) in self.compiled.items():
            yield (
                f"{count:,} choices: compiled in {1e3 * compiling:.0f} ms, "
                f"first mask {1e3 * masking:.1f} ms"
            )


def measure_constraints(
    model: Any,
    tokenizer: Any,
    *,
    documents: int = 32,
    document_tokens: int = 120,
    repeats: int = 3,
    choices: tuple[int, ...] = (1_000, 10_000),
    seed: int = 0,
    tell: Callable[[str], None] = lambda _: None,
) -> Costs:
    """Decodes documents of random words with grammars, then the same tokens without grammars, then
    with branches of choices, too, by turns.

    Raises ValueError for a model that decodes one row per slot, ModelError for another model's
    tokenizer.
    """
    prepared = prepare(model)
    if not isinstance(prepared, DecoderModel):
        raise ValueError("constraints can only be measured on a model that decodes in sequence")
    as_codec(tokenizer).check_vocabulary(prepared.vocab_size)
    # Without free text, which random weights prefer, but trained weights seldom.
    branching = _held_to_choices(_compiled(Product, tokenizer, prepared.vocab_size))
    compiled = replace(
        branching, slots=tuple(replace(spec, follow_ups=None) for spec in branching.slots)
    )
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(_WORDS, k=document_tokens)) for _ in range(documents)]
    ids = [tuple(compiled.codec.encode(text)[:document_tokens]) for text in texts]
    prompts = [compiled.assemble([document]) for document in ids]
    tell("warm-up")
    _, slots = _timed_run(prepared, compiled, prompts)
    answers = [tuple(slot.ids for slot in row) for row in slots]
    ways = (
        prompts,
        [replace(p, slots=(), answers=(row,)) for p, row in zip(prompts, answers, strict=True)],
        [replace(p, slots=branching.slots) for p in prompts],
    )
    rounds = []
    for number in range(repeats + 1):
        if number:
            tell(f"round {number} of {repeats}")
        found = [_timed_run(prepared, compiled, way) for way in ways]
        assert all(same == slots for _, same in found)
        rounds.append([run for run, _ in found])
    # The run of median length, the shorter of two; the first round is the warm-up.
    constrained, free, branched = (
        sorted(runs, key=lambda run: run.whole)[(repeats - 1) // 2]
        for runs in zip(*rounds[1:], strict=True)
    )
    branches = [
        _branches(slot)
        for row in found[-1][1]
        for slot, spec in zip(row, branching.slots, strict=True)
        if isinstance(spec.follow_ups, Branches)
    ]
    return Costs(
        documents=documents,
        tokens=sum(len(ids) for row in answers for ids in row),
        constrained=constrained,
        free=free,
        branched=branched,
        branches=sum(branches) / len(branches),
        compiled={n: _compile_choices(tokenizer, prepared.vocab_size, n) for n in choices},
    )


def _compiled(schema: Any, tokenizer: Any, vocab_size: int) -> CompiledSchema:
    config = DecodingConfig(max_retries=0)
    return compile_schema(
        schema, tokenizer, template=_TEMPLATE, decoding=config, vocab_size=vocab_size
    )


def _held_to_choices(compiled: CompiledSchema) -> CompiledSchema:
    slots = tuple(
        replace(spec, follow_ups=replace(spec.follow_ups, free_text=None))
        if isinstance(spec.follow_ups, Branches)
        else spec
        for spec in compiled.slots
    )
    return replace(compiled, slots=slots)


def _timed_run(
    model: DecoderModel, compiled: CompiledSchema, prompts: list[PromptIds]
) -> tuple[TimedRun, list[tuple[SlotOutput, ...]]]:
    model.forget_prefixes()
    start = time.perf_counter()
    with _clocked(model.device) as run:
        slots = decode(model, prompts, compiled.stop, compiled.decoding)
        run.whole = time.perf_counter() - start
    return run, slots


def _branches(slot: SlotOutput) -> int:
    return sum(1 + _branches(branch) for branch in slot.branches)


@contextmanager
def _clocked(device: torch.device) -> Iterator[TimedRun]:
    """Times passes, and the choices after them, for the context."""
    run = TimedRun()
    usual_pass, settle = DecoderModel.run_batch, SlotGrammars.settle
    usual_begin, usual_finish = Sampler.begin, Sampler.finish
    passed, reading = 0.0, True
    begun: dict[int, bool] = {}  # pending choice -> True if its pass read documents

    def timed(work: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[Any, float]:
        start = time.perf_counter()
        result = work(*arguments, **options)
        synchronize(device)
        return result, time.perf_counter() - start

    def timed_pass(*arguments: Any) -> Any:
        nonlocal passed, reading
        result, passed = timed(usual_pass, *arguments)
        reading = arguments[1].write.rows is not None
        run.passes += 1
        return result

    def add(seconds: float, before: float = 0.0, slots: int = 0) -> None:
        if not reading:
            run.decoding += before + seconds
            run.choosing += seconds
            run.steps += slots > 0
            run.slots += slots

    def timed_begin(*arguments: Any) -> Any:
        choice, seconds = timed(usual_begin, *arguments)
        add(seconds, passed, len(choice.slots))
        begun[id(choice)] = reading
        return choice

    def timed_finish(sampler: Sampler, choice: Choice) -> Any:
        nonlocal reading
        reading = begun.pop(id(choice))
        result, seconds = timed(usual_finish, sampler, choice)
        add(seconds)
        return result

    def timed_settling(*arguments: Any, **options: Any) -> Any:
        result, seconds = timed(settle, *arguments, **options)
        add(seconds)
        return result

    with (
        patch.object(DecoderModel, "run_batch", timed_pass),
        patch.object(Sampler, "begin", timed_begin),
        patch.object(Sampler, "finish", timed_finish),
        patch.object(SlotGrammars, "settle", timed_settling),
    ):
        yield run


def _compile_choices(tokenizer: Any, vocab_size: int, count: int) -> tuple[float, float]:
    names = tuple(f"Model {n * 7919 % 99991} {_WORDS[n % len(_WORDS)]}" for n in range(count))
    schema = create_model("Choices", choice=Literal[names])  # type: ignore[call-overload]
    start = time.perf_counter()
    (spec,) = _compiled(schema, tokenizer, vocab_size).slots
    assert spec.grammar is not None
    matcher = spec.grammar.new_matcher()
    compiling = time.perf_counter() - start
    start = time.perf_counter()
    matcher.compute_bitmask()
    return compiling, time.perf_counter() - start
