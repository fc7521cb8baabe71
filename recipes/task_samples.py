"""How well a model reads the samples of the ten tasks, with the demonstrations of their schemas.

    python -m recipes.task_samples MODEL [DECODING ...]
        [--escalate-to MODEL --escalate-below P --read-below P]

prints, for every decoding as `--decoding` names it, how many fields of the samples are right, and
how many of those that the samples state: of samples in even places, and of those in odd ones; and
the processor seconds that reading them took. With --escalate-to, of a cascade.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from schemax import Extractor, load_schema, schema_names
from schemax.attributes.ready_made import is_task

SAMPLES = Path(__file__).parents[1] / "docs" / "samples"


def halves(extractor: Extractor, decoding: str) -> list[Counter[str]]:
    """Counts "fields", "right", "stated" and "stated right", in even and in odd places."""
    counts: list[Counter[str]] = [Counter(), Counter()]
    for task in filter(is_task, schema_names()):
        lines = (SAMPLES / f"{task}.jsonl").read_text("utf-8").splitlines()
        rows, schema = [json.loads(line) for line in lines], load_schema(task)
        texts = [row["text"] for row in rows]
        found = extractor.extract(texts, schema, decoding=decoding, on_error="null")
        for place, (row, item) in enumerate(zip(rows, found, strict=True)):
            filled = {"address": {}, **row["attributes"]} if task == "form" else row["attributes"]
            gold = dict(_leaves(schema.model_validate(filled).model_dump(mode="json")))
            read = {} if item is None else dict(_leaves(item.model_dump(mode="json")))
            for name, value in gold.items():
                stated, right = value not in (None, []), name in read and read[name] == value
                kinds = {"right": right, "stated": stated, "stated right": stated and right}
                counts[place % 2].update({"fields": 1, **{k: int(v) for k, v in kinds.items()}})
    return counts


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for name, inner in value.items():
        yield from _leaves(inner, f"{path}.{name}")


def main() -> None:
    parser = ArgumentParser(usage=__doc__)
    parser.add_argument("model")
    parser.add_argument("decodings", nargs="*", default=["isolated"])
    parser.add_argument("--escalate-to")
    parser.add_argument("--escalate-below", type=float, default=0.95)
    parser.add_argument("--read-below", type=float)
    args = parser.parse_args()
    extractor, *more = (
        Extractor.from_pretrained(name, device="cpu", template="generic")
        for name in (args.model, args.escalate_to)
        if name is not None
    )
    if more:
        marks = {"confidence": args.escalate_below, "read_below": args.read_below}
        extractor = Extractor.cascade([extractor, *more], **marks)
    for decoding in args.decodings:
        began = time.process_time()
        counts = halves(extractor, decoding)
        print(decoding, *map(dict, counts), f"{time.process_time() - began:.0f} s", flush=True)


if __name__ == "__main__":
    main()
