"""Converts slots to JSON and back, for a process that uses slots which another has decoded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from schemax.attributes import Attribute
from schemax.results.extraction import SlotText

# None for a field that the output did not mention.
Slots = Sequence[SlotText | None]

_CHOICES: Mapping[str | None, Any] = {None: None, "true": True, "false": False}
_PLAIN = TypeAdapter(SlotText)


def slots_to_json(attributes: Sequence[Attribute], slots: Slots) -> list[Any]:
    """(N,) objects, or None. Choices are written as their texts in the schema."""
    return [
        None if slot is None else _to_json(attribute, slot)
        for attribute, slot in zip(attributes, slots, strict=True)
    ]


def slots_from_json(attributes: Sequence[Attribute], found: Any) -> tuple[SlotText | None, ...]:
    """Reads slots that `slots_to_json` wrote. Raises ValueError for anything else."""
    if not isinstance(found, list) or len(found) != len(attributes):
        raise ValueError(f"there must be a list of {len(attributes)} slots")
    return tuple(
        None if slot is None else _from_json(attribute, slot)
        for attribute, slot in zip(attributes, found, strict=True)
    )


def _to_json(attribute: Attribute, slot: SlotText) -> dict[str, Any]:
    plain = {
        one.name: value
        for one in fields(slot)
        if (value := getattr(slot, one.name)) != one.default or one.default is MISSING
    }
    if alternatives := plain.pop("alternatives"):
        texts = {choice: text for text, choice in _choices_of(attribute).items()}
        plain["alternatives"] = [
            [texts.get(choice, choice), p] for choice, p in alternatives.items()
        ]
    if slot.items is not None:
        plain["items"] = [slots_to_json(_leaves_of(attribute), item) for item in slot.items]
    if slot.repaired is not None:
        plain["repaired"] = _to_json(attribute, slot.repaired)
    return plain


def _from_json(attribute: Attribute, found: Any) -> SlotText:
    if not isinstance(found, dict):
        raise ValueError(f"a slot must be an object, not {type(found).__name__}")
    inner = {name: found[name] for name in ("alternatives", "items", "repaired") if name in found}
    plain = {name: value for name, value in found.items() if name not in inner}
    choices, leaves = _choices_of(attribute), _leaves_of(attribute)
    try:
        slot = _PLAIN.validate_python(plain)
        return replace(
            slot,
            alternatives={
                choices.get(text, text): float(share)
                for text, share in inner.get("alternatives", ())
            },
            items=tuple(slots_from_json(leaves, item) for item in inner["items"])  # type: ignore[misc]
            if "items" in inner
            else None,
            repaired=_from_json(attribute, inner["repaired"]) if "repaired" in inner else None,
        )
    except (ValidationError, TypeError, KeyError) as error:
        raise ValueError(f"a slot of {attribute.name} cannot be read: {error}") from error


def _choices_of(attribute: Attribute) -> dict[str | None, Any]:
    named = zip(attribute.choices, attribute.choice_values, strict=True)
    if attribute.kind == "boolean":
        return dict(_CHOICES)
    return {**_CHOICES, **dict(named)} if attribute.choices else {}


def _leaves_of(attribute: Attribute) -> Sequence[Attribute]:
    """The attributes of an item of a list."""
    return attribute.fields or (attribute,)
