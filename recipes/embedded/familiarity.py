"""How often a model says that documents are unlike those that it was calibrated on.

    python -m recipes.embedded.familiarity MODEL TITLES

TITLES are annotated titles of categories that MODEL knows, and that it was not trained on. Beside
them stand the same titles with the template `generic`, titles of shoes in four languages, and the
documents of `recipes.embedded.tasks`: the mean log-probability of what is written, and the share
of 1,000 draws of 1, 3 and 10 documents that are warned of.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from recipes.embedded.tasks import TASKS, documents
from schemax import Extractor, load_schema
from schemax.evaluation.examples import read_examples, shown_record
from schemax.evaluation.labelled_schemas import annotated_schemas
from schemax.extraction.familiarity import least_logprob, mean_logprob
from schemax.results import Extraction

SHOES = Path(__file__).parents[2] / "tests" / "data" / "shoes.jsonl"


def shoes(language: str) -> list[str]:
    """Returns titles in "en", "de", "zh" or "ru"."""
    rows = [json.loads(line) for line in SHOES.read_text("utf-8").splitlines()]
    return [row["text"] for row in rows if row["language"] == language]


def main(folder: str, titles: str) -> None:
    extractor = Extractor.from_pretrained(folder, device="cpu")
    calibration = extractor.defaults.calibration

    def show(name: str, items: Iterable[Extraction[Any]]) -> None:
        found = np.array([x for x in map(mean_logprob, items) if x is not None])
        draws = np.random.default_rng(0)
        shares = [
            (draws.choice(found, (1000, n)).mean(1) < least_logprob(calibration, n)).mean()
            for n in (1, 3, 10)
        ]
        print(f"{name:22} {found.mean():6.3f}  ", *(f"{share:.3f}" for share in shares))

    examples = read_examples(Path(titles))
    schemas, records = annotated_schemas(examples), [shown_record(one) for one in examples]
    for format in ("json", "yaml", "xml"):
        show(format, extractor.stream(records, schemas, category="category", format=format))
    generic: Any = {"category": "category", "template": "generic"}
    show("json, generic", extractor.stream(records, schemas, **generic))
    for language in ("en", "de", "zh", "ru"):
        show(f"shoes, {language}", extractor.stream(shoes(language), load_schema("shoes")))
    for task, schema in TASKS.items():
        show(task, extractor.stream([text for text, _ in documents(task)], schema))


if __name__ == "__main__":
    try:
        _, folder, titles = sys.argv
    except ValueError:
        sys.exit(__doc__)
    main(folder, titles)
