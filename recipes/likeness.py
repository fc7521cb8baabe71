"""Demonstrations by likeness, in a row and side by side, beside the same for all documents.

python -m recipes.likeness LABELS TEST --model FOLDER [--shots 4,8] [--limit 24]

After ExtractGPT (Brinkmann et al., 2024), which shows every document the labelled ones that are
most like it. In a row, every document has an instruction of its own, which nothing shares; side by
side (`nearest_examples`), every demonstration is read once for all documents. The price stands
beside F1. Likeness is that of words, whatever their order.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from rapidfuzz import fuzz, process

from schemax.attributes import compile_attributes
from schemax.attributes.examples import FewShotExample
from schemax.config import resolve_decoding
from schemax.evaluation.examples import Example, canonical_value, read_examples
from schemax.evaluation.labelled_schemas import annotated_schemas
from schemax.evaluation.scores import Scores, f1_interval, labelled_texts, score_predictions
from schemax.extraction.extractor import Extractor
from schemax.extraction.labels import labelled_instance
from schemax.extraction.stated import titles_of
from schemax.training.fitting.split import coverage_order


def alike(pool: Sequence[Example], document: Example, count: int) -> list[int]:
    """Returns the most similar labelled documents of the same category, the most similar last."""
    texts = {
        row: example.text
        for row, example in enumerate(pool)
        if example.category == document.category and example.text != document.text
    }
    found = process.extract(document.text, texts, scorer=fuzz.token_set_ratio, limit=count)
    return [row for _, _, row in reversed(found)]


def same(pool: Sequence[Example], document: Example, count: int, names: Sequence[str]) -> list[int]:
    """Returns the labelled documents of a document's category that cover most."""
    rows = [row for row, example in enumerate(pool) if example.category == document.category]
    labels = {row: {k: canonical_value(v) for k, v in pool[row].attributes.items()} for row in rows}
    return coverage_order(rows, labels, names)[:count]


def read(
    extractor: Extractor,
    documents: Sequence[Example],
    schemas: Mapping[str, type[BaseModel]],
    shown: Mapping[str, Sequence[FewShotExample]],
    names: Sequence[str],
    nearest: int = 0,
) -> tuple[Scores, float]:
    """Returns scores, and seconds per document.

    names: (documents,) the names of their prompts; shown: the demonstrations of each prompt.
    """
    asked = {name: schemas[one.category] for name, one in zip(names, documents, strict=True)}
    records = [
        {"category": name, "text": one.text} for name, one in zip(names, documents, strict=True)
    ]
    started = time.perf_counter()
    stream = extractor.stream(
        records,
        asked,
        category="category",
        examples=shown,
        decoding=resolve_decoding(f"isolated:constrain=document:nearest_examples={nearest}"),
    )
    items = sorted(stream, key=lambda item: item.index)
    seconds = (time.perf_counter() - started) / len(documents)
    values = [{name: one.value for name, one in item.fields.items()} for item in items]
    return score_predictions(documents, labelled_texts(documents, values, schemas)), seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("labels", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--shots", default="4,8")
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    pool, documents = read_examples(options.labels), read_examples(options.test)[: options.limit]
    schemas = annotated_schemas(pool)
    documents = [one for one in documents if one.category in schemas]
    extractor = Extractor.from_pretrained(options.model, dtype="bfloat16")

    def shot(row: int) -> FewShotExample:
        one = pool[row]
        stated: dict[str, Any] = {k: canonical_value(v) for k, v in one.attributes.items()}
        instance = labelled_instance(f"#{row + 1}", one.category, stated, schemas[one.category])
        return one.text, instance

    names = {
        category: list(titles_of(compile_attributes(schema)).values())
        for category, schema in schemas.items()
    }
    print("| shown | demonstrations | F1 | strict F1 | seconds a document |\n|---|---|---|---|---|")
    categories = [one.category for one in documents]
    apart = [f"{n}" for n in range(len(documents))]
    pools = {
        category: [shot(row) for row, one in enumerate(pool) if one.category == category]
        for category in dict.fromkeys(categories)
    }
    for count in map(int, options.shots.split(",")):
        fixed, own = (
            {name: [shot(row) for row in rows] for name, rows in zip(to, chosen, strict=True)}
            for to, chosen in (
                (categories, [same(pool, one, count, names[one.category]) for one in documents]),
                (apart, [alike(pool, one, count) for one in documents]),
            )
        )
        for name, shown, to, nearest in (
            ("the same", fixed, categories, 0),
            ("the most alike, in a row", own, apart, 0),
            ("the most alike, side by side", pools, categories, count),
        ):
            extractor.model.forget_prefixes()
            scores, seconds = read(extractor, documents, schemas, shown, to, nearest)
            low, high = f1_interval(scores.counts())
            print(
                f"| {name} | {count} | {scores.protocol.f1:.3f} ({low:.3f} to {high:.3f}) "
                f"| {scores.strict.f1:.3f} | {seconds:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
