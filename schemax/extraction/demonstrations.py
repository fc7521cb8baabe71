"""Default demonstrations of schemas.

A model that schemax did not train learns more of a few documents with their values than of any
instruction, and reads them once for all documents of a category.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from schemax.attributes import Attribute, compile_attributes, settings_of
from schemax.attributes.examples import FewShotExample, SomeValues
from schemax.attributes.ready_made import demonstrations_of, match_of, words_of
from schemax.compiler.prompt import TemplateLike, template_source
from schemax.config import DecodingConfig


def usual_demonstrations(
    schema: type[Any], template: TemplateLike, config: DecodingConfig
) -> Sequence[FewShotExample]:
    """The schema's own demonstrations, else those of the ready-made schema of its category.

    Of the latter, only fields that both declare are shown. Returns () if these are fewer than half,
    or not all while the model writes the keys; and if the template cannot show examples, or the
    decoding cannot show lists of nested models.
    """
    attributes = compile_attributes(schema)
    cannot_show = any(one.fields for one in attributes) and not config.is_branched
    if cannot_show or not _shows_examples(template):
        return ()
    settings = settings_of(schema)
    if settings.demonstrations is not None:
        return settings.demonstrations
    match = match_of(settings.category)
    if match is None:
        return ()
    shown = [
        (text, SomeValues(_values_of(attributes, text, values)))
        for text, values in demonstrations_of(match.schema)
    ]
    if config.layout == "autoregressive":
        whole = all(len(some.values) == len(attributes) for _, some in shown)
        return shown if whole else ()
    known = {name for _, some in shown for name in some.values}
    return shown if 2 * len(known) >= len(attributes) else ()


def _shows_examples(template: TemplateLike) -> bool:
    return isinstance(template, str | Path) and "examples" in template_source(template)


def _values_of(
    attributes: Sequence[Attribute], text: str, values: Mapping[str, Any]
) -> dict[str, Any]:
    """The values, by the names of the attributes, of those that mean the same."""
    by_words = {words_of(name): value for name, value in values.items()}
    found = {}
    for attribute in attributes:
        for name in (attribute.name, attribute.labels[-1]):
            value = by_words.get(words_of(name), ())
            if _fits(attribute, value, text):
                found[attribute.name] = value
    return found


def _fits(attribute: Attribute, value: Any, text: str) -> bool:
    """True if a value may stand for an attribute; () may not."""
    if attribute.fields or attribute.members or attribute.positions:
        return False
    if attribute.is_list:
        items = value if isinstance(value, list) else [()]
        return value is None or all(_is_one(attribute, item, text) for item in items)
    return (value is None and attribute.nullable) or _is_one(attribute, value, text)


def _is_one(attribute: Attribute, value: Any, text: str) -> bool:
    if attribute.choices:
        return value in attribute.choices
    if attribute.is_text:
        return isinstance(value, str) and value in text
    if attribute.kind == "boolean":
        return isinstance(value, bool)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    # In the unit of the text, which the field's unit is read from.
    return is_number and attribute.is_number and f"{value:g}" in text
