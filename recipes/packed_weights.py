"""python -m recipes.packed_weights: products of packed weights beside torch's, on this processor.

    python -m recipes.packed_weights --model FOLDER --labels test.jsonl --demonstrations train.jsonl

With a model it also reads documents with weights packed by default, in four bits, and unpacked, all
at once and one by one. docs/performance.md shows the figures.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import nn

from benchmarks.other_engines import read_by_schemax
from recipes.server_costs import read_work
from schemax import Extractor
from schemax.runtime.models.packed import BFloat16Linear, HalfLinear, described, num_bytes, unpack

ROWS = (1, 8, 32, 128, 512)
_REPEATS = 8


@torch.inference_mode()
def seconds(layers: Sequence[nn.Module], inputs: torch.Tensor, threads: int) -> float:
    """Returns the shortest time of a product with every layer."""
    torch.set_num_threads(threads)
    shortest = float("inf")
    for _ in range(_REPEATS):
        began = time.perf_counter()
        for layer in layers:
            layer(inputs)
        shortest = min(shortest, time.perf_counter() - began)
    return shortest


def show_products(
    outputs: int, width: int, count: int, rows: Sequence[int], dtype: torch.dtype
) -> None:
    """Prints speed-ups for numbers of rows; `count` layers, so that none stays in a cache."""
    plain = [nn.Linear(width, outputs, bias=False, dtype=dtype) for _ in range(count)]
    kind = BFloat16Linear if dtype == torch.bfloat16 else HalfLinear
    packed = [kind(layer) for layer in plain]
    print("| rows | one thread | two threads | two over one, packed | two over one, torch |")
    print("| --- | --- | --- | --- | --- |")
    for number in rows:
        inputs = torch.randn(number, width, dtype=dtype)
        one, two = (seconds(plain, inputs, threads) for threads in (1, 2))
        own, both = (seconds(packed, inputs, threads) for threads in (1, 2))
        ratios = (one / own, two / both, own / both, one / two)
        print(f"| {number} |", " | ".join(f"{ratio:.1f}" for ratio in ratios), "|")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--outputs", type=int, default=1536)
    parser.add_argument("--width", type=int, default=576)
    parser.add_argument("--layers", type=int, default=40)
    parser.add_argument("--model", help="a folder")
    parser.add_argument("--labels", type=Path)
    parser.add_argument("--demonstrations", type=Path)
    parser.add_argument("--documents", type=int, default=32)
    parser.add_argument("--dtype", choices=("auto", "bfloat16"), default="auto")
    given = parser.parse_args()
    dtype = torch.bfloat16 if given.dtype == "bfloat16" else torch.float32
    show_products(given.outputs, given.width, given.layers, ROWS, dtype)
    if given.model is None:
        return
    work = read_work(given.labels, given.documents, given.demonstrations, 4, "json")
    ways = {
        "packed": Extractor.from_pretrained(given.model, dtype=given.dtype),
        "in four bits": Extractor.from_pretrained(
            given.model, dtype=given.dtype, quantization="int4"
        ),
        "not packed": Extractor.from_pretrained(given.model, dtype=given.dtype),
    }
    unpack(ways["not packed"].model.model)
    for name, way in ways.items():
        model = way.model.model
        print(f"{name}: {num_bytes(model) / 2**20:.0f} MiB of weights ({described(model)})")
    for threads in (1, 2):
        torch.set_num_threads(threads)
        for in_flight, most in ((given.documents, given.documents), (1, 6)):
            took = {name: read_by_schemax(way, work, in_flight, most) for name, way in ways.items()}
            print(f"{threads} threads, {in_flight} in flight:")
            for name, cost in took.items():
                share = cost.seconds / took["not packed"].seconds
                per_document = cost.seconds / cost.documents
                print(f"  {name}: {per_document:.2f} s a document ({share:.2f}), F1 {cost.f1:.3f}")


if __name__ == "__main__":
    main()
