"""llama.cpp in this process: the same weights as GGUF, documents joining at every pass."""

from __future__ import annotations

import ctypes
import tempfile
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from schemax.benchmark.engine import Emitted, Kind, Unavailable
from schemax.benchmark.work import Ids, Work, Writes

_PACKAGES = {"llama_cpp": "llama-cpp-python", "gguf": "gguf"}
_DTYPES = (torch.float32, torch.float16, torch.bfloat16)
_PASS = 1024  # tokens at most
_PAGE = 256  # cells of its cache come in multiples of it
_ALL = 1 << 30  # layers
_ERROR = 4  # GGML_LOG_LEVEL_ERROR


@dataclass
class LlamaCpp:
    """Every document is a sequence that writes keys and values; a finished one makes room at once.

    An instruction is read once, and its cells of the cache are shared. A pass holds the newest
    token of every sequence and as much of new documents as fits; logits are computed where a token
    is chosen, and searched for their maximum before the answer's token stands there.

    Every run gets a context of its own: made before the clock starts, freed before it stops.
    """

    model: Any
    batch_sizes: tuple[int, ...] = (1, 8, 32)
    batch_size: int | None = None
    name: str = "llama.cpp"
    title: str = "llama.cpp"
    kind: Kind = "rival"
    writes: Writes = "output"
    note: str = ""
    module: Any = field(default=None, repr=False)

    def setup(self, work: Work) -> None:
        missing = [name for module, name in _PACKAGES.items() if find_spec(module) is None]
        if missing:
            raise Unavailable(f"not installed: {', '.join(missing)}")
        with tempfile.TemporaryDirectory(prefix="schemax-") as folder:
            path = Path(folder, "model.gguf")
            write_gguf(self.model, path)
            self.module = LlamaModel(path, self.model.device)  # reads all of it
        version = import_module("llama_cpp").__version__
        self.note = (
            f"llama-cpp-python {version}; weights in the model's dtype, cache in float16; shares "
            "the instruction's cache between documents"
        )
        if self.model.device.type != "cpu":
            self.note += "; what it allocates on the accelerator is not counted"

    def reset(self, work: Work) -> None:
        size = self.batch_size or 1
        self.module.open(cells(work, size), size + 1)

    def run(self, work: Work) -> Emitted:
        try:
            return _Stream(self.module, work, self.batch_size or 1).run()
        finally:
            self.module.close()  # what the next run needs is counted from here

    def teardown(self) -> None:
        if self.module is not None:
            self.module.free()
        self.module = None


@dataclass
class _Sequence:
    """A document in flight.

    unread: tokens that no pass has had yet, its prompt's or the newest one of its output.
    position: of the first of these. output: what it has to write.
    """

    place: int
    unread: Ids
    position: int
    output: Ids
    written: list[int] = field(default_factory=list)


class _Stream:
    """One run: `size` documents in flight, in sequences 0 to size - 1, the instruction behind.

    The order is that of categories, and in each the longest documents come first.
    """

    def __init__(self, module: Any, work: Work, size: int) -> None:
        self.module, self.work = module, work
        listings = work.listings
        self.waiting = deque(
            sorted(
                range(len(work)),
                key=lambda place: (listings[place].category, -len(listings[place].ids)),
            )
        )
        self.free = list(range(size))
        self.instruction = size
        self.category: int | None = None
        self.flying: dict[int, _Sequence] = {}
        self.found: list[Any] = [None] * len(work)

    def run(self) -> Emitted:
        while self.waiting or self.flying:
            while self.waiting and self.free:
                self._start(self.waiting.popleft())
            self._pass()
        return self.found

    def _start(self, place: int) -> None:
        listing = self.work.listings[place]
        category = self.work.categories[listing.category]
        if listing.category != self.category:
            # Documents that still share the one before keep it.
            self.module.forget(self.instruction)
            self._read(category.instruction)
            self.category = listing.category
        sequence = self.free.pop()
        self.module.share(self.instruction, sequence)
        unread = (*listing.ids, *category.opening)
        output = self.work.output(listing)
        self.flying[sequence] = _Sequence(place, unread, len(category.instruction), output)

    def _read(self, ids: Ids) -> None:
        width = self.module.width
        for at in range(0, len(ids), width):
            some = ids[at : at + width]
            places = range(at, at + len(some))
            self.module(some, places, [self.instruction] * len(some), [0] * len(some))

    def _pass(self) -> None:
        """The newest tokens first, then prompts in the order of their arrival."""
        ids: list[int] = []
        positions: list[int] = []
        sequences: list[int] = []
        wanted: list[int] = []
        chosen: list[int] = []
        room = self.module.width
        for number, sequence in sorted(self.flying.items(), key=lambda x: len(x[1].unread) > 1):
            some = sequence.unread[:room]
            if not some:
                break
            room -= len(some)
            sequence.unread = sequence.unread[len(some) :]
            ids += some
            positions += range(sequence.position, sequence.position + len(some))
            sequences += [number] * len(some)
            wanted += [0] * len(some)
            sequence.position += len(some)
            if not sequence.unread:
                wanted[-1] = 1
                chosen.append(number)
        logits = self.module(ids, positions, sequences, wanted)
        for number, token in zip(chosen, logits.argmax(axis=1).tolist(), strict=True):
            self._write(number, token)

    def _write(self, number: int, token: int) -> None:
        sequence = self.flying[number]
        token = sequence.output[len(sequence.written)]  # whatever the weights prefer
        sequence.written.append(token)
        sequence.unread = (token,)
        if token == self.work.eos_id:
            self.found[sequence.place] = (tuple(sequence.written),)
            self.module.forget(number)
            self.free.append(number)
            del self.flying[number]


class LlamaModel(torch.nn.Module):
    """A GGUF file in llama.cpp; one call is one pass, and counted like those of other models.

    width: tokens of a pass at most, of the open context.
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
        # Pages of a mapped file would count as memory of the run that first touches them.
        params.load_mode = self._api.LLAMA_LOAD_MODE_NONE
        self._model = self._api.llama_model_load_from_file(bytes(path), params)
        if not self._model:
            raise RuntimeError(f"llama.cpp does not load the converted model: {_said()}")
        vocabulary = self._api.llama_model_get_vocab(self._model)
        self.vocab_size: int = self._api.llama_vocab_n_tokens(vocabulary)

    @property
    def base_model(self) -> LlamaModel:
        return self

    def open(self, cells: int, sequences: int) -> None:
        """An empty context of so many cells, instead of the one before."""
        self.close()
        api = self._api
        params = api.llama_context_default_params()
        params.n_ctx = -(-cells // _PAGE) * _PAGE
        params.n_batch = params.n_ubatch = self.width = min(_PASS, params.n_ctx)
        params.n_seq_max = params.n_outputs_max = sequences
        params.n_threads = params.n_threads_batch = torch.get_num_threads()
        params.flash_attn_type = api.LLAMA_FLASH_ATTN_TYPE_AUTO
        params.kv_unified = True  # else no cell has two owners
        params.offload_kqv = params.op_offload = not self._on_cpu
        params.no_perf = True
        self._context = api.llama_init_from_model(self._model, params)
        if not self._context:
            raise RuntimeError(f"llama.cpp makes no context: {_said()}")
        self._memory = api.llama_get_memory(self._context)
        self._ids = np.zeros(self.width, np.int32)
        self._positions = np.zeros(self.width, np.int32)
        self._sequences = np.zeros(self.width, np.int32)
        self._ones = np.ones(self.width, np.int32)
        self._wanted = np.zeros(self.width, np.int8)
        # Every token has one sequence; they want a pointer to each.
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
        """(T,) each, `width` tokens at most -> (R, V) logits where wanted, until the next call.

        No more of them than there are sequences: llama.cpp would end the process.
        """
        count = self._batch.n_tokens = len(ids)
        self._ids[:count] = ids
        self._positions[:count] = positions
        self._sequences[:count] = sequences
        self._wanted[:count] = wanted
        if status := self._api.llama_decode(self._context, self._batch):
            raise RuntimeError(f"llama_decode returned {status}: {_said()}")
        rows = int(np.count_nonzero(wanted))
        if not rows:
            return np.empty((0, self.vocab_size), np.float32)
        pointer = self._api.llama_get_logits(self._context)
        return np.ctypeslib.as_array(pointer, (rows, self.vocab_size))

    def share(self, source: int, target: int) -> None:
        """All of one sequence becomes the beginning of another, an empty one."""
        self._api.llama_memory_seq_cp(self._memory, source, target, -1, -1)

    def forget(self, sequence: int) -> None:
        self._api.llama_memory_seq_rm(self._memory, sequence, -1, -1)

    def close(self) -> None:
        if self._context:
            self._api.llama_free(self._context)
        self._context = None

    def free(self) -> None:
        """Of no use afterwards."""
        self.close()
        if self._model:
            self._api.llama_model_free(self._model)
        self._model = None


def cells(work: Work, size: int) -> int:
    """What `size` documents in flight and the instructions they share can take in the cache."""
    own = [
        len(x.ids) + len(work.categories[x.category].opening) + len(work.output(x))
        for x in work.listings
    ]
    instructions = sorted((len(c.instruction) for c in work.used_categories()), reverse=True)
    return sum(sorted(own, reverse=True)[:size]) + sum(instructions[: size + 1])


def write_gguf(model: Any, path: Path) -> None:
    """A Qwen3 as a GGUF file: weights in their own dtype, norms in float32, tokens without texts.

    Raises Unavailable for any other model.
    """
    config = model.config
    if reason := _unlike_qwen3(config):
        raise Unavailable(reason)
    gguf: Any = import_module("gguf")
    layers = config.num_hidden_layers
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_block_count(layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_key_length(config.head_dim)
    writer.add_value_length(config.head_dim)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(model.get_input_embeddings().weight.shape[0])
    writer.add_tokenizer_model("none")
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, layers)
    for name, weight in model.named_parameters():  # a tied head is not among them
        known = names.get_name(name, try_suffixes=(".weight",))
        if known is None or weight.dtype not in _DTYPES or type(weight.data) is not torch.Tensor:
            raise Unavailable(f"{name} is not converted: quantized, or no weight of a plain Qwen3")
        data = weight.detach().cpu().contiguous()
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


def _unlike_qwen3(config: Any) -> str:
    """What of it the conversion does not know, in words; empty if it is a plain Qwen3."""
    if config.model_type != "qwen3":
        return f"only Qwen3 is converted, not {config.model_type}"
    if config.rope_parameters["rope_type"] != "default":
        return "only Qwen3 with plain rotary embeddings is converted"
    if set(config.layer_types) != {"full_attention"}:
        return "only Qwen3 with full attention is converted"
    return "" if config.hidden_act == "silu" else "only Qwen3 with SiLU is converted"


_errors: deque[str] = deque(maxlen=1)


@cache
def _listener() -> Any:
    """Keeps its last error, where it would print all it has to say; it must never be collected."""

    def hear(level: int, text: bytes, _: Any) -> None:
        if level == _ERROR:
            _errors.append(text.decode(errors="replace").strip())

    return import_module("llama_cpp").llama_log_callback(hear)


def _said() -> str:
    return _errors.pop() if _errors else "it does not say why"
