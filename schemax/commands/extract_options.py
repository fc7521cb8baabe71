"""The options of `schemax extract`, and the model that they name, loaded here or by actors.

A new option is a field here, and is used in `extract.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from schemax.base.process import terminable
from schemax.base.trained import note_trained
from schemax.commands import options
from schemax.commands.console import UsageError, refused_settings
from schemax.commands.option_groups import Options, argument, option
from schemax.compiler.prompt import template_source
from schemax.extraction.declarations import in_language
from schemax.extraction.documents import Options as Settings
from schemax.extraction.extractor import Extractor
from schemax.extraction.prompt_file import PromptFile, read_prompt_file
from schemax.io.columns import Schemas
from schemax.io.job import IfComplete
from schemax.io.long_documents import TooLong
from schemax.io.ray.parts import on_ray
from schemax.io.ray.pool import Pool, connected, named_for_actors
from schemax.io.task import Backend, Task
from schemax.io.writers import Formulas
from schemax.reading.markup import Html


class DryRun(Options):
    """Dry run"""

    dry_run: bool = False
    """Only read a sample, and say what the run would take."""
    price_per_hour: float | None = option(min=0)
    """Price of the machine, for the cost of the run."""


class OnRay(Options):
    """Scale-out on Ray"""

    ray: bool = False
    """Compute on Ray: the cluster that $RAY_ADDRESS names, one that was started on this machine,
    else this machine. Same rows, same parts."""
    actors: str | None = option("N or MIN,MAX")
    """Models on Ray. Default: one for each GPU, else for each machine."""
    gpus_per_actor: float | None = None
    """Default: 1 if Ray has GPUs, else 0."""
    cpus_per_actor: float | None = None
    """Also the threads of an actor. Default: 1 beside a GPU, else its share."""


class Run(Options):
    """The run"""

    on_too_long: TooLong = "error"
    """Treatment of documents that the model's context does not hold: error makes a failed row,
    truncate reads the beginning, chunk reads all in overlapping chunks."""
    max_errors: str = option("N or P%", default="0")
    """Failed rows (a number or a percentage) that still give exit status 0."""
    retry_failed: str | None = option("OUT")
    """Do the failed rows of a finished table again, and nothing else: with the SCHEMA, INPUT and
    options that it was made with, but for those that are named now."""
    if_complete: IfComplete = "replace"
    """Treatment of a complete OUT: skip leaves a table of the same records, schema, model and
    settings as it is; error stops with exit status 2; replace computes all rows again."""
    reuse: str | None = option("TABLE")
    """Take the rows that are unchanged (text, schema, model and settings) out of an earlier table,
    which may be OUT itself."""
    overwrite: bool = False
    """Start anew where an unfinished run has left rows (_OUT.parts)."""
    quiet: bool = option("-q", default=False)
    """No progress, no notes, no summary."""


class Reader(options.Server, options.Prompt, options.Language):
    """Model and prompt"""

    compile: bool = False
    """Make one kernel of each chain of pointwise operations, as the model is loaded."""
    batch_size: int | None = option(min=1)
    """Documents in flight. Default: what fits."""

    def task(self, schemas: Schemas, settings: Settings, **more: Any) -> Task:
        """Returns the model's task. more: further fields of the task."""
        place = options.model_place(self.model) if self.server is None else None
        load = partial(self._load, schemas, settings, self._prompt())
        return Task(schemas, settings, load, place, loading=self.loading, **more)

    def _prompt(self) -> PromptFile | None:
        """Reads the prompt file, which other machines may lack. Raises InputError."""
        return None if self.prompt is None else read_prompt_file(self.prompt)

    def _load(self, schemas: Schemas, settings: Settings, prompt: PromptFile | None) -> Extractor:
        """Loads the model. Raises UsageError for settings that do not suit it or each other."""
        in_language(schemas, self.language)  # actors may import the classes anew
        extractor = self.extractor(prompt, compile=self.compile)
        note_trained(self.model, extractor, settings, settings.get("examples"))
        with refused_settings():
            if self.batch_size is not None and settings.get("decoding") is None:
                extractor = copy(extractor)
                config = replace(extractor.defaults.decoding, batch_size=self.batch_size)
                extractor.defaults = replace(extractor.defaults, decoding=config)
            extractor.stream((), schemas, **settings)
        return extractor


class Files(Options):
    """Input and output"""

    output: str | None = option("-o OUT")
    """File for the rows, of one of the kinds that INPUT has, which is replaced once all are done.
    Default: stdout, JSON Lines."""
    report: str | None = option("FILE")
    """Also write a page to look through the results: HTML, all in that one file."""
    details: str | None = option("[confidence]")
    """Add every field's raw text, confidence and place in the text; of `--details confidence`, its
    confidence alone, and the least of a row."""
    keep: str | None = option("KEY,KEY")
    """Keys of a record that stand in its row as well."""
    id: str = option("KEY", default="id")
    """Key of a record's id."""
    text: str | None = option("KEY,KEY")
    """Keys that the model is shown. Default: all but id and category."""
    category: str | None = option("KEY")
    """Key of a record's category, for SCHEMA of several: Shoes=shoes,Tea=tea. Default with auto:
    category."""
    html: Html = "strip"
    """HTML in texts: recognised and left out, or shown to the model as it is."""
    limit: int | None = option(min=0)
    """Read the first so many records only."""
    shard: str | None = option("I/N")
    """Read every N-th record only, from the I-th on: 0/4, 1/4, 2/4 and 3/4 are all. Sorting by
    index puts their rows in order."""
    partition_by: str | None = option("KEY,KEY")
    """OUT is a folder of Parquet with a folder in it for each value of these columns: fields of
    SCHEMA, or keys of a record. Of a new Delta table, its partitions."""
    rows_per_file: int | None = option("N", min=1)
    """Rows of a file of such a folder, at most. Default: 1,000,000."""
    csv_formulas: Formulas = "keep"
    """Texts of CSV that a spreadsheet would take for formulas (=1+1): as they are, or with an
    apostrophe in front."""


class Declared(Options):
    """Options"""

    # --retry-failed requires neither: its table tells.
    schema: str | None = argument("SCHEMA", default=None)
    """A ready-made name (see `schemax schemas`), module:Class, file.py:Class, a JSON Schema file
    (schema.json), or the folder of a trained model, whose schemas it means. Or auto: the ready-made
    one of each record's category."""


class Given(DryRun, OnRay, Run, Reader, Files, options.Input, Declared):
    """Options"""

    @contextmanager
    def actors_for(self, task: Task) -> Iterator[Backend]:
        """Yields a backend of actors for a task. Raises UsageError, and InputError without Ray."""
        actors = None if self.actors is None else _actors(self.actors)
        with connected(), terminable():  # in this order, since Ray installs its own handler
            with refused_settings():
                pool = Pool.of(actors, self.gpus_per_actor, self.cpus_per_actor)
            name = named_for_actors(self.model)
            settings = task.options.copy()
            if (template := settings.get("template")) is not None:
                assert isinstance(template, (str, Path))
                settings["template"] = template_source(template)
            there = replace(self, model=name, device=pool.device(self.device), server=None)
            load = partial(there._load, task.schemas, settings, self._prompt())
            place = options.model_place(name)
            with on_ray(replace(task, options=settings, load=load, place=place), pool) as backend:
                yield backend


def _actors(text: str) -> int | tuple[int, int]:
    """Reads "8" and "1,8". Raises UsageError."""
    try:
        fewest, *rest = map(int, text.split(","))
    except ValueError:
        fewest, rest = 0, []
    most = rest[0] if rest else fewest
    if len(rest) > 1 or not 1 <= fewest <= most:
        raise UsageError(f"--actors must be a number, or MIN,MAX such as 1,8, not {text!r}")
    return (fewest, most) if rest else fewest
