"""transformers' continuous batching: a paged cache, requests joining and leaving at every step."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import (
    ContinuousBatchingConfig,
    GenerationConfig,
    LogitsProcessor,
    LogitsProcessorList,
)

from schemax.benchmark.engine import Emitted, Kind, Unavailable
from schemax.benchmark.shapes import replica
from schemax.benchmark.work import Ids, Work, Writes


_PAGE = 256  # tokens of a block of its cache, by default


@dataclass
class Continuous:
    """`generate_batch`, one request per document."""

    model: Any
    batch_sizes: tuple[int, ...] = ()
    batch_size: int | None = None
    name: str = "continuous"
    title: str = "transformers, continuous batching"
    kind: Kind = "rival"
    writes: Writes = "output"
    note: str = "it chooses its batches itself"
    module: Any = field(default=None, repr=False)

    def setup(self, work: Work) -> None:
        self.module = replica(self.model)
        if not hasattr(self.module, "generate_batch"):
            raise Unavailable("this release of transformers has no continuous batching")

    def run(self, work: Work) -> Emitted:
        stems = [list(work.stem(listing)) for listing in work.listings]
        outputs = [answers[0] for answers in work.expected("output")]
        config = GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=False,
            max_new_tokens=max(map(len, outputs)),
            eos_token_id=work.eos_id,
            pad_token_id=work.eos_id,
        )
        with _forced(self.module, stems, outputs), _quiet():
            results = self.module.generate_batch(
                inputs=stems,
                generation_config=config,
                continuous_batching_config=ContinuousBatchingConfig(
                    per_request_processors=True, num_blocks=self._blocks(stems, outputs)
                ),
            )
        errors = [result.error for result in results.values() if result.error]
        if errors or len(results) < len(stems):
            raise RuntimeError(errors[0] if errors else "its worker ended early")
        return [(tuple(result.generated_tokens),) for result in results.values()]

    def _blocks(self, stems: list[list[int]], outputs: list[Ids]) -> int | None:
        """Of a cache that holds all requests at once; an accelerator's memory it sees itself."""
        if self.module.device.type != "cpu":
            return None
        pairs = zip(stems, outputs, strict=True)
        return sum(-(-(len(stem) + len(output)) // _PAGE) for stem, output in pairs)

    def teardown(self) -> None:
        self.module = None


@contextmanager
def _forced(model: Any, stems: list[list[int]], outputs: list[Ids]) -> Iterator[None]:
    """Has the model make a processor of ours for as long as this lasts.

    Requests are told apart by their prompts: of equal ones, the answers are taken to be equal.
    """
    from transformers.generation.continuous_batching import cb_logits_processors as theirs

    wanted = dict(zip(map(tuple, stems), outputs, strict=True))

    class Forced(theirs.ContinuousBatchingLogitsProcessor):
        supported_kwargs: dict[str, type] = {}  # noqa: RUF012
        ignored_kwargs: tuple[str, ...] = ()

        def __init__(self, _: Any) -> None:
            self.written: Counter[str] = Counter()

        def fill_defaults(self, int32_tensor: torch.Tensor) -> None:
            int32_tensor.zero_()

        def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> torch.Tensor:
            """The next token of every request; steps may be prepared ahead of their results."""
            ids = []
            for request in requests_with_new_token:
                state = request.state
                answer = wanted[tuple(state.initial_tokens)]
                ids.append(answer[min(self.written[state.request_id], len(answer) - 1)])
                self.written[state.request_id] += 1
            return torch.tensor(ids, dtype=torch.int32)

        def __call__(self, scores: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
            rows = ids[: len(scores), None].long()
            return scores.scatter_(1, rows, torch.finfo(scores.dtype).max)

    class Marker(LogitsProcessor):
        """Stands for ours until continuous batching converts it."""

    model._get_logits_processor = lambda *_, **__: LogitsProcessorList([Marker()])
    theirs.CLASSIC_TO_CB_PROCESSORS_MAP[Marker] = Forced
    try:
        yield
    finally:
        del theirs.CLASSIC_TO_CB_PROCESSORS_MAP[Marker]
        del model._get_logits_processor


@contextmanager
def _quiet() -> Iterator[None]:
    """It reports to the log what ends up in our own report."""
    logger = logging.getLogger("ContinuousBatchingLogger")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled
