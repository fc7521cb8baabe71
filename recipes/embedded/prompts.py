"""Prompts: turns questions about documents into training sequences.

Every sequence comes from `compile_schema`, so that training sees exactly what extraction sees.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, get_origin

import jinja2
import numpy as np
import tokenizers
from pydantic import create_model

from recipes.embedded.questions import Question
from schemax.attributes import attr
from schemax.attributes.examples import SomeValues
from schemax.compiler import TextCodec, compile_schema
from schemax.config import PRESETS, DecodingConfig
from schemax.extraction.labels import slot_text
from schemax.extraction.schema import AttrSchema
from schemax.training.sequences import (
    TrainingSequence,
    item_target,
    slot_targets,
    training_sequence,
)

# JSON, the default, is drawn twice as often.
FORMATS = ("json", "json", "yaml", "xml")
# Without grammars of copied texts, which are no part of a prompt.
ALONE = replace(PRESETS["isolated"], constrain="types")
LAYOUTS: Mapping[DecodingConfig, float] = MappingProxyType(
    {
        # Rows of stacked documents are long, so that they take more than their share of the time.
        ALONE: 0.93,
        replace(ALONE, layout="gapped"): 0.01,
        replace(PRESETS["paper"], documents_per_prompt=2): 0.01,
        PRESETS["paper"]: 0.01,
        replace(PRESETS["autoregressive"], constrain="nothing"): 0.04,
    }
)


@dataclass(frozen=True, slots=True)
class Page:
    """Documents and the questions about them, to become one prompt."""

    category: str
    texts: Sequence[str]
    questions: Sequence[Question]

    def __post_init__(self) -> None:
        labels = [question.label for question in self.questions]
        assert len(set(labels)) == len(labels), labels


def declare(category: str, questions: Sequence[Question]) -> type[AttrSchema]:
    """Returns a schema whose field `f3` stands for the question at place 3."""
    fields: dict[str, Any] = {}
    for place, question in enumerate(questions):
        default: dict[str, Any] = (
            {"default_factory": list} if get_origin(question.annotation) is list else {}
        )
        fields[f"f{place}"] = (
            question.annotation,
            attr(question.description, title=question.label, examples=question.examples, **default),
        )
    return create_model(
        "Category", __base__=AttrSchema, __cls_kwargs__={"category": category}, **fields
    )


def written(
    page: Page,
    codec: TextCodec,
    encode: Callable[[str], Sequence[int]],
    *,
    format: str,
    template: jinja2.Template,
    layout: DecodingConfig,
    read_twice: bool = False,
    shown: int = 0,
) -> TrainingSequence:
    """Returns the page as a prompt with the gold values in its slots.

    encode: for the texts. read_twice: True if the second reading of a text is also learnt.
    shown: the number of first documents that are demonstrations for the others.
    """
    schema = declare(page.category, page.questions)
    examples = [example for j in range(shown) if (example := _example(page, j))[1].values]
    page = _behind(page, shown)
    decoding = layout
    if layout.documents == "isolated":
        decoding = replace(layout, documents_per_prompt=len(page.texts))
    compiled = compile_schema(
        schema,
        codec,
        format=format,
        template=template,
        decoding=decoding,
        examples=examples,
    )
    documents = [tuple(encode(text)) for text in page.texts]
    prompt = compiled.assemble(documents)
    slots = [
        [
            slot_text(attribute, question.values[j], compiled.format)
            for attribute, question in zip(compiled.attributes, page.questions, strict=True)
        ]
        for j in range(len(page.texts))
    ]
    literals = [[slot.raw for slot in row] for row in slots]
    learnt = [[question.learnt[j] for question in page.questions] for j in range(len(page.texts))]
    values, flags = slot_targets(compiled, literals, learnt)
    items = [
        [item_target(compiled, slot) for slot in compiled.known(row) if slot.is_further]
        for row in (slots if compiled.decoding.is_branched else ())
    ]
    sequence = training_sequence(compiled, prompt, values, flags, items)
    if read_twice:
        for ids in documents:
            label_second_reading(sequence, ids)
    return sequence


def _example(page: Page, j: int) -> tuple[str, SomeValues]:
    """Returns a document with its known values; fields with unknown values are not shown."""
    known = {
        f"f{place}": question.values[j]
        for place, question in enumerate(page.questions)
        if question.learnt[j]
    }
    return page.texts[j], SomeValues(known)


def _behind(page: Page, shown: int) -> Page:
    """Returns the page without its first documents."""
    questions = [
        replace(question, values=question.values[shown:], learnt=question.learnt[shown:])
        for question in page.questions
    ]
    return replace(page, texts=page.texts[shown:], questions=questions)


def label_second_reading(sequence: TrainingSequence, ids: Sequence[int]) -> None:
    """Labels the second reading of a document, if the prompt shows the document twice.

    Its tokens can be copied from the first reading, which teaches copying long before values do.
    """
    if len(ids) < 2 or len(ids) > len(sequence):
        return
    windows = np.lib.stride_tricks.sliding_window_view(sequence.input_ids, len(ids))
    starts = np.flatnonzero((windows == np.asarray(ids)).all(axis=1))
    for start in starts[1:2]:
        sequence.labels[start : start + len(ids) - 1] = ids[1:]


class NoisyTokenizer:
    """A tokenizer that skips merges at random, so that words are cut in many ways (BPE dropout)."""

    def __init__(self, codec: TextCodec, rate: float) -> None:
        self._backend = tokenizers.Tokenizer.from_str(codec.to_str())
        self._backend.model.dropout = rate

    def encode(self, text: str) -> list[int]:
        return list(self._backend.encode(text, add_special_tokens=False).ids)


def layouts(rng: random.Random) -> Iterator[DecodingConfig]:
    """Yields layouts without end, in their shares."""
    while True:
        yield from rng.choices([*LAYOUTS], [*LAYOUTS.values()], k=64)
