"""Language models as judges of values without annotations.

The five classes and the scores are from the HPD paper (arXiv 2604.26209, appendix E). A judge
receives one value at a time, or, as in the paper, all values of a product, which it explains first.
A judge is a function from a prompt to a reply (one value at a time), or a model that fills the
schema `Judgement` or `product_judgement`.
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
from schemax.base.resources import resource_dir
from schemax.compiler.prompt import ShownAttribute, ShownDocument
from schemax.evaluation.examples import Example
from schemax.evaluation.scores import Outcome, Scores, is_null
from schemax.extraction.schema import AttrSchema

JudgeForm = Literal["value", "product"]
"""The form of a judge: a value at a time, or all values of a product behind an explanation."""
Verdict = Literal["correct", "incorrect", "missing", "correct null", "hallucination"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

TEMPLATE = resource_dir("templates") / "evaluation" / "judge.jinja"
"""The prompt about a value: an extraction template whose documents are cases."""


PRODUCT_TEMPLATE = TEMPLATE.with_name("judge_product.jinja")
"""The prompt about a product (figure 11): its documents are products with all their values."""


class Judgement(AttrSchema, category="judgement", template=TEMPLATE):
    """The schema that a judge fills for a case; the longest class bounds its field."""

    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Case:
    """A value to judge. product: the product's place. text: product, attribute, value, as JSON."""

    product: int
    attribute: str
    text: str


@dataclass(frozen=True, slots=True)
class JudgeScore:
    """Counts of verdicts by class, and the scores of the paper's appendix E.

    unparseable: replies that do not name exactly one class. Scores leave them out; report this
    number with every score.
    """

    correct: int = 0
    incorrect: int = 0
    missing: int = 0
    correct_null: int = 0
    hallucination: int = 0
    unparseable: int = 0

    @property
    def precision(self) -> float:
        """LLM-P = (C + CN) / (C + CN + H + I); 0 if undefined."""
        right = self.correct + self.correct_null
        return right / max(1, right + self.hallucination + self.incorrect)

    @property
    def recall(self) -> float:
        """LLM-R = (C + CN) / (C + CN + M + I); 0 if undefined."""
        right = self.correct + self.correct_null
        return right / max(1, right + self.missing + self.incorrect)

    @property
    def f1(self) -> float:
        """LLM-F1: the harmonic mean of precision and recall."""
        total = self.precision + self.recall
        return 2 * self.precision * self.recall / total if total else 0.0


def cases_of(examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]) -> list[Case]:
    """Returns a case per predicted attribute and product, null included, labelled or not.

    predictions: attribute -> value or None, one mapping per example.
    """
    cases = []
    for place, (example, predicted) in enumerate(zip(examples, predictions, strict=True)):
        for name, value in predicted.items():
            shown = {"attribute": name, "value": None if is_null(value) else value}
            whole = {"category": example.category, **shown, "product": example.whole_text}
            cases.append(Case(place, name, _as_line(whole)))
    return cases


def product_cases(
    examples: Sequence[Example], predictions: Sequence[Mapping[str, Any]]
) -> list[dict[str, str]]:
    """Returns a record per product, for a judge of products: "category", and the case as "text"."""
    cases = []
    for example, predicted in zip(examples, predictions, strict=True):
        values = {name: None if is_null(value) else value for name, value in predicted.items()}
        shown = {"product": example.whole_text, "extracted values": values}
        text = _as_line({"category": example.category, **shown})
        cases.append({"category": example.category, "text": text})
    return cases


def product_judgement(names: Sequence[str]) -> type[BaseModel]:
    """Returns the schema that a judge fills: an explanation, then a verdict per attribute.

    The fields behind the explanation are the verdicts, in the order of the names; None names no
    class. Use autoregressive decoding, so that the verdicts see the explanation.
    """
    title = "explanation of all" if "explanation" in names else "explanation"
    length = _EXPLANATION_TOKENS * len(names)
    declared: dict[str, Any] = {"explanation": (str | None, attr(title=title, k_max=length))}
    declared |= {f"verdict_{n}": (Verdict | None, attr(title=a)) for n, a in enumerate(names)}
    settings = {"category": "judgement", "template": PRODUCT_TEMPLATE}
    return create_model("Judgement", __base__=AttrSchema, __cls_kwargs__=settings, **declared)


def agreement(
    cases: Sequence[Case], verdicts: Sequence[Verdict | None], scores: Scores
) -> dict[str, float]:
    """Returns the agreement of verdicts with labels. scores: of the predictions in the cases.

    pairs: annotated pairs with a verdict.
    same_class: pairs whose verdict is the label's class.
    same_side: pairs that verdict and label agree to be right, or wrong.
    kappa: Cohen's kappa of right and wrong; 0 if undefined.
    """
    by_label = {(p.product, p.attribute): p.outcome for p in scores.pairs if p.annotated}
    pairs = [
        (verdict, _CLASS_OF[by_label[case.product, case.attribute]])
        for case, verdict in zip(cases, verdicts, strict=True)
        if verdict is not None and (case.product, case.attribute) in by_label
    ]
    sides = [(verdict in _RIGHT, label in _RIGHT) for verdict, label in pairs]
    same = sum(verdict == label for verdict, label in sides)
    count = max(1, len(sides))
    judged, labelled = (sum(side[n] for side in sides) / count for n in (0, 1))
    chance = judged * labelled + (1 - judged) * (1 - labelled)
    return {
        "pairs": len(pairs),
        "same_class": sum(verdict == label for verdict, label in pairs),
        "same_side": same,
        "kappa": (same / count - chance) / (1 - chance) if chance < 1 else 0.0,
    }


def ask(
    judge: Callable[[str], str], cases: Sequence[Case], template: jinja2.Template
) -> list[Verdict | None]:
    """Asks a judge for a verdict on every case; None for an unparseable reply.

    judge: a function from a whole prompt to the model's reply; its errors are passed on.
    template: `TEMPLATE`, or another template with the variables of extraction prompts.
    """
    return [read_verdict(judge(prompt_of(case, template))) for case in cases]


def prompt_of(case: Case, template: jinja2.Template) -> str:
    """Returns the prompt about a case, as a single message."""
    return template.render(
        category="judgement",
        attributes=[ShownAttribute("verdict", None, "one of the choices", (), VERDICTS, False)],
        documents=[ShownDocument(case.text, None)],
        format="json",
        keys_given=False,
        chat=True,
    )


_CLASSES = "|".join(sorted((v.replace(" ", r"[\s_-]+") for v in VERDICTS), key=len, reverse=True))
# A class alone on the last line, bare or in a JSON object: a sentence may deny the class.
_LAST = re.compile(rf"(?:\A|\n)\W*(?:verdict\W+)?({_CLASSES})\W*\Z", re.IGNORECASE)


def read_verdict(reply: str) -> Verdict | None:
    """Returns the class that a reply ends with, on a line of its own or under "verdict" in JSON.

    An explanation may precede the class. Returns None for any other reply.
    """
    match = _LAST.search(reply)
    if match is None:
        return None
    words = " ".join(re.split(r"[\s_-]+", match[1].lower()))
    return next(verdict for verdict in VERDICTS if verdict == words)


def score_verdicts(verdicts: Iterable[Verdict | None]) -> JudgeScore:
    """Counts verdicts; None counts as unparseable."""
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


def _as_line(case: Mapping[str, Any]) -> str:
    """Returns a case as a line of JSON, so that no text can pass for another part of the case.

    "<" is escaped, so that a text can spell neither the prompt's tags nor special tokens.
    """
    return json.dumps(case, ensure_ascii=False).replace("<", "\\u003c")
