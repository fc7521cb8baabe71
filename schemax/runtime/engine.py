"""Runs prompts: as a stream where nothing binds documents together, else in batches.

In batches, like lengths go together, and long slots once more; in neither is anything lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile

import torch

from schemax.config import DecodingConfig
from schemax.runtime.called_prompts import called_prompt, with_children
from schemax.runtime.decoder import decode
from schemax.runtime.fork import ForkModel, decode_forked
from schemax.runtime.limits import is_out_of_memory
from schemax.runtime.model import DecoderModel
from schemax.runtime.outputs import NO_MEMORY, DocumentOutput, too_long
from schemax.runtime.plan import Plan, WrittenValue, plan_prompt, single, with_values
from schemax.runtime.stream import fill_stream
from schemax.tokens import PromptIds, SlotOutput, StopTable

Model = DecoderModel | ForkModel

logger = logging.getLogger(__name__)

# Tokens in flight under batch_size="auto". On a CPU, larger batches only cost cache misses.
_AUTO_TOKENS = {"cpu": 8_192, "cuda": 65_536}
# Prompts taken from the input at a time, to be sorted by length.
_WINDOW = 1024


@dataclass(slots=True)
class _Job:
    """A prompt on its way; `places` of its documents in the input of `fill`.

    outputs: (J * N,) of its slots; None before it is decoded, and where memory did not suffice.
    steps: (J,) per document.
    """

    prompt: PromptIds
    plan: Plan
    places: tuple[int, ...]
    outputs: list[SlotOutput] | None
    steps: list[int]

    def finished(self) -> Iterator[tuple[int, DocumentOutput]]:
        for j, place in enumerate(self.places):
            if self.outputs is None:
                yield place, DocumentOutput((), 0, NO_MEMORY)
            else:
                yield place, DocumentOutput(tuple(self.slots(j)), self.steps[j])

    def slots(self, j: int) -> list[SlotOutput]:
        """(N,) outputs of a document."""
        width = len(self.prompt.k_max)
        return (self.outputs or [])[j * width : (j + 1) * width]


def fill(
    model: Model, prompts: Iterable[PromptIds], stop: StopTable, config: DecodingConfig
) -> Iterator[tuple[int, DocumentOutput]]:
    """Fills all slots of all prompts; yields (place, output) per document as they are done.

    prompts: taken as they are needed. place counts documents through them in order. Prompts that
    exceed the model's context or the memory are reported, each document with its `problem`, and the
    others go on.
    """
    if streams(model, config):
        assert isinstance(model, DecoderModel)
        yield from fill_stream(model, prompts, stop, config)
        return
    rest, first = iter(prompts), 0
    while window := list(islice(rest, _WINDOW)):
        yield from _fill_window(model, window, first, stop, config)
        first += sum(len(prompt.documents) for prompt in window)


def streams(model: Model, config: DecodingConfig) -> bool:
    """Whether documents are decoded as a stream: they and their slots must not see each other."""
    alone = config.documents == "isolated" and config.slots == "independent"
    return alone and isinstance(model, DecoderModel) and model.packs


def _fill_window(
    model: Model, prompts: Sequence[PromptIds], first: int, stop: StopTable, config: DecodingConfig
) -> Iterator[tuple[int, DocumentOutput]]:
    jobs: list[_Job] = []
    for prompt in prompts:
        count = len(prompt.documents)
        places = tuple(range(first, first + count))
        first += count
        job = _Job(prompt, plan_prompt(prompt, config), places, None, [0] * count)
        problem = model.misfit(job.plan)
        if problem is None:
            jobs.append(job)
            continue
        for place, document in zip(places, prompt.documents, strict=True):
            yield place, too_long(problem, len(document))
    for job in _decoded(jobs, _Batches(model, stop, config), config):
        yield from job.finished()


def _decoded(jobs: Sequence[_Job], batches: _Batches, config: DecodingConfig) -> Iterator[_Job]:
    """Jobs as they are done, like lengths together, retries and what values call for included."""
    jobs = sorted(jobs, key=lambda job: batches.rank(job.plan))
    while jobs:
        size = batches.size([job.plan for job in jobs])
        batch, jobs = jobs[:size], jobs[size:]
        for job, outputs in zip(batch, batches.run([job.plan for job in batch]), strict=True):
            job.outputs = outputs
            job.steps = _steps(job, batches.model)
        for attempt in range(1, config.max_retries + 1):
            _retry(batch, batches, config, attempt)
        _fill_called(batch, batches, config)
        yield from batch


def _fill_called(batch: Sequence[_Job], batches: _Batches, config: DecodingConfig) -> None:
    """Fills the slots that values call for, with every such document read once more."""
    further: list[tuple[_Job, int, _Job]] = []
    for job in batch:
        if job.outputs is None or not any(spec.expansion for spec in job.prompt.slots):
            continue
        for j in range(len(job.places)):
            prompt = called_prompt(single(job.prompt, j), job.slots(j))
            if prompt is not None:
                called = _Job(prompt, plan_prompt(prompt, config), job.places[j : j + 1], None, [0])
                further.append((job, j, called))
    for _ in _decoded([called for _, _, called in further], batches, config):
        pass
    for job, j, called in further:
        if job.outputs is None or called.outputs is None:
            job.outputs = None  # memory did not suffice
            continue
        start = j * len(job.prompt.k_max)
        slots = with_children(single(job.prompt, j), job.slots(j), called.outputs)
        job.outputs[start : start + len(slots)] = slots
        job.steps[j] += called.steps[0]


def shares(model: Model, prompt: PromptIds, config: DecodingConfig) -> bool:
    """Whether a prompt's documents can share it, none of them changing another's outputs.

    They cannot where the prompt exceeds the model's context, or where a long one would bring
    longrope's long factors over isolated others.
    """
    if streams(model, config):
        return True
    plan = plan_prompt(prompt, config)
    return model.misfit(plan) is None and not (
        config.documents == "isolated" and model.is_long(plan)
    )


class _Batches:
    """Decodes plans in batches that fit, and remembers what fitted."""

    def __init__(self, model: Model, stop: StopTable, config: DecodingConfig) -> None:
        self.model = model
        self._stop = stop
        self._config = config
        self._most: int | None = None if config.batch_size == "auto" else config.batch_size

    def rank(self, plan: Plan) -> tuple[bool, int]:
        """Sorts plans so that like lengths share a batch: less padding, and the same outputs."""
        return not self.model.is_long(plan), -len(plan.input_ids)

    def size(self, plans: Sequence[Plan]) -> int:
        """How many of these plans, the longest first, to run together."""
        first = plans[0]
        budget = _AUTO_TOKENS.get(self.model.device.type, _AUTO_TOKENS["cpu"])
        most = max(1, budget // self.model.cache_tokens(first))
        if self._most is not None:
            most = self._most if self._config.batch_size != "auto" else min(most, self._most)
        long = self.model.is_long(first)
        alike = takewhile(lambda plan: self.model.is_long(plan) == long, plans[:most])
        return sum(1 for _ in alike)

    def run_all(self, plans: Sequence[Plan]) -> list[list[SlotOutput] | None]:
        """All plans, in as many batches as it takes; results in the order of the plans."""
        order = sorted(range(len(plans)), key=lambda place: self.rank(plans[place]))
        results: list[list[SlotOutput] | None] = [None] * len(plans)
        while order:
            size = self.size([plans[place] for place in order])
            batch, order = order[:size], order[size:]
            outputs = self.run([plans[place] for place in batch])
            for place, output in zip(batch, outputs, strict=True):
                results[place] = output
        return results

    def run(self, plans: Sequence[Plan]) -> list[list[SlotOutput] | None]:
        """One batch, in halves where memory does not suffice; None for a plan too large alone."""
        try:
            if isinstance(self.model, ForkModel):
                return list(decode_forked(self.model, plans, self._stop, self._config))
            return list(decode(self.model, plans, self._stop, self._config))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
        # Outside the handler, so that the failed batch's tensors can be freed.
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
        if len(plans) == 1:
            return [None]
        half = len(plans) // 2
        self._most = max(1, half)
        logger.warning("out of memory with %d prompts; going on with %d", len(plans), half)
        return [*self.run(plans[:half]), *self.run(plans[half:])]


def _retry(batch: Sequence[_Job], batches: _Batches, config: DecodingConfig, attempt: int) -> None:
    """Decodes slots that ran out of budget once more, with twice as much, the others aside."""
    again = [
        (job, targets, plan)
        for job in batch
        for targets in _truncated(job, config)
        if not batches.model.misfit(plan := _alone(job, targets, config, 2**attempt))
    ]
    results = batches.run_all([plan for _, _, plan in again])
    spent: dict[tuple[int, int], int] = {}
    for (job, targets, _), outputs in zip(again, results, strict=True):
        if job.outputs is None or outputs is None:
            continue  # the truncated output stands
        for slot, output in zip(targets, outputs, strict=True):
            job.outputs[slot] = output
            document = slot // len(job.prompt.k_max)
            key = (id(job), document)
            passes = _passes(job, slot, output, batches.model)
            more = max(0, passes - spent.get(key, 0))
            spent[key] = spent.get(key, 0) + more
            job.steps[document] += more


def _truncated(job: _Job, config: DecodingConfig) -> list[list[int]]:
    """Slots that ran out of budget, in groups that one prompt can hold.

    Branches of a document do not see each other; in a skeleton, later keys would be seen.
    """
    slots = [s for s, output in enumerate(job.outputs or ()) if output.finish_reason == "length"]
    if config.layout != "branched":
        return [[slot] for slot in slots]
    width = len(job.prompt.k_max)
    documents = sorted({slot // width for slot in slots})
    return [[slot for slot in slots if slot // width == j] for j in documents]


def _alone(job: _Job, targets: Sequence[int], config: DecodingConfig, scale: int) -> Plan:
    """The plan of some slots of one document by themselves.

    Causal slots go on seeing what earlier ones have written, and so begin as they began before.
    """
    prompt, shift = job.prompt, 0
    width = len(prompt.k_max)
    if config.documents == "isolated":
        j = targets[0] // width
        prompt, shift = single(prompt, j), j * width
    plan = plan_prompt(prompt, config, targets=[t - shift for t in targets], budget_scale=scale)
    if config.slots != "causal" or job.outputs is None:
        return plan
    earlier = [
        WrittenValue(
            slot_id=slot - shift,
            document=slot // width - shift // width,
            last_position=int(job.plan.last_position[slot]),
            ids=job.outputs[slot].ids[:-1],
        )
        for slot in range(shift, targets[0])
    ]
    return with_values(plan, earlier)


def _steps(job: _Job, model: Model) -> list[int]:
    """(J,) forward passes until the last slot of each document was done."""
    width = len(job.prompt.k_max)
    passes = [_passes(job, slot, output, model) for slot, output in enumerate(job.outputs or ())]
    return [
        max(passes[at : at + width], default=0) for at in range(0, len(job.places) * width, width)
    ]


def _passes(job: _Job, slot: int, output: SlotOutput, model: Model) -> int:
    j, n = divmod(slot, len(job.prompt.k_max))
    return model.passes(len(job.prompt.keys[j][n]), output.passes)
