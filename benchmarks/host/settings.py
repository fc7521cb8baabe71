"""Settings in which the host is measured: a model that is nearly free, schemas, documents.

`sizes_of_cuda` has passes run on a CPU with the sizes of CUDA, since measuring the host requires no
GPU; nothing else in the host's benchmark depends on internals of the runtime.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from datetime import date
from itertools import product
from typing import Any, Literal

import torch
from pydantic import create_model

from benchmarks.host.tiny_writer import tiny_writer
from schemax.attributes import attr
from schemax.base.resources import resource_dir
from schemax.compiler import TextCodec, load_codec
from schemax.config import DecodingConfig
from schemax.extraction.extractor import Extractor
from schemax.extraction.schema import AttrSchema
from schemax.runtime.engine import limits
from schemax.runtime.sampling import draw
from schemax.runtime.slots import staging

SlotType = Literal["free", "typed"]
KINDS: tuple[SlotType, ...] = ("free", "typed")
IN_FLIGHT, SLOTS = (64, 512, 4096), (1, 4, 16)

_FEWEST = 600  # documents, of a setting
_LATER = 512  # documents, at most, that join those in flight
_WORDS = 60
# Tokens of a document and its keys, so that a pass has room for all documents in flight.
_DOCUMENT_TOKENS = 160
_NAMES = (
    *("brand", "model", "style", "colour", "material", "pattern", "finish", "shape"),
    *("size", "flavour", "scent", "series", "audience", "season", "origin", "feature"),
)
_TYPES: tuple[Any, ...] = (
    float,
    int,
    bool,
    Literal["black", "white", "dark red", "dark blue", "silver"],
    date,
)


@dataclass(frozen=True, slots=True)
class Setting:
    """Documents of 60 words, each read for some fields of one kind.

    kind: "free" for `str | None` with a budget of 6 tokens; "typed" for optional numbers,
        booleans, choices and dates by turns.
    slots: fields of a document, at most 16.
    in_flight: documents in flight, with passes of CUDA's sizes, or larger if the documents require
        it; None takes schemax's own sizes on a CPU.
    documents: the number of documents read.
    """

    kind: SlotType
    slots: int
    in_flight: int | None
    documents: int

    @property
    def name(self) -> str:
        flying = "auto" if self.in_flight is None else f"{self.in_flight:,}"
        return f"{self.kind}, {self.slots} slots, {flying} in flight"


def settings(most_documents: int | None = None) -> list[Setting]:
    """The settings: both kinds with 1, 4 and 16 slots at 64, 512 and 4,096 documents in flight.

    Before them, both kinds with 16 slots at the sizes of a CPU.

    most_documents: the most documents of a setting; None takes 600, and more than are in flight.
    """
    grid: list[tuple[int | None, SlotType, int]] = [(None, kind, 16) for kind in KINDS]
    grid += product(IN_FLIGHT, KINDS, SLOTS)
    found = []
    for in_flight, kind, slots in grid:
        flying = in_flight or 0
        documents = max(_FEWEST, flying + min(flying, _LATER))
        found.append(Setting(kind, slots, in_flight, min(documents, most_documents or documents)))
    return found


def host_codec() -> TextCodec:
    """The embedded model's tokenizer."""
    return load_codec(resource_dir("embedded"))


def host_schema(setting: Setting) -> type[AttrSchema]:
    fields: dict[str, Any] = {
        name: (str | None, attr(k_max=6))
        if setting.kind == "free"
        else (_TYPES[place % len(_TYPES)] | None, attr())
        for place, name in enumerate(_NAMES[: setting.slots])
    }
    return create_model("Host", __base__=AttrSchema, **fields)


def host_documents(codec: TextCodec, count: int, seed: int) -> list[str]:
    """Documents of words that are tokens of the vocabulary, drawn with the seed."""
    words = [data.decode() for data in codec.token_bytes if data[:1] == b" " and data[1:].isalpha()]
    chance = random.Random(seed)
    return ["".join(chance.choices(words, k=_WORDS)).strip() for _ in range(count)]


def host_extractor(codec: TextCodec, setting: Setting, seed: int) -> Extractor:
    model = tiny_writer(
        codec.token_bytes, codec.vocab_size, typed=setting.kind == "typed", seed=seed
    )
    decoding = DecodingConfig(batch_size=setting.in_flight or "auto", constrain="types")
    return Extractor(model, codec, decoding=decoding, eos_ids=codec.eos_ids)


@contextmanager
def sizes_of(setting: Setting) -> Iterator[None]:
    """Sets one thread and the setting's sizes of passes, for as long as the context lasts."""
    sizes: Any = nullcontext()
    if setting.in_flight is not None:
        sizes = sizes_of_cuda(setting.in_flight * (_DOCUMENT_TOKENS + setting.slots))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with sizes:
            yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def sizes_of_cuda(pass_tokens: int = 0) -> Iterator[None]:
    """Sets CUDA's tokens per pass, slots that are sampled at once, and copies, in its context.

    pass_tokens: the least tokens per pass.
    """
    usual, at_once = limits._PASS_TOKENS["cpu"], draw._AT_ONCE["cpu"]
    limits._PASS_TOKENS["cpu"] = max(limits._PASS_TOKENS["cuda"], pass_tokens)
    draw._AT_ONCE["cpu"] = draw._AT_ONCE["cuda"]
    staging.SHARED.remove("cpu")
    try:
        yield
    finally:
        limits._PASS_TOKENS["cpu"], draw._AT_ONCE["cpu"] = usual, at_once
        staging.SHARED.add("cpu")
