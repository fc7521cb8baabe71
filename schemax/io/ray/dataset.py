"""`extract`: takes a Ray Dataset, returns a Ray Dataset with attributes."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias, Unpack

from schemax.attributes.examples import read_few_shot_examples
from schemax.base.resources import resource_dir
from schemax.compiler.prompt import load_template, template_source
from schemax.config import resolve_decoding
from schemax.errors import InputError, SchemaError
from schemax.extraction.documents import Options, RecordFields, check_options, shown_text
from schemax.extraction.extractor import Extractor
from schemax.formats import get_format
from schemax.io.checkpoint import PART_ROWS
from schemax.io.columns import Schemas, named_schemas
from schemax.io.dataframes import extract_frame
from schemax.io.input_columns import checked_frame
from schemax.io.ray.pool import Concurrency, Loaded, Parcel, Pool, named_for_actors, ray_module
from schemax.io.rows import Details

ModelLike: TypeAlias = str | Path | Callable[[], Extractor] | None


def extract(
    dataset: Any,
    schema: Schemas,
    *,
    model: ModelLike = None,
    concurrency: Concurrency = None,
    num_gpus: float | None = None,
    num_cpus: float | None = None,
    batch_rows: int = PART_ROWS,
    keep: Sequence[str] | None = None,
    details: Details = False,
    device: str = "auto",
    dtype: str = "auto",
    **options: Unpack[Options],
) -> Any:
    """Reads the attributes of a schema from every row of a `ray.data.Dataset`: a lazy Dataset.

    dataset: the model is shown all columns but `id` and `category`, or the columns of `text`.
    schema: a Pydantic model, or one per category. Classes of scripts and notebooks may be used.
    model: a folder that all machines have or a Hub id, or a function that returns an `Extractor`
        (for adapters, quantization, several GPUs per model). Every actor loads it once. None: the
        model that SCHEMAX_MODEL names in this environment, else the embedded model.
    concurrency: the number of actors, or the fewest and the most. None: one per GPU of the current
        cluster; without GPUs, one per machine.
    num_gpus, num_cpus: of each actor. None: one GPU if the current cluster has any; CPUs, without
        GPUs, all of a machine but one, or half of a single one; give 0 if the cluster has one CPU,
        since reading needs a whole one. torch computes with as many threads.
    batch_rows: rows that an actor computes at a time. Few rows leave its passes half empty; if an
        actor dies, its rows are computed again.
    keep: the columns of the dataset that are kept beside the results. None keeps all, [] none.
    details: True adds the raw text, the confidence and the place of every value; "confidence" adds
        confidences alone.
    device, dtype: as `Extractor.from_pretrained` takes them.
    options: of `Extractor.stream`.

    Returns the kept columns and the columns of `arrow_schema` but `id` and `index`, since rows of a
    Dataset have no number: the fields, `_error` (why a row failed, else null), `_field_errors`.
    Every row of the dataset has a row; a failed row stops nothing. Ray keeps their order only with
    `DataContext.execution_options.preserve_order`.

    Raises InputError without Ray and for a column with the name of a field; SchemaError,
    TemplateError, TypeError and ValueError for faults of schema and settings. A fault that only a
    loaded model shows (ModelError) stops the dataset when it is computed.
    """
    ray_data = ray_module("ray.data")
    if not isinstance(dataset, ray_data.Dataset):
        raise InputError(
            f"schemax.io.ray.extract takes a ray.data.Dataset, not {type(dataset).__name__}; "
            "ray.data.from_items(products) makes one"
        )
    if batch_rows < 1:
        raise ValueError(f"batch_rows must be at least 1, not {batch_rows}")
    settings = _checked(schema, options)
    # Without known columns, the actors check them.
    columns = dataset.columns(fetch_if_missing=False) or ()
    wanted = keep if columns else ()
    checked_frame(
        columns, schema, RecordFields.of_options(settings), details, wanted, "the dataset"
    )
    pool = Pool.of(concurrency, num_gpus, num_cpus)
    if pool.is_greedy():
        warnings.warn(
            "the actors take all CPUs that Ray has, so a dataset that has yet to be read would "
            "wait for one forever; give a smaller num_cpus",
            UserWarning,
            stacklevel=2,
        )
    name = model if callable(model) else named_for_actors(model)
    read = partial(extract_frame, schema=schema, details=details, **settings)
    kept = None if keep is None else [*keep]
    reader = partial(_reader, name, pool.device(device), dtype, kept, read)
    return dataset.map_batches(
        Loaded,
        fn_constructor_args=(Parcel.of(reader, schema),),
        batch_size=batch_rows,
        batch_format="pyarrow",
        **pool.settings,
    )


def _checked(schema: Schemas, options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the options for actors. Raises what `Extractor.stream` raises without a model."""
    check_options(extract, options)
    settings = dict(options)
    if isinstance(schema, Mapping) and not schema:
        raise SchemaError("schemas", None, "no category is given")
    if settings.get("format") is not None:
        settings["format"] = get_format(settings["format"])
    if (template := settings.get("template")) is not None:
        load_template(template)
        if isinstance(template, (str, Path)):  # a path means nothing on other machines
            settings["template"] = template_source(template)
    resolve_decoding(settings.get("decoding"))
    shown = RecordFields.of_options(settings)
    read_few_shot_examples(
        settings.get("examples"),
        named_schemas(schema),
        isinstance(schema, Mapping),
        lambda document: shown_text(document, shown)[0],
    )
    return settings


def _reader(
    model: str | Callable[[], Extractor] | None,
    device: str,
    dtype: str,
    keep: list[str] | None,
    read: Callable[..., Any],
) -> Callable[[Any], Any]:
    """Loads a model; returns a function that reads batches with it.

    read: `extract_frame`, but for the model and the kept columns.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        if callable(model):
            extractor = model()
        else:
            name = model or resource_dir("embedded")
            extractor = Extractor.from_pretrained(name, device=device, dtype=dtype)
    return lambda batch: read(
        batch, extractor=extractor, keep=batch.column_names if keep is None else keep
    )
