"""llama.cpp in this process: the same weights as GGUF; documents join at every pass."""

from __future__ import annotations

import tempfile
from collections import deque
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.rivals.llama_model import LlamaModel, write_gguf
from schemax.evaluation.benchmark.engines import Emitted, Engine, Unavailable
from schemax.evaluation.benchmark.workload import Workload
from schemax.tokens import Ids

_PACKAGES = {"llama_cpp": "llama-cpp-python", "gguf": "gguf"}


class LlamaCpp(Engine):
    """The engine llama.cpp: a sequence per document, which writes keys and values.

    A finished sequence makes room at once. An instruction is read once, and its cells of the cache
    are shared. A pass has the newest token of every sequence and as much of new documents as fits;
    logits are computed where a token is chosen, and their argmax, before the answer replaces it.

    Every run has a new context: made before the clock starts, freed before it stops.
    """

    name = title = "llama.cpp"
    batch_sizes = (1, 8, 32)

    def setup(self, work: Workload) -> None:
        missing = [name for module, name in _PACKAGES.items() if find_spec(module) is None]
        if missing:
            raise Unavailable(f"not installed: {', '.join(missing)}")
        with tempfile.TemporaryDirectory(prefix="schemax-") as folder:
            path = Path(folder, "model.gguf")
            write_gguf(self.model, path)
            self.module = LlamaModel(path, self.model.device)  # reads all of it
        version = import_module("llama_cpp").__version__
        self.note = (
            f"llama-cpp-python {version}; weights in the model's dtype, cache in float16; shares "
            "the instruction's cache between documents"
        )
        if self.model.device.type != "cpu":
            self.note += "; what it allocates on the accelerator is not counted"

    def reset(self, work: Workload) -> None:
        size = self.batch_size or 1
        self.module.open(cells_needed(work, size), size + 1)

    def run(self, work: Workload) -> Emitted:
        try:
            return _Stream(self.module, work, self.batch_size or 1).run()
        finally:
            self.module.close()  # the next run's memory is counted from here

    def teardown(self) -> None:
        if self.module is not None:
            self.module.free()
        super().teardown()


@dataclass
class _Sequence:
    """A document in flight.

    unread: tokens that no pass has read, of its prompt or the newest of its output.
    position: of the first unread token. output: the tokens to write.
    """

    place: int
    unread: Ids
    position: int
    output: Ids
    written: list[int] = field(default_factory=list)


class _Stream:
    """A run: `size` documents in flight, in sequences 0 to size - 1; the next is the instruction.

    Documents are sorted by category, then by length, longest first.
    """

    def __init__(self, module: Any, work: Workload, size: int) -> None:
        self.module, self.work = module, work
        listings = work.listings
        self.waiting = deque(
            sorted(
                range(len(work)),
                key=lambda place: (listings[place].category, -len(listings[place].ids)),
            )
        )
        self.free = list(range(size))
        self.instruction = size
        self.category: int | None = None
        self.flying: dict[int, _Sequence] = {}
        self.found: list[Any] = [None] * len(work)

    def run(self) -> Emitted:
        while self.waiting or self.flying:
            while self.waiting and self.free:
                self._start(self.waiting.popleft())
            self._pass()
        return self.found

    def _start(self, place: int) -> None:
        listing = self.work.listings[place]
        category = self.work.categories[listing.category]
        if listing.category != self.category:
            # Documents in flight keep their cells of the instruction before.
            self.module.forget(self.instruction)
            self._read(category.instruction)
            self.category = listing.category
        sequence = self.free.pop()
        self.module.share(self.instruction, sequence)
        unread = (*listing.ids, *category.opening)
        output = self.work.output(listing)
        self.flying[sequence] = _Sequence(place, unread, len(category.instruction), output)

    def _read(self, ids: Ids) -> None:
        width = self.module.width
        for at in range(0, len(ids), width):
            some = ids[at : at + width]
            places = range(at, at + len(some))
            self.module(some, places, [self.instruction] * len(some), [0] * len(some))

    def _pass(self) -> None:
        """Runs a pass: the newest tokens first, then prompts in the order of their arrival."""
        rows: list[tuple[int, int, int, int]] = []
        chosen: list[int] = []
        for number, sequence in sorted(self.flying.items(), key=lambda x: len(x[1].unread) > 1):
            some = sequence.unread[: self.module.width - len(rows)]
            if not some:
                break
            rows += [(token, sequence.position + n, number, 0) for n, token in enumerate(some)]
            sequence.unread = sequence.unread[len(some) :]
            sequence.position += len(some)
            if not sequence.unread:
                rows[-1] = (*rows[-1][:3], 1)
                chosen.append(number)
        logits = self.module(*zip(*rows, strict=True))
        for number, token in zip(chosen, logits.argmax(axis=1).tolist(), strict=True):
            self._write(number, token)

    def _write(self, number: int, token: int) -> None:
        sequence = self.flying[number]
        token = sequence.output[len(sequence.written)]  # in the place of the model's choice
        sequence.written.append(token)
        sequence.unread = (token,)
        if token == self.work.eos_id:
            self.found[sequence.place] = (tuple(sequence.written),)
            self.module.forget(number)
            self.free.append(number)
            del self.flying[number]


def cells_needed(work: Workload, size: int) -> int:
    """Returns the most cells that `size` documents in flight take, with shared instructions."""
    own = [
        len(x.ids) + len(work.categories[x.category].opening) + len(work.output(x))
        for x in work.listings
    ]
    instructions = sorted((len(c.instruction) for c in work.used_categories()), reverse=True)
    return sum(sorted(own, reverse=True)[:size]) + sum(instructions[: size + 1])
