"""Parcels for other processes, which lack the modules and registries of this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import PathFinder
from typing import Any

from schemax.errors import InputError
from schemax.formats import format_names, get_format, register_format
from schemax.io.columns import Schemas, named_schemas
from schemax.io.ray.pool import ray_module


@dataclass(frozen=True, slots=True)
class Parcel:
    """A value with all that unpacking needs.

    Classes of scripts, notebooks and files that other processes cannot import are sent with their
    code. Other classes are imported by the receiver, from the import paths of this process, too.
    """

    data: bytes
    paths: tuple[str, ...]

    @classmethod
    def of(cls, value: Any, schemas: Schemas) -> Parcel:
        """Packs a value. Raises InputError for a value that cannot be pickled."""
        cloudpickle = ray_module("ray.cloudpickle")
        formats = {name: get_format(name) for name in format_names()}
        with _by_value(schemas):
            try:
                data = cloudpickle.dumps((formats, value))
            except Exception as error:  # a user's objects, such as open files, may raise anything
                raise InputError(
                    f"schema and settings cannot be sent to actors: {type(error).__name__}: {error}"
                ) from error
        return cls(data, tuple(sys.path))

    def unpack(self) -> Any:
        sys.path.extend(path for path in self.paths if path not in sys.path)
        formats, value = ray_module("ray.cloudpickle").loads(self.data)
        for name, format in formats.items():
            if name not in format_names():
                register_format(name, format)
        return value


@contextmanager
def _by_value(schemas: Schemas) -> Iterator[None]:
    """Has modules that cannot be imported by name pickled by value, for the context."""
    cloudpickle = ray_module("ray.cloudpickle")
    models = named_schemas(schemas).values()
    names = {base.__module__ for model in models for base in model.__mro__}
    lost = [sys.modules[name] for name in sorted(names) if not _is_found(name)]
    for module in lost:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in lost:
            cloudpickle.unregister_pickle_by_value(module)


def _is_found(name: str) -> bool:
    """True if `import` would find a module; also for removed modules, left to the pickler."""
    package = name.partition(".")[0]
    if name not in sys.modules or package in sys.builtin_module_names or name == "__main__":
        return True
    return PathFinder.find_spec(package) is not None
