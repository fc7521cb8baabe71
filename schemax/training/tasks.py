"""Annotated titles as training sequences: many ways to ask for the same values.

Every sequence comes from `compile_schema`, so that training sees exactly what extraction sees.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tokenizers
from pydantic import create_model

from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.config import PRESETS, DecodingConfig
from schemax.evaluation.examples import Example, attribute_names, canonical
from schemax.resources import resource_dir
from schemax.schema import AttrSchema, attr
from schemax.training.augment import Augmenter
from schemax.training.batching import split_by_tokens
from schemax.training.sequences import TrainingSequence, training_sequence
from schemax.training.targets import slot_targets

# JSON, the default, twice as often.
_FORMATS = ("json", "json", "yaml", "xml")
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


def declare(category: str, names: Mapping[str, tuple[str, str | None]]) -> type[AttrSchema]:
    """A schema whose field `f3` stands for the third attribute, shown as (label, description)."""
    fields: dict[str, Any] = {
        f"f{place}": (str | None, attr(description, title=label))
        for place, (label, description) in enumerate(names.values())
    }
    return create_model(
        "Category", __base__=AttrSchema, __cls_kwargs__={"category": category}, **fields
    )


@dataclass(frozen=True, slots=True)
class Task:
    """A category compiled for one layout and format, and which attribute each slot stands for."""

    category: str
    names: tuple[str, ...]
    compiled: CompiledSchema


def compile_tasks(
    titles: Sequence[Example], codec: TextCodec, template: str, rng: random.Random
) -> Iterator[Task]:
    """Variants of every category: other orders, subsets, names and descriptions, all layouts."""
    stacked = replace(PRESETS["paper"], documents_per_prompt=3)
    layouts = [PRESETS["isolated"]] * 14 + [stacked] + [PRESETS["autoregressive"]]
    for category in sorted({title.category for title in titles}):
        known = attribute_names(titles, category)
        for layout in layouts:
            for format in _FORMATS:
                names = list(known)
                if rng.random() < 0.7:
                    rng.shuffle(names)
                if rng.random() < 0.3:
                    names = names[: rng.randrange(3, len(names) + 1)]
                described = rng.choice((0.0, 0.0, 0.0, 0.0, 0.5, 1.0))
                shown = {
                    name: (
                        rng.choice(_SYNONYMS.get(name, (name,))) if rng.random() < 0.08 else name,
                        describe(category, name) if rng.random() < described else None,
                    )
                    for name in names
                }
                if len({label for label, _ in shown.values()}) < len(shown):
                    shown = {name: (name, None) for name in names}
                compiled = compile_schema(
                    declare(category, shown),
                    codec,
                    format=format,
                    template=template,
                    decoding=layout,
                )
                yield Task(category, tuple(names), compiled)


def describe(category: str, name: str) -> str | None:
    """The description of the ready-made schema of that category, if there is one."""
    path = resource_dir("schemas") / f"{category.lower().replace(' ', '_')}.json"
    if not path.is_file():
        return None
    properties = json.loads(path.read_text("utf-8"))["properties"]
    found = (p.get("description") for p in properties.values() if p.get("title") == name)
    return next(found, None)


def batches(
    titles: Sequence[Example],
    tasks: Sequence[Task],
    codec: TextCodec,
    tokens_per_batch: int,
    bpe_dropout: float,
    varied: float,
    invented: float,
    null_share: float,
    rng: random.Random,
) -> Iterator[tuple[DecodingConfig, list[TrainingSequence]]]:
    """Batches of one layout each, of sequences of like length.

    null_share: the share of null values that are learnt, since what a title leaves unannotated is
    a weaker statement than what it annotates.
    """
    by_category: dict[str, list[Example]] = {}
    for title in titles:
        by_category.setdefault(title.category, []).append(title)
    by_layout: dict[DecodingConfig, list[Task]] = {}
    for task in tasks:
        by_layout.setdefault(task.compiled.decoding, []).append(task)
    weights = [len(group) for group in by_layout.values()]
    augment = Augmenter(titles, varied, invented)
    noisy = dropout_tokenizer(codec, bpe_dropout)
    layouts = list(by_layout)
    while True:
        config = rng.choices(layouts, weights)[0]
        count = 256 // config.documents_per_prompt
        sequences = []
        for _ in range(count):
            task = rng.choice(by_layout[config])
            drawn = rng.choices(by_category[task.category], k=config.documents_per_prompt)
            drawn = [augment(title, rng) for title in drawn]
            encode = noisy.encode if rng.random() < 0.3 else codec.encode
            sequences.append(fill(task, drawn, encode, lambda: rng.random() < null_share))
        parts = split_by_tokens(sorted(sequences, key=len), tokens_per_batch)
        rng.shuffle(parts)
        for part in parts:
            yield config, part


def fill(
    task: Task,
    titles: Sequence[Example],
    encode: Any,
    learns_null: Callable[[], bool] = lambda: True,
) -> TrainingSequence:
    """One prompt about these titles with the right values in its slots.

    learns_null: asked for every null value of its own slot.
    """
    compiled = task.compiled
    documents = [tuple(encode(title.text)) for title in titles]
    prompt = compiled.assemble(documents)
    alone = compiled.decoding.layout != "autoregressive"
    literals, learnt = [], []
    for title in titles:
        stated = [canonical(title.attributes.get(name)) for name in task.names]
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
