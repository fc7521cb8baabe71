"""Our own engines: settings of decoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Any

from schemax.config import PRESETS, DecodingConfig
from schemax.errors import ModelError
from schemax.evaluation.benchmark.engines.base import (
    BenchmarkError,
    Emitted,
    Engine,
    EngineOptions,
    Unavailable,
)
from schemax.evaluation.benchmark.workload import Workload
from schemax.runtime.engine.decode import Windows, outputs, run
from schemax.runtime.engine.self_test import prepare
from schemax.runtime.models.model import DecoderModel


def paper(stacked: int) -> tuple[str, DecodingConfig]:
    """The paper's setting, with `stacked` documents in a prompt (section 4.3.5)."""
    config = replace(PRESETS["paper"], documents_per_prompt=stacked)
    return f"schemax, the paper's HPD, J = {stacked}", config


# gapped: the paper's layout of positions, with documents and slots that do not see each other.
# autoregressive: keys and values one after another, the baseline without its waste; -6: with six
# documents in a prompt, so that the gains of stacking and of parallel slots can be told apart.
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

    The token ids of a prompt's J documents follow each other in all settings, so that all settings
    read and write the same tokens.
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
        """Drops instructions of earlier runs: every engine reads each instruction once per run."""
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
        done = outputs(run(self.prepared, iter(requests), self.config))
        found: dict[int, Any] = {}
        for place, output in chain(refused, done):
            if output.problem is not None:
                raise BenchmarkError(f"{self.name}, document {place}: {output.problem}")
            found[place] = tuple(slot.ids for slot in output.slots)
        if self.writes == "output":  # each document has the output of its whole prompt
            parted: list[Any] = []
            for some in work.groups(stacked):
                parted += ((ids,) for ids in work.parted_output(found[len(parted)][0], some))
            return parted
        return [found[place] for place in range(len(work))]

    def teardown(self) -> None:
        super().teardown()
        self.prepared = None
