"""`small` in several precisions, on the same documents, by turns: F1 and documents a CPU second.

    python -m recipes.small.precision oa-mine/test.jsonl --documents 200

Precisions: float32, bfloat16, compiled (bfloat16, `compile=True`), and int8, for which torchao
quantizes weights once and what layers read row by row, so that batch-mates change nothing. With
`--passes` it times single passes instead, which takes seconds. ONEDNN_MAX_CPU_ISA holds oneDNN to
the instructions of another processor.
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from schemax.config import resolve_decoding
from schemax.evaluation.examples import Example, read_examples, shown_record
from schemax.evaluation.labelled_schemas import annotated_schemas
from schemax.evaluation.scores import Scores, f1_interval, labelled_texts, score_predictions
from schemax.extraction.extractor import Extractor
from schemax.runtime.models.packed import unpack

PRECISIONS = ("float32", "bfloat16", "compiled", "int8")
LENGTHS = (32, 128, 512)
_PART = 20  # documents that a precision reads per turn
_REPEATS = 5


def load(precision: str, model: str = "small") -> Extractor:
    if precision == "compiled":
        return Extractor.from_pretrained(model, device="cpu", dtype="bfloat16", compile=True)
    dtype = "float32" if precision == "int8" else precision
    extractor = Extractor.from_pretrained(model, device="cpu", dtype=dtype)
    if precision == "int8":
        quantize(extractor.model.model)
    return extractor


def quantize(model: Any) -> None:
    """Quantizes all linear layers but the head, in place."""
    unpack(model)
    torchao = import_module("torchao.quantization")
    head = model.get_output_embeddings()
    torchao.quantize_(
        model,
        torchao.Int8DynamicActivationInt8WeightConfig(),
        filter_fn=lambda layer, _: isinstance(layer, torch.nn.Linear) and layer is not head,
    )


def compare(
    extractors: dict[str, Extractor], examples: Sequence[Example]
) -> Iterator[tuple[str, Scores, float]]:
    """Yields name, scores and documents per CPU second of each precision."""
    schemas = annotated_schemas(examples)
    predictions: dict[str, list[Any]] = {name: [] for name in extractors}
    seconds = dict.fromkeys(extractors, 0.0)

    def read(name: str, part: Sequence[Example]) -> list[Any]:
        records = [shown_record(example) for example in part]
        stream = extractors[name].stream(
            records, schemas, category="category", decoding=resolve_decoding("isolated")
        )
        items = sorted(stream, key=lambda item: item.index)
        values = [{key: field.value for key, field in item.fields.items()} for item in items]
        return list(labelled_texts(part, values, schemas))

    for name in extractors:  # warm-up: reads instructions, sets up kernels
        read(name, examples[:_PART])
    for start in range(0, len(examples), _PART):
        part = examples[start : start + _PART]
        for name in extractors:
            started = time.process_time()
            predictions[name] += read(name, part)
            seconds[name] += time.process_time() - started
    for name in extractors:
        found = score_predictions(examples, predictions[name])
        yield name, found, len(examples) / seconds[name]


@torch.inference_mode()
def pass_seconds(extractor: Extractor, tokens: int) -> float:
    """Returns the CPU seconds of a plain pass of the model, the shortest of several."""
    model = extractor.model.model
    ids = torch.arange(tokens)[None] % 1000 + 100
    taken = []
    for _ in range(_REPEATS):
        started = time.process_time()
        model(input_ids=ids, use_cache=False)
        taken.append(time.process_time() - started)
    return min(taken)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m recipes.small.precision", description=__doc__)
    parser.add_argument("examples", type=Path, help="as schemax evaluate reads them")
    parser.add_argument("--documents", type=int, default=200, help="evenly spread over the file")
    parser.add_argument("--precisions", default=",".join(PRECISIONS))
    parser.add_argument("--model", default="small")
    parser.add_argument("--passes", action="store_true")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    extractors = {name: load(name, given.model) for name in given.precisions.split(",")}
    if given.passes:
        print("| tokens |", " | ".join(extractors), "|")
        for tokens in LENGTHS:
            row = (f"{pass_seconds(one, tokens):.3f}" for one in extractors.values())
            print(f"| {tokens} |", " | ".join(row), "|", flush=True)
        return
    every = read_examples(given.examples)
    examples = every[:: max(1, len(every) // given.documents)][: given.documents]
    for name, scores, speed in compare(extractors, examples):
        low, high = f1_interval(scores.counts())
        strict = scores.strict.f1
        print(f"{name}: F1 {scores.protocol.f1:.3f} ({low:.3f} to {high:.3f}), ", end="")
        print(f"strict {strict:.3f}, {speed:.2f} documents a CPU second", flush=True)


if __name__ == "__main__":
    main()
