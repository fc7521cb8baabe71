"""Traces of a document: the tokens of every pass, with likely alternatives, and their page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from math import exp
from typing import Any

from pydantic import BaseModel

from schemax.compiler import CompiledSchema, TextCodec
from schemax.errors import InputError, ModelError
from schemax.extraction.documents import RecordFields, read_documents
from schemax.extraction.extractor import Extractor
from schemax.report.pages import asset, page_of, to_json
from schemax.results import Extraction
from schemax.runtime.slots.outputs import Progress, SlotStep, Watcher
from schemax.servers.remote import RemoteModel
from schemax.tokens import AGAIN, Ids, SlotOutput

NUM_RIVALS = 5
"""The number of likeliest tokens that are kept per choice."""


@dataclass(frozen=True, slots=True)
class TracedStep:
    """The tokens that a pass wrote into a slot.

    field: dotted name; "output" if one slot holds the whole output.
    text, token_ids: of the chosen token, and of forced tokens behind it.
    probability: of the chosen token.
    rivals: (text, probability) of the likeliest tokens, allowed by the grammar or not.
    as_text: True if a choice is written again as free text.
    again: True if a refused value is written again (`DecodingConfig.max_repairs`).
    """

    field: str
    text: str
    token_ids: tuple[int, ...]
    probability: float
    rivals: tuple[tuple[str, float], ...]
    as_text: bool = False
    again: bool = False

    @property
    def row(self) -> str:
        """The name of the row that shows the step: of a field, a second value or a free text."""
        second = " (second chance)" if self.again else ""
        return f"{self.field}{second}{' (as text)' if self.as_text else ''}"


@dataclass(frozen=True, slots=True)
class DocumentTrace:
    """The trace of a document.

    passes: the steps of each pass, without items of lists and alternatives of choices.
    others: the number of tokens that each pass chose for those.
    prompt_tokens: of the first pass.
    one_by_one: the passes of the same output if a pass writes every token, keys included.
    """

    text: str
    passes: tuple[tuple[TracedStep, ...], ...]
    others: tuple[int, ...]
    prompt_tokens: int
    one_by_one: int
    extraction: Extraction[Any]

    def to_dict(self) -> dict[str, Any]:
        """Returns the trace as JSON."""
        return {
            "text": self.text,
            "field": next(iter(self.extraction.texts), "text"),  # whose places spans are
            "prompt_tokens": self.prompt_tokens,
            "one_by_one": self.one_by_one,
            "passes": [[asdict(written) for written in steps] for steps in self.passes],
            "others": list(self.others),
            "row": self.extraction.to_row(details=True),
        }


def trace(
    extractor: Extractor, document: str | Mapping[str, Any], schema: type[BaseModel], **options: Any
) -> DocumentTrace:
    """Reads one document, and returns the tokens that every pass wrote for it.

    options: format, template, decoding, examples of `Extractor.stream`. Only passes that wrote for
    the document count.
    Raises what compiling raises, InputError for a document that cannot be read, and ModelError for
    a model behind a server, which does not show its passes.
    """
    if isinstance(extractor.model, RemoteModel):
        raise ModelError("a server does not show its passes; trace a model of this process")
    seen: list[Progress] = []
    watcher = Watcher(seen.append, NUM_RIVALS)
    stream = extractor.extractions([document], schema, watcher=watcher, **options)
    (compiled,) = stream.compiled.values()
    tracer = Tracer(document, compiled, RecordFields.of_options(options))
    (extraction,) = stream
    for progress in seen:
        tracer.take(progress)
    return tracer.trace(extraction)


class Tracer:
    """A collector of a document's passes, which makes its trace.

    text: as the model is shown it.
    prompt_tokens, passes: see `DocumentTrace`.

    Raises InputError for a document that cannot be read.
    """

    def __init__(
        self, document: str | Mapping[str, Any], compiled: CompiledSchema, shown: RecordFields
    ) -> None:
        (read,) = read_documents([document], shown)
        if read.text is None:
            raise InputError(str(read.problem))
        self.text = read.text
        (prompt,) = compiled.encode([read.text])
        shared = prompt.instruction, *prompt.demonstrations
        parts = *shared, *prompt.documents, prompt.opening
        self.prompt_tokens = sum(map(len, parts))
        self.passes: list[tuple[TracedStep, ...]] = []
        self._compiled, self._slots = compiled, prompt.slots
        names = [item.name for item in compiled.attributes]
        if compiled.decoding.layout == "autoregressive":
            names = ["output"]
        elif compiled.waves is not None:
            names = [names[n] for n in compiled.waves.fields.first]
        self._names = names
        self._others: list[int] = []
        self._done: dict[int, SlotOutput] = {}

    def take(self, progress: Progress) -> None:
        """Adds a pass's steps; a request that begins again replaces its later steps."""
        if progress.steps or progress.others:
            del self.passes[progress.number :], self._others[progress.number :]
            self.passes.append(tuple(map(self._traced_step, progress.steps)))
            self._others.append(progress.others)
        self._done.update(progress.done)

    def trace(self, extraction: Extraction[Any]) -> DocumentTrace:
        """Returns the trace. Raises InputError for a document that was not run."""
        if not extraction.slots:
            raise InputError("; ".join(error.message for error in extraction.errors))
        tokens = sum(len(slot.ids) for slot in _all_of(self._done.values()))
        return DocumentTrace(
            self.text,
            tuple(self.passes),
            tuple(self._others),
            self.prompt_tokens,
            tokens + sum(map(len, self._compiled.keys[0])),
            extraction,
        )

    def _traced_step(self, step: SlotStep) -> TracedStep:
        codec = self._compiled.codec
        # The first token holds the end of the key if the tokenizer merges key and value.
        is_first = self._slots and not step.path and step.start == 0
        ids = (*(self._slots[step.slot_index].begun if is_first else ()), *step.ids)
        return TracedStep(
            ".".join(name for name in step.path if name != AGAIN) or self._names[step.slot_index],
            _text(codec, ids),
            ids,
            exp(step.logprob),
            tuple((_text(codec, (id,)), share) for id, share in step.rivals),
            step.role == "free_text",
            AGAIN in step.path,
        )


def _text(codec: TextCodec, ids: Ids) -> str:
    return codec.decode_bytes(ids).decode("utf-8", "replace")


def _all_of(slots: Iterable[SlotOutput]) -> Iterator[SlotOutput]:
    for slot in slots:
        yield slot
        yield from _all_of(slot.items)


BODY, STYLE, SCRIPT = (asset(__file__, f"trace.{kind}") for kind in ("html", "css", "js"))
"""The parts of a page that shows a trace; SCRIPT has `mountTrace`, which takes the trace."""


def playback(trace: DocumentTrace, title: str) -> str:
    """Returns a page that plays back the passes of a trace. UTF-8 can encode any page."""
    return page_of(
        title,
        f"<header>\n  <h1>$title</h1>\n</header>\n{BODY}",
        style=STYLE,
        script=f"{SCRIPT}\nmountTrace(data);\n",
        data=to_json(trace.to_dict()),
    )
