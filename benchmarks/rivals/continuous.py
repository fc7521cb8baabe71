"""transformers' continuous batching: a paged cache; requests join and leave at every step."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from schemax.evaluation.benchmark.engines import Emitted, Engine, Unavailable
from schemax.evaluation.benchmark.workload import Workload
from schemax.tokens import Ids

_PAGE = 256  # tokens of a block of the cache, by default


class Continuous(Engine):
    """The engine `generate_batch`, one request per document.

    Every run has a new manager, started before the clock: a reused manager would have the documents
    of the round before in its prefix cache.
    """

    name, title = "continuous", "transformers, continuous batching"
    note = "chooses its batches itself; shares the instruction's cache between requests"

    def reset(self, work: Workload) -> None:
        try:
            from transformers import ContinuousBatchingConfig
            from transformers.generation.continuous_batching.utils import WorkloadHints
        except ImportError as error:
            raise Unavailable(
                "this release of transformers has another continuous batching"
            ) from error
        self._stop()
        stems = [work.stem(listing) for listing in work.listings]
        outputs = [work.output(listing) for listing in work.listings]
        # On a CPU, where it cannot query free memory, the cache would take gigabytes.
        blocks = [-(-(len(s) + len(o)) // _PAGE) for s, o in zip(stems, outputs, strict=True)]
        on_cpu = self.module.device.type == "cpu"
        hints = WorkloadHints(
            max_prompt_length=max(map(len, stems)),
            max_generated_length=max(map(len, outputs)),
            num_requests=len(stems),
        )
        with _quiet(), _forcing(self.module, dict(zip(stems, outputs, strict=True))):
            manager = self.module.init_continuous_batching(
                generation_config=self._config(work),
                continuous_batching_config=ContinuousBatchingConfig(
                    per_request_processors=True, num_blocks=sum(blocks) if on_cpu else None
                ),
                workload_hints=hints,
            )
            self.module._cached_continuous_batching_manager = manager
            manager.warmup()

    def run(self, work: Workload) -> Emitted:
        stems = [list(work.stem(listing)) for listing in work.listings]
        with _quiet():
            results = self.module.generate_batch(
                inputs=stems, generation_config=self._config(work), persistent_manager=True
            )
        errors = [result.error for result in results.values() if result.error]
        if errors or len(results) < len(stems):
            raise RuntimeError(errors[0] if errors else "its worker ended early")
        return [(tuple(result.generated_tokens),) for result in results.values()]

    def teardown(self) -> None:
        self._stop()
        super().teardown()

    def _stop(self) -> None:
        if hasattr(self.module, "_cached_continuous_batching_manager"):
            self.module.destroy_cached_continuous_batching_manager()

    def _config(self, work: Workload) -> GenerationConfig:
        return GenerationConfig(  # type: ignore[no-untyped-call]
            do_sample=False,
            max_new_tokens=max(len(work.output(listing)) for listing in work.listings),
            eos_token_id=work.eos_id,
            pad_token_id=work.eos_id,
        )


@contextmanager
def _forcing(model: Any, wanted: Mapping[Ids, Ids]) -> Iterator[None]:
    """Makes managers created in the context write given answers, found by the prompt.

    wanted: prompt -> output.
    """
    from transformers.generation.continuous_batching import cb_logits_processors as theirs

    class Forced(theirs.ContinuousBatchingLogitsProcessor):
        supported_kwargs: dict[str, type] = {}  # noqa: RUF012
        ignored_kwargs: tuple[str, ...] = ()

        def __init__(self, _: Any) -> None:
            self.written: Counter[str] = Counter()

        def fill_defaults(self, int32_tensor: torch.Tensor) -> None:
            int32_tensor.zero_()

        def prepare_tensor_args(self, requests_with_new_token: list[Any]) -> torch.Tensor:
            """Returns each request's next token; steps may be prepared before earlier results."""
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
        """A placeholder that transformers converts to `Forced`."""

    model._get_logits_processor = lambda *_, **__: LogitsProcessorList([Marker()])
    theirs.CLASSIC_TO_CB_PROCESSORS_MAP[Marker] = Forced
    try:
        yield
    finally:
        del theirs.CLASSIC_TO_CB_PROCESSORS_MAP[Marker]
        del model._get_logits_processor


@contextmanager
def _quiet() -> Iterator[None]:
    """Silences its log, whose errors are in our report."""
    logger = logging.getLogger("ContinuousBatchingLogger")
    disabled, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = disabled
