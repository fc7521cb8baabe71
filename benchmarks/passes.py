"""Copies, waits and launched operations of a pass, by its size and by the lines that cause them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from benchmarks.transfers import PassCount, TransferCounter
from schemax.benchmark.host.settings import (
    KINDS,
    Setting,
    SlotType,
    host_codec,
    host_documents,
    host_extractor,
    host_schema,
    sizes_of,
)
from schemax.compiler import TextCodec
from schemax.runtime.engine import fill

LIVE_SLOTS = (64, 1024)
_SLOTS = 16
# So many times as many documents are read as are in flight.
_ROUNDS = 3
# Tokens beyond one per slot: more come with a document, fewer are forced by grammars.
_SPARE = 56


@dataclass(frozen=True, slots=True)
class PassRow:
    """The fullest pass of a run among those that only decode, or those that read documents as well.

    live_slots: of the documents in flight, before any slot is done.
    ops_per_layer: launched in each decoder layer; ops_beside: in the rest of the forward pass, and
        from its end to the next one's start.
    """

    kind: SlotType
    live_slots: int
    reads: bool
    ops_per_layer: float
    ops_beside: int
    count: PassCount

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)


def measure_passes(
    live_slots: Sequence[int] = LIVE_SLOTS, kinds: Sequence[SlotType] = KINDS, seed: int = 0
) -> Iterator[PassRow]:
    """Per kind and size a row for passes that decode alone, and one for those that read as well."""
    codec = host_codec()
    for kind in kinds:
        for live in live_slots:
            in_flight = max(1, live // _SLOTS)
            setting = Setting(kind, _SLOTS, in_flight, _ROUNDS * in_flight)
            counter = _counted(setting, codec, seed)
            decoding = [x for x in counter.passes if x.tokens <= x.slots + _SPARE]
            # Not the first, which takes up all documents at once.
            reading = [x for x in counter.passes[1:] if x.tokens > x.slots + _SPARE]
            for reads, counts in ((False, decoding), (True, reading)):
                if counts:
                    fullest = max(counts, key=lambda count: count.slots)
                    yield PassRow(
                        kind=kind,
                        live_slots=live,
                        reads=reads,
                        ops_per_layer=fullest.layer_ops / counter.num_layers,
                        ops_beside=fullest.model_ops + fullest.other_ops,
                        count=fullest,
                    )


def _counted(setting: Setting, codec: TextCodec, seed: int) -> TransferCounter:
    """A run on this thread; `Extractor.stream` has the model run on another."""
    extractor = host_extractor(codec, setting, seed)
    compiled = extractor.compile(host_schema(setting))
    prompts = compiled.encode(host_documents(codec, setting.documents, seed))
    decode = partial(fill, extractor.model, stop=compiled.stop, config=compiled.decoding)
    with sizes_of(setting):
        list(decode(prompts[:1]))  # reads the instruction, which is kept
        with TransferCounter(extractor.model.model) as counter:
            list(decode(prompts))
    return counter
