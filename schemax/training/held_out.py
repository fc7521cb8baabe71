"""Held-out documents, and F1 of a model on them while it is trained."""

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
from schemax.evaluation.extractions import extractions_of, scores_of
from schemax.extractor import Extractor
from schemax.training.training_examples import TrainingExample

MOST = 200
"""Documents that are read at every check."""


def split_examples(
    examples: Sequence[TrainingExample], share: float, seed: int
) -> tuple[list[TrainingExample], list[TrainingExample]]:
    """(to be trained on, held out). Equal texts stay together. Raises InputError if none is left.

    A share above 0 holds back one text at least.
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
    """Takes off what accelerate puts around a model that is trained in bfloat16.

    Its autocast would round the scores of attention, with which no decoder's masks agree.
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
    """A function that measures F1 of the weights as they are, on the first examples.

    Every value counts, however improbable.

    extractor: of the model that is trained. settings: others of `Extractor.stream`.
    """
    chosen = [
        Example(example.category, example.text, example.labels) for example in examples[:MOST]
    ]
    # No further examples are shown, as in training.
    used = {"examples": (), **settings, "decoding": replace(decoding, min_probability=0.0)}
    made: list[Extractor] = []

    def f1() -> float:
        model = extractor.model.model
        # Layers that training compiled are of no use to other passes.
        with _own_forward(model), torch.compiler.set_stance("force_eager"):
            if not made:  # not before the trainer has put the weights where they stay
                made.append(Extractor(model, extractor.tokenizer, eos_ids=extractor.eos_ids))
                made[0].is_trained = True  # as it will be where it is used
            items = extractions_of(made[0], chosen, schemas, **used)
        return scores_of(chosen, items, schemas).protocol.f1

    return f1
