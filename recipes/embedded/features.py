"""Questions of yes or no: whether a text says that a product has a feature, for any goods.

Few data sets state absent features. So features are written into titles, or denied there.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from recipes.embedded.questions import Habits, Question, label_of

_FEATURES = (
    *("waterproof", "wireless", "organic", "vegan", "rechargeable", "foldable", "gluten free"),
    *("handmade", "adjustable", "washable", "scented", "magnetic", "portable", "recyclable"),
    *("biodegradable", "reusable", "limited edition", "fragrance free", "sugar free", "non stick"),
    *("breathable", "insulated", "stackable", "padded", "personalized", "microwave safe", "solar"),
    *("kosher", "fair trade", "hypoallergenic", "unscented", "battery operated", "vintage"),
    *("decaf", "refillable", "leakproof", "lightweight", "heavy duty", "signed", "imported"),
)
_YES = ("Whether it is {}", "{} or not", "Is it {}?", "true if {}")


def ask_feature(
    texts: Sequence[str], described: bool, habits: Habits, rng: random.Random
) -> tuple[list[str], Question]:
    """Returns the texts, some now affirming or denying a feature, and the question about it."""
    feature = rng.choice(_FEATURES)
    changed, values = [], []
    for text in texts:
        here = feature in text.lower().replace("-", " ")
        chance = rng.random()
        if here or chance > 0.55:
            changed.append(text)
            values.append(True if here else None)
        elif chance > 0.15:
            changed.append(_with(text, rng.choice((feature, feature.title())), rng))
            values.append(True)
        else:
            denial = rng.choice(("not {}", "non-{}", "Not {}", "Non-{}", "no {}", "(not {})"))
            changed.append(_with(text, denial.format(feature), rng))
            values.append(False)
    name = rng.choice(
        (feature, feature.title(), f"is {feature}", f"is_{feature.replace(' ', '_')}")
    )
    return changed, Question(
        label=label_of(name, False, habits, rng),
        annotation=bool | None,
        values=values,
        learnt=[True] * len(texts),
        description=rng.choice(_YES).format(feature) if described else None,
    )


def _with(text: str, words: str, rng: random.Random) -> str:
    """Returns the text with words added at either end, where they split no value."""
    if rng.random() < 0.3:
        return f"{words} {text}"
    return f"{text}{rng.choice((', ', ' - ', ' ', ' | '))}{words}"
