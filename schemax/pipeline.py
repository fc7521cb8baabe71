"""Documents in, extractions out: what runs between a compiled schema and the caller.

Documents are read and extractions built on the caller's thread, while the model runs on another.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import count, islice
from typing import Any

from schemax.background import Ready, in_background
from schemax.calibration import Calibration
from schemax.compiler import CompiledSchema
from schemax.documents import Document
from schemax.errors import InputError
from schemax.familiarity import Familiarity
from schemax.messages import clipped, some_of
from schemax.readout import read_out
from schemax.results import Extraction, failed
from schemax.runtime.engine import AnyModel, Windows, outputs, run
from schemax.runtime.outputs import NO_MEMORY, DocumentOutput
from schemax.runtime.requests import Request, new_request
from schemax.runtime.stream import Refused
from schemax.tokens import PromptIds, StopTable

# Documents that are read ahead, and outputs that wait to be read; characters read at a time.
_WINDOW, _WINDOW_CHARACTERS = 1024, 4_000_000

_Item = tuple[int, DocumentOutput] | Extraction[Any]


def extractions(
    model: AnyModel,
    documents: Iterator[Document],
    compiled: Mapping[str, CompiledSchema],
    calibration: Calibration,
    familiarity: Familiarity,
    *,
    by_category: bool,
    alone: bool = False,
) -> Iterator[Extraction[Any]]:
    """Extractions of documents as they are done; of unreadable ones as they are met.

    compiled: all of one decoding. by_category: whether a document's category names its schema; else
    there is one for all documents. alone: whether every document gets a prompt of its own.
    Documents that memory does not suffice for in one prompt are read again in the end, alone.
    """
    config = next(iter(compiled.values())).decoding
    may_share = config.documents == "stacked" and not alone
    feed = _Feed(model, compiled, by_category, alone)
    again: list[Document] = []

    def decoded(requests: Iterator[Request | Refused]) -> Iterator[_Item]:
        return outputs(run(model, requests, config))

    def found() -> Iterator[Extraction[Any]]:
        requests: Iterator[Any] = feed.requests(documents)
        for item in in_background(decoded, requests, ahead=_WINDOW, unread=_WINDOW):
            if isinstance(item, Extraction):
                yield item
                continue
            place, output = item
            schema, document = feed.owners.pop(place)
            if output.problem == NO_MEMORY and may_share:
                again.append(document)
            elif output.problem is not None:
                yield failed(document.index, document.id, output.problem, is_gone=output.is_gone)
            else:
                extraction = read_out(document, output, schema, calibration)
                familiarity.saw(schema, extraction)
                yield extraction

    failure: Exception | None = None
    try:
        yield from found()
    except Exception as error:  # the input's; what was taken of it is finished first
        if not again:
            raise
        failure = error
    if again:
        rest = iter(again)
        yield from extractions(
            model, rest, compiled, calibration, familiarity, by_category=by_category, alone=True
        )
    if failure is not None:
        raise failure
    familiarity.end()


class _Feed:
    """Makes requests of documents, window by window.

    owners: the schema and the document of every place that is under way.
    """

    def __init__(
        self,
        model: AnyModel,
        compiled: Mapping[str, CompiledSchema],
        by_category: bool,
        alone: bool,
    ) -> None:
        self._model, self._compiled = model, compiled
        self._by_category, self._alone = by_category, alone
        self._places = count()
        self.owners: dict[int, tuple[CompiledSchema, Document]] = {}

    def requests(self, documents: Iterator[Document]) -> Iterator[Request | Refused | Ready[_Item]]:
        """Documents as requests; what cannot be read is ready as it is met."""
        only = next(iter(self._compiled))
        windows = Windows(self._model, self._compiled[only].decoding)
        failure: Exception | None = None
        while failure is None:
            window, failure = _window(documents, windows.size)
            if not window:
                break
            groups: dict[str, list[Document]] = {}
            for document in window:
                category = (document.category or "") if self._by_category else only
                if problem := document.problem or self._unknown(category, document):
                    yield Ready(failed(document.index, document.id, problem))
                else:
                    groups.setdefault(category, []).append(document)
            prompts: list[tuple[PromptIds, StopTable]] = []
            for category, group in groups.items():
                schema = self._compiled[category]
                try:
                    made = self._prompts(schema, group)
                except InputError:
                    group, failures = _encodable(schema, group)
                    yield from failures
                    made = self._prompts(schema, group)
                self.owners.update((next(self._places), (schema, item)) for item in group)
                prompts += ((prompt, schema.stop) for prompt in made)
            yield from windows.requests(prompts)
        if failure is not None:
            raise failure

    def _unknown(self, category: str, document: Document) -> str | None:
        if category in self._compiled:
            return None
        known = some_of(map(repr, self._compiled))
        return f"no schema for category {clipped(repr(document.category))}; there are {known}"

    def _prompts(self, compiled: CompiledSchema, group: Sequence[Document]) -> list[PromptIds]:
        """Prompts of J documents; one of each where they are too long to share a prompt."""
        texts = [document.text or "" for document in group]
        if self._alone:
            return [prompt for text in texts for prompt in compiled.encode([text])]
        prompts, at = [], 0
        for prompt in compiled.encode(texts):
            number = len(prompt.documents)
            some, at = texts[at : at + number], at + number
            if number == 1 or not self._model.misfit(
                new_request(prompt, compiled.stop, compiled.decoding)
            ):
                prompts.append(prompt)
            else:
                for text in some:
                    prompts += compiled.encode([text])
        return prompts


def _encodable(
    compiled: CompiledSchema, group: Sequence[Document]
) -> tuple[list[Document], list[Ready[_Item]]]:
    """The documents that the tokenizer reads; and of the others, what is said of each."""
    good: list[Document] = []
    failures: list[Ready[_Item]] = []
    for document in group:
        try:
            compiled.encode([document.text or ""])
            good.append(document)
        except InputError as error:
            failures.append(Ready(failed(document.index, document.id, str(error))))
    return good, failures


def _window(documents: Iterator[Document], size: int) -> tuple[list[Document], Exception | None]:
    """Up to so many documents, fewer if they are long; and what the input raised behind them."""
    window: list[Document] = []
    characters = 0
    try:
        for document in islice(documents, size):
            window.append(document)
            characters += len(document.text or "")
            if characters > _WINDOW_CHARACTERS:
                break
    except Exception as error:  # the input may be the user's own
        return window, error
    return window, None
