"""What `schemax fit` brings with a few labels, category by category.

    python -m recipes.fitted FOLDER MODEL [--labels 20] [--titles 15] [--seconds 120]
        [--dtype auto]

FOLDER holds train.jsonl and test.jsonl, perhaps attributes.json. Every category is fitted to its
first labels of train.jsonl alone. Then its first titles of test.jsonl, which are not among the
labels, are read without the prompt file and with it. A category is better or worse if the 95 %
interval of the difference of F1 (a paired bootstrap over titles) is above or below 0, else equal.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from schemax import Extractor
from schemax.base.messages import say
from schemax.errors import InputError
from schemax.evaluation.datasets import dataset
from schemax.evaluation.examples import Example, read_examples
from schemax.evaluation.scores import Interval, difference_interval, extractions_of, scores_of
from schemax.training.fitting import fit
from schemax.training.training_examples import read_training_examples


def verdict(difference: Interval) -> str:
    return "better" if difference.low > 0 else "worse" if difference.high < 0 else "equal"


def first_of(examples: Sequence[Example], count: int) -> dict[str, list[Example]]:
    """Returns the first documents of every category."""
    by_category: dict[str, list[Example]] = {}
    for example in examples:
        own = by_category.setdefault(example.category, [])
        if len(own) < count:
            own.append(example)
    return by_category


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("model")
    parser.add_argument("--labels", type=int, default=20, help="of every category")
    parser.add_argument("--titles", type=int, default=15, help="of every category")
    parser.add_argument("--seconds", type=float, default=120, help="for the fit of a category")
    parser.add_argument("--dtype", default="auto")
    given = parser.parse_args(arguments)
    extractor = Extractor.from_pretrained(given.model, dtype=given.dtype)
    data = dataset(given.folder, "train", None)
    assert data.test is not None, f"{given.folder} has no test.jsonl"
    labelled = first_of(read_training_examples(data.file, data.test), given.labels)
    titles = first_of(read_examples(data.test), given.titles)
    verdicts: Counter[str] = Counter()
    print("| category | F1 | with the file | strict F1 | with the file | difference of F1 | s |")
    print("| --- | ---: | ---: | ---: | ---: | --- | ---: |", flush=True)
    for category, rows in labelled.items():
        schemas, labels = data.prepared(rows, [extractor])
        tested = data.declared(titles[category], schemas)
        schemas = data.as_shown(schemas, labels, extractor, None)
        started = time.monotonic()
        try:
            result = fit(extractor, labels, schemas, seconds=given.seconds, tell=say)
        except InputError as error:  # no file, so the prompt stays
            chosen, fitted = str(error), extractor
        else:
            chosen, fitted = str(result.chosen), extractor.with_prompt(result.prompt)
        seconds = time.monotonic() - started
        before, after = (
            scores_of(tested, extractions_of(reader, tested, schemas), schemas)
            for reader in (extractor, fitted)
        )
        difference = difference_interval(before.counts(), after.counts())
        verdicts[found := verdict(difference)] += 1
        print(
            f"| {category} | {before.protocol.f1:.3f} | {after.protocol.f1:.3f} | "
            f"{before.strict.f1:.3f} | {after.strict.f1:.3f} | "
            f"{difference.low:+.3f} to {difference.high:+.3f}, {found} | {seconds:.0f} |",
            flush=True,
        )
        say(f"{category}: {chosen}")
    print("\n" + ", ".join(f"{verdicts[name]} {name}" for name in ("better", "equal", "worse")))


if __name__ == "__main__":
    main()
