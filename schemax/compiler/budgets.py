"""Token budgets: how many tokens a slot may take, delimiter included."""

from __future__ import annotations

from collections.abc import Sequence

from schemax.attributes import Attribute
from schemax.compiler.slot_specs import Compiling

DEFAULT_K_MAX = 30

# The longest values worth waiting for, per type; anything longer is a model gone astray. As
# literals, and as people write them.
_WIDEST = {
    "integer": ("-1234567890123", "-1,234,567,890,123 square metres"),
    "number": ("-1234567890.12345", "-1,234,567,890.12345 square metres"),
    "boolean": ("false", "FALSE"),
    "date": ('"2026-12-31"', "Wednesday, the 31st of December 2026"),
    "datetime": (
        '"2026-12-31T23:59:59.123456+00:00"',
        "Wednesday, the 31st of December 2026, 11:59:59 p.m. UTC",
    ),
}
LIST_ITEMS = 8
"""Of a list that is written in one piece, so many items are worth waiting for."""


def slot_budget(attribute: Attribute, compiling: Compiling) -> int:
    """`k_max` of a slot: the attribute's own, else the config's, else from the type, else 30."""
    named = attribute.k_max or compiling.config.k_max
    if named is not None:
        return named
    if attribute.members:
        return max(slot_budget(one, compiling) for one in attribute.variants)
    if attribute.kind == "string":
        return DEFAULT_K_MAX * (2 if attribute.is_list else 1)
    forms: Sequence[str] = attribute.choices
    if attribute.kind != "enum":
        forms = _WIDEST[attribute.kind][: 1 if attribute.strict else 2]
    item = max(map(compiling.num_tokens, forms))
    null = compiling.num_tokens(None)
    return max(item * (LIST_ITEMS if attribute.is_list else 1), null) + 1
