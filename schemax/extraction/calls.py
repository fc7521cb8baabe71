"""Calls of an extractor: `extract`, `stream`, and their asynchronous versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import aclosing
from functools import partial
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, overload
from weakref import WeakSet

from schemax.attributes.settings import require_model
from schemax.base.messages import perhaps
from schemax.base.progress import track
from schemax.compiler import CompiledSchema
from schemax.compiler.few_shot import (
    FewShotExamples,
    read_few_shot_examples,
)
from schemax.compiler.prompt import TemplateLike
from schemax.config import DecodingConfig
from schemax.errors import SchemaError
from schemax.extraction.documents import RecordFields, read_documents, shown_text
from schemax.extraction.familiarity import Familiarity
from schemax.extraction.model_settings import ModelSettings
from schemax.formats import OutputFormat
from schemax.reading.markup import Html
from schemax.results import Extraction
from schemax.results.extraction import check_on_error, values_of
from schemax.servers.remote import RemoteModel

if TYPE_CHECKING:
    from schemax.extraction.pipeline import Extractions
    from schemax.runtime.engine.shared import SharedEngine
    from schemax.runtime.slots.outputs import Watcher

T = TypeVar("T")


class Options(TypedDict, total=False):
    """The options of `Extractor.stream`, which explains them."""

    text: str | Sequence[str] | None
    id: str
    category: str | None
    format: str | OutputFormat | None
    template: TemplateLike | None
    decoding: str | DecodingConfig | None
    examples: FewShotExamples | None
    html: Html


def check_options(function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raises TypeError for an option that is not among `Options`. function: has the options."""
    if strange := sorted(options.keys() - Options.__annotations__.keys()):
        parameters = signature(function).parameters.values()
        own = [one.name for one in parameters if one.kind is Parameter.KEYWORD_ONLY]
        known = list(dict.fromkeys([*Options.__annotations__, *own]))
        raise TypeError(
            f"{function.__name__}() has no option {strange[0]!r}{perhaps(strange[0], known)}; it "
            f"has {', '.join(known)}"
        )


class Calls(ModelSettings):
    """The calls of an extractor."""

    _engine: SharedEngine
    _unfamiliar: WeakSet[CompiledSchema]

    @overload
    def extract(
        self,
        products: Iterable[Any],
        schema: type[T],
        *,
        on_error: Literal["raise"] = ...,
        show_progress: bool = ...,
        **options: Unpack[Options],
    ) -> list[T]: ...

    @overload
    def extract(
        self,
        products: Iterable[Any],
        schema: type[T] | Mapping[str, type[T]],
        *,
        on_error: Literal["raise", "null"] = ...,
        show_progress: bool = ...,
        **options: Unpack[Options],
    ) -> list[T | None]: ...

    @overload
    def extract(
        self,
        products: Iterable[Any],
        schema: Mapping[str, type[Any]],
        *,
        on_error: Literal["raise", "null"] = ...,
        show_progress: bool = ...,
        **options: Unpack[Options],
    ) -> list[Any]: ...

    def extract(
        self,
        products: Iterable[Any],
        schema: type[T] | Mapping[str, type[T]],
        *,
        on_error: Literal["raise", "null"] = "raise",
        show_progress: bool = False,
        **options: Unpack[Options],
    ) -> list[Any]:
        """Instances for all products, in order. The other options are those of `stream`.

        Raises ExtractionError, after all rows are done, if some could not become instances; with
        on_error="null" these are None in the list.
        """
        check_on_error(on_error)
        stream = self.stream(products, schema, **options)
        if show_progress:
            stream = track(stream, total=len(products) if isinstance(products, Sized) else None)
        return values_of(stream, on_error)

    @overload
    async def aextract(
        self,
        products: Iterable[Any],
        schema: type[T],
        *,
        on_error: Literal["raise"] = ...,
        **options: Unpack[Options],
    ) -> list[T]: ...

    @overload
    async def aextract(
        self,
        products: Iterable[Any],
        schema: type[T] | Mapping[str, type[T]],
        *,
        on_error: Literal["raise", "null"] = ...,
        **options: Unpack[Options],
    ) -> list[T | None]: ...

    @overload
    async def aextract(
        self,
        products: Iterable[Any],
        schema: Mapping[str, type[Any]],
        *,
        on_error: Literal["raise", "null"] = ...,
        **options: Unpack[Options],
    ) -> list[Any]: ...

    async def aextract(
        self,
        products: Iterable[Any],
        schema: type[T] | Mapping[str, type[T]],
        *,
        on_error: Literal["raise", "null"] = "raise",
        **options: Unpack[Options],
    ) -> list[Any]:
        """The asynchronous `extract`, which shares passes with other calls; see `astream`."""
        check_on_error(on_error)
        found = [item async for item in self.astream(products, schema, **options)]
        return values_of(found, on_error)

    @overload
    def stream(
        self,
        products: Iterable[Any],
        schema: type[T] | Mapping[str, type[T]],
        **options: Unpack[Options],
    ) -> Iterator[Extraction[T]]: ...

    @overload
    def stream(
        self,
        products: Iterable[Any],
        schema: Mapping[str, type[Any]],
        **options: Unpack[Options],
    ) -> Iterator[Extraction[Any]]: ...

    def stream(
        self,
        products: Iterable[Any],
        schema: type[Any] | Mapping[str, type[Any]],
        **options: Unpack[Options],
    ) -> Iterator[Extraction[Any]]:
        """Extractions as they finish, in bounded memory; `index` tells the place in the input.
        Calls of several threads and tasks share passes of the model.

        schema: a Pydantic model, or one per category, named by the value of the key `category`.
        text: the keys of a record that the model is shown; None shows all but id and category.
        examples: what the instruction shows: (document, instance) pairs, of several schemas by
            category. A document is a product as in `products`, and may be empty; a mapping that
            validates stands for an instance. None shows the demonstrations of the prompt file;
            without any, a model that schemax did not train is shown the schema's own, or those of
            a ready-made schema of the same category. () shows none.
        html: "strip" shows texts in which HTML is recognised without it (spans are still offsets
            into the texts as they were given), "keep" all texts as they are.
        A record that cannot be read, or is too long for the model, becomes an extraction without
        a value, whose `errors` say why.

        Raises InputError for a bare str, for examples that do not fit, for an `id` or `category`
        that no record of a list has, and for a key in `text` that none has, where one has a similar
        key; SchemaError, TemplateError, ModelError and ValueError before the first product is read.
        """
        return iter(self.extractions(products, schema, **options))

    async def astream(
        self,
        products: Iterable[Any],
        schema: type[T] | Mapping[str, type[T]],
        **options: Unpack[Options],
    ) -> AsyncGenerator[Extraction[T]]:
        """The asynchronous `stream`. A cancelled task leaves the model's passes to others.

        Products are read in threads of the loop's executor, so that the loop goes on; errors of the
        options are raised in place of the first extraction.
        """
        compile_all = partial(self.extractions, products, schema, **options)
        async with aclosing(aiter(await asyncio.to_thread(compile_all))) as stream:
            async for item in stream:
                yield item

    def close(self) -> None:
        """Finishes the requests that the model has; later calls and requests raise ModelError."""
        self._engine.close()
        if isinstance(self.model, RemoteModel):
            self.model.client.close()

    @property
    def is_closed(self) -> bool:
        return self._engine.is_closed

    def __exit__(self, *_: object) -> None:
        self.close()

    def extractions(
        self,
        products: Iterable[Any],
        schema: type[T] | Mapping[str, type[T]],
        *,
        text: str | Sequence[str] | None = None,
        id: str = "id",
        category: str | None = None,
        examples: FewShotExamples | None = None,
        html: Html = "strip",
        watcher: Watcher | None = None,
        is_quick: bool = False,
        **settings: Any,
    ) -> Extractions:
        """The extractions of `stream` and `astream`. watcher, is_quick: see `Extractions`."""
        check_options(self.extract, settings)
        mixed = isinstance(schema, Mapping)
        schemas = dict(schema) if isinstance(schema, Mapping) else {"": schema}
        if not schemas:
            raise SchemaError("schemas", None, "no category is given")
        shown = RecordFields.of(text, id, category, html)
        options = {**settings, "examples": examples}
        shots = read_few_shot_examples(
            self.chosen_examples(schema, options),
            schemas,
            mixed,
            lambda document: shown_text(document, shown)[0],
        )
        once: dict[Any, CompiledSchema] = {}  # several categories may share a schema
        compiled = {}
        for name, item in schemas.items():
            require_model(item)
            shots_of = shots.get(name, None if examples is None else ())
            key = (item, name if shots_of else None)
            if key not in once:
                once[key] = self.compile(item, examples=shots_of, **settings)
                self.check_room(once[key], shots_of, settings)
            compiled[name] = once[key]
        from schemax.extraction.pipeline import Extractions  # which imports torch

        documents = read_documents(products, shown)
        familiarity = Familiarity(self.calibration, self._unfamiliar)
        found = self._engine, documents, compiled, self.calibration, familiarity
        return Extractions(*found, by_category=mixed, watcher=watcher, is_quick=is_quick)
