"""Annotated texts as training sequences: many ways to ask for the same values.

Every sequence comes from `compile_schema`, so that training sees exactly what extraction sees.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean
from typing import Any

import numpy as np
import tokenizers
from pydantic import create_model

from schemax.attributes import attr
from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.config import PRESETS, DecodingConfig
from schemax.evaluation.examples import Example, canonical
from schemax.resources import resource_dir
from schemax.schema import AttrSchema
from schemax.training.batching import split_by_tokens
from schemax.training.embedded.augment import Augmenter
from schemax.training.embedded.listings import Category
from schemax.training.sequences import TrainingSequence, training_sequence
from schemax.training.targets import slot_targets

# JSON, the default, twice as often.
_FORMATS = ("json", "json", "yaml", "xml")
# Layouts and their shares. Isolated documents behind one instruction are as many prompts.
_ALONE = PRESETS["isolated"]
_SHARING = replace(_ALONE, documents_per_prompt=3)
# Longer texts alone, since attention over a row grows with its square.
_SHORT = 150
_LAYOUTS = {
    _ALONE: 0.78,
    replace(PRESETS["paper"], documents_per_prompt=2): 0.04,
    PRESETS["paper"]: 0.08,
    PRESETS["autoregressive"]: 0.1,
}
# Other names under which the same thing is asked for.
_SYNONYMS = {
    "Brand": ("Manufacturer", "Maker", "Brand name"),
    "Model name": ("Model", "Name"),
    "Color": ("Colour",),
    "Flavor": ("Flavour", "Taste"),
    "Scent": ("Fragrance",),
    "Item form": ("Form",),
    "Pack size": ("Pack", "Package quantity"),
    "Net content": ("Content", "Amount"),
}
_STYLES: tuple[Callable[[str], str], ...] = (
    str.lower,
    str.title,
    lambda name: re.sub(r"\W+", "_", name.lower()),
)


@dataclass(frozen=True, slots=True)
class Task:
    """A category compiled for one layout and format, and which attribute each slot stands for."""

    category: str
    names: tuple[str, ...]
    compiled: CompiledSchema


def compile_tasks(
    categories: Sequence[Category],
    variants: int,
    codec: TextCodec,
    template: str,
    rng: random.Random,
    only: DecodingConfig | None = None,
) -> Iterator[Task]:
    """Variants of every category: other orders, subsets, names and descriptions, all layouts.

    only: this layout instead of all.
    """
    for category in categories:
        short = mean(len(example.text) for example in category.examples) < _SHORT
        for place in range(variants):
            names = _names(category, rng)
            described = rng.choice((0.0, 0.0, 0.0, 0.5, 1.0))
            shown = {
                name: (
                    _label(name, rng),
                    describe(category, name) if rng.random() < described else None,
                )
                for name in names
            }
            if len({label for label, _ in shown.values()}) < len(shown):
                shown = {name: (name, None) for name in names}
            (layout,) = rng.choices([*_LAYOUTS], [*_LAYOUTS.values()])
            if only is not None:
                layout = only
            if layout == _ALONE and any(about for _, about in shown.values()):
                layout = _SHARING
            if layout.documents_per_prompt > 1 and not short:
                layout = _ALONE
            compiled = compile_schema(
                declare(category.name if rng.random() > 0.06 else "Product", shown),
                codec,
                format=_FORMATS[place % len(_FORMATS)],
                template=template,
                decoding=layout,
            )
            yield Task(category.name, tuple(names), compiled)


def _names(category: Category, rng: random.Random) -> list[str]:
    names = list(category.attributes)
    if rng.random() < 0.7:
        rng.shuffle(names)
    if rng.random() < 0.3:
        names = names[: rng.randrange(min(3, len(names)), len(names) + 1)]
    return names


def _label(name: str, rng: random.Random) -> str:
    chance = rng.random()
    if chance < 0.08:
        return rng.choice(_SYNONYMS.get(name, (name,)))
    return rng.choice(_STYLES)(name) if chance < 0.2 else name


def declare(category: str, names: Mapping[str, tuple[str, str | None]]) -> type[AttrSchema]:
    """A schema whose field `f3` stands for the third attribute, shown as (label, description)."""
    fields: dict[str, Any] = {
        f"f{place}": (str | None, attr(description, title=label))
        for place, (label, description) in enumerate(names.values())
    }
    return create_model(
        "Category", __base__=AttrSchema, __cls_kwargs__={"category": category}, **fields
    )


def describe(category: Category, name: str) -> str | None:
    """The attribute's own description, or that of the ready-made schema of this category."""
    if category.attributes[name]:
        return category.attributes[name]
    path = resource_dir("schemas") / f"{category.name.lower().replace(' ', '_')}.json"
    if not path.is_file():
        return None
    properties = json.loads(path.read_text("utf-8"))["properties"]
    found = (p.get("description") for p in properties.values() if p.get("title") == name)
    return next(found, None)


@dataclass(frozen=True, slots=True)
class Variety:
    """How far sequences are from the texts they are made of.

    bpe_dropout: share of merges skipped, in three texts of ten.
    varied: share of texts with other values in place of their own.
    invented: share of open values that are exchanged for words that nobody has seen.
    nulls: share of null values that are learnt, since what a title leaves unannotated is a weaker
        statement than what it annotates.
    """

    bpe_dropout: float = 0.1
    varied: float = 0.6
    invented: float = 0.35
    nulls: float = 0.5


def batches(
    categories: Mapping[str, Category],
    tasks: Sequence[Task],
    codec: TextCodec,
    tokens_per_batch: int,
    variety: Variety,
    rng: random.Random,
) -> Iterator[tuple[DecodingConfig, list[TrainingSequence]]]:
    """Batches of one layout each, of sequences of like length; without end."""
    by_layout: dict[DecodingConfig, list[Task]] = {}
    for task in tasks:
        by_layout.setdefault(task.compiled.decoding, []).append(task)
    weights = [len(group) for group in by_layout.values()]
    every = [example for category in categories.values() for example in category.examples]
    augment = Augmenter(every, variety.varied, variety.invented)
    noisy = dropout_tokenizer(codec, variety.bpe_dropout)
    layouts = list(by_layout)
    while True:
        config = rng.choices(layouts, weights)[0]
        sequences = []
        for _ in range(256 // config.documents_per_prompt):
            task = rng.choice(by_layout[config])
            examples = categories[task.category].examples
            drawn = [augment(e, rng) for e in rng.choices(examples, k=config.documents_per_prompt)]
            encode = noisy.encode if rng.random() < 0.3 else codec.encode
            sequences.append(fill(task, drawn, encode, lambda: rng.random() < variety.nulls))
        parts = split_by_tokens(sorted(sequences, key=len), tokens_per_batch)
        rng.shuffle(parts)
        for part in parts:
            yield config, part


def fill(
    task: Task,
    examples: Sequence[Example],
    encode: Any,
    learns_null: Callable[[], bool] = lambda: True,
) -> TrainingSequence:
    """One prompt about these texts with the right values in its slots.

    learns_null: asked for every null value of its own slot.
    """
    compiled = task.compiled
    documents = [tuple(encode(example.text)) for example in examples]
    prompt = compiled.assemble(documents)
    alone = compiled.decoding.layout != "autoregressive"
    literals, learnt = [], []
    for example in examples:
        stated = [canonical(example.attributes.get(name)) for name in task.names]
        texts = [text if text is None else text.strip() for text in stated]
        literals.append([compiled.format.escape(text) for text in texts])
        learnt.append([text is not None or not alone or learns_null() for text in texts])
    values, flags = slot_targets(compiled, literals, learnt)
    sequence = training_sequence(compiled, prompt, values, flags)
    for ids in documents:
        label_second_reading(sequence, ids)
    return sequence


def label_second_reading(sequence: TrainingSequence, ids: Sequence[int]) -> None:
    """Where the prompt shows a document twice, its second reading is learnt as well.

    Every token of it can be copied from the first reading, which teaches copying long before
    values do.
    """
    windows = np.lib.stride_tricks.sliding_window_view(sequence.input_ids, len(ids))
    starts = np.flatnonzero((windows == np.asarray(ids)).all(axis=1))
    for start in starts[1:2]:
        sequence.labels[start : start + len(ids) - 1] = ids[1:]


def dropout_tokenizer(codec: TextCodec, rate: float) -> Any:
    """The same tokenizer with merges skipped at random, so that words are seen in many cuts."""
    backend = tokenizers.Tokenizer.from_str(codec.to_str())
    backend.model.dropout = rate
    return _Noisy(backend)


class _Noisy:
    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.backend = backend

    def encode(self, text: str) -> list[int]:
        return list(self.backend.encode(text, add_special_tokens=False).ids)
