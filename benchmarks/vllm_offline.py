"""Run by the Python of an environment with vLLM: reads a task, writes texts and seconds.

    PYTHON vllm_offline.py TASK.json RESULTS.json

The task: a folder, a dtype, prompts (ids) with their JSON schemas and the most tokens of their
outputs, and the numbers in flight to try, each with its number of documents. Every number gets a
fresh read of all prompts, after one prompt of each schema has been read. The model is compiled, as
vLLM does by default; the first time, this takes some minutes.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from importlib import import_module
from pathlib import Path
from typing import Any


def main() -> None:
    vllm: Any = import_module("vllm")
    bound_by: Any = import_module("vllm.sampling_params").StructuredOutputsParams

    task = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    model = vllm.LLM(
        task["folder"],
        dtype=task["dtype"],
        max_model_len=4096,
        structured_outputs_config={
            "backend": "xgrammar",
            "disable_any_whitespace": task["compact"],
        },
        disable_log_stats=True,
    )
    engine = model.llm_engine

    def read(prompts: list[dict[str, Any]], in_flight: int, most: int | None = None) -> list[str]:
        texts, waiting, running = [""] * len(prompts), list(enumerate(prompts)), 0
        while waiting or running:
            while waiting and running < in_flight:
                place, item = waiting.pop(0)
                bound = bound_by(json=item["schema"])
                sampling = vllm.SamplingParams(
                    temperature=0, max_tokens=most or item["most"], structured_outputs=bound
                )
                engine.add_request(str(place), {"prompt_token_ids": item["ids"]}, sampling)
                running += 1
            for output in engine.step():
                if output.finished:
                    texts[int(output.request_id)] = output.outputs[0].text
                    running -= 1
        return texts

    first = {json.dumps(item["schema"]): item for item in task["prompts"]}
    results = []
    for in_flight in task["in_flight"]:
        model.reset_prefix_cache()
        read(list(first.values()), 1, 1)
        before, began = spent(), time.perf_counter()
        texts = read(task["prompts"][: task["documents"][str(in_flight)]], in_flight)
        results.append([texts, time.perf_counter() - began, spent() - before])
    Path(sys.argv[2]).write_text(json.dumps(results), "utf-8")


def spent() -> float:
    """Processor seconds of this process, which computes by itself."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    main()
