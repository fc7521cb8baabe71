"""Questions about documents drawn from patterns, including lists of items with several parts."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from pydantic import BaseModel, create_model

from recipes.embedded.invented import Said, ask_facet
from recipes.embedded.patterns import Asked
from recipes.embedded.prompts import Page
from recipes.embedded.questions import Habits, Question, label_of
from schemax.attributes import attr


def ask_pattern(
    asked: Asked, said: Sequence[Said | None], described: bool, habits: Habits, rng: random.Random
) -> Question:
    """Returns a question about a field; for items, a list of models with some of the parts."""
    if asked.type != "items":
        return ask_facet(asked.facet, said, described, habits, rng)
    lists: list[Sequence[Mapping[str, Said]] | None] = [
        one.values["items"] if one else None  # type: ignore[misc]
        for one in said
    ]
    every = [item for items in lists for item in items or ()]
    # A part that no item states is seldom asked for, since all nulls of items are learnt.
    stated = [key for key in asked.parts if any(key in item for item in every)]
    known = stated if len(stated) > 1 and rng.random() < 0.7 else [*asked.parts]
    keys = rng.sample(known, rng.randrange(min(2, len(known)), len(known) + 1))
    parts = [
        ask_facet(asked.parts[key].facet, [item.get(key) for item in every], described, habits, rng)
        for key in keys
    ]
    rows = iter([*zip(*(part.values for part in parts), strict=True)])
    facet = asked.facet
    return Question(
        label=label_of(rng.choice(facet.names), described, habits, rng),
        annotation=list[_model(parts)],  # type: ignore[misc]
        values=[None if items is None else [next(rows) for _ in items] for items in lists],  # type: ignore[misc]
        learnt=[True] * len(said),
        description=rng.choice(facet.descriptions) if described else None,
    )


def _model(parts: Sequence[Question]) -> type[BaseModel]:
    fields: dict[str, Any] = {
        f"part{place}": (part.annotation, attr(part.description, title=part.label))
        for place, part in enumerate(parts)
    }
    return create_model("Item", **fields)


def without_items(page: Page) -> Page:
    """Returns the page without lists of models, which few layouts support."""
    kept = [question for question in page.questions if not _is_nested(question)]
    return replace(page, questions=kept)


def _is_nested(question: Question) -> bool:
    return any(
        isinstance(of, type) and issubclass(of, BaseModel) for of in get_args(question.annotation)
    )
