"""schemax: declare a schema, extract every field of many documents in parallel."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import schemax.base.process  # noqa: F401  # before all that takes time

# isort: split
from schemax.attributes import attr
from schemax.attributes.ready_made import schema_names
from schemax.base.calibration import Calibration
from schemax.compiler import CompiledSchema, compile_schema
from schemax.config import DecodingConfig
from schemax.errors import (
    ExtractionError,
    InputError,
    ModelError,
    SchemaError,
    SchemaxError,
    ServerError,
    TemplateError,
)
from schemax.evaluation.diagnosis import Diagnosis, doctor
from schemax.extraction.declarations import load_schema, load_schemas
from schemax.extraction.extractor import Extractor
from schemax.extraction.one_call import extract
from schemax.extraction.schema import AttrSchema
from schemax.formats import OutputFormat, register_format
from schemax.report import report
from schemax.results import Extraction, FieldError, FieldResult, Location, Span

if TYPE_CHECKING:
    from schemax.evaluation.calibrate import calibrated
    from schemax.io import ray as ray
    from schemax.io.arrow import arrow_schema
    from schemax.io.dataframes import extract_frame
    from schemax.io.job import extract_files
    from schemax.io.readers import load_document, load_documents
    from schemax.io.summary import Summary
    from schemax.training.discovery import discover

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
    "Location",
    "ModelError",
    "OutputFormat",
    "SchemaError",
    "SchemaxError",
    "ServerError",
    "Span",
    "Summary",
    "TemplateError",
    "arrow_schema",
    "attr",
    "calibrated",
    "compile_schema",
    "discover",
    "doctor",
    "extract",
    "extract_files",
    "extract_frame",
    "load_document",
    "load_documents",
    "load_schema",
    "load_schemas",
    "register_format",
    "report",
    "schema_names",
]


_LAZY = {
    "Summary": "schemax.io.summary",
    "arrow_schema": "schemax.io.arrow",
    "calibrated": "schemax.evaluation.calibrate",
    "discover": "schemax.training.discovery",
    "extract_files": "schemax.io.job",
    "extract_frame": "schemax.io.dataframes",
    "load_document": "schemax.io.readers",
    "load_documents": "schemax.io.readers",
}


def __getattr__(name: str) -> Any:
    """Imports what only files, tables, clusters and discovery need when it is asked for."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    if name == "ray":
        return import_module("schemax.io.ray")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
