"""What constraints cost: the same tokens decoded with grammars and without, by turns."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import Any, Literal

import torch
from pydantic import create_model

from schemax.attributes import attr
from schemax.compiler import CompiledSchema, as_codec, compile_schema
from schemax.config import DecodingConfig
from schemax.runtime.engine import fill
from schemax.runtime.model import DecoderModel
from schemax.runtime.sampler import Sampler
from schemax.runtime.self_test import prepare
from schemax.schema import AttrSchema
from schemax.tokens import PromptIds, SlotOutput

Tell = Callable[[str], None]
_USUAL = DecodingConfig().branch_threshold
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
    """One run; times in seconds.

    whole: the run. decoding: each pass that read no document. choosing: the part of each such pass
    in which tokens were chosen. slots: for how many slots, over these passes.
    """

    whole: float = 0.0
    passes: int = 0
    decoding: list[float] = field(default_factory=list)
    choosing: list[float] = field(default_factory=list)
    slots: int = 0


@dataclass(frozen=True, slots=True)
class Costs:
    """Medians over runs.

    branched: with branches of choices, which is the default; the other runs go without.
    branches: how many were followed, per slot with choices.
    compiled: by number of choices, the seconds to compile these and the seconds of the first mask.
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
        """Of the time of constrained decode steps, what choosing takes beyond free choosing.

        Per slot and step, since forced tokens leave fewer of them.
        """
        with_, without = self.constrained, self.free
        more = sum(with_.choosing) / with_.slots - sum(without.choosing) / without.slots
        return max(0.0, more) * with_.slots / sum(with_.decoding)

    def lines(self) -> Iterator[str]:
        yield f"{self.documents} documents, 16 typed attributes each, {self.tokens:,} value tokens"
        for name, run in (("with constraints", self.constrained), ("without", self.free)):
            step = sum(run.decoding) / max(1, len(run.decoding))
            chosen = sum(run.choosing)
            yield (
                f"{name:>16}: {run.whole:.2f} s, {run.passes} passes; a decode step "
                f"{1e3 * step:.1f} ms, {chosen / sum(run.decoding):.1%} of it choosing "
                f"({1e6 * chosen / run.slots:.0f} us per slot)"
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
    tell: Tell = lambda _: None,
) -> Costs:
    """Decodes documents of random words with grammars, then the same tokens without grammars, then
    with branches of choices as well, by turns.

    Raises ValueError for a model that decodes one row per slot, ModelError for a tokenizer that
    is not the model's.
    """
    prepared = prepare(model)
    config = DecodingConfig(max_retries=0, branch_threshold=1.0)
    if not isinstance(prepared, DecoderModel):
        raise ValueError("constraints can only be measured on a model that decodes in sequence")
    vocab_size = prepared.vocab_size
    as_codec(tokenizer).check_vocabulary(vocab_size)
    compiled, branching = (
        compile_schema(
            Product, tokenizer, template=_TEMPLATE, decoding=decoding, vocab_size=vocab_size
        )
        for decoding in (config, replace(config, branch_threshold=_USUAL))
    )
    prompts = _prompts(compiled, documents, document_tokens, seed)
    with_branches = [replace(p, slots=branching.slots) for p in prompts]
    replayed = [replace(p, slots=()) for p in prompts]
    with_, without, branched = [], [], []
    for number in range(repeats + 1):
        tell(f"round {number} of {repeats}" if number else "warm-up")
        run, slots = _timed_run(prepared, compiled, prompts)
        answers = [tuple(slot.ids for slot in row) for row in slots]
        if not number:
            replayed = [
                replace(p, answers=(ids,)) for p, ids in zip(replayed, answers, strict=True)
            ]
        other, same = _timed_run(prepared, compiled, replayed)
        third, more = _timed_run(prepared, compiled, with_branches)
        assert same == more == slots
        if number:
            with_.append(run)
            without.append(other)
            branched.append(third)
    with_choices = [
        slot
        for row in more
        for slot, spec in zip(row, branching.slots, strict=True)
        if spec.branching
    ]
    return Costs(
        documents=documents,
        tokens=sum(len(ids) for row in answers for ids in row),
        constrained=_middle(with_),
        free=_middle(without),
        branched=_middle(branched),
        branches=sum(map(_branches, with_choices)) / len(with_choices),
        compiled={count: _compile_choices(tokenizer, vocab_size, count) for count in choices},
    )


def _prompts(compiled: CompiledSchema, count: int, length: int, seed: int) -> list[PromptIds]:
    chance = random.Random(seed)
    texts = [" ".join(chance.choices(_WORDS, k=length)) for _ in range(count)]
    documents = [tuple(compiled.codec.encode(text)[:length]) for text in texts]
    return [compiled.assemble([ids]) for ids in documents]


def _timed_run(
    model: DecoderModel, compiled: CompiledSchema, prompts: list[PromptIds]
) -> tuple[TimedRun, list[tuple[SlotOutput, ...]]]:
    model.forget_prefixes()
    start = time.perf_counter()
    with _clocked(model.device) as run:
        found = dict(fill(model, prompts, compiled.stop, compiled.decoding))
        run.whole = time.perf_counter() - start
    return run, [found[place].slots for place in range(len(prompts))]


def _branches(slot: SlotOutput) -> int:
    return sum(1 + _branches(branch) for branch in slot.branches)


@contextmanager
def _clocked(device: torch.device) -> Iterator[TimedRun]:
    """Times passes, and the choices after them, for as long as the context lasts."""
    run = TimedRun()
    run_batch, choose, settle = DecoderModel.run_batch, Sampler.choose, Sampler.settle
    passed, reading = 0.0, True

    def timed(work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
        start = time.perf_counter()
        result = work(*arguments)
        if device.type != "cpu":
            torch.accelerator.synchronize(device)
        return result, time.perf_counter() - start

    def timed_pass(*arguments: Any) -> Any:
        nonlocal passed, reading
        result, passed = timed(run_batch, *arguments)
        reading = arguments[1].write.rows is not None
        run.passes += 1
        return result

    def timed_choice(*arguments: Any) -> Any:
        result, seconds = timed(choose, *arguments)
        if not reading:
            run.decoding.append(passed + seconds)
            run.choosing.append(seconds)
            run.slots += len(result.ids)
        return result

    def timed_settling(*arguments: Any, **options: Any) -> Any:
        result, seconds = timed(partial(settle, **options), *arguments)
        if not reading:
            run.decoding[-1] += seconds
            run.choosing[-1] += seconds
        return result

    changed: list[tuple[Any, str, Any, Any]] = [
        (DecoderModel, "run_batch", run_batch, timed_pass),
        (Sampler, "choose", choose, timed_choice),
        (Sampler, "settle", settle, timed_settling),
    ]
    for owner, name, _, stand_in in changed:
        setattr(owner, name, stand_in)
    try:
        yield run
    finally:
        for owner, name, usual, _ in changed:
            setattr(owner, name, usual)


def _middle(runs: list[TimedRun]) -> TimedRun:
    """The run of median length, of an even number the shorter one."""
    return sorted(runs, key=lambda run: run.whole)[(len(runs) - 1) // 2]


def _compile_choices(tokenizer: Any, vocab_size: int, count: int) -> tuple[float, float]:
    names = tuple(f"Model {n * 7919 % 99991} {_WORDS[n % len(_WORDS)]}" for n in range(count))
    schema = create_model("Choices", choice=Literal[names])  # type: ignore[call-overload]
    start = time.perf_counter()
    compiled = compile_schema(schema, tokenizer, template=_TEMPLATE, vocab_size=vocab_size)
    (spec,) = compiled.slots
    assert spec.grammar is not None
    matcher = spec.grammar.new_matcher()
    compiling = time.perf_counter() - start
    start = time.perf_counter()
    matcher.compute_bitmask()
    return compiling, time.perf_counter() - start
