"""Declarations by name: ready-made, a class, a document, or a trained model's folder."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import Any, TypeVar

from pydantic import RootModel
from pydantic_core import SchemaError as CoreSchemaError

from schemax.attributes import settings_of
from schemax.attributes.annotations import root_type
from schemax.attributes.classes import BROKEN, broken_at, declares_fields
from schemax.attributes.field_type import UnsupportedType
from schemax.attributes.ready_made import demonstrations_of, document_of, match_of, ready_made
from schemax.base.trained import FILE, TrainedWith, read_trained
from schemax.errors import InputError, SchemaxError
from schemax.extraction.schema import AttrSchema


def load_schema(name: str) -> type[AttrSchema]:
    """A ready-made schema, such as "television". Raises InputError for an unknown name."""
    stem = ready_made(name)
    shown = [{"text": text, "attributes": values} for text, values in demonstrations_of(stem)]
    return AttrSchema.from_json_schema({**document_of(stem), "demonstrations": shown})


def load_schemas(categories: Iterable[str]) -> dict[str, type[AttrSchema]]:
    """The ready-made schemas of a shop's categories, by category.

    `extract(products, load_schemas(categories), category=...)` reads every product for the
    attributes of its own category. The last level of a path ("Electronics > Smart TVs") counts;
    case and plurals make no difference. Categories without a schema are left out.
    """
    names = {category: match[0] for category in categories if (match := match_of(category))}
    classes = {name: load_schema(name) for name in set(names.values())}
    return {category: classes[name] for category, name in names.items()}


Model = type[Any]
ModelOrModels = TypeVar("ModelOrModels", bound=Model | Mapping[str, Model])


def read_schemas(spec: str) -> Model | dict[str, Model]:
    """Reads a schema, or several by category: `SCHEMA,SCHEMA` or `CATEGORY=SCHEMA,CATEGORY=SCHEMA`.

    A schema without CATEGORY stands for the category that it declares. The folder of a trained
    model stands for the schemas that it was trained with.
    """
    schemas: dict[str, Model] = {}
    if is_trained(spec):
        schemas = trained_schemas(read_trained(Path(spec) / FILE))
        return schemas if len(schemas) > 1 else read_schema(spec)
    if Path(spec).exists() or ("," not in spec and "=" not in spec):
        return read_schema(spec)
    for part in spec.split(","):
        category, _, name = part.strip().rpartition("=")
        schema = read_schema(name)
        schemas[category or settings_of(schema).category] = schema
    return schemas


def in_language(schemas: ModelOrModels, language: str | None) -> ModelOrModels:
    """Declares the documents' language in all schemas, in place, unless it is None.

    Fields and nested classes keep the languages that they name.
    """
    for schema in schemas.values() if isinstance(schemas, Mapping) else (schemas,):
        if language is not None:
            kind = getattr(schema, "__pydantic_generic_metadata__", {}).get("origin") or schema
            own = vars(kind).get("__schema_settings__", {})
            kind.__schema_settings__ = {**own, "language": language}
    return schemas


def is_trained(spec: str) -> bool:
    """True for the folder of a model with its settings of training."""
    return (Path(spec) / FILE).is_file()


def trained_schemas(trained: TrainedWith) -> dict[str, Model]:
    """The schemas that a model was trained with, by category. Raises SchemaError."""
    return {
        category: AttrSchema.from_json_schema(document)
        for category, document in trained.schemas.items()
    }


def read_schema(spec: str) -> Model:
    """Reads a schema: a ready-made name, `module:Class`, `file.py:Class`, `schema.json`, or the
    folder of a model that was trained with one.

    Raises InputError, SchemaError, ModelError.
    """
    if is_trained(spec):
        schemas = trained_schemas(read_trained(Path(spec) / FILE))
        if len(schemas) != 1:
            known = ", ".join(schemas) or "none"
            raise InputError(f"{spec} must hold one schema to be named here; it has {known}")
        return next(iter(schemas.values()))
    if spec.endswith(".json"):
        return AttrSchema.from_json_schema(text_of_file(Path(spec)))
    place, colon, name = spec.rpartition(":")
    if colon:
        return _of_module(imported_module(place), name, spec)
    if spec.endswith(".py"):
        return _of_module(imported_module(spec), "", spec)
    if Path(spec).is_file():
        raise InputError(f"{spec} is no schema: a class is file.py:Class, a document schema.json")
    return load_schema(spec)


def text_of_file(path: Path) -> str:
    """Reads a document's text. Raises InputError."""
    try:
        return path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise InputError(f"cannot read {path}: {reason}") from error


def _of_module(module: ModuleType, name: str, spec: str) -> Model:
    declared = getattr(module, name, None) if name else None
    if declares_fields(declared):
        return declared
    classes = classes_of(module)
    there = f"there are {', '.join(classes)}" if classes else "it declares none"
    wanted = f"no class with fields {name!r}" if name else "name a class, file.py:Class"
    raise InputError(f"{spec}: {wanted}; {there}")


def classes_of(module: ModuleType) -> dict[str, Model]:
    """The Pydantic models, dataclasses and TypedDicts that a module itself declares, by name."""
    return {
        name: value
        for name, value in vars(module).items()
        if declares_fields(value) and (not issubclass(value, RootModel) or _is_union(value))
        # Pydantic puts parametrised generic classes into the module, too.
        if value.__module__ == module.__name__ and name.isidentifier()
    }


def _is_union(model: type[RootModel[Any]]) -> bool:
    """True for a declaration by itself; False for the type of a field."""
    try:
        root_type(model)
    except (UnsupportedType, *BROKEN):
        return False
    return True


def imported_module(place: str) -> ModuleType:
    """Imports a module by name or by file. Raises InputError for any error of its code."""
    try:
        if place.endswith(".py"):
            return _imported_file(Path(place).resolve())
        # Console scripts, unlike `python -m`, do not search the working directory.
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        return importlib.import_module(place)
    except SchemaxError:
        raise
    except FileNotFoundError as error:
        raise InputError(f"no such file: {place}") from error
    except Exception as error:
        file = str(Path(place).resolve())
        frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename == file]
        where = f"{place}, line {frames[-1].lineno}" if frames else place
        reason = f"{type(error).__name__}: {error}"
        if isinstance(error, CoreSchemaError):
            fields, reason = broken_at(error)
            reason = f"field {'.'.join(fields)}: {reason}" if fields else reason
        raise InputError(f"cannot import {where}: {reason}") from error


def _imported_file(path: Path) -> ModuleType:
    """Imports a file from its source, since Python takes bytecode for current if the size and the
    second of the last change are equal, as for a schema saved twice in a second."""
    name = f"_schemax_{path.stem}"
    module = ModuleType(name)
    module.__file__ = str(path)
    if str(path.parent) not in sys.path:  # as when Python runs the file
        sys.path.insert(0, str(path.parent))
    # Pydantic looks the module up to resolve its annotations.
    sys.modules[name] = module
    exec(compile(path.read_bytes(), str(path), "exec"), module.__dict__)
    return module
