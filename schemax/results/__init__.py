"""Results: turns the raw text of slots into values, and values into validated instances."""

from schemax.results.build import build
from schemax.results.extraction import Extraction, FieldError, FieldResult, Span, failed
from schemax.results.file_text import Location
from schemax.results.slot_text import SlotText

__all__ = [
    "Extraction",
    "FieldError",
    "FieldResult",
    "Location",
    "SlotText",
    "Span",
    "build",
    "failed",
]
