"""The model that `schemax extract` was told to use, loaded here or by actors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from schemax.calls import Options
from schemax.commands import options
from schemax.commands.console import UsageError, refused_settings
from schemax.commands.extract_options import ModelOptions, RayOptions
from schemax.commands.process import terminable
from schemax.commands.server_options import ServerOptions
from schemax.compiler.prompt import template_source
from schemax.extractor import Extractor
from schemax.io.columns import Schemas
from schemax.io.task import Backend, Task
from schemax.prompt_file import PromptFile, read_prompt_file
from schemax.ray.parts import on_ray
from schemax.ray.pool import Pool, connected, named_for_actors


def task_of(
    model: ModelOptions,
    server: ServerOptions,
    schemas: Schemas,
    settings: Options,
    *,
    loading: Mapping[str, Any],
    **more: Any,
) -> Task:
    """What to extract with a model; more: the other fields of the task."""
    load = partial(_load, model, schemas, settings, loading, _prompt(model), server)
    place = options.model_place(model.model) if server.server is None else None
    return Task(schemas, settings, load, place, loading=loading, **more)


@contextmanager
def actors_for(model: ModelOptions, wanted: RayOptions, task: Task) -> Iterator[Backend]:
    """Actors that compute the rows of a task. Raises UsageError, and InputError without Ray."""
    actors = None if wanted.actors is None else _actors(wanted.actors)
    with connected(), terminable():  # Ray has put a handler of its own in place
        with refused_settings():
            pool = Pool.of(actors, wanted.gpus_per_actor, wanted.cpus_per_actor)
        name = named_for_actors(model.model)
        settings = task.options.copy()
        if (template := settings.get("template")) is not None:
            assert isinstance(template, (str, Path))
            settings["template"] = template_source(template)
        there = replace(model, model=name, device=pool.device(model.device))
        load = partial(_load, there, task.schemas, settings, task.loading, _prompt(model))
        place = options.model_place(name)
        with on_ray(replace(task, options=settings, load=load, place=place), pool) as backend:
            yield backend


def _prompt(model: ModelOptions) -> PromptFile | None:
    """What the prompt file says, which other machines may not have. Raises InputError."""
    return None if model.prompt is None else read_prompt_file(model.prompt)


def _load(
    model: ModelOptions,
    schemas: Schemas,
    settings: Options,
    loading: Mapping[str, Any],
    prompt: PromptFile | None,
    server: ServerOptions | None = None,
) -> Extractor:
    """Raises UsageError for settings that do not go together, or not with the model."""
    place = model.model, model.device, model.dtype
    extractor = (server or ServerOptions()).reader(
        *place, {"compile": model.compile, **loading}, prompt
    )
    options.note_trained(model.model, extractor, settings, settings.get("examples"))
    with refused_settings():
        if model.batch_size is not None and settings.get("decoding") is None:
            extractor = copy(extractor)
            extractor.decoding = replace(extractor.decoding, batch_size=model.batch_size)
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
