"""The model that `schemax extract` was told to use, loaded here or by actors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from schemax.commands import options
from schemax.commands.console import UsageError, refused_settings
from schemax.commands.extract_options import RayOptions
from schemax.commands.process import terminable
from schemax.compiler.prompt import template_source
from schemax.extractor import Extractor, Options
from schemax.io.columns import Schemas
from schemax.io.task import Backend, Task
from schemax.ray.parts import on_ray
from schemax.ray.pool import Pool, connected, named_for_actors


@dataclass(frozen=True, slots=True)
class NamedModel:
    """name: a folder or Hub id; None for the default one."""

    name: str | None
    device: str
    dtype: str

    def task(self, schemas: Schemas, settings: Options, **more: Any) -> Task:
        """What to extract with this model; more: the other fields of the task."""
        load = partial(_load, self, schemas, settings)
        return Task(schemas, settings, load, options.model_place(self.name), **more)

    @contextmanager
    def on_ray(self, wanted: RayOptions, task: Task) -> Iterator[Backend]:
        """Actors that compute the rows of a task.

        Raises UsageError, and InputError without Ray.
        """
        actors = None if wanted.actors is None else _actors(wanted.actors)
        with connected(), terminable():  # Ray has put a handler of its own in place
            with refused_settings():
                pool = Pool.of(actors, wanted.gpus_per_actor, wanted.cpus_per_actor)
            name = named_for_actors(self.name)
            settings = task.options.copy()
            if (template := settings.get("template")) is not None:
                assert isinstance(template, (str, Path))
                settings["template"] = template_source(template)
            model = replace(self, name=name, device=pool.device(self.device))
            load = partial(_load, model, task.schemas, settings)
            place = options.model_place(name)
            with on_ray(replace(task, options=settings, load=load, place=place), pool) as backend:
                yield backend


def _load(model: NamedModel, schemas: Schemas, settings: Options) -> Extractor:
    """Raises UsageError for settings that do not go together, or not with the model."""
    extractor = options.load_extractor(model.name, model.device, model.dtype)
    with refused_settings():
        extractor.stream((), schemas, **settings)
    return extractor


def _actors(text: str) -> int | tuple[int, int]:
    """Reads "8" and "1,8"."""
    try:
        fewest, *rest = map(int, text.split(","))
    except ValueError:
        fewest, rest = 0, []
    most = rest[0] if rest else fewest
    if len(rest) > 1 or not 1 <= fewest <= most:
        raise UsageError(f"--actors must be a number, or MIN,MAX such as 1,8, not {text!r}")
    return (fewest, most) if rest else fewest
