"""Writes a transformers model as GGUF, and runs a GGUF file in llama.cpp, pass by pass."""

from __future__ import annotations

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from schemax.evaluation.benchmark.engines import Unavailable

_DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def write_gguf(model: Any, path: Path, add_tokens: Callable[[Any], None] | None = None) -> None:
    """Writes a Llama or Qwen3 as a GGUF file: weights in their dtype, norms in float32.

    add_tokens: writes a tokenizer; without one, tokens have no texts.

    Raises Unavailable for any other model.
    """
    config = model.config
    if reason := _not_converted(config):
        raise Unavailable(reason)
    gguf: Any = import_module("gguf")
    layers = config.num_hidden_layers
    writer = gguf.GGUFWriter(path, config.model_type)
    writer.add_block_count(layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.head_dim)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(model.get_input_embeddings().weight.shape[0])
    if add_tokens is None:
        writer.add_tokenizer_model("none")
    else:
        add_tokens(writer)
    arch = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen3": gguf.MODEL_ARCH.QWEN3}[config.model_type]
    names = gguf.get_tensor_name_map(arch, layers)
    for name, weight in model.named_parameters():  # a tied head is not among them
        known = names.get_name(name, try_suffixes=(".weight",))
        if known is None or weight.dtype not in _DTYPES or type(weight.data) is not torch.Tensor:
            raise Unavailable(
                f"cannot convert {name}: quantized, or no weight of a plain {config.model_type}"
            )
        data = _as_llama_cpp(name, weight.detach().cpu(), config).contiguous()
        if data.dim() == 1:
            writer.add_tensor(known, data.float().numpy())
        elif data.dtype == torch.bfloat16:
            raw = gguf.GGMLQuantizationType.BF16
            writer.add_tensor(known, data.view(torch.uint8).numpy(), raw_dtype=raw)
        else:
            writer.add_tensor(known, data.numpy())
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _as_llama_cpp(name: str, weight: torch.Tensor, config: Any) -> torch.Tensor:
    """Reorders a Llama's heads, of which llama.cpp rotates neighbours; others rotate halves."""
    if config.model_type != "llama" or ("q_proj" not in name and "k_proj" not in name):
        return weight
    halves = weight.reshape(-1, 2, config.head_dim // 2, weight.shape[-1])
    return halves.transpose(1, 2).reshape(weight.shape)


def _not_converted(config: Any) -> str:
    """Returns the feature that conversion does not support; empty for a plain Llama or Qwen3."""
    if config.model_type not in ("llama", "qwen3"):
        return f"only Llama and Qwen3 are converted, not {config.model_type}"
    if config.rope_parameters["rope_type"] != "default":
        return "only models with plain rotary embeddings are converted"
    if {*(getattr(config, "layer_types", None) or ())} - {"full_attention"}:
        return "only models with full attention are converted"
    if getattr(config, "attention_bias", False) or getattr(config, "mlp_bias", False):
        return "only models without biases are converted"
    return "" if config.hidden_act == "silu" else "only models with SiLU are converted"


PASS = 1024  # the most tokens of a pass
_PAGE = 256  # the number of cells is a multiple
_ALL = 1 << 30  # all layers
_ERROR = 4  # GGML_LOG_LEVEL_ERROR


class LlamaModel(torch.nn.Module):
    """A GGUF file in llama.cpp; a call is a pass, and counted as passes of other models are.

    width: the most tokens of a pass of the open context.
    """

    def __init__(self, path: Path, device: torch.device) -> None:
        super().__init__()
        self.width = 0
        self._api: Any = import_module("llama_cpp")
        self._context: Any = None
        self._model: Any = None
        self._on_cpu = device.type == "cpu"
        self._api.llama_log_set(_listener(), ctypes.c_void_p(0))
        self._api.llama_backend_init()
        if not self._on_cpu and not self._api.llama_supports_gpu_offload():
            raise Unavailable("llama-cpp-python was built for the CPU alone")
        params = self._api.llama_model_default_params()
        params.n_gpu_layers = 0 if self._on_cpu else _ALL
        params.split_mode = self._api.LLAMA_SPLIT_MODE_NONE
        params.main_gpu = device.index or 0
        # Pages of a mapped file would count as memory of the run that touches them first.
        params.load_mode = self._api.LLAMA_LOAD_MODE_NONE
        self._model = self._api.llama_model_load_from_file(bytes(path), params)
        if not self._model:
            raise RuntimeError(f"llama.cpp does not load the converted model: {_last_error()}")
        vocabulary = self._api.llama_model_get_vocab(self._model)
        self.vocab_size: int = self._api.llama_vocab_n_tokens(vocabulary)

    @property
    def base_model(self) -> LlamaModel:
        return self

    def open(self, cells: int, sequences: int) -> None:
        """Opens an empty context with `cells` cells, and closes the context before."""
        self.close()
        api = self._api
        params = api.llama_context_default_params()
        params.n_ctx = -(-cells // _PAGE) * _PAGE
        params.n_batch = params.n_ubatch = self.width = min(PASS, params.n_ctx)
        params.n_seq_max = params.n_outputs_max = sequences
        params.n_threads = params.n_threads_batch = torch.get_num_threads()
        params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_AUTO
        params.kv_unified = True  # else sequences cannot share cells
        params.offload_kqv = params.op_offload = not self._on_cpu
        params.no_perf = True
        self._context = api.llama_init_from_model(self._model, params)
        if not self._context:
            raise RuntimeError(f"llama.cpp makes no context: {_last_error()}")
        self._memory = api.llama_get_memory(self._context)
        self._ids, self._positions, self._sequences = np.zeros((3, self.width), np.int32)
        self._ones = np.ones(self.width, np.int32)
        self._wanted = np.zeros(self.width, np.int8)
        # Every token has one sequence, given by a pointer.
        steps = np.arange(self.width, dtype=np.uintp) * self._sequences.itemsize
        self._pointers = steps + self._sequences.ctypes.data
        self._batch = api.llama_batch()
        for name, array in (
            ("token", self._ids),
            ("pos", self._positions),
            ("n_seq_id", self._ones),
            ("seq_id", self._pointers),
            ("logits", self._wanted),
        ):
            kind = dict(api.llama_batch._fields_)[name]
            setattr(self._batch, name, ctypes.cast(array.ctypes.data, kind))

    def forward(
        self,
        ids: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[int],
        wanted: Sequence[int],
    ) -> NDArray[np.float32]:
        """Runs a pass: (T,) each, T <= `width` -> (R, V) logits where wanted, until the next call.

        R must not exceed the number of sequences: llama.cpp would end the process.
        """
        count = self._batch.n_tokens = len(ids)
        self._ids[:count] = ids
        self._positions[:count] = positions
        self._sequences[:count] = sequences
        self._wanted[:count] = wanted
        if status := self._api.llama_decode(self._context, self._batch):
            raise RuntimeError(f"llama_decode returned {status}: {_last_error()}")
        rows = int(np.count_nonzero(wanted))
        if not rows:
            return np.empty((0, self.vocab_size), np.float32)
        pointer = self._api.llama_get_logits(self._context)
        return np.ctypeslib.as_array(pointer, (rows, self.vocab_size))

    def share(self, source: int, target: int) -> None:
        """Makes a whole sequence the beginning of another, empty one."""
        self._api.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def forget(self, sequence: int) -> None:
        self._api.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def close(self) -> None:
        if self._context:
            self._api.llama_free(self._context)
        self._context = None

    def free(self) -> None:
        """Frees the model, which cannot be used afterwards."""
        self.close()
        if self._model:
            self._api.llama_model_free(self._model)
        self._model = None


_errors: deque[str] = deque(maxlen=1)


@cache
def _listener() -> Any:
    """Returns a log callback that keeps the last error; must not be garbage collected."""

    def hear(level: int, text: bytes, _: Any) -> None:
        if level == _ERROR:
            _errors.append(text.decode(errors="replace").strip())

    return import_module("llama_cpp").llama_log_callback(hear)


def _last_error() -> str:
    return _errors.pop() if _errors else "it does not say why"
