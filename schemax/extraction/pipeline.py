"""`Extractions`: the pipeline from documents, by compiled schemas, to extractions.

Documents are read and extractions built on the caller's side, while the model runs in a thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count, islice
from typing import Any
from weakref import WeakKeyDictionary

import torch

from schemax.base.calibration import Calibration
from schemax.base.messages import clipped, some_of
from schemax.compiler import CompiledSchema
from schemax.compiler.content_free import calibrated, content_free_prompts
from schemax.errors import InputError
from schemax.extraction.cascade import Answered, Further, unsure
from schemax.extraction.documents import Document
from schemax.extraction.familiarity import Familiarity
from schemax.extraction.readout import null_text, prompt_of, read_out, review
from schemax.results import Extraction
from schemax.runtime.engine.decode import Placed, Windows, outputs
from schemax.runtime.engine.shared import Call, SharedEngine
from schemax.runtime.slots.outputs import Watcher, exceeds
from schemax.runtime.slots.requests import Filled, Request, new_request
from schemax.servers.remote import RemoteModel
from schemax.tokens import PromptIds, SlotOutput, StopTable

# Characters of documents read at a time; outputs read out at a time.
_WINDOW_CHARACTERS, _AT_ONCE = 4_000_000, 16

_Window = tuple[list[Extraction[Any]], list[Request], list[Placed]]


class Extractions:
    """The extractions of documents, as they finish; unreadable documents at once.

    compiled: all of one decoding.
    by_category: whether a document's category names its schema; else one schema serves all.
    watcher: watches the passes of a single document.
    further, later: the next model of a cascade, and its extractions: it is asked for the fields
        that this one is unsure of.

    Documents become requests window by window. Stacked documents that exceed the memory are read
    again at the end, each alone.
    """

    def __init__(
        self,
        engine: SharedEngine,
        documents: Iterator[Document | None],
        compiled: Mapping[str, CompiledSchema],
        calibration: Calibration,
        familiarity: Familiarity,
        *,
        by_category: bool,
        watcher: Watcher | None = None,
        further: Further | None = None,
        later: Extractions | None = None,
    ) -> None:
        self._engine, self._documents = engine, documents
        self.compiled = {
            name: contextually_calibrated(engine, item) for name, item in compiled.items()
        }
        self._watcher = watcher
        self._calibration, self._familiarity = calibration, familiarity
        self._by_category = by_category
        self._config = next(iter(compiled.values())).decoding
        # The schema and the document of every place that is under way.
        self._owners: dict[int, tuple[CompiledSchema, Document]] = {}
        self._again: list[Document] = []
        self._call: Call | None = None
        self._is_closed = False
        self._further, self._later = further, later
        self._unsure: deque[Document] = deque()  # for the next model
        self._is_read = False
        if later is not None:
            later._documents = self._handed_on()

    def _handed_on(self) -> Iterator[Document | None]:
        """Documents for the next model; None where there are none for now."""
        while self._unsure or not self._is_read:
            yield self._unsure.popleft() if self._unsure else None

    def __iter__(self) -> Iterator[Extraction[Any]]:
        try:
            for step in self._steps():
                if isinstance(step, Call):
                    step.wait()
                else:
                    yield from step
        finally:
            self.close()
            self._wait_until_left()

    async def __aiter__(self) -> AsyncGenerator[Extraction[Any]]:
        steps = self._steps()
        try:
            while (step := await asyncio.to_thread(next, steps, None)) is not None:
                if isinstance(step, Call):
                    await step.changed()
                else:
                    for item in step:
                        yield item
        finally:
            self.close()

    def close(self) -> None:
        """Ends the extractions, from any thread; documents under way are dropped."""
        self._is_closed = True
        if self._call is not None:
            self._call.close()
        if self._later is not None:
            self._later.close()

    def _wait_until_left(self) -> None:
        if self._call is not None:
            self._engine.wait_until_left(self._call)
        if self._later is not None:
            self._later._wait_until_left()

    def _steps(self) -> Iterator[list[Extraction[Any]] | Call]:
        """Yields lists of extractions, or the call if there is nothing to do but wait for it."""
        if self._later is None:
            yield from self._own_steps()
            return
        later = self._later._steps()
        for step in self._own_steps():
            if not isinstance(step, Call):
                yield step
            # The next model is fed and read as long as it need not be waited for, unless it has
            # more to do than it may be given.
            for item in later:
                if isinstance(item, Call) and not item.is_busy:
                    break
                yield item
            if isinstance(step, Call):
                yield step
        self._is_read = True
        yield from later

    def _own_steps(self) -> Iterator[list[Extraction[Any]] | Call]:
        """`_steps` without the next model."""
        failure: Exception | None = None
        try:
            yield from self._read(self._documents, alone=False)
        except Exception as error:  # the input's; documents before it are finished first
            if not self._again:
                raise
            failure = error
        if self._again:
            yield from self._read(iter(self._again), alone=True)
        if failure is not None:
            raise failure
        self._familiarity.end()

    def _read(
        self, documents: Iterator[Document | None], *, alone: bool
    ) -> Iterator[list[Extraction[Any]] | Call]:
        """Reads documents; yields as `_steps` does. alone: whether each has its own prompt."""
        may_share = self._config.documents == "stacked" and not alone
        windows, failure = self._windows(documents, alone), None
        call = self._call = self._engine.call(self._config)
        try:
            while not self._is_closed:
                # A call with little left to do is fed first; else results go first.
                if call.has_room and not (call.results and call.is_busy):
                    ready: list[Extraction[Any]] = []
                    requests: list[Request] = []
                    refused: list[Placed] = []
                    may_have_more = True
                    try:
                        ready, requests, refused = next(windows)
                        for request in requests if self._watcher is not None else ():
                            request.watcher = self._watcher
                        call.give(requests)
                        may_have_more = bool(ready or requests or refused)
                    except StopIteration:
                        call.end()
                    except Exception as error:
                        failure = error
                        call.end()
                    ready += self._read_out(refused, may_share)
                    if ready:
                        yield ready
                    # An input of refused documents alone never fills the room.
                    if call.has_room and not call.results and may_have_more:
                        continue
                if filled := call.take(_AT_ONCE):
                    yield self._read_out(outputs(filled), may_share)
                elif call.is_done:
                    break
                else:
                    yield call
        finally:
            call.close()
        if failure is not None:
            raise failure

    def _read_out(self, placed: Iterable[Placed], may_share: bool) -> list[Extraction[Any]]:
        extractions = []
        for place, output in placed:
            schema, document = self._owners.pop(place)
            if output.cause == "memory" and may_share:
                self._again.append(document)
                continue
            if output.problem is not None:
                extraction = document.failed(output.problem, cause=output.cause)
            else:
                extraction = read_out(document, output, schema, self._calibration)
                if document.answered is None:
                    self._familiarity.saw(schema, extraction)
            if not self._hands_on(document, schema, extraction):
                extractions.append(extraction)
        return extractions

    def _hands_on(self, document: Document, schema: CompiledSchema, item: Extraction[Any]) -> bool:
        """True if the next model is asked for fields of the document."""
        if self._further is None:
            return False
        if places := unsure(item, schema.attributes, null_text(schema.format), self._further):
            read = document.prompts(prompt_of(schema))
            answered = Answered(item, places, read, self._further.extractor.name)
            self._unsure.append(replace(document, answered=answered))
        return bool(places)

    def _windows(self, documents: Iterator[Document | None], alone: bool) -> Iterator[_Window]:
        """Yields windows: documents that cannot be read, requests, and refused documents."""
        only = next(iter(self.compiled))
        windows, places = Windows(self._engine.model, self._config), count()
        failure: Exception | None = None
        while failure is None:
            window, failure = _window(documents, windows.size)
            if not window:
                break
            unread: list[Extraction[Any]] = []
            groups: dict[str, list[Document]] = {}
            for document in filter(None, window):
                category = (document.category or "") if self._by_category else only
                if problem := document.problem or self._unknown(category, document):
                    unread.append(document.failed(problem))
                else:
                    groups.setdefault(category, []).append(document)
            prompts: list[tuple[PromptIds, StopTable]] = []
            for category, group in groups.items():
                schema = self.compiled[category]
                try:
                    encoded = self._prompts(schema, group, alone)
                except InputError:
                    group, failures = _encodable(schema, group)
                    unread += failures
                    encoded = self._prompts(schema, group, alone)
                if schema.decoding.max_repairs:
                    encoded = [
                        self._reviewed(*each, schema) for each in zip(encoded, group, strict=True)
                    ]
                if unsure_places := [item.answered.places for item in group if item.answered]:
                    encoded = list(map(schema.asking, encoded, unsure_places))
                self._owners.update((next(places), (schema, item)) for item in group)
                prompts += ((prompt, schema.stop) for prompt in encoded)
            yield unread, *windows.requests(prompts)
        if failure is not None:
            raise failure

    def _reviewed(
        self, prompt: PromptIds, document: Document, compiled: CompiledSchema
    ) -> PromptIds:
        """The prompt of a document with a review of its values; see `compiler.waves.Review`."""

        @lru_cache(maxsize=1)  # several calls with the same values
        def judge(outputs: tuple[SlotOutput, ...]) -> Mapping[tuple[str, ...], str]:
            with torch.inference_mode(False):  # validators may compute with torch
                return review(document, compiled, self._calibration, outputs)

        assert compiled.waves is not None
        return replace(prompt, waves=replace(compiled.waves, review=judge))

    def _unknown(self, category: str, document: Document) -> str | None:
        if category in self.compiled:
            return None
        known = some_of(map(repr, self.compiled))
        if document.category is None:
            return (
                "the record has no category: --category (category=) names its key; there are "
                f"{known}"
            )
        return f"no schema for category {clipped(repr(document.category))}; there are {known}"

    def _prompts(
        self, compiled: CompiledSchema, group: Sequence[Document], alone: bool
    ) -> list[PromptIds]:
        """Prompts of J documents, or one per document if they are too long to share a prompt."""
        texts = [document.text or "" for document in group]
        if alone:
            return [prompt for text in texts for prompt in compiled.encode([text])]
        prompts, unread = [], iter(texts)
        for prompt in compiled.encode(texts):
            own = list(islice(unread, len(prompt.documents)))
            furthest = new_request(prompt, compiled.stop, compiled.decoding).max_position
            if len(own) == 1 or not exceeds(furthest, self._engine.model.max_positions):
                prompts.append(prompt)
            else:
                for text in own:
                    prompts += compiled.encode([text])
        return prompts


def _encodable(
    compiled: CompiledSchema, group: Sequence[Document]
) -> tuple[list[Document], list[Extraction[Any]]]:
    """The documents that the tokenizer can read, and a failed extraction for any other document."""
    good: list[Document] = []
    failures: list[Extraction[Any]] = []
    for document in group:
        try:
            compiled.encode([document.text or ""])
            good.append(document)
        except InputError as error:
            failures.append(document.failed(str(error)))
    return good, failures


def _window(
    documents: Iterator[Document | None], size: int
) -> tuple[list[Document | None], Exception | None]:
    """Up to `size` documents, fewer if they are long, or if None says that there are no more for
    now; and the error that the input raised next."""
    window: list[Document | None] = []
    characters = 0
    try:
        for document in islice(documents, size):
            window.append(document)
            characters += len(document.text or "") if document else 0
            if document is None or characters > _WINDOW_CHARACTERS:
                break
    except Exception as error:  # the input may be the user's own
        return window, error
    return window, None


_known: WeakKeyDictionary[SharedEngine, WeakKeyDictionary[CompiledSchema, CompiledSchema]] = (
    WeakKeyDictionary()
)


def contextually_calibrated(engine: SharedEngine, compiled: CompiledSchema) -> CompiledSchema:
    """The schema, calibrated for the engine's model if its decoding asks for that; cached.

    If the model cannot take the prompts, nothing is calibrated; every row then reports the error.
    """
    if not compiled.decoding.contextual_calibration:
        return compiled
    of_model = _known.setdefault(engine, WeakKeyDictionary())
    if compiled not in of_model:
        outputs = _content_free_outputs(engine, compiled)
        if outputs is None:  # perhaps for a while
            return compiled
        of_model[compiled] = calibrated(compiled, outputs) if outputs else compiled
    return of_model[compiled]


def _content_free_outputs(
    engine: SharedEngine, compiled: CompiledSchema
) -> list[tuple[SlotOutput, ...]] | None:
    """(turns * documents, N) outputs of `content_free_prompts`, in order; None if the model or the
    memory cannot take them."""
    # Probabilities as the model has them.
    config = replace(
        compiled.decoding, contextual_calibration=False, max_retries=0, temperature=0.0
    )
    prompts = content_free_prompts(compiled, choices_alone=isinstance(engine.model, RemoteModel))
    layout = Windows(engine.model, config)
    requests, refused = layout.requests((prompt, compiled.stop) for prompt in prompts)
    if refused:
        return None
    done: list[Filled] = []
    call = engine.call(config)
    try:
        call.give(requests)
        call.end()
        while not call.is_done:
            if filled := call.take(len(requests)):
                done += filled
            else:
                call.wait()
        call.take(1)  # raises what the model raised
    finally:
        call.close()
    of_documents = dict(outputs(done))
    if any(output.problem is not None for output in of_documents.values()):
        return None
    return [of_documents[place].slots for place in range(len(of_documents))]
