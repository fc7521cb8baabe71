"""Cascades: a model's unsure fields, and what becomes of them once the next model is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from schemax.attributes import Attribute
from schemax.results import Extraction, FieldError, SlotText
from schemax.results.list_results import taken_together


class Answered(NamedTuple):
    """What earlier models have answered to a document.

    item: their extraction, without slots if they failed.
    asked: the places of attributes that are asked of a model again.
    prompt: what they read before the document.
    model: the name of the model that is asked.
    """

    item: Extraction[Any]
    asked: tuple[int, ...]
    prompt: str
    model: str

    def completed(self, slots: Sequence[SlotText | None]) -> list[SlotText | None]:
        """The (N,) slots of all models: a new answer wherever it was asked for.

        slots: (N,) the model's; others than those asked for do not count.
        """
        known = self.item.slots or (None,) * len(slots)
        return [
            self._named(slot) if n in self.asked else earlier
            for n, (slot, earlier) in enumerate(zip(slots, known, strict=True))
        ]

    def _named(self, slot: SlotText | None) -> SlotText | None:
        if slot is None:
            return None
        note = f"answered by {self.model}"
        return replace(slot, model=self.model, note=f"{slot.note}; {note}" if slot.note else note)

    def instead_of(self, item: Extraction[Any]) -> Extraction[Any]:
        """The earlier answers, in the place of an extraction that failed, with its reason."""
        errors = [FieldError(None, f"{self.model}: {error.message}") for error in item.errors]
        return replace(self.item, errors=(*self.item.errors, *errors), is_gone=item.is_gone)


def unsure(
    item: Extraction[Any], attributes: Sequence[Attribute], null: str, least: float
) -> tuple[int, ...]:
    """The places of the attributes that the next model is asked for.

    Those whose answer is less sure than `least`. All of them if the document could not be read, and
    if sure answers make no instance. null: see `sureness`.
    """
    places = tuple(range(len(attributes)))
    sure = sureness(item, attributes, null)
    chosen = tuple(
        n for n, share in zip(places, sure, strict=False) if share is None or share < least
    )
    return chosen if item.slots and (chosen or item.ok) else places


def sureness(
    item: Extraction[Any], attributes: Sequence[Attribute], null: str
) -> list[float | None]:
    """How sure a model is of its (N,) answers: the confidence of a value, the `null_probability`
    of a null and of a value that was left out.

    None for what is unknown, and for an answer that could not be used. null: the literal, without
    surrounding space.
    """
    faulty = [error.field for error in item.errors if error.field is not None]
    return [
        None if any(_is_around(attribute.name, name) for name in faulty) else _of_slot(slot, null)
        for attribute, slot in zip(attributes, item.slots, strict=bool(item.slots))
    ]


def _of_slot(slot: SlotText | None, null: str) -> float | None:
    if slot is None:
        return None
    whole = taken_together(slot)
    is_null = whole.left_out or whole.raw.strip() == null
    return whole.null_probability if is_null else whole.confidence


def _is_around(name: str, other: str) -> bool:
    """True if one of two dotted names is the other, or the beginning of the other."""
    return f"{name}.".startswith(f"{other}.") or f"{other}.".startswith(f"{name}.")
