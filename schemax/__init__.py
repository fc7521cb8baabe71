"""schemax: declare a schema, extract every field of many documents in parallel."""

from schemax.calibration import Calibration
from schemax.catalog import load_schema, schema_names
from schemax.compiler import CompiledSchema, compile_schema
from schemax.config import DecodingConfig
from schemax.diagnosis import Diagnosis, doctor
from schemax.errors import (
    ExtractionError,
    InputError,
    ModelError,
    SchemaError,
    SchemaxError,
    TemplateError,
)
from schemax.extractor import Extractor, extract
from schemax.formats import OutputFormat, register_format
from schemax.report import report
from schemax.results import Extraction, FieldError, FieldResult, Span
from schemax.schema import AttrSchema, attr

__all__ = [
    "AttrSchema",
    "Calibration",
    "CompiledSchema",
    "DecodingConfig",
    "Diagnosis",
    "Extraction",
    "ExtractionError",
    "Extractor",
    "FieldError",
    "FieldResult",
    "InputError",
    "ModelError",
    "OutputFormat",
    "SchemaError",
    "SchemaxError",
    "Span",
    "TemplateError",
    "attr",
    "compile_schema",
    "doctor",
    "extract",
    "load_schema",
    "register_format",
    "report",
    "schema_names",
]
