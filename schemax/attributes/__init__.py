"""Attributes of declarations: from annotations, constraints, settings, JSON Schema documents.

The package knows no prompts, formats or models, and never imports torch.
"""

from schemax.attributes.attribute import Attribute
from schemax.attributes.attributes import compile_attributes
from schemax.attributes.classes import asked_fields, fields_of
from schemax.attributes.settings import SchemaSettings, attr, settings_of, words_of

__all__ = [
    "Attribute",
    "SchemaSettings",
    "asked_fields",
    "attr",
    "compile_attributes",
    "fields_of",
    "settings_of",
    "words_of",
]
