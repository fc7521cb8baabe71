"""Engines of a benchmark: their interface, our own, and bounds that no engine can beat."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Any, Literal

import torch
from transformers import GenerationConfig

from schemax.config import PRESETS, DecodingConfig
from schemax.errors import ModelError, SchemaxError
from schemax.evaluation.benchmark.workload import Workload, Writes
from schemax.runtime.engine.decode import Windows, outputs, passes
from schemax.runtime.engine.self_test import prepare
from schemax.runtime.models.model import DecoderModel
from schemax.runtime.models.packed import packed_modules
from schemax.tokens import Ids

EngineKind = Literal["ours", "rival", "bound"]

Emitted = Sequence[tuple[Ids, ...]]
"""Per document, in order, the runs of tokens that were written; empty for bounds."""


class BenchmarkError(SchemaxError):
    """A comparison fails or would be unfair: an engine writes wrong answers, or a server fails."""


class Unavailable(Exception):
    """An engine cannot take part, for this reason; other engines go on."""


@dataclass(frozen=True, slots=True)
class EngineOptions:
    """Settings that engines leave to their user.

    batch_size: documents in flight in our own engines.
    generate_batches: batch sizes to try for transformers' `generate`.

    Raises ValueError for batch sizes below 1.
    """

    batch_size: int | Literal["auto"] = "auto"
    generate_batches: tuple[int, ...] = (1, 8, 32, 64)

    def __post_init__(self) -> None:
        if not self.generate_batches or min(self.generate_batches) < 1:
            raise ValueError("generate_batches must be one or more numbers of 1 or more")


class Engine(ABC):
    """An engine: a way to do the work. Engines share weights, never hooks, caches or settings.

    name: unique, for options.
    title: a description in a few words.
    kind: "bound" for forward passes that extract nothing.
    writes: the form of its output per document; see `Workload.expected`.
    batch_sizes: documents in flight to choose from, if the engine leaves the choice to its user;
        the benchmark tries all and keeps the fastest in `batch_size`.
    documents_per_prompt: the most documents that share a prompt.
    note: a remark for readers of its figures.
    model: the comparison's.
    module: a replica of it between `setup` and `teardown`, whose forward passes are counted.
    """

    name: str
    title: str
    kind: EngineKind = "rival"
    writes: Writes = "output"
    batch_sizes: tuple[int, ...] = ()
    documents_per_prompt: int = 1
    note: str = ""

    def __init__(self, model: Any, options: EngineOptions) -> None:
        self.model, self.options = model, options
        self.batch_size: int | None = None
        self.module: Any = None

    def setup(self, work: Workload) -> None:
        """Builds all that lasts for several runs. Raises Unavailable."""
        self.module = replica(self.model)

    def reset(self, work: Workload) -> None:  # noqa: B027
        """Prepares a run, untimed: empties caches, starts what a service would have running.

        Raises Unavailable.
        """

    @abstractmethod
    def run(self, work: Workload) -> Emitted:
        """Does all of the work, from token ids to token ids."""

    def teardown(self) -> None:
        """Frees all that `setup` built."""
        self.module = None


def replica(model: Any) -> Any:
    """Returns a separate model over the same weights, with hooks and settings of its own."""
    packed = (module.packed for module in packed_modules(model))
    shared = {id(part): part for part in chain(model.parameters(), model.buffers(), packed)}
    twin = copy.deepcopy(model, shared)
    # Drops the sampling settings of trained models.
    twin.generation_config = GenerationConfig()  # type: ignore[no-untyped-call]
    return twin


def paper(stacked: int) -> tuple[str, DecodingConfig]:
    """Returns the paper's setting, with `stacked` documents in a prompt (section 4.3.5)."""
    config = replace(PRESETS["paper"], documents_per_prompt=stacked)
    return f"schemax, the paper's HPD, J = {stacked}", config


# gapped: the paper's layout of positions, with documents and slots that do not see each other.
# autoregressive: writes keys and values in turn, the baseline without its waste; -6: with six
# documents in a prompt, which separates the gains of stacking and of parallel slots.
OURS: Mapping[str, tuple[str, DecodingConfig]] = MappingProxyType(
    {
        "isolated": ("schemax, default", PRESETS["isolated"]),
        "gapped": ("schemax, gapped skeleton", DecodingConfig(layout="gapped")),
        **{f"paper-{stacked}": paper(stacked) for stacked in (1, 2, 6)},
        "autoregressive": ("schemax, autoregressive", PRESETS["autoregressive"]),
        "autoregressive-6": (
            "schemax, batch prompting, J = 6",
            replace(PRESETS["autoregressive"], documents="stacked", documents_per_prompt=6),
        ),
    }
)
"""Settings by name: (title, decoding)."""


class SchemaxEngine(Engine):
    """Hyper-Parallel Decoding with one of our settings.

    All settings read and write the same tokens: the J documents of a prompt follow each other.
    """

    kind = "ours"
    prepared: Any = None

    def __init__(
        self, model: Any, options: EngineOptions, name: str, title: str, config: DecodingConfig
    ) -> None:
        super().__init__(model, options)
        self.name, self.title = name, title
        self.config = replace(config, batch_size=options.batch_size)
        self.documents_per_prompt = config.documents_per_prompt
        self.writes = "output" if config.layout == "autoregressive" else "values"

    def setup(self, work: Workload) -> None:
        super().setup(work)
        try:
            self.prepared = prepare(self.module)
        except ModelError as error:
            raise Unavailable(str(error)) from error
        if refusal := self.prepared.refusal(self.config):
            raise Unavailable(refusal)

    def reset(self, work: Workload) -> None:
        """Drops the instructions of earlier runs: every run reads each instruction once."""
        if isinstance(self.prepared, DecoderModel):  # models that fork keep none
            self.prepared.forget_prefixes()

    def run(self, work: Workload) -> Emitted:
        stacked = self.documents_per_prompt
        if self.writes == "output":
            prompts, stop = work.autoregressive_prompts(stacked), work.end
        else:
            prompts, stop = work.prompts(stacked), work.stop
        windows = Windows(self.prepared, self.config)
        requests, refused = windows.requests((prompt, stop) for prompt in prompts)
        filled = chain.from_iterable(passes(self.prepared, iter(requests), self.config))
        written: dict[int, Any] = {}
        for place, output in chain(refused, outputs(filled)):
            if output.problem is not None:
                raise BenchmarkError(f"{self.name}, document {place}: {output.problem}")
            written[place] = tuple(slot.ids for slot in output.slots)
        if self.writes == "output":  # each document has the output of its whole prompt
            parted: list[Any] = []
            for group in work.groups(stacked):
                parted += ((ids,) for ids in work.parted_output(written[len(parted)][0], group))
            return parted
        return [written[place] for place in range(len(work))]

    def teardown(self) -> None:
        super().teardown()
        self.prepared = None


_ALIKE = 0.9


class Floor(Engine):
    """Causal forward passes, without cache or mask, over exactly the tokens of the work.

    It reads each instruction once; for each document its tokens, the opening, the keys, and the
    value tokens that become an input. The output head runs for generated tokens alone. Documents do
    not attend to the instruction, and no token is chosen.
    """

    name, title = "floor", "the tokens that must be processed"
    kind, writes = "bound", "nothing"
    batch_sizes = (1, 4, 8, 16, 32, 64, 128)

    def rows(self, work: Workload) -> list[tuple[int, int]]:
        """Returns (tokens, head positions) of every sequence, the longest first."""
        rows = [(len(category.instruction), 0) for category in work.used_categories()]
        for listing in work.listings:
            category = work.categories[listing.category]
            head = sum(map(len, listing.answers))
            read = sum(map(len, (listing.ids, category.opening, *category.keys)))
            rows.append((read + head - len(listing.answers), head))
        return sorted(rows, reverse=True)

    @torch.inference_mode()
    def run(self, work: Workload) -> Emitted:
        for batch in self.batches(self.rows(work)):
            self._pass(batch, work.vocab_size)
        return []

    def batches(self, rows: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
        """Yields batches of similar lengths, so that padding does not slow the bound down."""
        batch: list[tuple[int, int]] = []
        for row in rows:
            if batch and (len(batch) == (self.batch_size or 1) or row[0] < _ALIKE * batch[0][0]):
                yield batch
                batch = []
            batch.append(row)
        yield batch

    def _pass(self, rows: Sequence[tuple[int, int]], vocab_size: int) -> None:
        """Passes a batch; rows are padded on the right, which causal attention never sees."""
        length = max(tokens for tokens, _ in rows)
        ids = torch.arange(length, device=self.module.device).remainder(vocab_size)
        output = self.module.base_model(input_ids=ids.expand(len(rows), -1), use_cache=False)
        pairs = zip(output.last_hidden_state, rows, strict=True)
        wanted = [row[tokens - min(head, tokens) : tokens] for row, (tokens, head) in pairs if head]
        if wanted:
            self.module.get_output_embeddings()(torch.cat(wanted))


class Reading(Floor):
    """The floor over instruction and documents alone, without keys and values."""

    name, title = "reading", "the documents alone"

    def rows(self, work: Workload) -> list[tuple[int, int]]:
        read = [category.instruction for category in work.used_categories()]
        read += [listing.ids for listing in work.listings]
        return sorted(((len(ids), 0) for ids in read), reverse=True)
