"""`Extractor`: a loaded model that turns products into typed instances."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack, overload
from weakref import WeakSet

from schemax.attributes import compile_attributes
from schemax.base.calibration import Calibration
from schemax.base.messages import warn
from schemax.base.resources import EMBEDDED_WARNING, default_model, is_embedded, named_model
from schemax.base.trained import TrainedWith
from schemax.compiler import CompiledSchema, as_codec
from schemax.compiler.automata import checked_eos_ids
from schemax.compiler.prompt import TemplateLike
from schemax.config import DecodingConfig, resolve_decoding
from schemax.extraction.calls import Calls, Options, check_options
from schemax.extraction.documents import RecordFields, read_documents
from schemax.extraction.prompt_file import PromptFile, PromptLike, read_prompt_file
from schemax.formats import OutputFormat
from schemax.servers.remote import RemoteModel

T = TypeVar("T")


class Extractor(Calls, AbstractContextManager["Extractor"]):
    """A loaded model that fills schemas, or one of a server.

    model: a causal language model of transformers; tokenizer: its fast tokenizer.
    format, template, decoding: used where neither the call nor the class says otherwise.
    eos_ids: ids that end an output; None takes those of the model and the tokenizer.
    calibration: how the model's probabilities are read; None takes them as they are.
    trained: what the model was trained with, as far as it says so. is_trained: whether schemax
        trained the model, or somebody wrote a prompt for it: `prompt.jinja` or `schemax.json` lies
        in its folder.

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
        from schemax.runtime.engine.self_test import prepare
        from schemax.runtime.engine.shared import SharedEngine
        from schemax.runtime.models.loading import named_eos_ids  # which imports torch

        self._load_again: partial[Extractor] | None = None
        self.model: Any = model if isinstance(model, RemoteModel) else prepare(model)
        self._engine = SharedEngine(self.model)
        self.tokenizer = tokenizer
        self.format, self.template = format, template
        self.decoding = resolve_decoding(decoding)
        self.calibration = calibration or Calibration()
        self.prompt, self.trained, self.is_trained = PromptFile(), TrainedWith(), False
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
        compile: bool = False,
        revision: str | None = None,
        format: str | OutputFormat | None = None,
        template: TemplateLike | None = None,
        decoding: str | DecodingConfig | None = None,
        prompt: PromptLike | None = None,
    ) -> Extractor:
        """Loads a model from a local folder or the Hugging Face Hub.

        safetensors only, and never with remote code. A `prompt.jinja` in the folder is the default
        template, a `calibration.json` the calibration, and a `schemax.json` says which format and
        decoding are the default ones (docs/training.md).

        name: a model, or a LoRA adapter that names its base model; revision: its branch, tag or
            commit on the Hub.
        device: "auto" takes CUDA or MPS where there is one, else the CPU.
        dtype: "auto" takes the model's own on an accelerator. On a CPU it takes float32, but
            bfloat16 where the model's schemax.json says so and the processor is faster in it.
        device_map: instead of a device, spreads the model over several; needs accelerate.
        quantization: "nf4" (4 bits a weight, CUDA) or "int8" (8 bits, CUDA or CPU).
        adapter: folder or Hub id of a LoRA adapter for the model. Merged into its weights, so that
            it costs nothing at run time, unless these are quantized. Needs peft.
        compile: whether norms and other chains of pointwise operations become one kernel each, by
            `torch.compile`, while the model is loaded. Needs a compiler.
        prompt: what `schemax fit` has chosen, or its path; see `with_prompt`.

        Raises ModelError for what cannot be loaded, with the cause and the remedy; ValueError for
        an unknown quantization, and for a device together with a device_map; InputError for a
        prompt file that cannot be used.
        """
        from schemax.runtime.models.loading import load

        chosen = None if prompt is None else read_prompt_file(prompt)  # before the model is loaded
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
        settings: Any = {"format": format, "decoding": decoding}
        if (place := named_model(name)) != name and is_embedded(place):  # its folder does not warn
            warn(EMBEDDED_WARNING)
        found = load(place, **loading)
        made = cls(
            found.model,
            found.tokenizer,
            format=format or found.trained.format,
            template=template or found.template,
            decoding=decoding or found.trained.decoding,
            calibration=found.calibration,
        )
        made.trained = found.trained
        made.is_trained = found.is_trained
        settings["template"] = template
        made._load_again = partial(cls.from_pretrained, name, **settings, **loading)
        return made if chosen is None else made.with_prompt(chosen, **settings)

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

        url: of the API, `/v1` included; model: as the server names it, None takes its first.
        tokenizer: the model's, as a folder, Hub id or object: every field is a completion of its
            own. None takes that of the model's name; of the kind "openai", and of a GGUF file whose
            name tells of none, a document is then one chat.
        api_key: None takes $SCHEMAX_API_KEY, else $OPENAI_API_KEY, which is sent over https and to
            this machine alone.
        kind: "vllm", "sglang", "llama.cpp", "llama-cpp-python", "schemax" or "openai"; "auto" asks
            the server. One of schemax (`schemax serve`) reads documents as its model does in
            process, in its own prompt and decoding.
        probabilities: whether the server is asked for them, without which there are no
            confidences; None asks all kinds but llama-cpp-python, where they cost most of the time.
        concurrency: requests in flight at most; llama.cpp's servers get as many as they have slots.
        timeout: seconds that a request may take.
        prompt: what `schemax fit` has chosen, or its path; see `with_prompt`.

        Raises ServerError for a server that does not answer or refuses, ModelError for a tokenizer
        that cannot be read, ValueError for what is no address and for an unknown kind; InputError
        for a prompt file that cannot be used.
        """
        from schemax.servers.connect import connect

        chosen = None if prompt is None else read_prompt_file(prompt)
        settings: Any = {"format": format, "template": template, "decoding": decoding}
        place: Any = {"model": model, "tokenizer": tokenizer, "api_key": api_key, "kind": kind}
        place |= {"concurrency": concurrency, "timeout": timeout, "probabilities": probabilities}
        found = connect(url, **place)
        trained = found.trained.decoding
        if trained is not None and trained.constrain == "document":
            trained = replace(trained, constrain="types")  # no server can be held to a document
        if trained is None or found.model.refusal(trained):
            trained = resolve_decoding(found.model.usual_decoding)
        made = cls(
            found.model,
            found.tokenizer,
            format=format or found.trained.format,
            template=template or found.template,
            decoding=decoding or trained,
            eos_ids=found.tokenizer.eos_ids,
            calibration=found.calibration,
        )
        made.trained = found.trained
        made.is_trained = found.is_trained
        made._load_again = partial(cls.from_server, url, **settings, **place)
        return made if chosen is None else made.with_prompt(chosen, **settings)

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

        prompt: a prompt file, or its path. format, template, decoding: come before the file's.

        Raises InputError, naming file and key, for a prompt file that cannot be used.
        """
        chosen = read_prompt_file(prompt)
        made = copy(self)
        made.prompt = chosen.without(format=format is not None, template=template is not None)
        made.format, made.template = format or self.format, template or self.template
        made.decoding = resolve_decoding(decoding or chosen.decoding or self.decoding)
        made.calibration = chosen.calibration or self.calibration
        made.is_trained = True  # it is shown what the file names, and nothing else
        if self._load_again is not None:
            made._load_again = partial(self._load_again, prompt=chosen)
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

        Loaded once, and again where it was closed. The embedded model warns (UserWarning) of its
        training.
        """
        place = default_model()
        if is_embedded(place):
            warn(EMBEDDED_WARNING)
        return loaded(str(place))


@lru_cache(maxsize=1)
def _loaded(name: str) -> Extractor:
    return Extractor.from_pretrained(name)


def loaded(name: str) -> Extractor:
    """Loads a model, which stays loaded until another one is named, or somebody closes it."""
    if _loaded(name).is_closed:
        _loaded.cache_clear()
    return _loaded(name)


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


@overload
def extract(
    products: Iterable[Any],
    schema: Mapping[str, type[Any]],
    *,
    model: str | Path | None = ...,
    extractor: Extractor | None = ...,
    on_error: Literal["raise", "null"] = ...,
    show_progress: bool = ...,
    **options: Unpack[Options],
) -> list[Any]: ...


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
    check_options(extract, options)
    if isinstance(products, (str, bytes, Mapping)):
        read_documents(products, RecordFields())
    for declared in schema.values() if isinstance(schema, Mapping) else (schema,):
        compile_attributes(declared)
    if extractor is None:
        extractor = Extractor.default() if model is None else loaded(str(model))
    return extractor.extract(
        products, schema, on_error=on_error, show_progress=show_progress, **options
    )
