"""Everything that is wrong with declarations, at once."""

from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from schemax.attributes.attributes import refusals_of
from schemax.attributes.made_classes import refusals_of_document
from schemax.catalog import load_schema
from schemax.compiler import TextCodec, compile_schema
from schemax.declarations import classes_of, imported, read_schema, text_of_file
from schemax.errors import InputError, SchemaError, SchemaWarning, TemplateError
from schemax.formats import OutputFormat
from schemax.ready_made import schema_names
from schemax.schema import AttrSchema


@dataclass(frozen=True)
class Finding:
    """A fault of a class, or (a warning) what may be one.

    place: the file, and the line of the field or class where there is one. field: dotted, None for
        the class as a whole. remedy: empty where `problem` says what to do.
    """

    level: str
    schema: str
    field: str | None
    place: str
    problem: str
    remedy: str
    formats: tuple[str, ...] = ()

    def __str__(self) -> str:
        name = f"{self.schema}.{self.field}" if self.field else self.schema
        level = "warning: " if self.level == "warning" else ""
        text = "; ".join(filter(None, (self.problem, self.remedy)))
        return f"{self.place}: {level}{name}: {text}"


@dataclass(frozen=True)
class _Declared:
    """A class, or a document that one is made of; `place` of the class or document."""

    name: str
    place: str
    model: Any
    document: str | None = None


def findings(
    where: str, codec: TextCodec, eos_ids: Sequence[int], formats: Mapping[str, OutputFormat]
) -> tuple[list[str], list[Finding]]:
    """The names of the declarations in a place, and all that is wrong with them.

    where: a module, a file of classes or documents, a class in one, a folder of documents, or a
    ready-made name. Raises InputError for a place that cannot be read or declares nothing.
    """
    declared = list(_declared(where))
    if not declared:
        raise InputError(f"{where} declares nothing: no class with fields, no JSON Schema document")
    found: list[Finding] = []
    for one in declared:
        found += _refusals(one) or _compiled(one, formats, codec, eos_ids)
    return [one.name for one in declared], found


def _declared(where: str) -> Iterator[_Declared]:
    path = Path(where)
    if path.is_dir() or where.endswith(".json"):
        for file in sorted(path.rglob("*.json")) if path.is_dir() else [path]:
            text = text_of_file(file)
            yield _Declared(file.stem, str(file), None, text)
    elif ":" in where:
        yield _of_class(read_schema(where))
    elif where in schema_names():
        yield _Declared(where, where, load_schema(where))
    else:
        yield from map(_of_class, classes_of(imported(where)).values())


def _of_class(model: Any) -> _Declared:
    return _Declared(model.__name__, _line_of(model, None), model)


def _refusals(one: _Declared) -> list[Finding]:
    if one.document is not None:
        refused = refusals_of_document(one.document, AttrSchema)
    else:
        refused = refusals_of(one.model)
    return [_finding(error, one) for error in refused]


def _finding(error: SchemaError, one: _Declared, formats: Sequence[str] = ()) -> Finding:
    place = one.place if one.document is not None else _line_of(one.model, error.field)
    problem, _, remedy = error.reason.partition("; ")
    return Finding("refusal", error.schema, error.field, place, problem, remedy, tuple(formats))


def _compiled(one: _Declared, formats: Any, codec: Any, eos_ids: Any) -> list[Finding]:
    """What comes up when a declaration is compiled in each of the formats."""
    model = one.model or AttrSchema.from_json_schema(one.document or "")
    found: dict[tuple[str, str | None, str], list[str]] = {}
    for name, output in formats.items():
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", UserWarning)
            try:
                compile_schema(model, codec, format=output, eos_ids=eos_ids)
            except SchemaError as error:
                found.setdefault(("refusal", error.field, error.reason), []).append(name)
            except TemplateError as error:
                found.setdefault(("refusal", None, str(error)), []).append(name)
        for warning in caught:
            said: Any = warning.message
            if isinstance(said, SchemaWarning):
                found.setdefault(("warning", said.field, said.reason), []).append(name)
            elif issubclass(warning.category, UserWarning):
                found.setdefault(("warning", None, str(said)), []).append(name)
    findings = []
    for (level, field, reason), names in found.items():
        made = _finding(SchemaError(model.__name__, field, reason), one, names)
        findings.append(replace(made, level=level))
    return findings


def _line_of(model: Any, field: str | None) -> str:
    """The file and line of a field, else of its class, else of neither."""
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
