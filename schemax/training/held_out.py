"""Held-out documents, and a model's F1 on them during training."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from pydantic import BaseModel

from schemax.config import DecodingConfig
from schemax.errors import InputError
from schemax.evaluation.examples import Example
from schemax.evaluation.scores import extractions_of, scores_of
from schemax.extraction.extractor import Extractor
from schemax.training.training_examples import TrainingExample

MOST = 200
"""The largest number of documents that a check reads."""


def split_examples(
    examples: Sequence[TrainingExample], share: float, seed: int
) -> tuple[list[TrainingExample], list[TrainingExample]]:
    """Splits examples into (trained on, held out). Equal texts stay together.

    A share above 0 holds out at least one text. Raises InputError if none is left to train on.
    """
    texts = sorted({example.text for example in examples})
    random.Random(f"{seed}, held out").shuffle(texts)
    count = max(1, round(share * len(texts))) if share else 0
    if count >= len(texts):
        raise InputError(
            f"{len(texts)} different texts are too few to hold {share:.0%} back and train on others"
        )
    kept_back = set(texts[:count])
    return (
        [example for example in examples if example.text not in kept_back],
        [example for example in examples if example.text in kept_back],
    )


@contextmanager
def _own_forward(model: Any) -> Iterator[None]:
    """Removes, for the context, accelerate's wrapper around a model that is trained in bfloat16.

    Its autocast would round attention scores, which masks of decoding do not allow.
    """
    around = vars(model).pop("forward", None)
    try:
        yield
    finally:
        if around is not None:
            model.forward = around


def scorer(
    extractor: Extractor,
    examples: Sequence[TrainingExample],
    schemas: Mapping[str, type[BaseModel]],
    decoding: DecodingConfig,
    /,
    **settings: Any,
) -> Callable[[], float]:
    """Returns a function that measures the F1 of the current weights on the first `MOST` examples.

    Every value counts, however improbable.

    extractor: of the model that is trained. settings: further arguments of `Extractor.stream`.
    """
    chosen = [
        Example(example.category, example.text, example.labels) for example in examples[:MOST]
    ]
    # No examples but the given ones are shown, as in training.
    used = {"examples": (), **settings, "decoding": replace(decoding, min_probability=0.0)}
    made: list[Extractor] = []

    def f1() -> float:
        model = extractor.model.model
        # Layers compiled for training do not suit other passes.
        with _own_forward(model), torch.compiler.set_stance("force_eager"):
            if not made:  # only now has the trainer moved the weights to their device
                trained = Extractor(model, extractor.tokenizer, eos_ids=extractor.eos_ids)
                trained.defaults = replace(trained.defaults, is_trained=True)
                made.append(trained)
            items = extractions_of(made[0], chosen, schemas, **used)
        return scores_of(chosen, items, schemas).protocol.f1

    return f1
