"""The doctor: examines on this machine whether and how schemax runs on a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemax.base.trained import TrainedWith
from schemax.errors import ModelError
from schemax.evaluation.diagnosis.diagnosis import Check, Diagnosis
from schemax.extraction.extractor import Extractor
from schemax.servers.remote import RemoteModel

if TYPE_CHECKING:
    from schemax.runtime.engine.fork import ForkModel
    from schemax.runtime.models.model import DecoderModel


# Settings of a generation config under which `generate` takes other tokens than the likeliest.
_CHANGE_TOKENS = ("repetition_penalty", "no_repeat_ngram_size", "bad_words_ids", "suppress_tokens")


def doctor(model: Any, *, tokenizer: Any = None, **loading: Any) -> Diagnosis:
    """Examines a model with its own weights and tokenizer.

    model: a folder or Hub id, an `Extractor`, or a model of transformers with its `tokenizer`.
    loading: arguments of `Extractor.from_pretrained`, such as device and dtype.

    A model named by folder or id runs in float32 if twice its size fits into memory: float32 alone
    tells "exact" from "nearly". Raises ModelError if the model cannot be loaded; the `Diagnosis`
    says if a loaded model cannot be run.
    """
    from schemax.runtime.engine.self_test import prepare
    from schemax.runtime.models.loading import load

    if isinstance(model, Extractor):
        if isinstance(model.model, RemoteModel):
            raise ModelError(f"{model.model.name} is run by a server, which keeps its logits")
        return _diagnose(model.model, model.tokenizer, model.model.name, {}, model.trained)
    name = str(model) if isinstance(model, (str, Path)) else type(model).__name__
    dtype, trained = None, TrainedWith()
    if isinstance(model, (str, Path)):
        loaded = load(model, **loading)
        model, tokenizer, trained = loaded.model, tokenizer or loaded.tokenizer, loaded.trained
        dtype = _widen(model)
    elif tokenizer is None:
        raise ModelError(f"{name} is given without its tokenizer; pass tokenizer=")
    try:
        prepared = prepare(model)
    except ModelError as error:
        return Diagnosis(name, False, tuple(_architecture(model)), problems=(str(error),))
    arguments = {key: value for key, value in loading.items() if value not in (None, "auto")}
    arguments |= {"dtype": dtype} if dtype else {}
    return _diagnose(prepared, tokenizer, name, arguments, trained)


def _diagnose(
    model: DecoderModel | ForkModel,
    tokenizer: Any,
    name: str,
    arguments: Mapping[str, Any],
    trained: TrainedWith,
) -> Diagnosis:
    from schemax.evaluation.diagnosis.agreement import agreements
    from schemax.evaluation.diagnosis.checks import (
        memory_checks,
        processor_checks,
        thread_check,
        tokenizer_checks,
        well_suited_formats,
    )

    facts = [*_architecture(model.model), _mode(model)]
    try:
        facts += tokenizer_checks(tokenizer)
        formats = well_suited_formats(tokenizer)
        ways = tuple(agreements(model, tokenizer))
    except ModelError as error:
        return Diagnosis(name, False, tuple(facts), problems=(str(error),))
    facts += memory_checks(model)
    if model.device.type == "cpu":
        facts += [*processor_checks(trained.dtype), thread_check()]
    problems = [
        f"{item.name}: {item.tokens - item.agreeing} of {item.tokens} tokens are not the oracle's, "
        f"and logits differ by {item.difference:.1e} of their spread; do not use it"
        for item in ways
        if not item.ok
    ]
    problems += [f"{fact.name}: {fact.found}" for fact in facts if fact.ok is False]
    if not any(item.tokens for item in ways):
        problems.append("no way to decode could be compared, so nothing is proven")
    recommended: dict[str, Any] = {}
    if not problems:
        recommended = {
            "decoding": "isolated",
            "format": "json" if "json" in formats else formats[0],
            "dtype": str(model.dtype).removeprefix("torch."),
            "device": model.device.type,
            "attn_implementation": model.config._attn_implementation,
            **arguments,
        }
        if "device_map" in recommended:
            del recommended["device"]
    return Diagnosis(name, not problems, tuple(facts), ways, tuple(problems), recommended)


def _widen(model: Any) -> str | None:
    """Converts a model to float32 if there is room; returns its former dtype, None if unchanged."""
    import torch

    from schemax.runtime.slots.memory import free_bytes

    own: torch.dtype = model.dtype
    room = free_bytes(next(model.parameters()).device)
    narrow = own in (torch.bfloat16, torch.float16)
    if not narrow or getattr(model, "is_quantized", False) or room < 8 * model.num_parameters():
        return None
    model.float()
    return str(own).removeprefix("torch.")


def _architecture(model: Any) -> list[Check]:
    from schemax.runtime.models.architecture import examine

    config = model.config.get_text_config()
    architecture = examine(model)
    kinds = ", ".join(f"{count} {kind}" for kind, count in architecture.layer_counts.items())
    backend: str = config._attn_implementation
    why = {
        "sdpa": "transformers' choice: fastest that takes our masks",
        "eager": "this family has no sdpa, or eager was asked for",
        "flex_attention": "as was asked for",
    }.get(backend, "takes no masks of ours")
    context = architecture.max_positions
    return [
        Check(
            "architecture",
            f"{type(model).__name__}, {model.num_parameters() / 1e6:,.1f} M parameters",
        ),
        Check("layers", kinds),
        Check("attention heads", architecture.heads),
        Check("positions", f"{architecture.position_encoding}; context {context or 'unlimited'}"),
        Check("attention backend", f"{backend} ({why})"),
        Check("machine", f"{model.device}, {str(model.dtype).removeprefix('torch.')}"),
        *_generation_checks(model),
    ]


def _generation_checks(model: Any) -> Iterator[Check]:
    """Yields the settings by which the model's `generate` would choose other tokens."""
    settings = getattr(model, "generation_config", None)
    named = settings.to_diff_dict() if settings is not None else {}
    if changed := [f"{key} {named[key]}" for key in _CHANGE_TOKENS if named.get(key)]:
        yield Check("generation config", f"{', '.join(changed)}: not applied; see docs/models.md")


def _mode(model: DecoderModel | ForkModel) -> Check:
    from schemax.runtime.engine.fork import ForkModel

    if isinstance(model, ForkModel):
        return Check("decoding", f"one row per slot, because the model {model.obstacle}")
    return Check("decoding", "in sequence, packed: passes without padding, instructions read once")
