"""The tokenizer that schemas are compiled for, without the weights beside it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from schemax.commands import options
from schemax.commands.console import UsageError
from schemax.compiler import TextCodec, load_codec
from schemax.errors import ModelError
from schemax.trained import FILE as TRAINED

TokenizerOption = Annotated[
    str | None,
    typer.Option("--tokenizer", metavar="FOLDER", help="Folder that holds a tokenizer.json."),
]

# All that compiling depends on; weights are not among them.
_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "prompt.jinja"),
    *("generation_config.json", TRAINED),
)


def folder_of(model: str | None, tokenizer: str | None) -> Path:
    """The folder with a tokenizer: a local one, one of the Hub's, or the embedded model's."""
    if model is not None and tokenizer is not None:
        raise UsageError("give --model or --tokenizer, not both")
    named = tokenizer or model
    path = Path(named or "")
    if path.name == "tokenizer.json" and path.is_file():
        return path.parent
    place = options.model_place(named)
    if Path(place).is_dir():
        return Path(place)
    name = str(place)
    from huggingface_hub import snapshot_download

    from schemax.hub import cached_folder

    if folder := cached_folder(name):
        return folder
    try:
        return Path(snapshot_download(name, allow_patterns=list(_FILES)))
    except (OSError, ValueError) as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise ModelError(f"{name} is neither a folder nor found on the Hub: {first}") from error


def eos_ids_of(folder: Path, codec: TextCodec) -> tuple[Any, ...]:
    """What ends an output: the tokenizer's ids, and those of the model's generation config."""
    path = folder / "generation_config.json"
    try:
        written = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        named = written.get("eos_token_id")
    except (ValueError, RecursionError, AttributeError) as error:
        raise ModelError(f"{path} cannot be read: {error}; download it again") from error
    ids = named if isinstance(named, list) else [] if named is None else [named]
    return (*codec.eos_ids, *ids)


def codec_of(folder: Path) -> TextCodec:
    try:
        return load_codec(folder)
    except (ModelError, OSError):
        raise
    except Exception as error:  # tokenizers has no exception class of its own
        raise ModelError(f"{folder} holds a tokenizer that cannot be read: {error}") from error
