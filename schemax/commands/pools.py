"""Options of runs on Ray, and the Ray that they ask for."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from schemax.commands.console import UsageError, refused_settings
from schemax.ray import pool as ray_pool
from schemax.ray.pool import Pool


@dataclass(frozen=True, slots=True)
class PoolOptions:
    """What the command line says of actors; None leaves the choice to what the cluster has."""

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
                    raise UsageError(f"{name} requires --ray")
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
