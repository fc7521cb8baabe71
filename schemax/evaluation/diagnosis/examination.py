"""The doctor: examines on this machine whether and how schemax runs on a model."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schemax.base.trained import TrainedWith
from schemax.errors import ModelError
from schemax.extraction.extractor import Extractor
from schemax.servers.remote import RemoteModel


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of a way to decode with its oracle, on the model's own weights.

    oracle: "plain requests": transformers' own forward pass over each request by itself, with its
        own mask and no cache. "one pass": the same prompt with its values, in one pass under the
        same rule, without cache, batch or pruning; for layouts that no plain request equals.
    tokens, agreeing: greedy tokens compared, and those equal to the oracle's.
    difference: the largest between two logits, relative to the spread of the logits.
    exact: True if all tokens agree and logits differ by rounding only; None outside float32, and
        for models whose logits depend on the number of passes.
    like_plain: the share of slots that plain requests fill equally; a fact, no fault.
    refused: why the model cannot decode this way; the figures are not set then.
    """

    layout: str
    documents: str
    slots: str
    oracle: str = ""
    tokens: int = 0
    agreeing: int = 0
    difference: float = 0.0
    exact: bool | None = None
    like_plain: float = 0.0
    refused: str | None = None

    @property
    def name(self) -> str:
        if self.layout == "autoregressive":
            return self.layout
        return f"{self.layout}, {self.documents}, {self.slots}"

    @property
    def ok(self) -> bool:
        """True if refused or exact; if exactness is unknown, True if 90 % of the tokens agree."""
        if self.refused is not None:
            return True
        return self.agreeing >= 0.9 * self.tokens if self.exact is None else self.exact

    @property
    def verdict(self) -> str:
        if self.refused is not None:
            return "not possible"
        if self.exact is None:
            return f"{self.agreeing / max(1, self.tokens):.0%} agree"
        return "exact" if self.exact else "WRONG"


@dataclass(frozen=True, slots=True)
class Check:
    """A check and its finding. ok: None for a fact."""

    name: str
    found: str
    ok: bool | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The doctor's findings about a model.

    ok: True if every check shows that schemax runs on it.
    facts: model, layers, positions, backend, tokenizer, memory; in order.
    agreements: one per way to decode.
    problems: reasons against the model, each with its remedy if there is one.
    recommended: arguments for `Extractor.from_pretrained` and `extract`.
    """

    model: str
    ok: bool
    facts: tuple[Check, ...]
    agreements: tuple[Agreement, ...] = ()
    problems: tuple[str, ...] = ()
    recommended: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain data, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.model}: {'ready' if self.ok else 'NOT READY'}"
        width = max((len(fact.name) for fact in self.facts), default=0)
        for fact in self.facts:
            mark = {True: "ok", False: "!!", None: "  "}[fact.ok]
            yield f"  {mark} {fact.name:<{width}}  {fact.found}"
        for agreement in self.agreements:
            mark = "  " if agreement.refused else "ok" if agreement.ok else "!!"
            line = f"  {mark} {agreement.name:<31} {agreement.verdict:<13}"
            if not agreement.refused:
                line += (
                    f" {agreement.agreeing}/{agreement.tokens} tokens, logits within "
                    f"{agreement.difference:.1e} of their spread, by {agreement.oracle}; "
                    f"{agreement.like_plain:.0%} of slots like plain requests"
                )
            yield line.rstrip()
        for problem in self.problems:
            yield f"  !! {problem}"
        if self.recommended:
            settings = ", ".join(f"{key}={value!r}" for key, value in self.recommended.items())
            yield f"  use {settings}"


if TYPE_CHECKING:
    from schemax.runtime.engine.fork import ForkModel
    from schemax.runtime.models.model import DecoderModel


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
    ]


def _mode(model: DecoderModel | ForkModel) -> Check:
    from schemax.runtime.engine.fork import ForkModel

    if isinstance(model, ForkModel):
        return Check("decoding", f"one row per slot, because the model {model.obstacle}")
    return Check("decoding", "in sequence, packed: passes without padding, instructions read once")
