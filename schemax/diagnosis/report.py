"""The doctor's findings, as plain data and as text."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Agreement:
    """A way to decode, beside its oracle, on the model's own weights.

    oracle: "plain requests": transformers' own forward pass over each request by itself, without
        cache or mask of ours. "one pass": the same prompt with its values, all at once, without
        cache, batch or pruning, but under the same rule; for layouts that no plain request equals.
    tokens, agreeing: greedy tokens compared, and those that were the oracle's.
    difference: the largest between two logits, relative to the spread of the logits.
    exact: all tokens agree and the logits differ by rounding only; None outside float32, and for
        models whose own logits depend on how a text is cut into passes.
    like_plain: the share of slots filled as plain requests fill them; information, no fault.
    refused: why the model cannot decode this way; nothing else is set then.
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
        """Exact in float32; elsewhere, where kernels round differently, nearly always the same."""
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
    """A thing that was looked at. ok: None where it is a mere fact."""

    name: str
    found: str
    ok: bool | None = None


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The doctor's findings about a model.

    ok: whether schemax runs on it, as far as could be proven.
    facts: model, layers, positions, backend, tokenizer, memory; in order.
    agreements: every way to decode.
    problems: what speaks against the model, each with its remedy where there is one.
    recommended: arguments for `Extractor.from_pretrained` and `extract`.
    """

    model: str
    ok: bool
    facts: tuple[Check, ...]
    agreements: tuple[Agreement, ...] = ()
    problems: tuple[str, ...] = ()
    recommended: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"{self.model}: {'ready' if self.ok else 'NOT READY'}"
        width = max((len(fact.name) for fact in self.facts), default=0)
        for fact in self.facts:
            mark = {True: "ok", False: "!!", None: "  "}[fact.ok]
            yield f"  {mark} {fact.name:<{width}}  {fact.found}"
        for found in self.agreements:
            mark = "  " if found.refused else "ok" if found.ok else "!!"
            line = f"  {mark} {found.name:<31} {found.verdict:<13}"
            if not found.refused:
                line += (
                    f" {found.agreeing}/{found.tokens} tokens, logits within "
                    f"{found.difference:.1e} of their spread, by {found.oracle}; "
                    f"{found.like_plain:.0%} of slots like plain requests"
                )
            yield line.rstrip()
        for problem in self.problems:
            yield f"  !! {problem}"
        if self.recommended:
            settings = ", ".join(f"{key}={value!r}" for key, value in self.recommended.items())
            yield f"  use {settings}"
