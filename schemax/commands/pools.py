"""Options of runs on Ray, and what of a run is said differently where others compute it."""

from __future__ import annotations

import os
import signal
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from schemax.commands.console import UsageError, refused_settings
from schemax.compiler.prompt import template_source
from schemax.ray import pool as ray_pool
from schemax.ray.pool import Pool
from schemax.resources import EMBEDDED_WARNING

if TYPE_CHECKING:
    from schemax.commands.extraction import Work


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """What the command line says of actors; None is chosen by what the cluster has."""

    actors: int | tuple[int, int] | None
    num_gpus: float | None
    num_cpus: float | None

    @classmethod
    def of(
        cls, ray: bool, actors: str | None, num_gpus: float | None, num_cpus: float | None
    ) -> PoolOptions | None:
        """None without --ray. Raises UsageError."""
        given = {
            "--actors": actors,
            "--gpus-per-actor": num_gpus,
            "--cpus-per-actor": num_cpus,
        }
        if not ray:
            for name, value in given.items():
                if value is not None:
                    raise UsageError(f"{name} is of --ray")
            return None
        return cls(None if actors is None else _actors(actors), num_gpus, num_cpus)


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


@contextmanager
def connected(options: PoolOptions) -> Iterator[Pool]:
    """Ray, and the actors that there will be. Raises UsageError, and InputError without Ray."""
    with ExitStack() as stack:
        before = signal.getsignal(signal.SIGTERM)
        with refused_settings():
            stack.enter_context(ray_pool.connected())
            pool = Pool.of(options.actors, options.num_gpus, options.num_cpus)
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)  # Ray has put its own in place
        yield pool


def shippable(work: Work, pool: Pool) -> Work:
    """The same work where neither this process's folder nor its environment is."""
    model = work.model or os.environ.get("SCHEMAX_MODEL")
    if model is None:
        warnings.warn(EMBEDDED_WARNING, UserWarning, stacklevel=2)
    elif Path(model).is_dir():
        model = str(Path(model).resolve())
    settings = dict(work.settings)
    if settings["template"] is not None:
        settings["template"] = template_source(settings["template"])
    return replace(work, model=model, settings=settings, device=pool.device(work.device), pool=None)
