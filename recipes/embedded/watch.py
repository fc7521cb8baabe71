"""Monitors a model in training: measures losses on a fixed set of held-out pages."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn import functional

from recipes.embedded.data import Data
from recipes.embedded.mixture import (
    INVENTED,
    LETTERS,
    NEW_PATTERNS,
    Reader,
    Templates,
    Variety,
    draw,
)
from recipes.embedded.prompts import ALONE, NoisyTokenizer
from recipes.embedded.shelves import Library, Shelf, document_of
from schemax.compiler import TextCodec
from schemax.config import DecodingConfig
from schemax.runtime.models.model import DecoderModel
from schemax.training.schedule import split_by_tokens
from schemax.training.sequences import IGNORE, TrainingSequence, collate


@dataclass(frozen=True, slots=True)
class Watched:
    """The batches of a kind of pages."""

    name: str
    batches: Sequence[Sequence[TrainingSequence]]


def watched(
    data: Data, codec: TextCodec, templates: Templates, tokens_per_batch: int, pages: int
) -> list[Watched]:
    """Draws `pages` each of held-out titles, new shelves, held-out rows, and invented texts."""
    titles = {title.category for title in data.titles}
    own = [
        replace(shelf, documents=[document_of(t) for t in data.titles if t.category == shelf.name])
        for shelf in data.collection.shelves.get("titles", [])
        if shelf.name in titles
    ]
    parts: Mapping[str, Sequence[Shelf]] = {"titles": own, "new": data.new, "rows": data.rows}
    libraries = {
        name: Library({name: shelves}, {name: 1.0}) for name, shelves in parts.items() if shelves
    }
    libraries |= {name: Library({}, {name: 1.0}) for name in (INVENTED, LETTERS, NEW_PATTERNS)}
    plain = Variety(
        varied=0, varied_little=0, foreign=0, featured=0, padded=0, columned=0, own_template=1
    )
    noisy = NoisyTokenizer(codec, 0.0)
    found = []
    for name, library in libraries.items():
        rng = random.Random(name)
        reader = Reader(library, plain)
        drawn = [
            draw(reader, codec, noisy, templates, ALONE, replace(plain, read_twice=0), rng)
            for _ in range(pages)
        ]
        found.append(Watched(name, split_by_tokens(sorted(drawn, key=len), tokens_per_batch)))
    return found


def losses(
    decoder: DecoderModel, watched: Sequence[Watched], pad_id: int, bf16: bool
) -> dict[str, float]:
    """Returns the mean loss per token of values, by kind of pages."""
    found = {}
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=bf16):
        for kind in watched:
            total, count = 0.0, 0
            for batch in kind.batches:
                logits, labels = forward(decoder, batch, ALONE, pad_id)
                total += functional.cross_entropy(logits.float(), labels, reduction="sum").item()
                count += len(labels)
            found[kind.name] = total / max(1, count)
    return found


def forward(
    decoder: DecoderModel,
    sequences: Sequence[TrainingSequence],
    config: DecodingConfig,
    pad_id: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns (labels, vocabulary) logits at the labels' places, and the (labels,) labels."""
    input_ids, tokens, labels = collate(sequences, pad_id)
    rows, columns = torch.nonzero(labels != IGNORE, as_tuple=True)
    logits = decoder.forward(input_ids, tokens, (rows, columns), config)
    return logits, labels[rows, columns]
