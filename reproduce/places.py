"""Errors of stacking: by place in the prompt, and by the document that wrong values come from.

python -m reproduce.places RESULT.json data/oa-mine/test.jsonl
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.page import markdown_table
from reproduce.sample import prompts_of
from schemax.evaluation.examples import Example, read_examples
from schemax.evaluation.runs import SavedRun, read_runs
from schemax.evaluation.scores import outcome_of

WORDS_OF = ("its own", "a neighbour's", "of neither")


def places(run: SavedRun, examples: Sequence[Example]) -> tuple[list[float], Counter[str]]:
    """Returns the share of right annotated pairs, by place, and the origins of wrong values."""
    groups = prompts_of([one.category for one in examples], stacked_in(run.name))
    right: list[list[bool]] = [[] for _ in range(max(map(len, groups)))]
    words: Counter[str] = Counter()
    for group in groups:
        for place, document in enumerate(group):
            own = examples[document].text
            others = [examples[other].text for other in group if other != document]
            for name, label in run.examples[document].attributes.items():
                value = run.predictions[document].get(name)
                outcome = outcome_of(label, value)
                right[place].append(outcome in ("vc", "nn"))
                if outcome in ("vw", "nv") and value is not None:
                    is_near = any(value in text for text in others)
                    words[WORDS_OF[0 if value in own else 1 if is_near else 2]] += 1
    return [sum(flags) / max(1, len(flags)) for flags in right], words


def stacked_in(decoding: str) -> int:
    """Returns J for a setting's name; six for `paper`."""
    if found := re.search(r"documents_per_prompt=(\d+)", decoding):
        return int(found[1])
    return 6 if decoding.startswith("paper") else 1


def rows(results: Path, data: Path) -> Iterator[tuple[str, ...]]:
    examples = read_examples(data)
    for run in read_runs(results):
        shares, words = places(run, examples)
        right = " ".join(f"{share:.2f}" for share in shares)
        yield run.name, right, *(str(words[name]) for name in WORDS_OF)


def main() -> None:
    results, data = map(Path, sys.argv[1:])
    names = ("decoding", "right, by place", *(f"wrong, words {name}" for name in WORDS_OF))
    print("\n".join(markdown_table(names, rows(results, data))))


if __name__ == "__main__":
    main()
