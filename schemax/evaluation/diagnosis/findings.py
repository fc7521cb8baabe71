"""Findings: lists all faults of declarations at once."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemax.attributes.attributes import refusals_of
from schemax.attributes.json_classes import refusals_of_document
from schemax.attributes.ready_made import schema_names
from schemax.compiler import compile_schema
from schemax.errors import InputError, SchemaError, TemplateError
from schemax.evaluation.diagnosis.unloaded import Unloaded
from schemax.extraction.declarations import (
    classes_of,
    imported_module,
    load_schema,
    read_schema,
    text_of_file,
)
from schemax.extraction.schema import AttrSchema
from schemax.formats import OutputFormat


@dataclass(frozen=True)
class Finding:
    """A fault of a declaration (level "refusal"), or a possible fault (level "warning").

    place: the file, and the line of the field or class, if known.
    field: dotted; None for the whole class.
    reason: the fault, and what to change.
    """

    level: str
    schema: str
    field: str | None
    place: str
    reason: str
    formats: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = f"{self.schema}.{self.field}" if self.field else self.schema
        level = "warning: " if self.level == "warning" else ""
        return f"{self.place}: {level}{name}: {self.reason}"


@dataclass(frozen=True)
class _Declaration:
    """A class, or a document that a class is made from. place: of the class or document."""

    name: str
    place: str
    model: Any
    document: str | None = None


def findings(
    where: str, model: Unloaded, formats: Mapping[str, OutputFormat]
) -> tuple[list[str], list[Finding]]:
    """Returns the names of the declarations in a place, and their faults for a model.

    where: a module, a file of classes or documents, a class in a file, a folder of documents, or a
    ready-made name. Raises InputError for a place that cannot be read or declares nothing.
    """
    declared = list(_declarations(where))
    if not declared:
        raise InputError(f"{where} declares nothing: no class with fields, no JSON Schema document")
    faults: list[Finding] = []
    for declaration in declared:
        faults += _refusal_findings(declaration) or _compile_findings(declaration, model, formats)
    return [declaration.name for declaration in declared], faults


def _declarations(where: str) -> Iterator[_Declaration]:
    path = Path(where)
    if path.is_dir() or where.endswith(".json"):
        for file in sorted(path.rglob("*.json")) if path.is_dir() else [path]:
            text = text_of_file(file)
            yield _Declaration(file.stem, str(file), None, text)
    elif ":" in where:
        yield _of_class(read_schema(where))
    elif where in schema_names():
        yield _Declaration(where, where, load_schema(where))
    else:
        yield from map(_of_class, classes_of(imported_module(where)).values())


def _of_class(model: Any) -> _Declaration:
    return _Declaration(model.__name__, _line_of(model, None), model)


def _refusal_findings(declaration: _Declaration) -> list[Finding]:
    if declaration.document is not None:
        refused = refusals_of_document(declaration.document, AttrSchema)
    else:
        refused = refusals_of(declaration.model)
    return [
        _finding(declaration, "refusal", error.schema, error.field, error.reason)
        for error in refused
    ]


def _finding(
    declaration: _Declaration, level: str, name: str, field: str | None, reason: str, *formats: str
) -> Finding:
    place = (
        declaration.place
        if declaration.document is not None
        else _line_of(declaration.model, field)
    )
    return Finding(level, name, field, place, reason, formats)


def _compile_findings(
    declaration: _Declaration, model: Unloaded, formats: Mapping[str, OutputFormat]
) -> list[Finding]:
    """Returns the refusals and warnings when a declaration is compiled in each of the formats."""
    schema = declaration.model or AttrSchema.from_json_schema(declaration.document or "")
    by_fault: dict[tuple[str, str | None, str], list[str]] = {}
    for name, output in formats.items():
        messages: list[tuple[str, Any]] = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            try:
                compile_schema(schema, model.tokenizer, format=output, eos_ids=model.eos_ids)
            except (SchemaError, TemplateError) as error:
                messages.append(("refusal", error))
        kinds = (warning for warning in caught if issubclass(warning.category, UserWarning))
        for level, message in (*messages, *(("warning", warning.message) for warning in kinds)):
            field = getattr(message, "field", None)
            reason = getattr(message, "reason", None) or str(message)
            by_fault.setdefault((level, field, reason), []).append(name)
    return [
        _finding(declaration, level, schema.__name__, field, reason, *names)
        for (level, field, reason), names in by_fault.items()
    ]


def _line_of(model: Any, field: str | None) -> str:
    """Returns the file and line of a field, else of its class, else the module's name."""
    try:
        lines, first = inspect.getsourcelines(model)
        file = Path(inspect.getsourcefile(model) or "?")
    except (OSError, TypeError):
        return str(model.__module__)
    name = re.escape((field or "").partition(".")[0])
    number = next(
        (n for n, line in enumerate(lines) if name and re.match(rf"\s+{name}\s*:", line)), 0
    )
    shown = file.relative_to(Path.cwd()) if file.is_relative_to(Path.cwd()) else file
    return f"{shown}:{first + number}"
