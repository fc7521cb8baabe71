"""The cost of fields that look at others: reads the same fields in one wave and in more."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import mean, median
from typing import Any

from pydantic import create_model

from benchmarks.tables import titles
from schemax.attributes import asked_fields, attr
from schemax.commands import options
from schemax.compiler import CompiledSchema
from schemax.extraction.declarations import load_schema
from schemax.extraction.schema import AttrSchema
from schemax.results import Extraction

WAVES = (1, 2, 3, 4)
_FIELDS = tuple(asked_fields(load_schema("clothing")))  # 16


@dataclass(frozen=True, slots=True)
class WaveCosts:
    """Averages per document. time: relative to one wave, the median of all rounds.

    read: tokens of the document and of all keys; written: tokens of values.
    """

    waves: int
    passes: float
    read: float
    written: float
    time: float


def measure_waves(
    documents: int,
    repeats: int,
    model: str | None = None,
    device: str = "auto",
    dtype: str = "auto",
    *,
    tell: Callable[[str], None] = lambda _: None,
) -> Iterator[WaveCosts]:
    """Yields the costs for each of `WAVES`, which take turns in every round.

    On a CPU, time is processor time, on which other load has no effect.
    Raises ModelError for a model that cannot be loaded.
    """
    extractor = options.load_extractor(model, device, dtype)
    clock = time.process_time if extractor.model.device.type == "cpu" else time.perf_counter
    texts = [title["title"] for title in titles(0, documents)]
    schemas = {count: schema_in_waves(count) for count in WAVES}
    seconds: dict[int, list[float]] = {count: [] for count in WAVES}
    found: dict[int, list[Extraction[Any]]] = {}
    for number in range(repeats + 1):
        tell(f"round {number} of {repeats}" if number else "warm-up")
        for count in WAVES:
            began = clock()
            found[count] = list(extractor.stream(texts, schemas[count]))
            seconds[count].append(clock() - began)
    for count in WAVES:
        rows, compiled = found[count], extractor.compile(schemas[count])
        yield WaveCosts(
            waves=count,
            passes=mean(row.steps for row in rows),
            read=mean(_read(compiled, row) for row in rows),
            written=mean(sum(field.tokens for field in row.fields.values()) for row in rows),
            time=median(mine / one for mine, one in _rounds(seconds[count], seconds[1])),
        )


def schema_in_waves(count: int) -> type[AttrSchema]:
    """Returns a schema with fields in chains of `count`, each looking at the field before it."""
    fields: Any = {
        name: (str | None, attr(after=_FIELDS[place - 1] if place % count else ()))
        for place, name in enumerate(_FIELDS)
    }
    return create_model("Item", __base__=AttrSchema, **fields)


def _rounds(mine: Sequence[float], one: Sequence[float]) -> Iterator[tuple[float, float]]:
    """Pairs the rounds, without the first, which is the warm-up."""
    return zip(mine[1:], one[1:], strict=True)


def _read(compiled: CompiledSchema, row: Extraction[Any]) -> int:
    slots = [slot for slot in row.slots if slot is not None]
    (text,) = row.texts.values()
    keys = sum(len(slot.key) for slot in compiled.known(slots))
    return len(compiled.opening) + len(compiled.codec.encode(text)) + keys
