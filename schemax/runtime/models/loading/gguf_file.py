"""Loads models from GGUF files by transformers' reader, as plain models of transformers.

Other files in the folder do not matter, nor does the Hub.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM, GgufConfig, PreTrainedTokenizerFast

from schemax.base.messages import warn
from schemax.errors import ModelError
from schemax.runtime.models.loading.gguf_header import GGUFHeader, read_header
from schemax.runtime.models.loading.gguf_rope import FREQS, LONG, SHORT, scale_rope
from schemax.runtime.models.loading.refusals import need, refusing, some

_READER = "transformers.integrations.gguf"
_SPLITS = f"{_READER}.gguf_tokenizer_mapping"

# Files of folders that hold a model in another format, or an adapter.
_OTHERS = ("config.json", "adapter_config.json")

# llama.cpp's names of pre-tokenizers that cut digits one by one, then as GPT-2 does; and of those
# that cut as GPT-2 does.
_BY_DIGIT = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
_AS_GPT2 = ("gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jais")


def is_gguf(name: str | Path) -> bool:
    return str(name).lower().endswith(".gguf")


def gguf_in(name: str) -> str:
    """The GGUF file of a folder that holds no model in another format; else the name itself.

    Raises ModelError for a folder that holds several, and for a missing file.
    """
    folder = Path(name)
    if is_gguf(name) and not folder.exists():
        raise ModelError(f"there is no file {name}")
    if not folder.is_dir() or any((folder / file).is_file() for file in _OTHERS):
        return name
    paths = sorted(file for file in folder.iterdir() if is_gguf(file) and file.is_file())
    if len(paths) > 1:
        files = [file.name for file in paths]
        raise ModelError(f"{name} holds {len(files)} GGUF files ({some(files)}); name one of them")
    return str(paths[0]) if paths else name


def checked_header(path: Path) -> GGUFHeader:
    """The header of a GGUF file.

    Raises ModelError without the packages that reading requires, and as `read_header` does.
    """
    for package in ("gguf", "accelerate"):
        need(package, str(path), "a GGUF file", "'.[gguf]' in a checkout of schemax")
    if find_spec(_READER) is None:
        raise ModelError(
            f"{path}: transformers {transformers.__version__} reads tokenizers of GGUF files in an "
            "older way; pip install -U transformers"
        )
    return read_header(path)


def gguf_config(path: Path) -> Any:
    """The config of a GGUF file. Raises ModelError for an architecture that transformers lacks."""
    header = checked_header(path)
    with refusing(str(path)), _apart() as nowhere, _quiet_and_quick():
        config = AutoConfig.from_pretrained(nowhere, gguf_file=str(path.resolve()))
        scale_rope(path, header, config)
    config.name_or_path = str(path)
    return config


def gguf_tokenizer(path: Path) -> Any:
    """The tokenizer of a GGUF file, in transformers' generic class."""
    header = checked_header(path)
    with refusing(str(path)), _apart() as nowhere:
        tokenizer = PreTrainedTokenizerFast.from_pretrained(nowhere, gguf_file=str(path.resolve()))
    tokenizer.name_or_path = str(path)
    if header.values["tokenizer.ggml.model"] == "gpt2":
        _cut_as_trained(path, tokenizer, header.values.get("tokenizer.ggml.pre"))
    return tokenizer


def gguf_weights(path: Path, config: Any, dtype: torch.dtype, **options: Any) -> Any:
    """(the model in `dtype`, transformers' loading report).

    options: of transformers' `from_pretrained`.
    """
    header = checked_header(path)
    with _apart() as nowhere, _quiet_and_quick():
        _check_model(path, config, header)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            nowhere,
            gguf_file=str(path.resolve()),
            config=config,
            quantization_config=GgufConfig(dequantize=True),
            dtype=dtype,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # which the report names
            **options,
        )
    model, report = loaded
    # transformers would neither train nor save a model that it takes for a quantized one.
    model.hf_quantizer, model.is_quantized = None, False
    for holder, name in ((model, "quantization_method"), (model.config, "quantization_config")):
        if hasattr(holder, name):
            delattr(holder, name)
    model.name_or_path = model.config.name_or_path = str(path)
    model.generation_config.eos_token_id = gguf_eos_ids(path, config) or None
    return model, report


def gguf_eos_ids(path: Path, config: Any = None) -> list[int]:
    """The ids that end an output: end of text, of turn, or of message."""
    values = checked_header(path).values
    ends = getattr(config, "eos_token_id", None)
    named = ends if isinstance(ends, list) else [ends]
    named += [values.get(f"tokenizer.ggml.{end}_token_id") for end in ("eos", "eot", "eom")]
    return list(dict.fromkeys(number for number in named if isinstance(number, int)))


def _check_model(path: Path, config: Any, header: GGUFHeader) -> None:
    """Raises ModelError if the config's model is much larger than the file's weights, or has no
    place for some of them."""
    with refusing(str(path)), torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)  # type: ignore[no-untyped-call]
    wanted, held = model.num_parameters(), header.num_weights
    if wanted > 2 * held:
        raise ModelError(
            f"{path} cannot be right: its model has {wanted:,} weights, of which it holds {held:,}"
        )
    if import_module(_READER).is_gguf_arch_supported(header.architecture):
        return  # the report of loading names what has no place
    reader: Any = import_module("transformers.modeling_gguf_pytorch_utils")
    processor = reader.TENSOR_PROCESSORS.get(header.architecture, reader.TensorProcessor)
    with refusing(str(path)):
        placed = reader.get_gguf_hf_weights_map(model, processor(config.to_dict()))
    placed = {FREQS, LONG, SHORT, *placed, *(f"{name}.weight" for name in placed)}
    if dropped := sorted(header.shapes.keys() - placed):
        raise ModelError(
            f"{path}: transformers' {type(model).__name__} has no place for {len(dropped)} of its "
            f"tensors ({some(dropped)}); load the same model in safetensors format"
        )


def _cut_as_trained(path: Path, tokenizer: Any, name: str | None) -> None:
    """Corrects the cuts of a byte-level tokenizer; warns (UserWarning) if they are unknown."""
    if name in _BY_DIGIT:
        tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
        )
    elif name not in (*_AS_GPT2, *import_module(_SPLITS).GGUF_PRE_TOKENIZER_SPLITS):
        warn(
            f"{path} says that its tokenizer cuts texts as {name!r} does, which transformers does "
            "not know: some texts get other tokens than the model was trained with; the same "
            "model in safetensors format brings a tokenizer that is complete"
        )


@contextmanager
def _apart() -> Iterator[str]:
    """An empty folder: transformers would mix files beside a GGUF file with its contents."""
    with TemporaryDirectory(prefix="schemax-gguf-") as nowhere:
        yield nowhere


@contextmanager
def _quiet_and_quick() -> Iterator[None]:
    """Hides a progress bar that transformers' own switch leaves on, and makes gguf read faster.

    transformers asks for gguf's table of tensors' names once a module, and each takes some
    milliseconds a layer: here it is made once. gguf reads every string of a vocabulary as a slice
    of a memory map, which takes four times as long as one of a plain array on the same map.
    """
    reader: Any = import_module("transformers.modeling_gguf_pytorch_utils")
    gguf: Any = import_module("gguf")

    class PlainReader(gguf.GGUFReader):  # type: ignore[misc]
        @property
        def data(self) -> Any:
            return self._array

        @data.setter
        def data(self, memory_map: Any) -> None:
            self._array = np.asarray(memory_map)

    usual = reader.tqdm, gguf.get_tensor_name_map, gguf.GGUFReader
    reader.tqdm = partial(reader.tqdm, disable=True)
    gguf.get_tensor_name_map, gguf.GGUFReader = cache(gguf.get_tensor_name_map), PlainReader
    try:
        yield
    finally:
        reader.tqdm, gguf.get_tensor_name_map, gguf.GGUFReader = usual
