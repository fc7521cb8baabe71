"""Options that several verbs share, and what they mean."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

from schemax.commands.console import UsageError, refused_settings
from schemax.commands.option_groups import option
from schemax.compiler.prompt import load_template
from schemax.config import DecodingConfig, decoding_name, resolve_decoding
from schemax.extractor import Extractor
from schemax.formats import get_format
from schemax.prompt_file import PromptLike, read_prompt_file
from schemax.resources import (
    EMBEDDED_WARNING,
    OURS,
    default_model,
    is_embedded,
    named_model,
    resource_dir,
)
from schemax.trained import TrainedWith

EXAMPLES = "examples.jsonl"
"""Beside the weights of a model that was trained behind examples: these."""

MODEL_PANEL = "Model and prompt"
"""The heading that options of model and prompt stand under in --help."""

SCHEMA_HELP = (
    "A ready-made name (see `schemax schemas`), module:Class, file.py:Class, a JSON Schema file "
    "(schema.json), or the folder of a trained model, whose schemas it means."
)
Schema = Annotated[str, Argument(metavar="SCHEMA", show_default=False, help=SCHEMA_HELP)]
Schemas = Annotated[
    str | None,
    Option(
        "--schemas",
        metavar="SCHEMAS",
        help='A file of {"categories": {category: [attribute, ...]}}, or what `extract` takes as '
        "SCHEMA. Default: attributes.json of the folder, else made of the annotations.",
    ),
]
SchemaExamples = Annotated[
    bool | None,
    Option(
        "--schema-examples/--no-schema-examples",
        help="Show the model the example values of an attributes.json. Default: only a model that "
        "schemax trained; others copy them into their answers.",
    ),
]
Limit = Annotated[int | None, Option(min=1, help="Read at most this many documents.")]

_option = partial(Option, rich_help_panel=MODEL_PANEL)

Model = Annotated[
    str | None,
    _option(
        "--model",
        "-m",
        metavar="MODEL",
        help="Folder or Hugging Face Hub id; `small`, our adapter of SmolLM2-135M, or `embedded`, "
        "which is the default where $SCHEMAX_MODEL names none.",
    ),
]
ModelArgument = Annotated[
    str | None,
    Argument(
        metavar="MODEL",
        show_default=False,
        help="Folder or Hugging Face Hub id. Default: $SCHEMAX_MODEL, else the embedded model.",
    ),
]
Device = Annotated[str, _option(help="auto, cpu, cuda, cuda:1, mps ...")]
Dtype = Annotated[str, _option(help="auto, float32, bfloat16 or float16.")]
Format = Annotated[
    str | None,
    _option(help="json, yaml or xml. Default: the schema's, else the model's own, else json."),
]
Template = Annotated[
    str | None,
    _option(
        help="The prompt: verbatim, standard, generic, paper or a Jinja file. "
        "Default: the schema's, else the model's own, else verbatim (paper for --decoding paper)."
    ),
]
Decoding = Annotated[
    str | None,
    _option(
        help="isolated, paper or autoregressive, and changes: paper:documents_per_prompt=2. "
        "Default: the one that the model was trained for, else isolated."
    ),
]
Prompt = Annotated[
    Path | None,
    _option(
        metavar="FILE",
        help="What `schemax fit` has chosen: template, decoding, demonstrations, calibration. "
        "Other options come before what it says.",
    ),
]
Examples = Annotated[
    Path | None,
    _option(
        "--examples",
        metavar="FILE",
        help='Examples for the prompt: JSONL with one {"category", "text", "attributes": '
        '{name: value}} per line, and optionally "description"; those of other categories than '
        "the schema's are skipped. none: shows none, those that come with a schema included.",
    ),
]
Shots = Annotated[
    int | None,
    _option(
        min=0,
        metavar="N",
        help="The first so many of --examples of every category. Default: all.",
    ),
]


def checked_settings(
    format: str | None,
    template: str | None,
    decoding: str | None,
    batch_size: int | None = None,
) -> dict[str, Any]:
    """The options of a call, checked before a model is loaded. Raises UsageError, TemplateError."""
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
    """The model that was named, else the default one. Raises UsageError, ModelError, InputError.

    prompt: a prompt file, or its path. loading: compile, and what `LoadingOptions.named` gives.
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


def note_trained(
    name: str | None, extractor: Extractor, settings: Mapping[str, Any], examples: Any = None
) -> None:
    """Warns of what the model's own training decides, for want of options that do; and of examples
    that its prompts had, where there are none now.

    settings: those of `checked_settings`.
    """
    trained, place = extractor.trained, named_model(name) if name else default_model()
    if trained == TrainedWith() or place in [resource_dir(ours) for ours in OURS]:
        return  # their cards say so
    own = {
        "format": trained.format and f"the format {trained.format}",
        "decoding": trained.decoding and f"the decoding {decoding_name(trained.decoding)}",
        "template": extractor.template and "the template of its prompt.jinja",
    }
    if used := [text for key, text in own.items() if text and settings.get(key) is None]:
        warnings.warn(
            f"{place} is used as it was trained, where neither an option nor the schema says "
            f"otherwise: with {', '.join(used)}",
            stacklevel=2,
        )
    own_examples = Path(str(place)) / EXAMPLES
    if examples is None and own_examples.is_file():
        warnings.warn(
            f"{place} was trained behind examples, which --examples {own_examples} shows",
            stacklevel=2,
        )


def model_place(model: str | None) -> str | Path:
    """Folder or Hub id of a model: what was named, $SCHEMAX_MODEL, else the embedded one's path,
    which "embedded" names as well; "small" is the other model of ours.

    Raises UsageError for a path that leads nowhere, which the Hub would call a malformed id.
    """
    place = named_model(model) if model else default_model()
    if isinstance(place, Path):
        return place
    name = place
    is_path = name.startswith((".", "~")) or Path(name).is_absolute() or name.count("/") > 1
    if is_path and not Path(name).exists():
        raise UsageError(f"no model folder {name}")
    return name


def hush_libraries() -> None:
    """Keeps the libraries' own reports, and outside terminals their bars, out of ours."""
    from huggingface_hub.utils import logging as hub_logging
    from huggingface_hub.utils.tqdm import disable_progress_bars
    from transformers.utils import logging

    logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    hub_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    if not sys.stderr.isatty():
        logging.disable_progress_bar()  # type: ignore[no-untyped-call]
        disable_progress_bars()


@dataclass(frozen=True, slots=True)
class LoadingOptions:
    """Loading the model"""

    adapter: str | None = option(
        "Folder or Hub id of a LoRA adapter for the model.", metavar="ADAPTER"
    )
    revision: str | None = option("Of a model on the Hub: branch, tag or commit.")
    quantization: Literal["nf4", "int8"] | None = option(
        "nf4 (4 bits a weight, CUDA) or int8 (8 bits, CUDA or CPU)."
    )
    device_map: str | None = option(
        "In place of --device, spreads the model over devices: auto, balanced, sequential."
    )
    attn: str | None = option("How attention is computed: sdpa or eager. Default: the model's.")

    def named(self) -> dict[str, Any]:
        """Those that were given, as `Extractor.from_pretrained` takes them."""
        found = {name: value for name, value in asdict(self).items() if value is not None}
        if "attn" in found:
            found["attn_implementation"] = found.pop("attn")
        return found
