"""Raw slot text -> value -> validated instance."""

from schemax.results.build import build
from schemax.results.extraction import Extraction, FieldError, FieldResult, SlotText, failed

__all__ = ["Extraction", "FieldError", "FieldResult", "SlotText", "build", "failed"]
