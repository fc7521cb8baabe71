"""What wordings of the prompt are worth, on what this checkout brings and on labelled titles.

    python -m recipes.wordings MODEL [--titles FILE --schemas FILE] [--sets televisions,tasks]
        [--wordings "verbatim,null again"] [--decoding isolated,autoregressive]
        [--no-examples] [--dtype bfloat16]

Of every set, decoding and wording it prints F1, a value that the text does not state counted as
wrong, of documents in even places (by which one may choose) and in odd ones (to be reported), each
with the 95 % interval of its difference from the first. "own" is what the model's folder names.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

from recipes.embedded.televisions import TITLES, Television
from schemax import Extractor, load_schema, schema_names
from schemax.attributes.ready_made import is_task
from schemax.compiler.prompt import template_source
from schemax.evaluation.examples import Example, ObjectText, read_examples, shown_record
from schemax.evaluation.labelled_schemas import as_declared, read_attributes
from schemax.evaluation.scores import (
    Counts,
    difference_interval,
    f1_of,
    labelled_texts,
    score_predictions,
)
from schemax.extraction.stated import Label, as_text

SAMPLES = Path(__file__).parents[1] / "docs" / "samples"

_EXAMPLES = (
    '{% if attribute.examples %} (for example: {{ attribute.examples | join("; ") }}){% endif %}'
)
_CHOICES = "[one of: {{ attribute.choices"
_RULES = "\nRules:\n"
_LAST = "{% if not chat %}"
_BEHIND = """
{% for attribute in attributes if attribute.examples %}
{{ "\\n" if loop.first }}Values of other texts, for their form alone: \
{{ attribute.name }}: {{ attribute.examples | join("; ") }}
{% endfor %}
"""

OTHER = """\
{% if turns or not examples %}
You read texts about items of one category, garden hose, and fill in their attributes.

Attributes:
- maker
- length
- surface
- warranty

Write null for an attribute that the text does not state. Do not guess. Answer in JSON.

<product>
Wellbrook FlexPro garden hose, 20 m, orange, with two brass couplings
</product>
{{ turn("assistant") }}{
  "maker": "Wellbrook",
  "length": "20 m",
  "surface": null,
  "warranty": null
}{{ turn("user") }}
{% endif %}
"""
"""A demonstration from another category with other attributes, in JSON, as turns of a chat."""


def wordings() -> dict[str, str | None]:
    """Returns name -> template; None is the model's own."""
    verbatim = template_source("verbatim")
    for part in (_EXAMPLES, _CHOICES, _RULES, _LAST):
        assert part in verbatim, part
    without = verbatim.replace(_EXAMPLES, "")
    names = ("verbatim", "standard", "generic", "paper")
    return {name: template_source(name) for name in names} | {
        "no examples": without,
        "examples behind": without.replace(_RULES, _BEHIND + _RULES),
        "own choices": verbatim.replace(_CHOICES, "[its own choices: {{ attribute.choices").replace(
            "answer with one of them.", "answer with one of those of the same attribute."
        ),
        "null again": verbatim.replace(
            _LAST, "\nWrite null for what this text does not state.\n" + _LAST
        ),
        "another category": OTHER + verbatim,
        "own": None,
    }


Set = tuple[list[Example], dict[str, Any]]
"""Labelled documents, and schemas by category."""


def televisions() -> Set:
    """Reads the titles of `recipes.embedded.televisions`."""
    rows = [json.loads(line) for line in TITLES.read_text("utf-8").splitlines()]
    examples = [
        Example("television", row.pop("text"), {name: as_text(row[name]) for name in row})
        for row in rows
    ]
    return examples, {"television": Television}


def tasks() -> Set:
    """Reads the samples of the ten tasks."""
    examples, schemas = [], {}
    for task in filter(is_task, schema_names()):
        schemas[task] = load_schema(task)
        read = read_examples(SAMPLES / f"{task}.jsonl")
        examples += [replace(one, category=task, attributes=_leaves(one)) for one in read]
    return as_declared(examples, schemas), schemas


def _leaves(example: Example) -> dict[str, Label]:
    """Returns the labels, with labels of nested models under dotted names."""
    found: dict[str, Label] = {}
    for name, label in example.attributes.items():
        if isinstance(label, ObjectText) and label.startswith("{"):
            found |= {f"{name}.{leaf}": as_text(one) for leaf, one in json.loads(label).items()}
        else:
            found[name] = label
    return found


def titles(file: Path, declared: Path) -> Set:
    """Reads labelled documents of a file, with the attributes that `declared` names."""
    examples, schemas = read_examples(file), read_attributes(declared)
    assert schemas is not None, f"{declared} names no attributes"
    return as_declared(examples, schemas), schemas


def counts(
    extractor: Extractor, found: Set, template: str | None, decoding: str, shown: Any
) -> tuple[Counts, float]:
    """Returns (documents, 5) outcomes, and passes per document. shown: examples of `stream`."""
    examples, schemas = found
    stream = extractor.stream(
        map(shown_record, examples),
        schemas,
        category="category",
        template=template,
        decoding=decoding,
        examples=shown,
    )
    items = sorted(stream, key=lambda item: item.index)
    values = [{name: one.value for name, one in item.fields.items()} for item in items]
    scores = score_predictions(examples, labelled_texts(examples, values, schemas))
    return scores.counts(strict=True), sum(item.steps for item in items) / len(items)


def line(name: str, first: Counts, now: Counts) -> str:
    said = name
    for place, half in enumerate(("even", "odd")):
        before, after = first[place::2], now[place::2]
        worth = float(f1_of(after.sum(axis=0)))
        low, high = difference_interval(before, after)
        said += f"  {half} {worth:.3f} ({low:+.3f} to {high:+.3f})"
    return said


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("model")
    parser.add_argument("--titles", type=Path, help="labelled documents, as `evaluate` reads them")
    parser.add_argument("--schemas", type=Path, help="their attributes by category")
    parser.add_argument("--sets", default="televisions,tasks", help="of televisions, tasks, titles")
    parser.add_argument("--wordings", default=",".join(name for name in wordings()))
    parser.add_argument("--decoding", default="isolated")
    parser.add_argument("--no-examples", action="store_true", help="nor those of the schemas")
    parser.add_argument("--dtype", default="bfloat16")
    given = parser.parse_args(arguments)
    sets = {"televisions": televisions, "tasks": tasks}
    if given.titles is not None:
        sets["titles"] = lambda: titles(given.titles, given.schemas)
    extractor = Extractor.from_pretrained(given.model, device="cpu", dtype=given.dtype)
    settings = list(product(given.decoding.split(","), given.wordings.split(",")))
    for name in given.sets.split(","):
        found, first = sets[name](), None
        shown = dict.fromkeys(found[1], ()) if given.no_examples else None
        print(f"{name}: {len(found[0])} documents", flush=True)
        for decoding, wording in settings:
            now, passes = counts(extractor, found, wordings()[wording], decoding, shown)
            first = now if first is None else first
            said = line(f"{decoding}, {wording}", first, now)
            print(f"{said}  {passes:.1f} passes", flush=True)


if __name__ == "__main__":
    main()
