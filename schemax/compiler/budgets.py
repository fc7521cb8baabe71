"""Token budgets: how many tokens a slot may take, delimiter included."""

from __future__ import annotations

from schemax.attributes import Attribute
from schemax.compiler.tokenizer import TextCodec
from schemax.config import DecodingConfig
from schemax.formats import OutputFormat

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


def slot_budget(
    attribute: Attribute, output_format: OutputFormat, codec: TextCodec, config: DecodingConfig
) -> int:
    """`k_max` of a slot: the attribute's own, else the config's, else from the type, else 30."""
    if attribute.k_max is not None:
        return attribute.k_max
    if config.k_max is not None:
        return config.k_max
    if attribute.members:
        each = [slot_budget(one, output_format, codec, config) for one in attribute.variants]
        return max(each)
    if attribute.kind == "string":
        return DEFAULT_K_MAX * (2 if attribute.is_list else 1)
    if attribute.kind == "enum":
        item = max(_num_tokens(output_format, codec, choice) for choice in attribute.choices)
    else:
        forms = _WIDEST[attribute.kind][: 1 if attribute.strict else 2]
        item = max(_num_tokens(output_format, codec, form) for form in forms)
    null = _num_tokens(output_format, codec, None)
    return max(item * (LIST_ITEMS if attribute.is_list else 1), null) + 1


def _num_tokens(output_format: OutputFormat, codec: TextCodec, value: str | None) -> int:
    return len(codec.encode(output_format.escape(value) + output_format.delimiter))
