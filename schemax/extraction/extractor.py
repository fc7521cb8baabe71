"""`Extractor`: a loaded model that turns products into typed instances."""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import AsyncGenerator, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import AbstractContextManager, aclosing
from copy import copy
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, Unpack, cast, overload
from weakref import WeakSet

from typing_extensions import TypeVar

from schemax.attributes.examples import FewShotExample, read_few_shot_examples, too_long
from schemax.base.calibration import Calibration
from schemax.base.messages import track, warn
from schemax.base.resources import EMBEDDED_WARNING, default_model, is_embedded, named_model
from schemax.base.trained import TrainedWith
from schemax.compiler import CompiledSchema, as_codec
from schemax.compiler.automata import checked_eos_ids
from schemax.compiler.prompt import TemplateLike
from schemax.config import DecodingConfig, resolve_decoding
from schemax.extraction.cascade import Further, cascade_of, check_fit, sureness_marks
from schemax.extraction.defaults import Defaults
from schemax.extraction.documents import Inputs, Options, shown_text
from schemax.extraction.familiarity import Familiarity
from schemax.extraction.prompt_file import PromptFile, PromptLike, read_prompt_file
from schemax.formats import OutputFormat
from schemax.results import Extraction
from schemax.results.extraction import check_on_error, values_of
from schemax.runtime.slots.outputs import exceeds
from schemax.runtime.slots.plan import plan_prompt
from schemax.servers.remote import RemoteModel

if TYPE_CHECKING:
    from schemax.extraction.pipeline import Extractions
    from schemax.runtime.models.loading import Loaded
    from schemax.runtime.slots.outputs import Watcher

T = TypeVar("T", default=Any)

SchemaOrSchemas: TypeAlias = type[T] | Mapping[str, type[T]] | Mapping[str, type[Any]]
"""A schema, or several by category, whose instances a type checker takes for `Any`."""


class Extractor(AbstractContextManager["Extractor"]):
    """A model that fills schemas, loaded in this process or behind a server.

    model: a causal language model of transformers.
    tokenizer: its fast tokenizer.
    format, template, decoding: used where neither the call nor the class says otherwise; kept, with
        all that the model's folder says, in the attribute `defaults` (see `Defaults`).
    eos_ids: ids that end an output; None takes those of the model and the tokenizer.
    calibration: the interpretation of the model's probabilities; None takes them as they are.
    further: the next model, for a cascade.

    An extractor that `from_pretrained` or `from_server` has made can be pickled: it is loaded again
    where it arrives. Pickling any other raises TypeError, since this process alone holds its model.

    Raises ModelError, with the reason, for models and tokenizers that cannot be run.
    """

    further: Further | None = None

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
        from schemax.runtime.engine.self_test import prepare  # imports torch
        from schemax.runtime.engine.shared import SharedEngine
        from schemax.runtime.models.loading import named_eos_ids

        self.model: Any = model if isinstance(model, RemoteModel) else prepare(model)
        self.tokenizer = tokenizer
        self.defaults = Defaults(
            format=format,
            template=template,
            decoding=resolve_decoding(decoding),
            calibration=calibration or Calibration(),
            is_remote=isinstance(model, RemoteModel),
            scores_choices=getattr(model, "scores_choices", True),
        )
        self._engine = SharedEngine(self.model)
        self._load_again: partial[Extractor] | None = None
        self._unfamiliar: WeakSet[CompiledSchema] = WeakSet()  # schemas with a warning
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
        quantization: Literal["nf4", "int8", "int4"] | None = None,
        adapter: str | Path | None = None,
        attn_implementation: str | None = None,
        compile: bool = False,
        revision: str | None = None,
        format: str | OutputFormat | None = None,
        template: TemplateLike | None = None,
        decoding: str | DecodingConfig | None = None,
        prompt: PromptLike | None = None,
    ) -> Extractor:
        """Loads a model from a local folder or the Hugging Face Hub.

        Loads safetensors only, and never runs remote code. A `prompt.jinja` in the folder is the
        default template, a `calibration.json` the calibration, and a `schemax.json` names the
        default format and decoding (docs/training.md).

        name: a model, or a LoRA adapter that names its base model.
        revision: its branch, tag or commit on the Hub.
        device: "auto" takes CUDA or MPS where there is one, else the CPU.
        dtype: "auto" takes the model's own on an accelerator, bfloat16 in the place of float16. On
            a CPU it takes float32, but bfloat16 where the model's schemax.json says so and the
            processor is faster in it.
        device_map: spreads the model over several devices; needs accelerate.
        quantization: "nf4" (4 bits a weight, CUDA), "int8" (8 bits, CUDA or CPU) or "int4" (4 bits,
            CPU). Of GGUF files "int4" alone, which keeps what the file has in four bits.
        adapter: folder or Hub id of a LoRA adapter for the model. Merged into its weights, so that
            it costs nothing at run time, unless these are quantized. Needs peft.
        compile: whether norms and other chains of pointwise operations become one kernel each, by
            `torch.compile`, while the model is loaded. Needs a compiler.
        prompt: the prompt file that `schemax fit` wrote, or its path; see `with_prompt`.

        Raises ModelError, with cause and remedy, for a model that cannot be loaded; ValueError for
        an unknown quantization, and for a device together with a device_map; InputError for a
        prompt file that cannot be used.
        """
        from schemax.runtime.models.loading import load

        prompt = None if prompt is None else read_prompt_file(prompt)  # before the model is loaded
        loading: Any = {
            "device": device,
            "dtype": dtype,
            "device_map": device_map,
            "quantization": quantization,
            "adapter": adapter,
            "attn_implementation": attn_implementation,
            "compile": compile,
            "revision": revision,
        }
        settings: Any = {"format": format, "template": template, "decoding": decoding}
        if (place := named_model(name)) != name and is_embedded(place):  # its folder does not warn
            warn(EMBEDDED_WARNING)
        loaded = load(place, **loading)
        again = partial(cls.from_pretrained, name, **loading)
        return cls._of(loaded, loaded.trained.decoding, prompt, settings, again)

    @classmethod
    def from_server(
        cls,
        url: str,
        *,
        model: str | None = None,
        tokenizer: Any = None,
        api_key: str | None = None,
        kind: str = "auto",
        probabilities: bool | None = None,
        concurrency: int = 32,
        timeout: float = 600.0,
        format: str | OutputFormat | None = None,
        template: TemplateLike | None = None,
        decoding: str | DecodingConfig | None = None,
        prompt: PromptLike | None = None,
    ) -> Extractor:
        """Has a server fill schemas: vLLM, SGLang, llama-server, hosted models; docs/servers.md.

        url: of the API, `/v1` included.
        model: as the server names it, None takes its first.
        tokenizer: the model's, as a folder, Hub id or object: every field is a completion of its
            own. None takes the tokenizer of the model's name. Without any, for the kind "openai"
            and for a GGUF file whose name does not tell its tokenizer, a document is one chat.
        api_key: None takes $SCHEMAX_API_KEY, else $OPENAI_API_KEY, which is sent over https and to
            this machine alone.
        kind: "vllm", "sglang", "llama.cpp", "llama-cpp-python", "schemax" or "openai"; "auto" asks
            the server. A server of schemax (`schemax serve`) reads documents as its model does in
            process, in its own prompt and decoding.
        probabilities: whether to ask the server for them; confidences need them. None asks all
            kinds but llama-cpp-python, where they cost most of the time.
        concurrency: requests in flight at most; llama.cpp's servers get as many as they have slots.
        timeout: seconds that a request may take.
        prompt: the prompt file that `schemax fit` wrote, or its path; see `with_prompt`.

        Raises ServerError for a server that does not answer or refuses, ModelError for a tokenizer
        that cannot be read, ValueError for a malformed address and for an unknown kind; InputError
        for a prompt file that cannot be used.
        """
        from schemax.servers.connect import connect

        prompt = None if prompt is None else read_prompt_file(prompt)
        settings: Any = {"format": format, "template": template, "decoding": decoding}
        given: Any = {"model": model, "tokenizer": tokenizer, "api_key": api_key, "kind": kind}
        given |= {"concurrency": concurrency, "timeout": timeout, "probabilities": probabilities}
        served = connect(url, **given)
        usual = served.trained.decoding
        if usual is not None and usual.constrain == "document":
            usual = replace(usual, constrain="types")  # no server can hold texts to a document
        if usual is None or served.model.refusal(usual):
            usual = resolve_decoding(served.model.usual_decoding)
        again = partial(cls.from_server, url, **given)
        return cls._of(served, usual, prompt, settings, again, served.tokenizer.eos_ids)

    @classmethod
    def _of(
        cls,
        loaded: Loaded,
        decoding: DecodingConfig | None,
        prompt: PromptFile | None,
        settings: Mapping[str, Any],
        load_again: partial[Extractor],
        eos_ids: Sequence[int] | None = None,
    ) -> Extractor:
        """decoding: the model's own; settings: format, template and decoding named by the user."""
        extractor = cls(
            loaded.model,
            loaded.tokenizer,
            format=loaded.trained.format,
            template=loaded.template,
            decoding=decoding,
            eos_ids=eos_ids,
            calibration=loaded.calibration,
        )
        own = replace(extractor.defaults, trained=loaded.trained, is_trained=loaded.is_trained)
        extractor.defaults = own.changed(prompt, **settings)
        extractor._load_again = partial(load_again, prompt=prompt, **settings)
        return extractor

    def with_prompt(
        self,
        prompt: PromptLike,
        *,
        format: str | OutputFormat | None = None,
        template: TemplateLike | None = None,
        decoding: str | DecodingConfig | None = None,
    ) -> Extractor:
        """Returns an extractor over the same model that uses a prompt file (docs/fit.md).

        The file's template, format, decoding and calibration come before those of classes and of
        the model's folder, after those of a call; its demonstrations are shown, in their
        categories, if a call names no examples.

        prompt: a prompt file, or its path.
        format, template, decoding: come before the file's.

        Raises InputError, naming file and key, for a prompt file that cannot be used.
        """
        prompt = read_prompt_file(prompt)
        extractor = copy(self)
        extractor.defaults = self.defaults.changed(
            prompt, format=format, template=template, decoding=decoding
        )
        if self._load_again is not None:
            extractor._load_again = partial(self._load_again, prompt=prompt)
        return extractor

    @classmethod
    def cascade(
        cls,
        extractors: Sequence[Extractor],
        *,
        confidence: float | None = None,
        precision: float | None = None,
        read_below: float | None = None,
    ) -> Extractor:
        """Returns an extractor that asks a model only for what the models before it are unsure of.

        Asked again are values of a `confidence`, and nulls of a `null_probability`, below
        `confidence`, and answers that cannot be used. With `precision` in its place, it is values
        of which the model's calibration does not promise this precision (`schemax.calibrated`), and
        nulls below it. Documents are read again if a field is below `read_below`; None: if any is
        asked again. Where a model fails, earlier answers stay, with an error of the row. See
        docs/cascades.md.

        extractors: from the cheapest on, in this process or behind servers; no document shares a
            prompt with others. Settings and calibration are the first's. They close together.

        Raises ValueError for fewer than two extractors, for a cascade that is not the last, and as
        `sureness_marks` does.
        """
        first, *rest = extractors
        if not rest or first.further is not None:
            raise ValueError("a cascade takes two extractors or more; only the last may be one")
        when = {"confidence": confidence, "precision": precision, "read_below": read_below}
        marks = sureness_marks(first, **when)
        later = rest[0] if len(rest) == 1 else cls.cascade(rest, **when)
        further = Further(later, *marks, precision is not None)
        return cast(Extractor, cascade_of(lambda: copy(first), further))

    @property
    def name(self) -> str:
        """The model's name: its server's, else that of its folder or on the Hub."""
        if isinstance(self.model, RemoteModel):
            return self.model.name
        return type(self.model.model).__name__ if self.place is None else Path(self.place).name

    @property
    def place(self) -> str | Path | None:
        """The model's folder or Hub id, a server's address; None for a model in memory alone."""
        return None if self._load_again is None else named_model(self._load_again.args[0])

    @property
    def loading(self) -> Mapping[str, Any]:
        """The arguments that the model was loaded with."""
        return {} if self._load_again is None else self._load_again.keywords

    def __copy__(self) -> Self:
        extractor = object.__new__(type(self))  # `__reduce__` would load the model once more
        vars(extractor).update(vars(self))
        return extractor

    def __reduce__(self) -> tuple[Any, ...]:
        if self._load_again is None:
            raise TypeError(
                "this Extractor was given a loaded model, which is not pickled; send the model's "
                "folder or Hub id, and call Extractor.from_pretrained where it arrives"
            )
        if self.further is None:
            return self._load_again, ()
        return cascade_of, (self._load_again, self.further)

    @classmethod
    def default(cls) -> Extractor:
        """The model named by the environment variable SCHEMAX_MODEL, else the embedded one.

        The model is loaded once, and again after it was closed. The embedded model warns
        (UserWarning) of its training.
        """
        place = default_model()
        if is_embedded(place):
            warn(EMBEDDED_WARNING)
        return loaded(str(place))

    @property
    def trained(self) -> TrainedWith:
        """The settings of the model's training."""
        return self.defaults.trained

    def compile(
        self,
        schema: type[Any],
        *,
        format: str | OutputFormat | None = None,
        template: TemplateLike | None = None,
        decoding: str | DecodingConfig | None = None,
        examples: Sequence[FewShotExample] | None = None,
    ) -> CompiledSchema:
        """Compiles a schema for this model; see `compile_schema` for what is raised.

        examples: None shows a model that schemax did not train the schema's usual demonstrations.
        """
        named: Any = {"format": format, "template": template, "decoding": decoding}
        model = self.model, self.tokenizer, self.eos_ids
        return self.defaults.compile(schema, *model, examples=examples, **named)

    @overload
    def extract(
        self,
        products: Iterable[Any],
        schema: SchemaOrSchemas[T],
        *,
        on_error: Literal["raise"] = ...,
        show_progress: bool = ...,
        **options: Unpack[Options],
    ) -> list[T]: ...

    @overload
    def extract(
        self,
        products: Iterable[Any],
        schema: SchemaOrSchemas[T],
        *,
        on_error: Literal["raise", "null"],
        show_progress: bool = ...,
        **options: Unpack[Options],
    ) -> list[T | None]: ...

    def extract(
        self,
        products: Iterable[Any],
        schema: SchemaOrSchemas[T],
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
        stream: Iterable[Extraction[Any]] = self.extractions(products, schema, **options)
        if show_progress:
            total = len(products) if isinstance(products, Sized) else None
            stream = track(iter(stream), total=total)
        return values_of(stream, on_error)

    @overload
    async def aextract(
        self,
        products: Iterable[Any],
        schema: SchemaOrSchemas[T],
        *,
        on_error: Literal["raise"] = ...,
        **options: Unpack[Options],
    ) -> list[T]: ...

    @overload
    async def aextract(
        self,
        products: Iterable[Any],
        schema: SchemaOrSchemas[T],
        *,
        on_error: Literal["raise", "null"],
        **options: Unpack[Options],
    ) -> list[T | None]: ...

    async def aextract(
        self,
        products: Iterable[Any],
        schema: SchemaOrSchemas[T],
        *,
        on_error: Literal["raise", "null"] = "raise",
        **options: Unpack[Options],
    ) -> list[Any]:
        """The asynchronous `extract`, which shares passes with other calls; see `astream`."""
        check_on_error(on_error)
        stream = self.astream(products, schema, **options)
        return values_of([item async for item in stream], on_error)

    def stream(
        self, products: Iterable[Any], schema: SchemaOrSchemas[T], **options: Unpack[Options]
    ) -> Iterator[Extraction[T]]:
        """Extractions as they finish, in bounded memory; `index` tells the place in the input.
        Calls of several threads and tasks share passes of the model.

        schema: a Pydantic model, or one per category, named by the value of the key `category`.
        text: the keys of a record that the model is shown; None shows all but id and category.
        examples: (document, instance) pairs for the instruction, of several schemas by category. A
            document is a product as in `products`, and may be empty; a mapping that validates
            stands for an instance. None shows the demonstrations of the prompt file; without any, a
            model that schemax did not train is shown the schema's own, or those of a ready-made
            schema of the same category. () shows none.
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
        self, products: Iterable[Any], schema: SchemaOrSchemas[T], **options: Unpack[Options]
    ) -> AsyncGenerator[Extraction[T]]:
        """The asynchronous `stream`. A cancelled task leaves the model's passes to others.

        Products are read in threads of the loop's executor, so that the loop goes on; errors of the
        options are raised in place of the first extraction.
        """
        compile_all = partial(self.extractions, products, schema, **options)
        async with aclosing(aiter(await asyncio.to_thread(compile_all))) as stream:
            async for item in stream:
                yield item

    def extractions(
        self,
        products: Iterable[Any],
        schema: SchemaOrSchemas[T],
        *,
        watcher: Watcher | None = None,
        **options: Unpack[Options],
    ) -> Extractions:
        """The extractions of `stream` and `astream`. watcher: see `Extractions`.

        The passes of a cascade are not watched, since another model may answer again.
        """
        inputs = Inputs.of(self.extract, products, schema, options)
        return self._extractions(inputs, self._compiled(inputs), watcher)

    def _extractions(
        self,
        inputs: Inputs,
        compiled: Mapping[str, CompiledSchema],
        watcher: Watcher | None,
    ) -> Extractions:
        """Raises ModelError for models of a cascade that do not fit together."""
        from schemax.extraction.pipeline import Extractions  # imports torch

        later = None
        if self.further is not None:
            extractor = self.further.extractor
            compiled_later, watcher = extractor._compiled(inputs), None
            for category, own in compiled.items():
                check_fit(own, self.name, compiled_later[category], extractor.name)
            later = extractor._extractions(inputs, compiled_later, None)
        return Extractions(
            self._engine,
            inputs.documents,
            compiled,
            self.defaults.calibration,
            Familiarity(self.defaults.calibration, self._unfamiliar),
            by_category=isinstance(inputs.schema, Mapping),
            watcher=watcher,
            further=self.further,
            later=later,
        )

    def _compiled(self, inputs: Inputs) -> dict[str, CompiledSchema]:
        """The schemas by category. A schema of several categories is compiled once, unless
        examples tell them apart."""
        examples = self.defaults.chosen_examples(inputs.schema, inputs.options)
        examples_of = read_few_shot_examples(
            examples,
            inputs.schemas,
            isinstance(inputs.schema, Mapping),
            lambda document: shown_text(document, inputs.shown)[0],
        )
        usual = None if inputs.options.get("examples") is None else ()
        by_key: dict[Any, CompiledSchema] = {}
        compiled = {}
        for name, schema in inputs.schemas.items():
            shots = examples_of.get(name, usual)
            key = (schema, name if shots else None)
            if key not in by_key:
                by_key[key] = self.compile(schema, examples=shots, **inputs.settings)
                if shots:
                    self._check_room(by_key[key], shots, inputs.settings)
            compiled[name] = by_key[key]
        return compiled

    def _check_room(
        self,
        compiled: CompiledSchema,
        examples: Sequence[FewShotExample],
        settings: Mapping[str, Any],
    ) -> None:
        """Raises InputError, naming the first example that exceeds the model's context; if the
        prompt alone exceeds it, rows report the error."""

        def misfit(count: int) -> str | None:
            shown = self.compile(compiled.schema, examples=examples[:count], **settings)
            return self._misfit(shown)

        if self._misfit(compiled) is None or misfit(0) is not None:
            return
        counts = range(1, len(examples))
        least = bisect_left(counts, True, key=lambda count: misfit(count) is not None)
        raise too_long(compiled.schema, examples, least, misfit(least + 1))

    def _misfit(self, compiled: CompiledSchema) -> str | None:
        """The reason why the prompt of an empty document does not fit the model."""
        (prompt,) = compiled.encode([""])
        plan = plan_prompt(prompt, compiled.decoding)
        return exceeds(plan.max_position, self.model.max_positions)

    def close(self) -> None:
        """Finishes the requests that the model has; later calls and requests raise ModelError."""
        self._engine.close()
        if isinstance(self.model, RemoteModel):
            self.model.client.close()
        if self.further is not None:
            self.further.extractor.close()

    @property
    def is_closed(self) -> bool:
        return self._engine.is_closed

    def __exit__(self, *_: object) -> None:
        self.close()


@lru_cache(maxsize=1)
def _loaded(name: str) -> Extractor:
    return Extractor.from_pretrained(name)


def loaded(name: str) -> Extractor:
    """Loads a model, which stays loaded until another model is named, or until it is closed."""
    if _loaded(name).is_closed:
        _loaded.cache_clear()
    return _loaded(name)
