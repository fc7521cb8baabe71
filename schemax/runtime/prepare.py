"""Chooses how a model decodes: in sequence where it can, else one row per slot."""

from __future__ import annotations

from typing import Any

from schemax.runtime.anatomy import examine
from schemax.runtime.fork import ForkModel
from schemax.runtime.language_model import head_of
from schemax.runtime.model import DecoderModel
from schemax.runtime.probe import prove


def prepare(model: Any) -> DecoderModel | ForkModel:
    """A transformers model, ready to decode, and proven to.

    Raises ModelError for a model that can decode in neither way, naming the cause.
    """
    head_of(model)
    prepared = ForkModel(model) if examine(model).obstacle else DecoderModel(model)
    prove(prepared)
    return prepared
