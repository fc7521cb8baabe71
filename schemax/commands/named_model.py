"""The model that `schemax extract` was told to use, loaded here or by actors."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from schemax.commands import options
from schemax.commands.console import refused_settings
from schemax.commands.pools import PoolOptions, connected
from schemax.compiler.prompt import template_source
from schemax.extractor import Extractor, Options
from schemax.io.columns import Schemas
from schemax.io.task import Backend, Task
from schemax.ray.parts import on_ray
from schemax.resources import EMBEDDED_WARNING


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
    def on_ray(self, wanted: PoolOptions, task: Task) -> Iterator[Backend]:
        """Actors, which have neither this process's folder nor its environment."""
        with connected(wanted) as pool:
            name = self.name or os.environ.get("SCHEMAX_MODEL")
            if name is None:
                warnings.warn(EMBEDDED_WARNING, UserWarning, stacklevel=2)
            elif Path(name).is_dir():
                name = str(Path(name).resolve())
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
