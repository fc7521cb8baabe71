"""A run over files on Ray: the parts of `schemax.io.resumable`, computed by actors.

A Ray Dataset carries the parts, one per row: a task on this machine reads the input, actors
compute, and the parts return to this process, which alone writes. Ray takes no more parts from the
reader than there is room for. The part of an actor that dies is computed again: it was not written.
"""

from __future__ import annotations

import logging
import os
import pickle
from collections.abc import Callable, Generator, Iterator
from contextlib import chdir, closing, contextmanager
from dataclasses import replace
from functools import partial
from typing import Any, TypeAlias

from schemax.errors import InputError, SchemaxError
from schemax.io.checkpoint import Files
from schemax.io.columns import Schemas
from schemax.io.ray.pool import Loaded, Parcel, Pool, ray_module
from schemax.io.resumable import Batch, ResumableRun, compute_lines
from schemax.io.rows import Extract, RowForm
from schemax.io.task import Backend, Task
from schemax.results import Extraction

Load: TypeAlias = Callable[[], Extract]
"""A function that loads the model in an actor, and returns what computes rows."""


@contextmanager
def on_ray(task: Task, pool: Pool) -> Iterator[Backend]:
    """Yields a backend whose actors compute the rows of a run. Each calls `task.load`.

    Raises InputError for settings that cannot be sent to actors, and what `Task.facts` raises.
    """
    ray = ray_module()
    # One call per worker: a worker that stays would keep its GPU memory.
    settings = {"num_gpus": pool.num_gpus, "num_cpus": pool.num_cpus, "max_calls": 1}
    remote = ray.remote(**settings)(_loaded)
    loaded = ray.get(remote.remote(Parcel.of(task.facts, task.schemas)))
    if loaded.problem is not None:
        raise loaded.problem
    load = partial(task.computing, loaded.made)
    yield Backend(loaded.made, lambda run: _fill(run, load, task.schemas, pool))


def _loaded(load: Parcel) -> Loaded:
    return Loaded(load)


def _fill(
    run: ResumableRun, load: Load, schemas: Schemas, pool: Pool
) -> Generator[Extraction[Any], None, None]:
    """Computes and writes the missing parts; yields their items part by part, in any order.

    Raises InputError if the input has changed since rows were written, or breaks off, after all
    parts before are written; SchemaxError if no actor can be kept alive; and what `load` raises.
    """
    broken: InputError | None = None
    ray, data = ray_module(), ray_module("ray.data")
    read = partial(_read, Parcel.of(run, schemas), run.checkpoint.files(), os.getcwd())
    here = ray.get_runtime_context().get_node_id()
    with _settings():
        # Takes no CPU: actors, which wait for the reader, may have them all.
        parts = data.from_items([0]).map_batches(
            read, batch_size=1, num_cpus=0, label_selector={"ray.io/node-id": here}
        )
        computed = parts.map_batches(
            Loaded,
            fn_constructor_args=(Parcel.of(partial(_computing, load, run.form), schemas),),
            batch_size=1,
            batch_format="pyarrow",
            **pool.settings,
        )
    try:
        for batch in computed.iter_batches(batch_size=1, batch_format="pyarrow"):
            result = _unpacked(batch)
            if isinstance(result, InputError):
                broken = result
            elif isinstance(result, SchemaxError):
                raise result
            else:
                number, lines, items = result
                run.checkpoint.add(number, lines)
                yield from items
    except ray.exceptions.RayTaskError:
        raise  # an error in code, whose traceback should be seen
    except ray.exceptions.RayError as error:
        lines_of_error = str(error).strip().splitlines() or [type(error).__name__]
        raise SchemaxError(f"Ray gave up: {lines_of_error[0]}") from error
    if broken is not None:
        raise broken


@contextmanager
def _settings() -> Iterator[None]:
    """Sets options of Datasets made in the context: a block holds one part, so that it goes at once
    to a free actor; we show progress ourselves.
    """
    data = ray_module("ray.data")
    context = data.DataContext.get_current().copy()
    context.target_max_block_size = 1
    context.enable_progress_bars = False
    context.raise_original_map_exception = True
    context.max_errored_blocks = 0  # a dropped part would drop its rows
    logging.getLogger("ray.data").setLevel(logging.CRITICAL)
    with data.DataContext.current(context):
        yield


def _read(run: Parcel, files: Files, folder: str, batch: Any) -> Iterator[dict[str, list[bytes]]]:
    """Yields the missing parts. Input that cannot be read ends them with an error.

    files: as of the start, since Ray may read again, and must get the same parts.
    """
    with closing(_missing(run, files)) as parts:
        while True:
            # Left before every yield: the worker is Ray's, and may stop in the middle.
            with chdir(folder):
                part = next(parts, None)
            if part is None:
                return
            yield part


def _missing(parcel: Parcel, files: Files) -> Generator[dict[str, list[bytes]], None, None]:
    try:
        run: ResumableRun = parcel.unpack()
        for part in run.batches(files):
            yield _packed(part)
    except InputError as error:
        yield _packed(error)


def _computing(load: Load, form: RowForm) -> Callable[[Any], Any]:
    """Loads the model; returns a function that computes a part. Both return expected errors."""
    try:
        return partial(_computed, load(), form)
    except SchemaxError as error:
        problem = _packed(error)
        return lambda batch: problem


def _computed(extract: Extract, form: RowForm, batch: Any) -> Any:
    part: Batch | SchemaxError = _unpacked(batch)
    if isinstance(part, SchemaxError):
        return _packed(part)
    lines, items = [*part.ready], []
    pending = ((None, row) for row in part.pending)
    try:
        for _, line, item in compute_lines(extract, form, pending):
            lines.append(line)
            items.append(replace(item, slots=()))  # slots are not needed any more
    except SchemaxError as error:
        return _packed(error)
    return _packed((part.part, lines, items))


def _packed(value: Any) -> dict[str, list[bytes]]:
    return {"part": [ray_module("ray.cloudpickle").dumps(value)]}


def _unpacked(batch: Any) -> Any:
    return pickle.loads(batch.column("part")[0].as_py())
