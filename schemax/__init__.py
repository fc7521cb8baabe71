"""schemax: declare a schema, extract every field of many documents in parallel."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

import schemax.base.process  # noqa: F401  # before all that takes time

# isort: split
from schemax.errors import (
    ExtractionError,
    InputError,
    ModelError,
    SchemaError,
    SchemaxError,
    ServerError,
    TemplateError,
)
from schemax.report import report  # now: the package of this name would take its place

if TYPE_CHECKING:
    from schemax.attributes import attr
    from schemax.attributes.ready_made import schema_names
    from schemax.base.calibration import Calibration
    from schemax.compiler import CompiledSchema, compile_schema
    from schemax.config import DecodingConfig, register_layout
    from schemax.evaluation.calibrate import calibrated
    from schemax.evaluation.diagnosis import Diagnosis, doctor
    from schemax.extraction.declarations import load_schema, load_schemas
    from schemax.extraction.extractor import Extractor
    from schemax.extraction.one_call import extract
    from schemax.extraction.schema import AttrSchema
    from schemax.formats import OutputFormat, register_format
    from schemax.io import ray as ray
    from schemax.io.arrow import arrow_schema
    from schemax.io.dataframes import extract_frame
    from schemax.io.job import extract_files
    from schemax.io.readers import load_document, load_documents
    from schemax.io.summary import Summary
    from schemax.results import Extraction, FieldError, FieldResult, Location, Span
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
    "register_layout",
    "report",
    "schema_names",
]


_LAZY = {
    "schemax.attributes": ("attr",),
    "schemax.attributes.ready_made": ("schema_names",),
    "schemax.base.calibration": ("Calibration",),
    "schemax.compiler": ("CompiledSchema", "compile_schema"),
    "schemax.config": ("DecodingConfig", "register_layout"),
    "schemax.evaluation.calibrate": ("calibrated",),
    "schemax.evaluation.diagnosis": ("Diagnosis", "doctor"),
    "schemax.extraction.declarations": ("load_schema", "load_schemas"),
    "schemax.extraction.extractor": ("Extractor",),
    "schemax.extraction.one_call": ("extract",),
    "schemax.extraction.schema": ("AttrSchema",),
    "schemax.formats": ("OutputFormat", "register_format"),
    "schemax.io.arrow": ("arrow_schema",),
    "schemax.io.dataframes": ("extract_frame",),
    "schemax.io.job": ("extract_files",),
    "schemax.io.readers": ("load_document", "load_documents"),
    "schemax.io.summary": ("Summary",),
    "schemax.results": ("Extraction", "FieldError", "FieldResult", "Location", "Span"),
    "schemax.training.discovery": ("discover",),
}
_ROOMS = {name: room for room, names in _LAZY.items() for name in names}


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first asked for."""
    if name == "ray":
        return import_module("schemax.io.ray")
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value = getattr(import_module(_ROOMS[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
