"""Loads causal language models from a folder, GGUF file or Hub id; no pickles, no remote code."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging

from schemax.base.calibration import FILE as CALIBRATION
from schemax.base.calibration import Calibration, read_calibration
from schemax.base.messages import counted, warn
from schemax.base.process import give_back_memory
from schemax.base.trained import FILE as TRAINED
from schemax.base.trained import SEEN, TrainedWith, read_trained
from schemax.errors import ModelError
from schemax.runtime.models.architecture import decoder_of
from schemax.runtime.models.loading.adapters import put_adapter
from schemax.runtime.models.loading.gguf_file import gguf_tokenizer, gguf_weights
from schemax.runtime.models.loading.hub_kernels import guard_hub_kernels
from schemax.runtime.models.loading.model_files import (
    ModelFiles,
    fetch_weights,
    find_files,
    load_config,
)
from schemax.runtime.models.loading.precision import (
    DeviceMap,
    Quantization,
    automatic_dtype,
    placement,
)
from schemax.runtime.models.loading.refusals import brief, refusing, some
from schemax.runtime.models.packed import pack, pack_four_bits
from schemax.runtime.models.pointwise import compile_chains

_AUTOMATIC = ("auto", "balanced", "balanced_low_0", "sequential")


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model, its tokenizer, and its template, calibration and settings of training."""

    model: Any
    tokenizer: Any
    template: str | None = None
    calibration: Calibration | None = None
    trained: TrainedWith = field(default_factory=TrainedWith)

    @property
    def is_trained(self) -> bool:
        """True if the folder holds a prompt or settings of training, as after `schemax train`."""
        return self.template is not None or self.trained != TrainedWith()


def load(
    name: str | Path,
    *,
    device: str | torch.device = "auto",
    dtype: str | torch.dtype = "auto",
    device_map: DeviceMap | None = None,
    quantization: Quantization | None = None,
    adapter: str | Path | None = None,
    attn_implementation: str | None = None,
    compile: bool = False,
    revision: str | None = None,
) -> Loaded:
    """Loads weights and tokenizer.

    name: a model, or a LoRA adapter that names its base model; a GGUF file, or a folder of one.
    device: "auto" takes CUDA or MPS if there is one.
    dtype: "auto" takes the model's own on an accelerator, bfloat16 in the place of float16. On a
        CPU it takes float32, or bfloat16 if the model's schemax.json says so and the processor
        computes it fast.
    device_map: spreads the model over devices; see transformers. Requires accelerate.
    quantization: "nf4" (4 bits a weight, CUDA), "int8" (8 bits, CUDA or CPU) or "int4" (4 bits,
        CPU). Of GGUF files "int4" alone, which keeps what the file has in four bits.
    adapter: a LoRA adapter, merged into the weights unless these are quantized.
    compile: whether chains of pointwise operations are compiled; see `runtime.models.pointwise`.
    revision: of `name` on the Hub: branch, tag or commit.

    Raises ModelError for a folder without config, safetensors weights or tokenizer, for models
    that transformers cannot load without remote code, for adapters other than LoRA, for a broken
    calibration.json or schemax.json, and where a device or a package is missing; ValueError for an
    unknown quantization, and for a device together with a device_map.
    """
    _check_options(device, device_map, quantization)
    guard_hub_kernels()
    target = pick_device(device) if device_map is None else _first_choice(device_map)
    files = find_files(str(name), None if adapter is None else str(adapter), revision)
    config = load_config(files)
    # Before the weights: a broken file must not cost the time to load these.
    calibration, trained = _calibration(files), _trained_with(files)
    tokenizer = _tokenizer(files, config)
    in_four_bits = quantization == "int4"
    computed_in = _pick_dtype(dtype, target, config, trained)
    model = _weights(
        files,
        config,
        target,
        dtype=torch.float16 if in_four_bits else computed_in,
        device_map=device_map,
        quantization=quantization,
        attn_implementation=attn_implementation,
    )
    if files.adapter is not None:
        model = put_adapter(model, files.adapter)
    if in_four_bits:
        with refusing(files.name):
            pack_four_bits(model, computed_in, keeps_more=files.gguf is not None)
    elif target.type == "cpu" and not device_map:
        is_narrow = trained.dtype is not None or files.gguf is not None
        pack(model, may_round=dtype == "auto" and is_narrow)
    give_back_memory()  # copies of the weights from before they were packed, as large as these
    if compile:
        compile_chains(model)
    return Loaded(model, tokenizer, _template(files), calibration, trained)


def pick_device(device: str | int | torch.device) -> torch.device:
    """The device with a name, or the accelerator with a number.

    Raises ModelError for a device that this machine lacks.
    """
    if device == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        chosen = torch.device(device)
        torch.empty(0, device=chosen)
    except (RuntimeError, AssertionError) as error:
        raise ModelError(f"device {str(device)!r} cannot be used: {brief(error)}") from error
    return chosen


def named_eos_ids(model: Any, tokenizer: Any) -> list[Any]:
    """The ids that the model's generation config and its tokenizer name as ends of outputs."""
    named = getattr(getattr(model, "generation_config", None), "eos_token_id", None)
    ids = [
        *(named if isinstance(named, (list, tuple)) else [named]),
        getattr(tokenizer, "eos_token_id", None),
    ]
    return [number for number in ids if number is not None]


def _pick_attention(config: Any) -> str | None:
    """The attention to load with; None leaves it to transformers.

    Some releases of transformers would pick one that drops the model's cap on scores.
    """
    capped = getattr(config.get_text_config(), "attn_logit_softcapping", None)
    return "eager" if capped else None


def load_tokenizer(name: str | Path) -> Loaded:
    """Loads all of a model but its weights: `model` is None, the tokenizer is its folder.

    name: a folder, Hub id or GGUF file; from a GGUF file the tokenizer is an object of
        transformers.

    Raises ModelError without a fast tokenizer, and for a broken calibration.json.
    """
    files = ModelFiles.of(str(name), None)
    if files.gguf is not None:
        tokenizer = gguf_tokenizer(files.gguf)
        return Loaded(None, tokenizer, _template(files), _calibration(files), _trained_with(files))
    if files.find("tokenizer.json") is None:
        raise ModelError(f"{name} has no tokenizer.json")
    folder = str(files.folder)
    return Loaded(None, folder, _template(files), _calibration(files), _trained_with(files))


# Options


def _check_options(device: Any, device_map: Any, quantization: Any) -> None:
    """Raises ValueError for an unknown quantization, and for a device beside a device_map."""
    choices = get_args(Quantization)
    if quantization is not None and quantization not in choices:
        known = ", ".join(map(repr, choices))
        raise ValueError(f"quantization must be None or one of {known}, not {quantization!r}")
    if device_map is not None and device != "auto":
        raise ValueError("give a device or a device_map, not both")


def _first_choice(device_map: DeviceMap) -> torch.device:
    """The first accelerator of a map, else the CPU; it decides the dtype.

    Raises ModelError for a device that this machine lacks.
    """
    for device in device_map.values() if isinstance(device_map, Mapping) else [device_map]:
        if device in _AUTOMATIC:
            return pick_device("auto")
        if str(device) not in ("cpu", "disk"):
            return pick_device(device)
    return torch.device("cpu")


def _pick_dtype(
    dtype: str | torch.dtype, device: torch.device, config: Any, trained: TrainedWith
) -> torch.dtype:
    """The dtype to load in. Raises ModelError for a name that is no floating-point dtype."""
    if isinstance(dtype, torch.dtype):
        return dtype
    if dtype == "auto":
        if device.type == "cpu":
            return automatic_dtype(trained.dtype)[0]
        own: torch.dtype = getattr(config, "dtype", None) or torch.float32
        # Many models that are stored in float16 overflow in it: they were trained in bfloat16.
        return torch.bfloat16 if own == torch.float16 else own
    named = getattr(torch, dtype, None)
    if not isinstance(named, torch.dtype) or not named.is_floating_point:
        raise ModelError(f"unknown dtype {dtype!r}; use float32, bfloat16 or float16")
    return named


# The parts


def _tokenizer(files: ModelFiles, config: Any) -> Any:
    path = files.find("tokenizer.json")
    if files.gguf is not None and (path is None or path.parent != files.adapter):
        return gguf_tokenizer(files.gguf)
    folder = str(files.folder if path is None else path.parent)
    with refusing(folder):
        return AutoTokenizer.from_pretrained(folder, config=config, trust_remote_code=False)


def _template(files: ModelFiles) -> str | None:
    """The text of `prompt.jinja`, of the adapter or else of the base model."""
    path = files.find("prompt.jinja")
    with refusing(str(path)):
        text = path.read_text("utf-8") if path else None
        # A template of one line could be taken for a name or a path.
        return text if text is None or "\n" in text else f"{text}\n"


def _trained_with(files: ModelFiles) -> TrainedWith:
    """The settings of training, of the adapter or else of the base model."""
    path = files.find(TRAINED)
    with refusing(str(path)):
        trained = read_trained(path) if path else TrainedWith()
        return replace(trained, seen=files.find(SEEN))


def _calibration(files: ModelFiles) -> Calibration | None:
    """The calibration, of the adapter if there is one: it invalidates the base model's."""
    path = (files.adapter or files.folder) / CALIBRATION
    with refusing(str(path)):
        return read_calibration(path) if path.is_file() else None


def _weights(
    files: ModelFiles,
    config: Any,
    device: torch.device,
    *,
    dtype: torch.dtype,
    device_map: DeviceMap | None,
    quantization: Quantization | None,
    attn_implementation: str | None,
) -> Any:
    """Loads the base model, quantized if asked for, onto its device, and checks it.

    Raises ModelError for attention code on the Hub, and if `placement` or transformers fails.
    """
    name = files.name
    if attn_implementation is not None and "/" in attn_implementation:
        raise ModelError(
            f"attention implementation {attn_implementation!r} is code on the Hub, which is never "
            'executed here; use "sdpa", "eager" or "flex_attention"'
        )
    if files.gguf is not None and quantization not in (None, "int4"):
        raise ModelError(
            f'{name} is stored quantized already; leave `quantization` out, or take "int4" (CPU), '
            "which keeps four bits"
        )
    options = placement(name, config, device, dtype, device_map, quantization)
    attention = attn_implementation or _pick_attention(config)
    if files.gguf is None:
        fetch_weights(files, config)
    with refusing(name), _no_bars():
        if files.gguf is not None:
            more = {"attn_implementation": attention, **options}
            model, report = gguf_weights(files.gguf, config, dtype, **more)
            _check_loaded(name, model, report)
            return model if options else model.to(device)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            str(files.folder),
            config=config,
            dtype=dtype,
            # Given even if None: else the model's own config could name code on the Hub.
            attn_implementation=attention,
            use_safetensors=True,
            trust_remote_code=False,
            output_loading_info=True,
            # `_check_loaded` names them; transformers' own error would not.
            ignore_mismatched_sizes=True,
            **options,
        )
        model, report = loaded
        _check_loaded(name, model, report)
        # With options the model is in place already; quantized weights could not be moved.
        return model if options else model.to(device)


@contextmanager
def _no_bars() -> Iterator[None]:
    """Hides transformers' progress bars of loading weights from this machine."""
    was_on = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if was_on:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _check_loaded(name: str, model: Any, report: Mapping[str, Any]) -> None:
    if mismatched := sorted(report["mismatched_keys"]):
        tensor, stored, wanted = mismatched[0]
        raise ModelError(
            f"{name}: {len(mismatched)} of the tensors have other shapes than config.json says "
            f"({tensor} is stored as {_shape(stored)}, and should be {_shape(wanted)}); weights "
            "and config.json belong to different models"
        )
    if missing := sorted(report["missing_keys"]):
        raise ModelError(
            f"{name}: the weights lack {len(missing)} of the model's tensors ({some(missing)}); "
            "they belong to another model, or are only a part of this one"
        )
    _check_unplaced(name, model, sorted(report["unexpected_keys"]))
    if next(model.parameters()).is_meta:  # the embeddings come first in every model
        raise ModelError(
            f"{name}: the device_map puts the embeddings off to memory or disk; they are needed "
            "on a device, so name one for them, or take a smaller or a quantized model"
        )


def _check_unplaced(name: str, model: Any, unplaced: Sequence[str]) -> None:
    """Raises ModelError for weights inside the decoder that the model has no place for; warns
    (UserWarning) of all others, such as those of a vision tower."""
    modules, decoder = dict(model.named_modules()), decoder_of(model)
    buffers = {key for key, _ in model.named_buffers()}
    inner: list[str] = []
    outer: list[str] = []
    for key in (key for key in unplaced if key not in buffers):
        holder, _, kind = key.rpartition(".")
        while holder not in modules:
            holder = holder.rpartition(".")[0]
        is_inner = kind in ("weight", "bias") and decoder not in modules[holder].modules()
        (inner if is_inner else outer).append(key)
    if inner:
        raise ModelError(
            f"{name}: the model has no place for {len(inner)} of the stored tensors "
            f"({some(inner)}); weights and config.json belong to different models"
        )
    if outer:
        warn(
            f"{name}: {counted(len(outer), 'stored tensor')} ({some(outer)}) left out, since "
            f"{type(model).__name__} has no such part"
        )


def _shape(sizes: Iterable[int]) -> str:
    return " x ".join(map(str, sizes))
