"""A model's folder without its weights: compiles schemas as the loaded model does."""

from __future__ import annotations

import atexit
import json
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

from schemax.calibration import Calibration
from schemax.calls import Calls
from schemax.compiler import TextCodec, load_codec
from schemax.config import resolve_decoding
from schemax.errors import ModelError
from schemax.prompt_file import PromptFile
from schemax.trained import FILE as TRAINED
from schemax.trained import TrainedWith, read_trained

# All that compiling depends on; weights are not among them.
_FILES = (
    *("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "prompt.jinja"),
    *("generation_config.json", TRAINED),
)


class Unloaded(Calls):
    """The settings of a model, and what a prompt file changes of them.

    own_template: the path of the folder's template, None without one.
    Raises ModelError, OSError for what cannot be read.
    """

    def __init__(self, folder: Path, prompt: PromptFile | None = None) -> None:
        own = folder / "prompt.jinja"
        known = (folder / TRAINED).is_file()
        self.model = SimpleNamespace(vocab_size=None, refusal=lambda _: None)
        self.own_template = own if own.is_file() else None
        self.template = self.own_template and own.read_text("utf-8")
        self.trained = read_trained(folder / TRAINED) if known else TrainedWith()
        self.is_trained = known or self.own_template is not None or prompt is not None
        self.prompt = prompt or PromptFile()
        self.format = self.trained.format
        self.decoding = resolve_decoding(self.prompt.decoding or self.trained.decoding)
        self.calibration = Calibration()
        self.tokenizer = codec_of(folder)
        self.eos_ids = eos_ids_of(folder, self.tokenizer)


def folder_of(place: str | Path) -> Path:
    """The folder with a tokenizer: a local one, one of the Hub's, or one that a GGUF file was
    unpacked into. Raises ModelError."""
    path = Path(place)
    if (file := _gguf_of(str(place))) is not None:
        return _unpacked(file)
    if path.is_dir():
        return path
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


def _gguf_of(place: str) -> Path | None:
    """The GGUF file that a name means; the libraries that read it are imported only for one."""
    path = Path(place)
    if not (path.is_dir() and any(path.glob("*.[gG][gG][uU][fF]"))) and path.suffix != ".gguf":
        return None
    from schemax.runtime.loading.gguf_file import gguf_in, is_gguf

    file = gguf_in(place)
    return Path(file) if is_gguf(file) else None


def _unpacked(file: Path) -> Path:
    """A folder with the tokenizer of a GGUF file, and what lies beside it; for this process."""
    from schemax.runtime.loading.gguf_file import gguf_eos_ids, gguf_tokenizer

    held = TemporaryDirectory(prefix="schemax-tokenizer-", ignore_cleanup_errors=True)
    atexit.register(held.cleanup)
    folder = Path(held.name, file.name)  # which `explain` shows
    folder.mkdir()
    gguf_tokenizer(file).save_pretrained(folder)
    ends = json.dumps({"eos_token_id": gguf_eos_ids(file)})
    (folder / "generation_config.json").write_text(ends, "utf-8")
    for name in ("prompt.jinja", TRAINED):
        if (beside := file.parent / name).is_file():
            copyfile(beside, folder / name)
    return folder


def eos_ids_of(folder: Path, codec: TextCodec) -> tuple[Any, ...]:
    """Ids that end an output: the tokenizer's, and those of the model's generation config."""
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
