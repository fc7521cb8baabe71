"""Variants of transformers' `generate`: batch prompting, FlashAttention, prompt lookup."""

from __future__ import annotations

from transformers.utils.import_utils import is_flash_attn_2_available

from schemax.evaluation.benchmark.engines import Emitted, Unavailable
from schemax.evaluation.benchmark.generate import Generate, Replayed
from schemax.evaluation.benchmark.workload import Workload


class BatchPrompting(Generate):
    """`generate` with several documents in a prompt and one output (Cheng et al., 2023)."""

    name, title = "batch-prompting", "transformers generate, batch prompting, J = 6"
    note = "the batch counts prompts of up to 6 documents"
    documents_per_prompt = 6

    def run(self, work: Workload) -> Emitted:
        groups = work.groups(self.documents_per_prompt)
        rows = self.answered(
            [some[0].category for some in groups],
            [work.stem(*some) for some in groups],
            [work.joined_output(some) for some in groups],
            self.batch_size or 1,
            work,
        )
        pairs = zip(rows, groups, strict=True)
        return [(ids,) for row, some in pairs for ids in work.parted_output(row, some)]


class GenerateFlash(Generate):
    """`generate` with FlashAttention, which many install for it."""

    name, title = "generate-flash", "transformers generate, FlashAttention"

    def setup(self, work: Workload) -> None:
        if not is_flash_attn_2_available():
            raise Unavailable("flash-attn is not installed, or the device is no CUDA device")
        super().setup(work)
        self.module.set_attn_implementation("flash_attention_2")


class Lookup(Replayed):
    """`generate` with drafts copied from the prompt, as transformers' documentation recommends."""

    name, title = "lookup", "transformers, prompt lookup"
    copied = 10

    def run(self, work: Workload) -> Emitted:
        passes: list[int] = []
        hook = self.module.register_forward_pre_hook(lambda *_: passes.append(1))
        try:
            found = super().run(work)
        finally:
            hook.remove()
        tokens = sum(len(ids) for (ids,) in found)
        self.note = (
            f"batch 1, its maximum; values are spans of the document; {tokens / len(passes):.2f} "
            "tokens a verification"
        )
        return found
