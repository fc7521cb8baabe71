"""Our own ways to decode, through the same door as everything else: `fill`."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from schemax.benchmark.engines.base import BenchmarkError, Emitted, EngineKind, Unavailable
from schemax.benchmark.random_models import replica
from schemax.benchmark.workload import Workload, Writes
from schemax.config import PRESETS, DecodingConfig
from schemax.errors import ModelError
from schemax.runtime.engine import fill
from schemax.runtime.model import DecoderModel
from schemax.runtime.self_test import prepare


@dataclass
class SchemaxEngine:
    """Hyper-Parallel Decoding with one of our settings.

    J documents of a prompt are token ids next to each other, whatever the setting, so that all
    settings read and write the same tokens.
    """

    name: str
    title: str
    model: Any
    config: DecodingConfig
    kind: EngineKind = "ours"
    writes: Writes = "values"
    batch_sizes: tuple[int, ...] = ()
    batch_size: int | None = None
    note: str = ""
    module: Any = field(default=None, repr=False)
    _prepared: Any = field(default=None, repr=False)

    def setup(self, work: Workload) -> None:
        self.module = replica(self.model)
        try:
            self._prepared = prepare(self.module)
        except ModelError as error:
            raise Unavailable(str(error)) from error
        if refusal := self._prepared.refusal(self.config):
            raise Unavailable(refusal)

    def reset(self, work: Workload) -> None:
        """Forgets instructions of earlier runs: every engine reads each of them once per run."""
        if isinstance(self._prepared, DecoderModel):  # models that fork keep none
            self._prepared.forget_prefixes()

    def run(self, work: Workload) -> Emitted:
        if self.writes == "output":
            prompts, stop = work.autoregressive_prompts(), work.end
        else:
            prompts, stop = work.prompts(self.config.documents_per_prompt), work.stop
        found: list[Any] = [None] * len(work)
        for place, output in fill(self._prepared, prompts, stop, self.config):
            if output.problem is not None:
                raise BenchmarkError(f"{self.name}, document {place}: {output.problem}")
            found[place] = tuple(slot.ids for slot in output.slots)
        return found

    def teardown(self) -> None:
        self.module = self._prepared = None


def isolated(model: Any, batch_size: int | Literal["auto"] = "auto") -> SchemaxEngine:
    """The default preset: one branch per attribute."""
    config = replace(PRESETS["isolated"], batch_size=batch_size)
    return SchemaxEngine("isolated", "schemax, default", model, config)


def gapped(model: Any, batch_size: int | Literal["auto"] = "auto") -> SchemaxEngine:
    """The paper's layout of positions, with documents and slots that do not see each other."""
    config = DecodingConfig(layout="gapped", batch_size=batch_size)
    return SchemaxEngine("gapped", "schemax, gapped skeleton", model, config)


def paper(model: Any, stacked: int, batch_size: int | Literal["auto"] = "auto") -> SchemaxEngine:
    """The paper's own setting, with `stacked` documents in a prompt (section 4.3.5)."""
    config = replace(PRESETS["paper"], documents_per_prompt=stacked, batch_size=batch_size)
    return SchemaxEngine(
        f"paper-{stacked}", f"schemax, the paper's HPD, J = {stacked}", model, config
    )


def autoregressive(model: Any, batch_size: int | Literal["auto"] = "auto") -> SchemaxEngine:
    """Keys and values one after another, in our own engine: the baseline without its waste."""
    config = replace(PRESETS["autoregressive"], batch_size=batch_size)
    return SchemaxEngine(
        "autoregressive", "schemax, autoregressive", model, config, writes="output"
    )
