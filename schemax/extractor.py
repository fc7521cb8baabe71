"""Wires it all together: products and a declaration in, typed instances out."""

from __future__ import annotations

import asyncio
import os
import warnings
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, aclosing
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, overload
from weakref import WeakSet

from pydantic import BaseModel

from schemax.attributes import settings_of
from schemax.calibration import Calibration
from schemax.compiler import CompiledSchema, as_codec, compile_schema
from schemax.compiler.few_shot import FewShotExample, FewShotExamples, read_few_shot_examples
from schemax.compiler.prompt import TemplateLike
from schemax.compiler.stops import checked_eos_ids
from schemax.config import DecodingConfig, resolve_decoding
from schemax.documents import Shown, read_documents, shown_text
from schemax.errors import ModelError, SchemaError
from schemax.familiarity import Familiarity
from schemax.formats import OutputFormat
from schemax.progress import track
from schemax.resources import EMBEDDED_WARNING, resource_dir
from schemax.results import Extraction
from schemax.results.extraction import check_on_error, values_of
from schemax.servers.remote import RemoteModel

if TYPE_CHECKING:
    from schemax.pipeline import Extractions

T = TypeVar("T", bound=BaseModel)


class Options(TypedDict, total=False):
    """Those of `Extractor.stream`, which says what they mean."""

    text: str | Sequence[str] | None
    id: str
    category: str | None
    format: str | OutputFormat | None
    template: TemplateLike | None
    decoding: str | DecodingConfig | None
    examples: FewShotExamples | None


class Extractor(AbstractContextManager["Extractor"]):
    """A loaded model that fills schemas, or one of a server.

    model: a causal language model of transformers; tokenizer: its fast tokenizer.
    format, template, decoding: used where neither the call nor the class says otherwise.
    eos_ids: ids that end an output; None takes those of the model and the tokenizer.
    calibration: how the model's probabilities are read; None takes them as they are.

    One that `from_pretrained` has loaded can be pickled: it is loaded again where it arrives. Any
    other raises TypeError, since its model is held by this process alone.

    Raises ModelError for models and tokenizers that cannot be run, and says why.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        format: str | OutputFormat | None = None,
        template: TemplateLike | None = None,
        decoding: str | DecodingConfig | None = None,
        eos_ids: Sequence[int] | None = None,
        calibration: Calibration | None = None,
    ) -> None:
        from schemax.runtime.loading import named_eos_ids  # which imports torch
        from schemax.runtime.self_test import prepare
        from schemax.runtime.shared import SharedEngine

        self._load_again: partial[Extractor] | None = None
        self.model: Any = model if isinstance(model, RemoteModel) else prepare(model)
        self._engine = SharedEngine(self.model)
        self.tokenizer = tokenizer
        self.format = format
        self.template = template
        self.decoding = resolve_decoding(decoding)
        self.calibration = calibration or Calibration()
        self._unfamiliar: WeakSet[CompiledSchema] = WeakSet()  # schemas that were warned of
        as_codec(tokenizer).check_vocabulary(self.model.vocab_size)
        self.eos_ids = checked_eos_ids(
            named_eos_ids(model, tokenizer) if eos_ids is None else eos_ids, self.model.vocab_size
        )

    @classmethod
    def from_pretrained(
        cls,
        name: str | Path,
        *,
        device: Any = "auto",
        dtype: Any = "auto",
        device_map: Any = None,
        quantization: Literal["nf4", "int8"] | None = None,
        adapter: str | Path | None = None,
        attn_implementation: str | None = None,
        revision: str | None = None,
        format: str | OutputFormat | None = None,
        template: TemplateLike | None = None,
        decoding: str | DecodingConfig | None = None,
    ) -> Extractor:
        """Loads a model from a local folder or the Hugging Face Hub.

        safetensors only, and never with remote code. A `prompt.jinja` in the folder is the default
        template, a `calibration.json` the calibration.

        name: a model, or a LoRA adapter that names its base model; revision: its branch, tag or
            commit on the Hub.
        device: "auto" takes CUDA or MPS where there is one, else the CPU.
        dtype: "auto" takes the model's own on an accelerator and float32 on a CPU.
        device_map: instead of a device, spreads the model over several; needs accelerate.
        quantization: "nf4" (4 bits a weight, CUDA) or "int8" (8 bits, CUDA or CPU).
        adapter: folder or Hub id of a LoRA adapter for the model. Merged into its weights, so that
            it costs nothing at run time, unless these are quantized. Needs peft.

        Raises ModelError for what cannot be loaded, with the cause and the remedy; ValueError for
        an unknown quantization, and for a device together with a device_map.
        """
        from schemax.runtime.loading import load

        loading: Any = {
            "device": device,
            "dtype": dtype,
            "device_map": device_map,
            "quantization": quantization,
            "adapter": adapter,
            "attn_implementation": attn_implementation,
            "revision": revision,
        }
        settings: Any = {"format": format, "decoding": decoding}
        found = load(name, **loading)
        made = cls(
            found.model,
            found.tokenizer,
            template=template or found.template,
            calibration=found.calibration,
            **settings,
        )
        made._load_again = partial(
            cls.from_pretrained, name, template=template, **settings, **loading
        )
        return made

    @classmethod
    def from_server(
        cls,
        url: str,
        *,
        model: str | None = None,
        tokenizer: Any = None,
        api_key: str | None = None,
        kind: str = "auto",
        concurrency: int = 32,
        timeout: float = 600.0,
        format: str | OutputFormat | None = None,
        template: TemplateLike | None = None,
        decoding: str | DecodingConfig | None = None,
    ) -> Extractor:
        """Has a server fill schemas: vLLM, SGLang, llama-server, hosted models; docs/servers.md.

        url: of the API, `/v1` included; model: as the server names it, None takes its first.
        tokenizer: the model's, as a folder, Hub id or object: every field is a completion of its
            own. None takes that of the model's name; of the kind "openai" a document is then one
            chat.
        api_key: None takes $SCHEMAX_API_KEY, else $OPENAI_API_KEY, which is sent over https and to
            this machine alone.
        kind: "vllm", "sglang", "llama.cpp" or "openai"; "auto" asks the server.
        concurrency: requests in flight at most. timeout: seconds that a request may take.

        Raises ServerError for a server that does not answer or refuses, ModelError for a tokenizer
        that cannot be read, ValueError for what is no address and for an unknown kind.
        """
        from schemax.servers.connect import connect

        settings: Any = {"format": format, "template": template, "decoding": decoding}
        place: Any = {"model": model, "tokenizer": tokenizer, "api_key": api_key, "kind": kind}
        place |= {"concurrency": concurrency, "timeout": timeout}
        found = connect(url, **place)
        made = cls(
            found.model,
            found.tokenizer,
            format=format,
            template=template or found.template,
            decoding=decoding or found.model.usual_decoding,
            eos_ids=found.tokenizer.eos_ids,
            calibration=found.calibration,
        )
        made._load_again = partial(cls.from_server, url, **settings, **place)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        if self._load_again is None:
            raise TypeError(
                "this Extractor was given a loaded model, which is not pickled; send the model's "
                "folder or Hub id, and call Extractor.from_pretrained where it arrives"
            )
        return self._load_again, ()

    @classmethod
    def default(cls) -> Extractor:
        """The model named by the environment variable SCHEMAX_MODEL, else the embedded one.

        Loaded once. The embedded model warns (UserWarning) of what it was trained for.
        """
        named = os.environ.get("SCHEMAX_MODEL")
        if not named:
            warnings.warn(EMBEDDED_WARNING, UserWarning, stacklevel=2)
        return loaded(named or str(resource_dir("embedded")))

    def compile(
        self,
        schema: type[BaseModel],
        *,
        format: str | OutputFormat | None = None,
        template: TemplateLike | None = None,
        decoding: str | DecodingConfig | None = None,
        examples: Sequence[FewShotExample] = (),
    ) -> CompiledSchema:
        """Compiles a schema for this model; see `compile_schema` for what is raised."""
        settings = settings_of(schema)
        config = self.decoding if decoding is None else resolve_decoding(decoding)
        if refusal := self.model.refusal(config):
            raise ModelError(refusal)
        return compile_schema(
            schema,
            self.tokenizer,
            format=format or settings.format or self.format,
            template=template or settings.template or self.template,
            decoding=config,
            eos_ids=self.eos_ids,
            vocab_size=self.model.vocab_size,
            examples=examples,
        )

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

    async def aextract(
        self,
        products: Iterable[Any],
        schema: type[T] | Mapping[str, type[T]],
        *,
        on_error: Literal["raise", "null"] = "raise",
        **options: Unpack[Options],
    ) -> list[Any]:
        """`extract` for a task, which shares passes with others; see `astream`."""
        check_on_error(on_error)
        found = [item async for item in self.astream(products, schema, **options)]
        return values_of(found, on_error)

    def stream(
        self,
        products: Iterable[Any],
        schema: type[T] | Mapping[str, type[T]],
        **options: Unpack[Options],
    ) -> Iterator[Extraction[T]]:
        """Extractions as they finish, in bounded memory; `index` tells the place in the input.
        Calls of several threads and tasks share passes of the model.

        schema: a Pydantic model, or one per category, named by the value of the key `category`.
        text: the keys of a record that the model is shown; None shows all but id and category.
        examples: what the instruction shows: (document, instance) pairs, of several schemas by
            category. A document is a product as in `products`, and may be empty; a mapping that
            validates stands for an instance.
        A record that cannot be read, or is too long for the model, becomes an extraction without
        a value, whose `errors` say why.

        Raises InputError for a bare str and for examples that do not fit, SchemaError,
        TemplateError, ModelError and ValueError before the first product is read.
        """
        return iter(self._extractions(products, schema, **options))

    async def astream(
        self,
        products: Iterable[Any],
        schema: type[T] | Mapping[str, type[T]],
        **options: Unpack[Options],
    ) -> AsyncGenerator[Extraction[T]]:
        """`stream` for a task. A task that is cancelled leaves the model's passes to others.

        Products are read in threads of the loop's executor, so that the loop goes on; what is wrong
        with the options is raised in place of the first extraction.
        """
        compile_all = partial(self._extractions, products, schema, **options)
        async with aclosing(aiter(await asyncio.to_thread(compile_all))) as stream:
            async for item in stream:
                yield item

    def close(self) -> None:
        """Finishes what the model was given; later calls, and those with more, raise ModelError."""
        self._engine.close()
        if isinstance(self.model, RemoteModel):
            self.model.client.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _extractions(
        self,
        products: Iterable[Any],
        schema: type[T] | Mapping[str, type[T]],
        *,
        text: str | Sequence[str] | None = None,
        id: str = "id",
        category: str | None = None,
        examples: FewShotExamples | None = None,
        **settings: Any,
    ) -> Extractions:
        mixed = isinstance(schema, Mapping)
        schemas = dict(schema) if isinstance(schema, Mapping) else {"": schema}
        if not schemas:
            raise SchemaError("schemas", None, "no category is given")
        shown = Shown.of(text, id, category)
        shots = read_few_shot_examples(
            examples, schemas, mixed, lambda document: shown_text(document, shown)[0]
        )
        compiled = {
            name: self.compile(item, examples=shots.get(name, ()), **settings)
            for name, item in schemas.items()
        }
        from schemax.pipeline import Extractions  # which imports torch

        documents = read_documents(products, shown)
        familiarity = Familiarity(self.calibration, self._unfamiliar)
        found = self._engine, documents, compiled, self.calibration, familiarity
        return Extractions(*found, by_category=mixed)


@lru_cache(maxsize=1)
def loaded(name: str) -> Extractor:
    """A model that stays loaded until another one is named."""
    return Extractor.from_pretrained(name)
