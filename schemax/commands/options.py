"""Options of verbs, as fields of classes, and the models and settings that they name.

A verb takes a class of options, which inherits those that several verbs share. The text below a
field is the option's help. The class's docstring, or a later text below no field, is the heading of
the options behind it. Errors and warnings of verbs are a line each on stderr, never a traceback.
"""

from __future__ import annotations

import ast
import inspect
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, Field, field, fields, replace
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from typer import Argument, Option

from schemax.base.messages import one_line, say
from schemax.base.options import OptionGroup, option
from schemax.base.resources import EMBEDDED_WARNING, default_model, is_embedded, named_model
from schemax.compiler.prompt import load_template
from schemax.config import DecodingConfig, resolve_decoding
from schemax.errors import SchemaxError
from schemax.evaluation.datasets import Dataset, dataset
from schemax.evaluation.diagnosis.unloaded import Unloaded
from schemax.extraction.cascade import sureness_marks
from schemax.extraction.extractor import Extractor
from schemax.extraction.prompt_file import PromptFile, PromptLike, read_prompt_file
from schemax.formats import get_format
from schemax.reading.cldr import check_language


def argument(metavar: str, *, default: Any = MISSING) -> Any:
    """Returns a field of an `OptionGroup` that is a positional argument of the verb."""
    return field(default=default, metadata={"metavar": metavar})


def verb(command: Callable[..., None]) -> Callable[..., None]:
    """Wraps a command for Typer: every field of its `OptionGroup` becomes a parameter."""
    hints = get_type_hints(command)
    groups: dict[str, Any] = {
        name: hint
        for name, hint in hints.items()
        if isinstance(hint, type) and issubclass(hint, OptionGroup)
    }
    parameters: list[Parameter] = []
    for name, parameter in signature(command).parameters.items():
        own = parameter.replace(kind=Parameter.KEYWORD_ONLY, annotation=hints[name])
        parameters += _parameters(groups[name]) if name in groups else [own]

    @wraps(command)
    def call(**values: Any) -> None:
        for name, group in groups.items():
            shown = [item.name for item in fields(group) if item.name not in group.without]
            values[name] = group(**{option: values.pop(option) for option in shown})
        command(**values)

    call.__dict__["__signature__"] = Signature(parameters)
    call.__annotations__ = {item.name: item.annotation for item in parameters}
    return call


def _parameters(group: type[Any]) -> Iterator[Parameter]:
    hints = get_type_hints(group)
    for item in fields(group):
        if item.name not in group.without:
            owners = [c for c in group.__mro__ if item.name in inspect.get_annotations(c)]
            kind: Any = hints[item.name]
            typed: Any = Annotated[kind, _typer_parameter(item, owners)]
            default = Parameter.empty if item.default is MISSING else item.default
            yield Parameter(item.name, Parameter.KEYWORD_ONLY, default=default, annotation=typed)


def _typer_parameter(item: Field[Any], owners: Sequence[type[Any]]) -> Any:
    """Typer's option or argument for a field.

    owners: the classes that declare the field, subclasses first; a subclass may inherit its help.
    """
    settings = dict(item.metadata)
    texts = [_texts_of(owner.__module__)[owner.__name__, item.name] for owner in owners]
    panel = texts[0][0]
    help = next((help for _, help in texts if help), None)
    if "metavar" in settings:
        return Argument(metavar=settings["metavar"], show_default=False, help=help)
    words = settings.pop("spec", "").split()
    names = [word for word in words if word.startswith("-")]
    if not any(name.startswith("--") for name in names):
        names.insert(0, f"--{item.name.replace('_', '-')}")
    metavar = " ".join(word for word in words if word not in names) or None
    return Option(*names, metavar=metavar, help=help, rich_help_panel=panel, **settings)


@cache
def _texts_of(module: str) -> dict[tuple[str, str], tuple[str, str]]:
    """Returns (class, field) -> (heading, help or ""), for a module's classes."""
    texts: dict[tuple[str, str], tuple[str, str]] = {}
    nodes = ast.parse(inspect.getsource(sys.modules[module])).body
    for group in (node for node in nodes if isinstance(node, ast.ClassDef)):
        heading, field_name = "", ""
        for node in group.body:
            if isinstance(node, ast.AnnAssign):
                field_name = ast.unparse(node.target)
                texts[group.name, field_name] = heading, ""
            elif isinstance(node, ast.Expr):
                text = " ".join(ast.literal_eval(node.value).split())
                if field_name:
                    texts[group.name, field_name] = heading, text
                else:
                    heading = text
                field_name = ""
    return texts


class UsageError(SchemaxError):
    """Options or arguments that cannot be used."""


def listed(text: str) -> list[str]:
    """Splits the value of an option into names at commas."""
    return [name for part in text.split(",") if (name := part.strip())]


def numbers_of(text: str, usage: str) -> list[int]:
    """Reads numbers of 0 or more, separated by commas. Raises UsageError. usage: what is taken."""
    numbers = [int(part) if part.isdecimal() else -1 for part in listed(text)]
    if -1 in numbers or not numbers:
        raise UsageError(f"{usage}, not {text!r}")
    return numbers


@contextmanager
def refused_settings(where: str = "") -> Iterator[None]:
    """Turns the ValueError of a setting into a UsageError. where: the head of its message.

    For code that reads settings only: elsewhere a ValueError is a bug, which needs its traceback.
    """
    try:
        yield
    except ValueError as error:
        raise UsageError(f"{where}{error}") from error


@contextmanager
def plain_warnings(*, quiet: bool = False) -> Iterator[None]:
    """Shows each warning for users once, in one line, and hides warnings for developers."""
    shown: set[str] = set()

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        text = one_line(message)
        if text not in shown:
            shown.add(text)
            say(f"note: {text}")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not quiet:
            warnings.simplefilter("always", UserWarning)
        warnings.showwarning = show
        yield


class Model(OptionGroup):
    """Model and prompt"""

    model: str | None = option("-m MODEL")
    """Folder or Hugging Face Hub id; `small`, our adapter of SmolLM2-135M, or `embedded`, which is
    the default where $SCHEMAX_MODEL names none."""
    device: str = "auto"
    """auto, cpu, cuda, cuda:1, mps ..."""
    dtype: str = "auto"
    """auto, float32, bfloat16 or float16."""


class Loading(Model):
    """Loading the model"""

    adapter: str | None = option("ADAPTER")
    """Folder or Hub id of a LoRA adapter for the model."""
    revision: str | None = None
    """Branch, tag or commit of a model on the Hub."""
    quantization: Literal["nf4", "int8", "int4"] | None = None
    """nf4 (4 bits a weight, CUDA), int8 (8 bits) or int4 (4 bits, CPU; for GGUF files, too)."""
    device_map: str | None = None
    """In place of --device, spreads the model over devices: auto, balanced, sequential."""
    attn: str | None = None
    """Implementation of attention: sdpa or eager. Default: the model's."""

    @property
    def loading(self) -> dict[str, Any]:
        """The named options as arguments of `Extractor.from_pretrained`."""
        names = "adapter", "revision", "quantization", "device_map"
        values = {name: getattr(self, name) for name in names} | {"attn_implementation": self.attn}
        return {name: value for name, value in values.items() if value is not None}

    def extractor(self, prompt: PromptLike | None = None, **more: Any) -> Extractor:
        """Loads the model. more: further arguments of `load_extractor`."""
        more |= {"prompt": prompt, **self.loading}
        return load_extractor(self.model, self.device, self.dtype, **more)


class Server(Loading):
    """A server's model"""

    server: str | None = option("URL")
    """Have a server of OpenAI's protocol run the model, http://localhost:8000/v1. --model is then
    the server's name of the model, by default its first model. The key: $SCHEMAX_API_KEY, else
    $OPENAI_API_KEY."""
    server_kind: Literal[
        "auto", "vllm", "sglang", "llama.cpp", "llama-cpp-python", "schemax", "openai"
    ] = "auto"
    """auto asks the server; openai without --tokenizer sends one chat request per document."""
    tokenizer: str | None = option("MODEL")
    """Folder or Hub id of the tokenizer of the server's model. Default: what --model names."""
    probabilities: bool | None = option("--probabilities/--no-probabilities")
    """Ask the server for probabilities, without which there are no confidences. Default: all kinds
    but llama-cpp-python, where they take most of the time."""
    concurrency: int = option(default=32, min=1)
    """Requests in flight."""

    def check(self) -> None:
        """Raises UsageError for options that exclude or require each other."""
        if self.server is None:
            server_only = {
                "tokenizer": self.tokenizer is not None,
                "server-kind": self.server_kind != "auto",
                "probabilities": self.probabilities is not None,
            }
            for name, is_named in server_only.items():
                if is_named:
                    raise UsageError(f"--{name} requires --server")
        elif (self.device, self.dtype) != ("auto", "auto") or self.loading:
            raise UsageError("device, dtype and loading are up to the server: leave them out")

    def extractor(self, prompt: PromptLike | None = None, **more: Any) -> Extractor:
        """Returns an extractor that asks the server if one is named, else loads the model here.

        Raises UsageError, and ModelError if the server is not suited.
        """
        if self.server is None:
            return super().extractor(prompt, **more)
        with refused_settings():
            return Extractor.from_server(
                self.server,
                model=self.model,
                tokenizer=self.tokenizer,
                kind=self.server_kind,
                probabilities=self.probabilities,
                concurrency=self.concurrency,
                prompt=prompt,
            )


_ESCALATED = 0.8
"""The confidence below which a cascade asks its larger model."""


class Cascade(Loading):
    """A cascade"""

    escalate_to: str | None = option("MODEL or URL#MODEL")
    """A larger model, or a server, that is asked for the fields of which the model is unsure, and
    for these alone."""
    escalate_below: float | None = option("P", min=0.0, max=1.0)
    """The confidence below which --escalate-to is asked for a field. Default: 0.8."""
    read_below: float | None = option("P", min=0.0, max=1.0)
    """The confidence of a field below which --escalate-to reads its document at all, since reading
    costs more than one more field. Default: that of --escalate-below."""
    precision: float | None = option("P", min=0.0, max=1.0)
    """In place of --escalate-below: --escalate-to is asked for values of which the model's
    calibration (`schemax calibrate --precision`) does not promise this precision, and for nulls of
    a lower confidence."""

    def extractor(self, prompt: PromptLike | None = None, **more: Any) -> Extractor:
        """Loads both models of a cascade, or the only model. Raises UsageError, ModelError."""
        named = self.escalate_below is not None, self.precision is not None
        if all(named):
            raise UsageError("give --escalate-below or --precision, not both")
        if (any(named) or self.read_below is not None) and self.escalate_to is None:
            raise UsageError(
                "--escalate-below, --read-below and --precision say when --escalate-to is asked: "
                "name a model with it (`schemax calibrate --precision` promises a precision of one "
                "model)"
            )
        extractor = super().extractor(prompt, **more)
        if (larger := self.escalate_to) is None:
            return extractor
        when = {
            "confidence": self.escalate_below if any(named) else _ESCALATED,
            "precision": self.precision,
            "read_below": self.read_below,
        }
        with refused_settings():  # before the larger model is loaded
            sureness_marks(extractor, **when)
        if is_address(larger):
            url, _, model = larger.partition("#")
            further = Server(server=url, model=model or None).extractor()
        else:
            further = load_extractor(larger, self.device, self.dtype)
        return Extractor.cascade([extractor, further], **when)


class Extra(OptionGroup):
    """Options"""

    ignore_extra: bool = False
    """Leave out labels without an attribute in the schema, and name them. Default: an error."""


class Prompt(Extra):
    """Model and prompt"""

    format: str | None = None
    """json, yaml or xml. Default: the schema's, else the model's own, else json."""
    template: str | None = None
    """The prompt: verbatim, standard, generic, paper or a Jinja file. Default: the schema's, else
    the model's own, else verbatim (paper for --decoding paper)."""
    prompt: Path | None = option("FILE")
    """File that `schemax fit` wrote: template, decoding, demonstrations, calibration. Options named
    here override it."""
    examples: Path | None = option("FILE")
    """Examples for the prompt: JSONL with one {"category", "text", "attributes": {name: value}} per
    line, and optionally "description"; only the schema's category is shown. none: no examples, not
    even those that come with a schema."""
    decoding: str | None = None
    """isolated, paper or autoregressive, and changes: paper:documents_per_prompt=2. Default: the
    one that the model was trained for, else isolated."""

    def settings(self, batch_size: int | None = None) -> dict[str, Any]:
        """Returns format, template and decoding, checked before a model is loaded."""
        return checked_settings(self.format, self.template, self.decoding, batch_size)


def _known_language(name: str | None) -> str | None:
    if name is not None:
        with refused_settings("--language: "):
            check_language(name)
    return name


class Language(OptionGroup):
    """Options"""

    language: str | None = option("LANGUAGE", callback=_known_language)
    """Language of the documents, de or pt-BR: in German 1.299 is 1299, in French 03/04/2021 is 3
    April. Fields and nested models keep their own. Default: the schema's."""


class Labels(Extra, Language):
    """Options"""

    schemas: str | None = option("SCHEMAS")
    """A file of {"categories": {category: [attribute, ...]}}, or a SCHEMA of `extract`. Default:
    attributes.json of the folder, else the attributes of the annotations."""
    schema_examples: bool | None = option("--schema-examples/--no-schema-examples")
    """Show the model the example values of an attributes.json. Default: only a model that schemax
    trained; others copy them into their answers."""
    limit: int | None = option(min=1)
    """Read at most this many documents."""

    def dataset(self, path: Path, part: Literal["train", "test"]) -> Dataset:
        """Returns the data of a file, or of a folder's part. Raises InputError."""
        return dataset(path, part, self.schemas, self.language, ignore_extra=self.ignore_extra)


class Tokenizer(Model, without="device dtype"):
    """Options"""

    tokenizer: str | None = option("FOLDER")
    """Folder that holds a tokenizer.json."""

    def unloaded(self, prompt: PromptFile | None = None) -> Unloaded:
        """Returns the model without its weights. Raises UsageError, ModelError."""
        if self.model is not None and self.tokenizer is not None:
            raise UsageError("give --model or --tokenizer, not both")
        path = Path(self.tokenizer or self.model or "")
        if path.name == "tokenizer.json" and path.is_file():
            return Unloaded(path.parent, prompt)
        return Unloaded(model_place(self.tokenizer or self.model), prompt)


class Schema(OptionGroup):
    """Options"""

    schema: str = argument("SCHEMA")
    """A ready-made name (see `schemax schemas`), module:Class, file.py:Class, a JSON Schema file
    (schema.json), or a trained model's folder, for the schemas that it was trained on."""


def checked_settings(
    format: str | None,
    template: str | None,
    decoding: str | None,
    batch_size: int | None = None,
) -> dict[str, Any]:
    """Returns checked options, before a model is loaded. Raises UsageError, TemplateError."""
    with refused_settings():
        if format is not None:
            get_format(format)
        if template is not None:
            load_template(template)
        config: DecodingConfig | None = None
        if decoding is not None:
            config = resolve_decoding(decoding)
        if config is not None and batch_size is not None:
            config = replace(config, batch_size=batch_size)
    return {"format": format, "template": template, "decoding": config}


def load_extractor(
    model: str | None,
    device: str = "auto",
    dtype: str = "auto",
    *,
    prompt: PromptLike | None = None,
    **loading: Any,
) -> Extractor:
    """Loads the named model, else the default one. Raises UsageError, ModelError, InputError.

    prompt: a prompt file, or its path. loading: arguments of `Extractor.from_pretrained`.
    """
    if prompt is not None:
        chosen = read_prompt_file(prompt)  # before the model is loaded
        return load_extractor(model, device, dtype, **loading).with_prompt(chosen)
    hush_libraries()
    place = model_place(model)
    if model is None and device == dtype == "auto" and not any(loading.values()):
        return Extractor.default()
    if is_embedded(place):
        warnings.warn(EMBEDDED_WARNING, UserWarning, stacklevel=2)
    with refused_settings():
        return Extractor.from_pretrained(place, device=device, dtype=dtype, **loading)


def is_address(name: str | None) -> bool:
    return name is not None and name.startswith(("http://", "https://"))


def by_chat(address: str) -> Extractor:
    """Returns the extractor of a server asked by chat. address: URL, or URL#MODEL.

    Raises UsageError, ModelError.
    """
    url, _, model = address.partition("#")
    return Server(server=url, model=model or None, server_kind="openai").extractor()


def model_place(model: str | None) -> str | Path:
    """Returns the folder or Hub id of a model. None means $SCHEMAX_MODEL, else the embedded model.

    Raises UsageError for a missing path, which the Hub would call a malformed id.
    """
    place = named_model(model) if model else default_model()
    if isinstance(place, Path):
        return place
    is_path = place.startswith((".", "~")) or Path(place).is_absolute() or place.count("/") > 1
    if is_path and not Path(place).exists():
        raise UsageError(f"no model folder {place}")
    return place


def hush_libraries() -> None:
    """Silences libraries' log messages, and outside terminals their progress bars."""
    from huggingface_hub.utils import logging as hub_logging
    from huggingface_hub.utils.tqdm import disable_progress_bars
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    hub_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    if not sys.stderr.isatty():
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        disable_progress_bars()
