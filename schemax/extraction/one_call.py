"""`extract`, the function: products in, instances out."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from typing_extensions import TypeVar

from schemax.attributes import compile_attributes
from schemax.extraction.documents import Inputs, Options
from schemax.extraction.extractor import Extractor, SchemaOrSchemas, loaded
from schemax.results.extraction import check_on_error

T = TypeVar("T", default=Any)


@overload
def extract(
    products: Iterable[Any],
    schema: SchemaOrSchemas[T],
    *,
    model: str | Path | None = ...,
    extractor: Extractor | None = ...,
    on_error: Literal["raise"] = ...,
    show_progress: bool = ...,
    **options: Unpack[Options],
) -> list[T]: ...


@overload
def extract(
    products: Iterable[Any],
    schema: SchemaOrSchemas[T],
    *,
    model: str | Path | None = ...,
    extractor: Extractor | None = ...,
    on_error: Literal["raise", "null"],
    show_progress: bool = ...,
    **options: Unpack[Options],
) -> list[T | None]: ...


def extract(
    products: Iterable[Any],
    schema: SchemaOrSchemas[T],
    *,
    model: str | Path | None = None,
    extractor: Extractor | None = None,
    on_error: Literal["raise", "null"] = "raise",
    show_progress: bool = False,
    **options: Unpack[Options],
) -> list[Any]:
    """Reads the attributes of a schema from every product: instances, in order.

    products: texts, or mappings whose values are shown to the model.
    schema: an `AttrSchema` or any Pydantic model, or several of them by category.
    model: a folder or Hub id.
    extractor: a loaded model. Without either, `Extractor.default()`. A model named here stays
        loaded until another model is named.
    options: text, id, category, format, template, decoding and examples, as `Extractor.stream`
        takes them.

    Raises InputError, SchemaError, TemplateError, ModelError and ValueError before anything is
    computed, and ExtractionError, which carries every finished extraction, if some rows could not
    become instances; on_error="null" puts None in their place.
    """
    if model is not None and extractor is not None:
        raise ValueError("give a model or an extractor, not both")
    check_on_error(on_error)
    inputs = Inputs.of(extract, products, schema, options)
    if extractor is None:
        for declared in inputs.schemas.values():
            compile_attributes(declared)  # refused before a model is loaded
        extractor = Extractor.default() if model is None else loaded(str(model))
    return extractor.extract(
        products, schema, on_error=on_error, show_progress=show_progress, **options
    )
