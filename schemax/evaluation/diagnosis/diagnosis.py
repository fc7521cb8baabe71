"""`Diagnosis`: what the doctor says of a model, as plain data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Agreement:
    """The agreement of a way to decode with its oracle, on the model's own weights.

    oracle: "plain requests": transformers' own forward pass over each request by itself, with its
        own mask and no cache. "one pass": the same prompt with its values, in one pass under the
        same rule, without cache, batch or pruning; for layouts that no plain request equals.
    tokens, agreeing: greedy tokens compared, and those equal to the oracle's.
    difference: the largest between two log-probabilities of a written token, relative to the
        spread of the logits.
    exact: True if all tokens agree and log-probabilities differ by rounding only; None outside
        float32, and for models whose logits depend on the number of passes.
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
                    f" {agreement.agreeing}/{agreement.tokens} tokens, log-probabilities within "
                    f"{agreement.difference:.1e} of the logits' spread, by {agreement.oracle}; "
                    f"{agreement.like_plain:.0%} of slots like plain requests"
                )
            yield line.rstrip()
        for problem in self.problems:
            yield f"  !! {problem}"
        if self.recommended:
            settings = ", ".join(f"{key}={value!r}" for key, value in self.recommended.items())
            yield f"  use {settings}"
