"""`extract`: everything in one call, from a model's name to instances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack, overload

from schemax.attributes import compile_attributes
from schemax.calls import Options
from schemax.documents import Shown, read_documents
from schemax.extractor import Extractor, loaded

T = TypeVar("T")


@overload
def extract(
    products: Iterable[Any],
    schema: type[T],
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
    schema: type[T] | Mapping[str, type[T]],
    *,
    model: str | Path | None = ...,
    extractor: Extractor | None = ...,
    on_error: Literal["raise", "null"] = ...,
    show_progress: bool = ...,
    **options: Unpack[Options],
) -> list[T | None]: ...


def extract(
    products: Iterable[Any],
    schema: type[T] | Mapping[str, type[T]],
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
    model: a folder or Hub id; extractor: one that is loaded already. Without either,
        `Extractor.default()`. A model named here stays loaded until another one is named.
    options: text, id, category, format, template, decoding and examples, as `Extractor.stream`
        takes them.

    Raises InputError, SchemaError, TemplateError, ModelError and ValueError before anything is
    computed, and ExtractionError, which carries every finished extraction, if some rows could not
    become instances; on_error="null" puts None in their place.
    """
    if model is not None and extractor is not None:
        raise ValueError("give a model or an extractor, not both")
    # Refused before a model is loaded.
    if strange := sorted(options.keys() - Options.__annotations__.keys()):
        known = ", ".join(Options.__annotations__)
        raise TypeError(f"extract() has no option {strange[0]!r}; it has {known}")
    if isinstance(products, (str, bytes, Mapping)):
        read_documents(products, Shown())
    for declared in schema.values() if isinstance(schema, Mapping) else (schema,):
        compile_attributes(declared)
    if extractor is None:
        extractor = Extractor.default() if model is None else loaded(str(model))
    return extractor.extract(
        products, schema, on_error=on_error, show_progress=show_progress, **options
    )
