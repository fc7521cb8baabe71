"""Runs prompts in batches: like lengths together, long slots once more, nothing lost."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch

from schemax.config import DecodingConfig
from schemax.runtime.decoder import decode
from schemax.runtime.model import DecoderModel
from schemax.runtime.plan import Plan, plan_prompt
from schemax.tokens import PromptIds, SlotOutput, StopTable

logger = logging.getLogger(__name__)

# Tokens in flight under batch_size="auto". On a CPU, larger batches only cost cache misses.
_AUTO_TOKENS = {"cpu": 8_192, "cuda": 65_536}


@dataclass(frozen=True, slots=True)
class DocumentOutput:
    """What became of one document.

    slots: (N,) outputs; empty if the document could not be run.
    steps: forward passes that it took part in, prefill and retries included.
    problem: why it could not be run.
    """

    slots: tuple[SlotOutput, ...]
    steps: int
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class _Job:
    """A prompt, its plan, and the places of its documents in the input of `fill`."""

    prompt: PromptIds
    plan: Plan
    places: tuple[int, ...]


def fill(
    model: DecoderModel, prompts: Sequence[PromptIds], stop: StopTable, config: DecodingConfig
) -> Iterator[tuple[int, DocumentOutput]]:
    """Fills all slots of all prompts; yields (place, output) per document as batches finish.

    place counts documents through the prompts in order. Prompts that exceed the model's context are
    reported, each document with its `problem`, and the others go on.
    """
    jobs: list[_Job] = []
    first = 0
    for prompt in prompts:
        job = _Job(
            prompt,
            plan_prompt(prompt, config),
            tuple(range(first, first + len(prompt.documents))),
        )
        first += len(job.places)
        if model.fits(job.plan.max_position):
            jobs.append(job)
            continue
        for place, document in zip(job.places, prompt.documents, strict=True):
            yield place, DocumentOutput((), 0, _too_long(model, job.plan, len(document)))
    # Like lengths share a batch: less padding, and outputs do not depend on it anyway.
    jobs.sort(key=lambda job: -len(job.plan.input_ids))
    while jobs:
        size = _batch_size(jobs, model, config)
        batch, jobs = jobs[:size], jobs[size:]
        yield from _run(model, batch, stop, config)


def fits(model: DecoderModel, prompt: PromptIds, config: DecodingConfig) -> bool:
    """Whether a prompt, with all its gaps and budgets, lies within the model's context."""
    return model.fits(plan_prompt(prompt, config).max_position)


def _too_long(model: DecoderModel, plan: Plan, num_tokens: int) -> str:
    return (
        f"the document is too long: its prompt needs {plan.max_position + 1:,} positions "
        f"({num_tokens:,} for the text itself), and the model's context has "
        f"{model.max_positions:,}; shorten the text or choose a model with a longer context"
    )


def _run(
    model: DecoderModel, batch: Sequence[_Job], stop: StopTable, config: DecodingConfig
) -> Iterator[tuple[int, DocumentOutput]]:
    outputs = _decode(model, [job.plan for job in batch], stop, config)
    steps = [max(len(slot.ids) for slot in slots) for slots in outputs]
    for attempt in range(1, config.max_retries + 1):
        _retry(model, batch, outputs, steps, stop, config, attempt)
    for job, slots, taken in zip(batch, outputs, steps, strict=True):
        width = len(job.prompt.k_max)
        for j, place in enumerate(job.places):
            yield place, DocumentOutput(tuple(slots[j * width : (j + 1) * width]), taken)


def _retry(
    model: DecoderModel,
    batch: Sequence[_Job],
    outputs: list[list[SlotOutput]],
    steps: list[int],
    stop: StopTable,
    config: DecodingConfig,
    attempt: int,
) -> None:
    """Decodes slots that ran out of budget once more, each alone, with twice as much."""
    again = []
    for row, (job, slots) in enumerate(zip(batch, outputs, strict=True)):
        for slot, output in enumerate(slots):
            if output.finish_reason == "length":
                plan = _alone(job.prompt, slot, config, 2**attempt)
                if model.fits(plan.max_position):
                    again.append((row, slot, plan))
    if not again:
        return
    results = _decode(model, [plan for _, _, plan in again], stop, config)
    for (row, slot, _), (output,) in zip(again, results, strict=True):
        outputs[row][slot] = output
    for row in {row for row, _, _ in again}:
        steps[row] += max(
            len(output.ids) for (r, _, _), (output,) in zip(again, results, strict=True) if r == row
        )


def _alone(prompt: PromptIds, slot: int, config: DecodingConfig, scale: int) -> Plan:
    if config.documents == "isolated":
        width = len(prompt.k_max)
        prompt, slot = _single(prompt, slot // width), slot % width
    return plan_prompt(prompt, config, targets=[slot], budget_scale=scale)


def _single(prompt: PromptIds, j: int) -> PromptIds:
    """The prompt of one of its isolated documents."""
    return replace(
        prompt,
        documents=(prompt.documents[j],),
        keys=(prompt.keys[j],),
        sampling_keys=(prompt.sampling_keys[j],),
    )


def _decode(
    model: DecoderModel, plans: Sequence[Plan], stop: StopTable, config: DecodingConfig
) -> list[list[SlotOutput]]:
    """`decode`, in halves where memory does not suffice."""
    try:
        return decode(model, plans, stop, config)
    except torch.OutOfMemoryError:
        if len(plans) == 1:
            raise
    # Outside the handler, so that the failed batch's tensors can be freed.
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    half = len(plans) // 2
    logger.warning("out of memory with %d prompts in flight; going on with %d", len(plans), half)
    return [
        *_decode(model, plans[:half], stop, config),
        *_decode(model, plans[half:], stop, config),
    ]


def _batch_size(jobs: Sequence[_Job], model: DecoderModel, config: DecodingConfig) -> int:
    if config.batch_size != "auto":
        return config.batch_size
    budget = _AUTO_TOKENS.get(model.device.type, _AUTO_TOKENS["cpu"])
    longest = jobs[0].plan
    # Every slot adds tokens to the cache; a third of the budget is a generous guess.
    width = len(longest.input_ids) + int(longest.k_max.sum()) // 3
    return max(1, budget // width)
