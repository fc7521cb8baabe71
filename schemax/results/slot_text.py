"""`SlotText`: the text that was decoded for a slot, and its JSON for other processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import TypeAdapter, ValidationError

from schemax.attributes import Attribute
from schemax.tokens import FinishReason


@dataclass(frozen=True, slots=True)
class SlotText:
    """The text that was decoded for a slot; `FieldResult` has its facts under the same names.

    raw: the text without delimiter.
    tokens: the number of decoded tokens, delimiter included.
    complete: True if the stop rule was met, so that the value cannot be cut off.
    confidence: the probability of the value under the model. For a typed value, among all values
        allowed; for free text, the geometric mean over its tokens. For a calibrated model, the
        frequency with which such values are right (schemax.base.calibration), except for null. None
        where the model wrote keys and values itself, and where a server tells no probabilities.
    probability: of the whole value: the product over its tokens, where `confidence` is a mean.
    null_probability: the probability that there is no value; None where a value is required.
    legal_probability: the part of the model's probability on texts that the field's type allows, an
        upper bound of `confidence` and `probability`. A low one shows that the model preferred
        another text.
    legal_at_start: the same at the first token alone. None where the model wrote keys and values
        itself.
    alternatives: for an Enum, Literal or bool, every choice and its probability among the choices,
        None for null. Empty for other fields.
    left_out: True if the text is too improbable (the decoding's `min_probability`) to count as a
        value: `raw` and `confidence` refer to the text, the field has its value without a text.
    items: for a list in two phases, whose raw text is the count, the slots of every item.
    repaired: the second answer, if the value was asked for again, until either answer is taken.
    refused: the first text that was refused, and the reason.
    note: a note on the outcome.
    is_loop: True if the text ends in a repetition of a few tokens.
    model: the name of the later model of a cascade that wrote the text; None for the first model.
    """

    raw: str
    finish_reason: FinishReason
    tokens: int
    complete: bool
    confidence: float | None = None
    probability: float | None = None
    null_probability: float | None = None
    legal_probability: float | None = None
    legal_at_start: float | None = None
    alternatives: Mapping[Any, float] = field(default_factory=dict)
    left_out: bool = False
    items: tuple[tuple[SlotText, ...], ...] | None = None
    repaired: SlotText | None = None
    refused: tuple[str, str] | None = None
    note: str | None = None
    is_loop: bool = False
    model: str | None = None

    @property
    def is_cut(self) -> bool:
        """True if the value exceeded its token budget."""
        return self.finish_reason == "length" and not self.complete


Slots = Sequence[SlotText | None]
"""(N,) slots by attribute; None for a field that the output did not mention."""

_CHOICES: Mapping[str | None, Any] = {None: None, "true": True, "false": False}
_INNER = {"alternatives", "items", "repaired"}
_PLAIN = TypeAdapter(SlotText)


def slots_to_json(attributes: Sequence[Attribute], slots: Slots) -> list[Any]:
    """(N,) objects, or None. Choices are written as their texts in the schema."""
    return [
        None if slot is None else _to_json(attribute, slot)
        for attribute, slot in zip(attributes, slots, strict=True)
    ]


def slots_from_json(attributes: Sequence[Attribute], rows: Any) -> tuple[SlotText | None, ...]:
    """Reads slots that `slots_to_json` wrote. Raises ValueError for anything else."""
    if not isinstance(rows, list) or len(rows) != len(attributes):
        raise ValueError(f"there must be a list of {len(attributes)} slots")
    return tuple(
        None if row is None else _from_json(attribute, row)
        for attribute, row in zip(attributes, rows, strict=True)
    )


def _to_json(attribute: Attribute, slot: SlotText) -> dict[str, Any]:
    row: dict[str, Any] = _PLAIN.dump_python(slot, exclude_defaults=True, exclude=_INNER)
    if slot.alternatives:
        texts = {choice: text for text, choice in _choices_of(attribute).items()}
        pairs = slot.alternatives.items()
        row["alternatives"] = [[texts.get(choice, choice), p] for choice, p in pairs]
    if slot.items is not None:
        row["items"] = [slots_to_json(_leaves_of(attribute), item) for item in slot.items]
    if slot.repaired is not None:
        row["repaired"] = _to_json(attribute, slot.repaired)
    return row


def _from_json(attribute: Attribute, row: Any) -> SlotText:
    if not isinstance(row, dict):
        raise ValueError(f"a slot must be an object, not {type(row).__name__}")
    choices, leaves = _choices_of(attribute), _leaves_of(attribute)
    inner: dict[str, Any] = {}
    try:
        if pairs := row.get("alternatives"):
            inner["alternatives"] = {choices.get(text, text): float(p) for text, p in pairs}
        if "items" in row:
            inner["items"] = tuple(slots_from_json(leaves, item) for item in row["items"])
        if "repaired" in row:
            inner["repaired"] = _from_json(attribute, row["repaired"])
        plain = {name: value for name, value in row.items() if name not in _INNER}
        return replace(_PLAIN.validate_python(plain), **inner)
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
