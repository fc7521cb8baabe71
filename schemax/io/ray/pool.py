"""The pool of actors: their number, the part of the cluster that each takes, and their parcels.

A parcel is a value for other processes, which lack the modules and registries of this process.
"""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any, TypeAlias

from schemax.base.messages import warn
from schemax.base.process import use_threads
from schemax.base.resources import EMBEDDED_WARNING, default_model, named_model, resource_dir
from schemax.errors import InputError, SchemaxError
from schemax.formats import format_names, get_format, register_format
from schemax.io.columns import Schemas, named_schemas
from schemax.io.storage import optional

EXTRA = "ray"

Concurrency: TypeAlias = int | tuple[int, int] | None


def ray_module(name: str = "ray") -> Any:
    """Imports a module of Ray. Raises InputError, which says how to install Ray."""
    return optional(name, "scale-out", EXTRA)


@dataclass(frozen=True, slots=True)
class Pool:
    """A pool of actors, each with its own model: between `fewest` and `most`, as work requires.

    num_gpus, num_cpus: of each actor; an actor computes with as many threads as it has CPUs.
    """

    fewest: int
    most: int
    num_gpus: float
    num_cpus: float

    @classmethod
    def of(cls, concurrency: Concurrency, num_gpus: float | None, num_cpus: float | None) -> Pool:
        """Makes a pool; None is filled in from the current cluster.

        The default is an actor per GPU; without GPUs, an actor per machine with CPUs, with all CPUs
        but one, which is left for reading, or with half of a single one. Raises ValueError for
        invalid numbers, and for more than a Ray started by this process will ever have; on a
        cluster, which may grow, it warns.
        """
        _check(concurrency, num_gpus, num_cpus)
        nodes = machines()
        # Ray lists no CPUs for nodes without any, such as heads set up not to compute.
        cpus = [node["CPU"] for node in nodes if node.get("CPU", 0.0) >= 1]
        gpus = sum(node.get("GPU", 0.0) for node in nodes)
        if num_gpus is None:
            num_gpus = 1.0 if gpus else 0.0
        if concurrency is None:
            concurrency = max(1, int(gpus / num_gpus)) if num_gpus else max(1, len(cpus))
        fewest, most = concurrency if isinstance(concurrency, tuple) else (concurrency, concurrency)
        if num_cpus is None:
            of_a_node = math.ceil(most / max(1, len(cpus)))
            # With a single CPU in all, reading needs the whole CPU.
            least = 0.5 if sum(cpus) > 1 else 0.0
            share = 1.0 if num_gpus else max(least, min(cpus, default=1.0) - 1) / of_a_node
            num_cpus = float(int(share)) if share >= 1 else share
        pool = cls(fewest, most, num_gpus, num_cpus)
        if (room := sum(map(pool._fits, nodes))) < fewest:
            shortage = (
                f"Ray has no room for {fewest} actors with {num_gpus:g} GPUs and {num_cpus:g} CPUs "
                f"each, only for {room}"
            )
            if _is_own():
                raise ValueError(shortage)
            warn(f"{shortage}; the others wait for machines")
        return pool

    @property
    def settings(self) -> dict[str, Any]:
        """The arguments of `Dataset.map_batches`."""
        strategy = ray_module("ray.data").ActorPoolStrategy
        compute = strategy(min_size=self.fewest, max_size=self.most)
        return {"compute": compute, "num_gpus": self.num_gpus, "num_cpus": self.num_cpus}

    def is_greedy(self) -> bool:
        """True if the actors leave no CPU for reading, on a Ray that will not grow."""
        cpus = sum(node.get("CPU", 0.0) for node in machines())
        return _is_own() and cpus - self.fewest * self.num_cpus < 1

    def device(self, device: str) -> str:
        """Returns an actor's device. "auto" could find others' GPUs, which Ray may not hide."""
        return "cpu" if device == "auto" and not self.num_gpus else device

    def _fits(self, node: dict[str, float]) -> int:
        """Returns the number of actors that a machine has room for."""
        room = node.get("CPU", 0.0) / self.num_cpus if self.num_cpus else math.inf
        if self.num_gpus:
            room = min(room, node.get("GPU", 0.0) / self.num_gpus)
        return self.fewest if room == math.inf else int(room + 1e-6)


def _check(concurrency: Concurrency, num_gpus: float | None, num_cpus: float | None) -> None:
    """Raises ValueError for invalid numbers."""
    bounds = concurrency if isinstance(concurrency, tuple) else (concurrency, concurrency)
    if concurrency is not None and not (
        len(bounds) == 2
        and all(isinstance(bound, int) and not isinstance(bound, bool) for bound in bounds)
        and 1 <= bounds[0] <= bounds[1]  # type: ignore[operator]
    ):
        raise ValueError(
            "concurrency must be a number of actors, or the fewest and the most of them, such as "
            f"(1, 8), not {concurrency!r}"
        )
    for name, value in (("num_gpus", num_gpus), ("num_cpus", num_cpus)):
        if value is not None and not 0 <= value < math.inf:
            raise ValueError(f"{name} must be a number of 0 or more, not {value!r}")
    if num_gpus is not None and num_gpus > 1 and num_gpus != int(num_gpus):
        raise ValueError(f"num_gpus must be a whole number or less than 1, not {num_gpus!r}")


def machines() -> list[dict[str, float]]:
    """Returns the resources of each machine. Starts Ray, or joins a cluster, if not yet done."""
    ray = ray_module()
    if not ray.is_initialized():
        ray.init()
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _is_own() -> bool:
    """True if this process has started Ray, to which no machine will ever be added."""
    node = getattr(ray_module("ray._private.worker"), "_global_node", None)
    return node is not None and bool(node.is_head())


def named_for_actors(model: str | Path | None) -> str | None:
    """Returns a model's absolute path or Hub id: actors lack this folder and this environment.

    None is the embedded model; a warning says what it was trained for.
    """
    name = named_model(model) if model else default_model()
    if name == resource_dir("embedded"):
        warn(EMBEDDED_WARNING)
        return None
    return str(Path(name).resolve() if Path(name).exists() else name)


class Loaded:
    """An actor: the result of a callable, such as a function of batches that holds a model.

    load: a `Parcel` of the callable.
    problem: the error that it raised, which the first batch raises; raised by a constructor, Ray
        would pass on its text only.
    """

    def __init__(self, load: Any) -> None:
        # torch computes with the CPUs of this actor: Ray counts CPUs, but does not enforce them.
        cpus = ray_module().get_runtime_context().get_assigned_resources().get("CPU", 0.0)
        if cpus >= 1:
            use_threads(int(cpus))
        self.made: Any = None
        self.problem: SchemaxError | None = None
        try:
            self.made = load.unpack()()
        except SchemaxError as error:
            self.problem = error

    def __call__(self, batch: Any) -> Any:
        if self.problem is not None:
            raise self.problem
        return self.made(batch)


@contextmanager
def connected() -> Iterator[None]:
    """Connects a command to Ray: this process's, else the cluster's, else one started here.

    $RAY_ADDRESS names the cluster; without it, Ray joins one that was started on this machine.
    Raises InputError if none answers.
    """
    ray = ray_module()
    if ray.is_initialized():
        yield
        return
    os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")
    try:
        ray.init(logging_level="ERROR", log_to_driver=False)
    except (ConnectionError, RuntimeError) as error:
        raise InputError(f"cannot reach Ray: {error}") from error
    try:
        yield
    finally:
        ray.shutdown()


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
