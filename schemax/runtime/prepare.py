"""Chooses how a model decodes: in sequence where it can, else one row per slot."""

from __future__ import annotations

from typing import Any

import torch

from schemax.errors import ModelError
from schemax.runtime.anatomy import examine
from schemax.runtime.fork import ForkModel
from schemax.runtime.language_model import head_of
from schemax.runtime.model import DecoderModel
from schemax.runtime.probe import prove, prove_packing


def prepare(model: Any) -> DecoderModel | ForkModel:
    """A transformers model, ready to decode, and proven to.

    Raises ModelError for a model that can decode in neither way, naming the cause.
    """
    if hasattr(model, "get_base_model"):
        model = model.get_base_model()  # peft's wrapper hides what the model takes
    head_of(model)
    try:
        prepared = ForkModel(model) if examine(model).obstacle else DecoderModel(model)
        prove(prepared)
        if isinstance(prepared, DecoderModel):
            prepared.packs = prove_packing(prepared)
    except (ModelError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # model code of any kind, run as it was not written for
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ModelError(
            f"{type(model).__name__} fails when it is run as schemax runs it ({said}); choose "
            "another model, or another release of transformers"
        ) from error
    return prepared
