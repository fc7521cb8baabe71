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

    A model named by folder or id in 16 bits is examined in these and, if twice its size fits into
    memory, in float32, which alone tells "exact" from "nearly". Raises ModelError if the model
    cannot be loaded; the `Diagnosis` says if a loaded model cannot be run.
    """
    from schemax.runtime.engine.self_test import prepare
    from schemax.runtime.models.loading import load

    if isinstance(model, Extractor):
        if isinstance(model.model, RemoteModel):
            raise ModelError(f"{model.model.name} is run by a server, which keeps its logits")
        return _diagnose(model.model, model.tokenizer, model.model.name, {}, model.trained)
    name = str(model) if isinstance(model, (str, Path)) else type(model).__name__
    narrow, trained = None, TrainedWith()
    if isinstance(model, (str, Path)):
        loaded = load(model, **loading)
        model, tokenizer, trained = loaded.model, tokenizer or loaded.tokenizer, loaded.trained
        if _can_widen(model):
            narrow = _in_own_dtype(model, tokenizer)
            model.float()
    elif tokenizer is None:
        raise ModelError(f"{name} is given without its tokenizer; pass tokenizer=")
    try:
        prepared = prepare(model)
    except ModelError as error:
        problem = narrow.found if narrow and not narrow.ok else str(error)
        return Diagnosis(name, False, tuple(_architecture(model)), problems=(problem,))
    arguments = {key: value for key, value in loading.items() if value not in (None, "auto")}
    if narrow is not None:
        arguments["dtype"] = narrow.name.removeprefix("in ") if narrow.ok else "float32"
    return _diagnose(prepared, tokenizer, name, arguments, trained, narrow)


def _diagnose(
    model: DecoderModel | ForkModel,
    tokenizer: Any,
    name: str,
    arguments: Mapping[str, Any],
    trained: TrainedWith,
    narrow: Check | None = None,
) -> Diagnosis:
    from schemax.evaluation.diagnosis.agreement import agreements
    from schemax.evaluation.diagnosis.checks import (
        processor_checks,
        thread_check,
        tokenizer_checks,
        well_suited_formats,
    )

    facts = [*_architecture(model.model), *filter(None, [narrow]), _mode(model)]
    try:
        facts += tokenizer_checks(tokenizer)
        formats = well_suited_formats(tokenizer)
        ways = tuple(agreements(model, tokenizer))
    except ModelError as error:
        return Diagnosis(name, False, tuple(facts), problems=(str(error),))
    if model.device.type == "cpu":
        facts += [*processor_checks(trained.dtype), thread_check()]
    problems = [
        f"{item.name}: {item.tokens - item.agreeing} of {item.tokens} tokens are not the oracle's, "
        f"and log-probabilities differ by {item.difference:.1e} of the logits' spread; "
        "do not use it"
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


def _can_widen(model: Any) -> bool:
    """True for a model in 16 bits, if there is room for it in float32."""
    import torch

    from schemax.runtime.slots.memory import free_bytes

    room = free_bytes(next(model.parameters()).device)
    is_narrow = model.dtype in (torch.bfloat16, torch.float16)
    is_quantized = getattr(model, "is_quantized", False)
    return is_narrow and not is_quantized and room >= 8 * model.num_parameters()


def _in_own_dtype(model: Any, tokenizer: Any) -> Check:
    """What a model computes in its own dtype. ok: None if it should not be run in that."""
    from schemax.evaluation.diagnosis.agreement import agreements
    from schemax.runtime.engine.self_test import prepare

    name = f"in {str(model.dtype).removeprefix('torch.')}"
    try:
        ways = [way for way in agreements(prepare(model), tokenizer) if way.tokens]
    except ModelError as error:
        return Check(name, str(error))
    share = sum(way.agreeing for way in ways) / max(1, sum(way.tokens for way in ways))
    found = f"{share:.0%} of the tokens are those of a plain pass"
    return Check(name, found, ok=all(way.ok for way in ways) or None)


def _architecture(model: Any) -> list[Check]:
    from schemax.runtime.models.architecture import examine
    from schemax.runtime.models.packed import described, num_weights

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
            f"{type(model).__name__}, {num_weights(model) / 1e6:,.1f} M parameters",
        ),
        Check("layers", kinds),
        Check("attention heads", architecture.heads),
        Check("positions", f"{architecture.position_encoding}; context {context or 'unlimited'}"),
        Check("attention backend", f"{backend} ({why})"),
        Check(
            "machine",
            f"{model.device}, {str(model.dtype).removeprefix('torch.')}"
            + (f"; weights packed: {packed}" if (packed := described(model)) else ""),
        ),
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
