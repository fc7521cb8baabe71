"""Cascades: a model's unsure fields, and what becomes of them once the next model is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from schemax.attributes import Attribute
from schemax.compiler import CompiledSchema
from schemax.errors import ModelError
from schemax.results import Extraction, FieldError, SlotText
from schemax.results.list_results import taken_together


class Further(NamedTuple):
    """The next extractor of a cascade, and when it is asked for a field.

    least: the sureness below which it is, if it reads the document.
    read_below: the sureness of a field below which it reads the document, at most `least`.
    keeps_promised: whether values that the calibration's promise keeps are sure, whatever their
        confidence is.
    """

    extractor: Any
    least: float
    read_below: float
    keeps_promised: bool = False


class Answered(NamedTuple):
    """What earlier models have answered to a document.

    item: their extraction, without slots if they failed.
    places: of the attributes that are asked of a model again.
    prompt: what they read before the document.
    model: the name of the model that is asked.
    """

    item: Extraction[Any]
    places: tuple[int, ...]
    prompt: str
    model: str

    def completed(self, slots: Sequence[SlotText | None]) -> list[SlotText | None]:
        """The (N,) slots of all models: a new answer wherever it was asked for.

        slots: (N,) the model's; others than those asked for do not count.
        """
        known = self.item.slots or (None,) * len(slots)
        return [
            self._with_model_name(slot) if n in self.places else earlier
            for n, (slot, earlier) in enumerate(zip(slots, known, strict=True))
        ]

    def _with_model_name(self, slot: SlotText | None) -> SlotText | None:
        if slot is None:
            return None
        note = f"answered by {self.model}"
        return replace(slot, model=self.model, note=f"{slot.note}; {note}" if slot.note else note)

    def instead_of(self, item: Extraction[Any]) -> Extraction[Any]:
        """The earlier answers, in the place of an extraction that failed, with its reason."""
        errors = [FieldError(None, f"{self.model}: {error.message}") for error in item.errors]
        return replace(self.item, errors=(*self.item.errors, *errors), cause=item.cause)


def cascade_of(load: Callable[[], Any], further: Further) -> Any:
    """An extractor that has a next one; a function of a module, which can be pickled."""
    extractor = load()
    extractor.further = further
    return extractor


def sureness_marks(
    first: Any, confidence: float | None, precision: float | None, read_below: float | None
) -> tuple[float, float]:
    """The sureness below which a field is asked again, and that below which it takes the next model
    to its document, of a cascade whose first model is `first`.

    Raises ValueError for both or neither of confidence and precision, for one that is not from 0 to
    1, for a precision that the calibration of `first` does not promise, and for a `read_below` that
    is not from 0 to the other mark.
    """
    least = confidence if precision is None else precision
    if least is None or None not in (confidence, precision):
        raise ValueError("a cascade takes either a confidence or a precision")
    if not 0 <= least <= 1:
        raise ValueError(f"confidence and precision must be from 0 to 1, not {least!r}")
    promise = first.defaults.calibration.promise
    if precision is not None and (promise is None or promise.precision < precision):
        raise ValueError(
            f"the calibration of {first.name} promises no precision of {precision:g}: use "
            f"schemax.calibrated(extractor, labels, precision={precision:g}), or schemax "
            f"calibrate LABELS --precision {precision:g}"
        )
    if read_below is not None and not 0 <= read_below <= least:
        raise ValueError(
            f"read_below must be from 0 to {least:g}, below which a field is asked for again, "
            f"not {read_below!r}"
        )
    return least, least if read_below is None else read_below


def check_fit(own: CompiledSchema, name: str, later: CompiledSchema, second: str) -> None:
    """Raises ModelError for two models, with their names, that cannot share documents."""
    formats = own.format.name, later.format.name
    if formats[0] != formats[1]:
        raise ModelError(
            f"the models of a cascade write one format, but {name} writes {formats[0]} and "
            f"{second} {formats[1]}: name a format (--format)"
        )
    if "stacked" in (own.decoding.documents, later.decoding.documents):
        raise ModelError(
            "a cascade asks again for single documents, which cannot be stacked; name another "
            "decoding (--decoding isolated)"
        )


def unsure(
    item: Extraction[Any], attributes: Sequence[Attribute], null: str, further: Further
) -> tuple[int, ...]:
    """The places of the attributes that the next model is asked for.

    None if no answer is less sure than `further.read_below`, else those that are less sure than
    `further.least`. All of them if the document could not be read, and if sure answers make no
    instance. null: see `sureness`.
    """
    places = tuple(range(len(attributes)))
    if not item.slots:
        return places
    sure = sureness(item, attributes, null, further.keeps_promised)
    known = [-1.0 if share is None else share for share in sure]
    if item.ok and min(known, default=1.0) >= further.read_below:
        return ()
    return tuple(n for n in places if known[n] < further.least) or places


def sureness(
    item: Extraction[Any],
    attributes: Sequence[Attribute],
    null: str,
    keeps_promised: bool = False,
) -> list[float | None]:
    """How sure a model is of its (N,) answers: the confidence of a value, the `null_probability`
    of a null and of a value that was left out.

    None for what is unknown, and for an answer that could not be used. null: the literal, without
    surrounding space. keeps_promised: a calibration's promise decides on values, which are then
    wholly sure or unknown; a required value, of which nothing is promised, has its confidence.
    """
    faulty = [error.field for error in item.errors if error.field is not None]
    return [
        None
        if any(_is_around(attribute.name, name) for name in faulty)
        else _of_slot(slot, null, keeps_promised)
        for attribute, slot in zip(attributes, item.slots, strict=bool(item.slots))
    ]


def _of_slot(slot: SlotText | None, null: str, keeps_promised: bool) -> float | None:
    if slot is None:
        return None
    whole = taken_together(slot)
    if keeps_promised and whole.left_out:
        return None
    if whole.left_out or whole.raw.strip() == null:
        return whole.null_probability
    is_kept = keeps_promised and whole.null_probability is not None
    return 1.0 if is_kept else whole.confidence


def _is_around(name: str, inner: str) -> bool:
    """True if one of two dotted names is the other, or the beginning of the other."""
    return f"{name}.".startswith(f"{inner}.") or f"{inner}.".startswith(f"{name}.")
