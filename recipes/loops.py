"""What ending loops saves: forward passes with and without `runtime/sampling/loops.py`.

python -m recipes.loops MODEL [DECODING]

Reads the 120 documents of six tasks (`tests/data/tasks`). The table has the share of right fields,
the forward passes of all documents, and the values that repeat themselves.
"""

from __future__ import annotations

import sys
from unittest.mock import patch

from recipes.embedded.tasks import TASKS, documents
from schemax import Extractor
from schemax.runtime.engine import scheduler


def read(extractor: Extractor, decoding: str) -> tuple[float, int, int]:
    """Returns the share of right fields, the forward passes, and the values that repeat."""
    num_right = num_fields = passes = repeating = 0
    for task, schema in TASKS.items():
        expected = documents(task)
        texts = [text for text, _ in expected]
        for item in extractor.stream(texts, schema, decoding=decoding):
            gold, values = dict(expected[item.index][1]), dict(item.value or ())
            num_fields += len(gold)
            num_right += sum(values.get(name) == value for name, value in gold.items())
            passes += item.steps
            repeating += sum("repeated itself" in error.message for error in item.errors)
    return num_right / num_fields, passes, repeating


def main(folder: str, decoding: str = "isolated") -> None:
    extractor = Extractor.from_pretrained(folder, device="cpu")
    print("| loops | right fields | forward passes | values that repeat |\n|---|---|---|---|")
    for name in ("end", "go on"):
        if name == "end":
            share, passes, repeating = read(extractor, decoding)
        else:
            with patch.object(scheduler, "is_loop", return_value=False):
                share, passes, repeating = read(extractor, decoding)
        print(f"| {name} | {share:.3f} | {passes:,} | {repeating} |", flush=True)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    main(*sys.argv[1:])
