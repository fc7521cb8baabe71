"""A language model as the judge of values without annotations.

The five classes and the scores are those of the HPD paper (arXiv 2604.26209, appendix E). A judge
is asked about one value at a time, or, as there, about all of a product after an explanation. It
may be any function from a prompt to a reply (one value at a time), or a model that fills
`Judgement`, or `product_judgement`, as it fills every other schema.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import jinja2
from pydantic import BaseModel, create_model

from schemax.attributes import attr
from schemax.compiler.prompt import ShownAttribute, ShownDocument
from schemax.evaluation.examples import Example
from schemax.evaluation.pairs import Outcome, is_null
from schemax.evaluation.scores import Scores
from schemax.resources import resource_dir
from schemax.schema import AttrSchema

JudgeForm = Literal["value", "product"]
"""One value at a time, or all of a product at once, an explanation first (figure 11)."""
Verdict = Literal["correct", "incorrect", "missing", "correct null", "hallucination"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

TEMPLATE = resource_dir("templates") / "evaluation" / "judge.jinja"
"""The prompt: a template like those for extraction, whose documents are cases."""


PRODUCT_TEMPLATE = TEMPLATE.with_name("judge_product.jinja")
"""The prompt of figure 11, whose documents are products with all of their values."""


class Judgement(AttrSchema, category="judgement", template=TEMPLATE):
    """The schema that a judge fills for a case; its field is bounded by the longest class."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Case:
    """A value to be judged: the attribute of the product at that place, as a JSON object."""

    product: int
    attribute: str
    text: str


@dataclass(frozen=True, slots=True)
class JudgeScore:
    """Counts of verdicts by class, and the scores of the paper's appendix E.

    unparseable: replies that name no class, or more than one. They count in no score, so read a
    score beside this number.
    """

    correct: int = 0
    incorrect: int = 0
    missing: int = 0
    correct_null: int = 0
    hallucination: int = 0
    unparseable: int = 0

    @property
    def precision(self) -> float:
        """LLM-P = (C + CN) / (C + CN + H + I); 0 where that is undefined."""
        right = self.correct + self.correct_null
        return right / max(1, right + self.hallucination + self.incorrect)

    @property
    def recall(self) -> float:
        """LLM-R = (C + CN) / (C + CN + M + I); 0 where that is undefined."""
        right = self.correct + self.correct_null
        return right / max(1, right + self.missing + self.incorrect)

    @property
    def f1(self) -> float:
        """LLM-F1: the harmonic mean of the two."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def cases_of(examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]) -> list[Case]:
    """A case per predicted attribute of every product, null included; labels play no part.

    predictions: attribute -> value or None, one mapping per example.
    """
    return [
        Case(place, name, _case_text(example, name, value))
        for place, (example, predicted) in enumerate(zip(examples, predictions, strict=True))
        for name, value in predicted.items()
    ]


def product_cases(
    examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]
) -> list[dict[str, str]]:
    """A record per product for a judge of whole products: "category", and the case as "text"."""
    return [
        {"category": example.category, "text": _product_text(example, predicted)}
        for example, predicted in zip(examples, predictions, strict=True)
    ]


def product_judgement(names: Sequence[str]) -> type[BaseModel]:
    """The schema that a judge fills for a product: an explanation, then a verdict per attribute.

    Read the verdicts off the fields behind the first one, in the order of the names; None names no
    class. Fill it with autoregressive decoding, or the verdicts do not see the explanation.
    """
    title = "explanation of all" if "explanation" in names else "explanation"
    length = _EXPLANATION_TOKENS * len(names)
    declared: dict[str, Any] = {"explanation": (str | None, attr(title=title, k_max=length))}
    declared |= {f"verdict_{n}": (Verdict | None, attr(title=a)) for n, a in enumerate(names)}
    settings = {"category": "judgement", "template": PRODUCT_TEMPLATE}
    return create_model("Judgement", __base__=AttrSchema, __cls_kwargs__=settings, **declared)


@dataclass(frozen=True, slots=True)
class LabelAgreement:
    """Verdicts beside the labels of annotated pairs.

    pairs: with a verdict. same_class: of them, whose class is the one that the label gives; right
    or wrong alone: same_side. kappa: Cohen's, of right or wrong; 0 where it is undefined.
    """

    pairs: int
    same_class: int
    same_side: int
    kappa: float


def agreement(
    cases: Sequence[Case], verdicts: Sequence[Verdict | None], scores: Scores
) -> LabelAgreement:
    """scores: of the predictions that the cases are about."""
    by_label = {(p.product, p.attribute): p.outcome for p in scores.pairs if p.annotated}
    found = [
        (verdict, _CLASS_OF[by_label[case.product, case.attribute]])
        for case, verdict in zip(cases, verdicts, strict=True)
        if verdict is not None and (case.product, case.attribute) in by_label
    ]
    sides = [(verdict in _RIGHT, label in _RIGHT) for verdict, label in found]
    same = sum(one == other for one, other in sides)
    count = max(1, len(sides))
    judged, labelled = (sum(side[n] for side in sides) / count for n in (0, 1))
    chance = judged * labelled + (1 - judged) * (1 - labelled)
    return LabelAgreement(
        pairs=len(found),
        same_class=sum(verdict == label for verdict, label in found),
        same_side=same,
        kappa=(same / count - chance) / (1 - chance) if chance < 1 else 0.0,
    )


def ask(
    judge: Callable[[str], str], cases: Sequence[Case], template: jinja2.Template
) -> list[Verdict | None]:
    """The verdict on every case, None where the reply is unparseable.

    judge: takes a whole prompt, gives the model's reply; what it raises is passed on.
    template: of `TEMPLATE`, or another one that takes the variables of extraction prompts.
    """
    return [read_verdict(judge(prompt_of(case, template))) for case in cases]


def prompt_of(case: Case, template: jinja2.Template) -> str:
    """The prompt about one case, as one message."""
    return template.render(
        category="judgement",
        attributes=[ShownAttribute("verdict", None, "one of the choices", (), VERDICTS, False)],
        documents=[ShownDocument(case.text, None)],
        format="json",
        keys_given=False,
        chat=True,
    )


_CLASSES = "|".join(sorted((v.replace(" ", r"[\s_-]+") for v in VERDICTS), key=len, reverse=True))
# Alone on the last line, bare or in a JSON object: within a sentence it may well be denied.
_LAST = re.compile(rf"(?:\A|\n)\W*(?:verdict\W+)?({_CLASSES})\W*\Z", re.IGNORECASE)


def read_verdict(reply: str) -> Verdict | None:
    """The class that a reply ends with, on a line of its own or under "verdict" in JSON.

    Explanations may stand before it. None for any other reply.
    """
    found = _LAST.search(reply)
    if found is None:
        return None
    words = " ".join(re.split(r"[\s_-]+", found[1].lower()))
    return next(verdict for verdict in VERDICTS if verdict == words)


def score_verdicts(verdicts: Iterable[Verdict | None]) -> JudgeScore:
    """Counts verdicts; None is an unparseable one."""
    names = ("unparseable" if v is None else v.replace(" ", "_") for v in verdicts)
    return JudgeScore(**Counter(names))


_EXPLANATION_TOKENS = 40  # for each attribute
_CLASS_OF: Mapping[Outcome, Verdict] = {
    "nn": "correct null",
    "nv": "hallucination",
    "vn": "missing",
    "vc": "correct",
    "vw": "incorrect",
}
_RIGHT = ("correct", "correct null")


def _case_text(example: Example, attribute: str, value: Any) -> str:
    shown = {"attribute": attribute, "value": None if is_null(value) else value}
    return _as_line({"category": example.category, **shown, "product": example.whole_text})


def _product_text(example: Example, predicted: Mapping[str, Any]) -> str:
    values = {name: None if is_null(value) else value for name, value in predicted.items()}
    shown = {"product": example.whole_text, "extracted values": values}
    return _as_line({"category": example.category, **shown})


def _as_line(case: Mapping[str, Any]) -> str:
    """A line of JSON, so that no text can end its string and pass for another part of the case.

    "<" is written as JSON's escape of it: neither the prompt's tags nor a chat template's special
    tokens can be written without.
    """
    return json.dumps(case, ensure_ascii=False).replace("<", "\\u003c")
