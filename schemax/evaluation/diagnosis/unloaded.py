"""`Unloaded`: a model without its weights; compiles schemas as the loaded model does."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from schemax.base.resources import fetched
from schemax.base.trained import FILE as TRAINED
from schemax.base.trained import TrainedWith, read_trained
from schemax.compiler import CompiledSchema, TextCodec, as_codec, load_codec
from schemax.config import resolve_decoding
from schemax.errors import ModelError
from schemax.extraction.defaults import Defaults
from schemax.extraction.prompt_file import PromptFile


class Unloaded:
    """A model's tokenizer and default settings, with the changes of a prompt file.

    place: the model's folder, Hub id or GGUF file, or a tokenizer's folder; as attribute, the
        folder or file read.
    own_template: the path of the model's template, or None.

    Raises ModelError and OSError for files that cannot be read.
    """

    def __init__(self, place: str | Path, prompt: PromptFile | None = None) -> None:
        file = _gguf_of(Path(place))
        folder = fetched(place) if file is None else file.parent
        self.place = file or folder
        self.tokenizer: Any
        self.eos_ids: tuple[int, ...]
        self.tokenizer, self.eos_ids = _of_folder(folder) if file is None else _of_gguf(file)
        own = folder / "prompt.jinja"
        known = (folder / TRAINED).is_file()
        self.own_template = own if own.is_file() else None
        trained = read_trained(folder / TRAINED) if known else TrainedWith()
        prompt = prompt or PromptFile()
        self.defaults = Defaults(
            format=trained.format,
            template=self.own_template and own.read_text("utf-8"),
            decoding=resolve_decoding(prompt.decoding or trained.decoding),
            prompt=prompt,
            trained=trained,
            is_trained=known or self.own_template is not None,
        )

    def compile(self, schema: type[Any], **settings: Any) -> CompiledSchema:
        """Compiles a schema; see `Extractor.compile`."""
        model = SimpleNamespace(vocab_size=None, refusal=lambda _: None)
        return self.defaults.compile(schema, model, self.tokenizer, self.eos_ids, **settings)


def _gguf_of(path: Path) -> Path | None:
    """Returns the GGUF file of a path, else None; imports GGUF libraries only if needed."""
    if not (path.is_dir() and any(path.glob("*.[gG][gG][uU][fF]"))) and path.suffix != ".gguf":
        return None
    from schemax.runtime.models.loading.gguf_file import gguf_in, is_gguf

    file = gguf_in(str(path))
    return Path(file) if is_gguf(file) else None


def _of_gguf(file: Path) -> tuple[TextCodec, tuple[int, ...]]:
    from schemax.runtime.models.loading.gguf_file import gguf_eos_ids, gguf_tokenizer

    codec = as_codec(gguf_tokenizer(file))
    return codec, (*codec.eos_ids, *gguf_eos_ids(file))


def _of_folder(folder: Path) -> tuple[TextCodec, tuple[Any, ...]]:
    """Returns the tokenizer, and the ids that end an output.

    The ids are the tokenizer's and the generation config's.
    """
    try:
        codec = load_codec(folder)
    except (ModelError, OSError):
        raise
    except Exception as error:  # tokenizers has no exception class of its own
        raise ModelError(f"{folder} holds a tokenizer that cannot be read: {error}") from error
    path = folder / "generation_config.json"
    try:
        written = json.loads(path.read_text("utf-8")) if path.is_file() else {}
        named = written.get("eos_token_id")
    except (ValueError, RecursionError, AttributeError) as error:
        raise ModelError(f"{path} cannot be read: {error}; download it again") from error
    ids = named if isinstance(named, list) else [] if named is None else [named]
    return codec, (*codec.eos_ids, *ids)
