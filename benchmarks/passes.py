"""Counts copies, waits and launched operations of a pass, by size and by the causing lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from benchmarks.host.settings import (
    KINDS,
    Setting,
    SlotType,
    host_codec,
    host_documents,
    host_extractor,
    host_schema,
    sizes_of,
)
from benchmarks.transfers import PassCount, TransferCounter
from schemax.compiler import TextCodec
from schemax.runtime.engine.decode import decode

LIVE_SLOTS = (64, 1024)
_SLOTS = 16
# The number of documents, in multiples of those in flight.
_ROUNDS = 3
# Tokens beyond one per slot: grammars force fewer, a document adds more.
_SPARE = 56


@dataclass(frozen=True, slots=True)
class PassRow:
    """The fullest pass of a run that only decodes, or that also reads documents.

    live_slots: of the documents in flight, before any slot is done.
    ops_per_layer: operations launched in each decoder layer; ops_beside: in the rest of the forward
        pass, and from its end to the start of the next pass.
    """

    kind: SlotType
    live_slots: int
    reads: bool
    ops_per_layer: float
    ops_beside: int
    count: PassCount

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, ready for JSON."""
        return asdict(self)


def measure_passes(
    live_slots: Sequence[int] = LIVE_SLOTS, kinds: Sequence[SlotType] = KINDS, seed: int = 0
) -> Iterator[PassRow]:
    """Yields, per kind and size, a row for passes that only decode, and for passes that read."""
    codec = host_codec()
    for kind in kinds:
        for live in live_slots:
            in_flight = max(1, live // _SLOTS)
            setting = Setting(kind, _SLOTS, in_flight, _ROUNDS * in_flight)
            counter = _counted(setting, codec, seed)
            decoding = [x for x in counter.passes if x.tokens <= x.slots + _SPARE]
            # Without the first pass, in which all documents enter at once.
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
    """Counts a run on this thread; `Extractor.stream` would run the model on another thread."""
    extractor = host_extractor(codec, setting, seed)
    compiled = extractor.compile(host_schema(setting))
    prompts = compiled.encode(host_documents(codec, setting.documents, seed))
    run = partial(decode, extractor.model, stop=compiled.stop, config=compiled.decoding)
    with sizes_of(setting):
        run(prompts[:1])  # reads the instruction, which stays cached
        with TransferCounter(extractor.model.model) as counter:
            run(prompts)
    return counter
