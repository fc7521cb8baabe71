"""Loading: devices, quantization, adapters, shards, and everything that is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import TITLES, Small, tiny_model
from safetensors.torch import load_file, save_file
from seams import replaced
from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerFast
from transformers.integrations import hub_kernels
from transformers.utils import logging

from schemax import Extractor
from schemax.errors import ModelError
from schemax.runtime.models.loading import load

needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

# One of two layers is read from disk whenever it is needed.
ON_DISK = {
    "model.embed_tokens": "cpu",
    "model.layers.0": "cpu",
    "model.layers.1": "disk",
    "model.norm": "cpu",
    "model.rotary_emb": "cpu",
    "lm_head": "cpu",
}
# What a clone without large-file support leaves behind.
LFS = b"version https://git-lfs.github.com/spec/v1"
ATTENTION = ["q_proj", "k_proj", "v_proj", "o_proj"]


@pytest.fixture(scope="module")
def fast(backend: Tokenizer) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")


@pytest.fixture(scope="module")
def folder(
    backend: Tokenizer, fast: PreTrainedTokenizerFast, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    return saved(tmp_path_factory.mktemp("base"), backend, fast)


@pytest.fixture
def copy(folder: Path, tmp_path: Path) -> Path:
    """A model folder to damage."""
    return Path(shutil.copytree(folder, tmp_path / "copy"))


@pytest.fixture
def lora(folder: Path, tmp_path: Path) -> Path:
    return make_lora(folder, tmp_path / "lora")


def saved(
    folder: Path, backend: Tokenizer, fast: Any, family: str = "qwen3", **changes: Any
) -> Path:
    tiny_model(family, backend.get_vocab_size(), **changes).save_pretrained(folder)
    fast.save_pretrained(folder)
    return folder


def make_lora(base: Path, folder: Path, **settings: Any) -> Path:
    """An adapter with random weights, large enough to matter."""
    peft = pytest.importorskip("peft")
    model = load(base, device="cpu").model
    torch.manual_seed(3)
    options = {"r": 4, "lora_alpha": 8, "target_modules": ATTENTION, "task_type": "CAUSAL_LM"}
    tuned = peft.get_peft_model(model, peft.LoraConfig(**{**options, **settings}))
    for name, parameter in tuned.named_parameters():
        if "lora_" in name or "modules_to_save" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    tuned.save_pretrained(folder, save_embedding_layers=False)
    return folder


def logits(model: Any) -> torch.Tensor:
    """(4, 24, V), of the model itself, in float32."""
    ids = torch.randint(0, 256, (4, 24), generator=torch.Generator().manual_seed(1))
    with torch.inference_mode():
        found: torch.Tensor = model.eval()(ids.to(model.device)).logits
    return found.float().cpu()


def by_peft(base: Path, adapter: Path) -> torch.Tensor:
    """Logits of peft's own model, where the adapter stays beside the weights."""
    peft = pytest.importorskip("peft")
    model = load(base, device="cpu").model
    return logits(peft.PeftModel.from_pretrained(model, str(adapter)))


def edit(path: Path, **changes: Any) -> None:
    """Changes keys of a JSON file; None removes them."""
    written = {**json.loads(path.read_text("utf-8")), **changes}
    path.write_text(json.dumps({k: v for k, v in written.items() if v is not None}))


def hide(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    """Makes a package that may be installed as absent as can be."""
    monkeypatch.setitem(sys.modules, package, None)


def refused(*said: str, name: Any, **options: Any) -> None:
    with pytest.raises(ModelError) as caught:
        Extractor.from_pretrained(name, **options)
    for text in said:
        assert text in str(caught.value)
    assert "\n" not in str(caught.value)


# Devices


@pytest.mark.parametrize("device_map", ["cpu", {"": "cpu"}])
def test_a_device_map(folder: Path, device_map: Any) -> None:
    pytest.importorskip("accelerate")
    mapped = Extractor.from_pretrained(folder, device_map=device_map)
    assert mapped.model.device == torch.device("cpu")
    assert mapped.model.dtype == torch.float32
    plain = Extractor.from_pretrained(folder, device="cpu")
    assert torch.equal(logits(mapped.model.model), logits(plain.model.model))


def test_a_layer_on_disk(folder: Path) -> None:
    """Slow, but with the same results; embeddings on disk are more than can be served."""
    pytest.importorskip("accelerate")
    mapped = Extractor.from_pretrained(folder, device_map=ON_DISK)
    plain = Extractor.from_pretrained(folder, device="cpu")
    options: dict[str, Any] = {"on_error": "null"}
    found = mapped.extract(TITLES[:3], Small, **options)
    assert found == plain.extract(TITLES[:3], Small, **options)
    refused("embeddings", "quantized", name=folder, device_map={"": "disk"})


def test_an_adapter_and_a_layer_on_disk(folder: Path, lora: Path) -> None:
    refused(str(lora), "disk", "merge", name=folder, adapter=lora, device_map=ON_DISK)


def test_a_device_and_a_device_map(folder: Path) -> None:
    with pytest.raises(ValueError, match="not both"):
        Extractor.from_pretrained(folder, device="cpu", device_map="auto")


@pytest.mark.parametrize("device_map", ["abacus", {"": "abacus"}, {"": 99}])
def test_devices_that_are_not_there(folder: Path, device_map: Any) -> None:
    refused("cannot be used", name=folder, device_map=device_map)


def test_without_accelerate(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "accelerate")
    refused(str(folder), "pip install accelerate", name=folder, device_map="cpu")


@pytest.mark.slow
@pytest.mark.gpu
@pytest.mark.parametrize(
    "device_map",
    # Numbers, which accelerate takes as well, name the devices that torch was built for.
    [pytest.param("auto", marks=needs_cuda), pytest.param(0, marks=needs_cuda), "cuda:0", "cuda"],
)
def test_a_device_map_on_cuda(folder: Path, device_map: Any, cuda: None) -> None:
    pytest.importorskip("accelerate")
    mapped = Extractor.from_pretrained(folder, device_map=device_map, dtype="float32")
    assert mapped.model.device.type == "cuda"
    plain = Extractor.from_pretrained(folder, device="cuda", dtype="float32")
    assert torch.allclose(logits(mapped.model.model), logits(plain.model.model), atol=1e-4)


def test_no_bar_of_weights(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    before = logging.is_progress_bar_enabled()  # a command that ran before may have ended them
    Extractor.from_pretrained(folder)
    assert capfd.readouterr().err == ""
    assert logging.is_progress_bar_enabled() == before


def test_attention_implementations(folder: Path) -> None:
    eager = Extractor.from_pretrained(folder, attn_implementation="eager")
    assert eager.model.model.config._attn_implementation == "eager"
    refused(str(folder), "abacus", name=folder, attn_implementation="abacus")
    refused("kernels-community/flash-attn", "sdpa", name=folder,
            attn_implementation="kernels-community/flash-attn")  # fmt: skip


def test_a_config_cannot_name_code_on_the_hub(copy: Path) -> None:
    edit(copy / "config.json", attn_implementation="someone/kernel")
    assert Extractor.from_pretrained(copy).model.model.config._attn_implementation == "sdpa"


def test_kernels_on_the_hub_are_fetched_by_name_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What transformers would fetch by itself: it goes on without, or the model is refused."""
    fetched: list[str] = []
    replaced(monkeypatch, "fetching of kernels", lambda name, **_: fetched.append(name))
    Extractor.from_pretrained(folder)
    monkeypatch.setattr(hub_kernels, "is_kernels_available", lambda: True)
    monkeypatch.setattr(hub_kernels, "_kernels_enabled", True)
    kernel = hub_kernels._HUB_KERNEL_MAPPING["finegrained-fp8"]["repo_id"]
    assert hub_kernels.lazy_load_kernel("finegrained-fp8", {}) is None
    with pytest.raises(FileNotFoundError, match=f"set SCHEMAX_HUB_KERNELS={kernel}"):
        hub_kernels.get_kernel(kernel, version=1)
    assert not fetched
    monkeypatch.setenv("SCHEMAX_HUB_KERNELS", f"a/b, {kernel}")
    hub_kernels.lazy_load_kernel("finegrained-fp8", {})
    assert fetched == [kernel]


# Quantization


def test_unknown_quantizations(folder: Path) -> None:
    with pytest.raises(ValueError, match="'nf4', 'int8', 'int4', not 'int3'"):
        Extractor.from_pretrained(folder, quantization="int3")  # type: ignore[arg-type]


def test_quantization_that_this_machine_cannot_do(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused(str(folder), "nf4", "CUDA", '"int8"', name=folder, device="cpu", quantization="nf4")
    refused("int8", "CUDA", "CPU", name=folder, device="meta", quantization="int8")
    refused("int4", "CPU", '"nf4"', name=folder, device_map="cpu", quantization="int4")
    hide(monkeypatch, "torchao")
    refused(str(folder), "torchao", "pip install '.[int8]'",
            name=folder, device="cpu", quantization="int8")  # fmt: skip


@pytest.mark.gpu
def test_without_bitsandbytes(folder: Path, monkeypatch: pytest.MonkeyPatch, cuda: None) -> None:
    hide(monkeypatch, "bitsandbytes")
    refused("bitsandbytes", "pip install", name=folder, quantization="nf4")


def test_models_that_are_stored_quantized(copy: Path) -> None:
    edit(copy / "config.json", quantization_config={"quant_method": "fp8"})
    refused(str(copy), "stored quantized", name=copy, device="cpu", quantization="int8")


@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_int8_on_a_cpu(
    family: str, backend: Tokenizer, fast: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    pytest.importorskip("torchao")
    saved(tmp_path, backend, fast, family)
    plain = Extractor.from_pretrained(tmp_path, device="cpu")
    small = Extractor.from_pretrained(tmp_path, device="cpu", quantization="int8")
    assert small.model.model.is_quantized
    weight = small.model.model.model.layers[0].self_attn.q_proj.weight
    assert "Int8" in type(weight.data).__name__ + type(weight).__name__
    expected, found = logits(plain.model.model), logits(small.model.model)
    assert (expected - found).abs().mean() < 0.06 * expected.std()
    assert len(small.extract(TITLES, Small, on_error="null")) == len(TITLES)


def test_int4_on_a_cpu(folder: Path, lora: Path) -> None:
    plain, small = (
        Extractor.from_pretrained(folder, adapter=lora, quantization=bits)
        for bits in (None, "int4")
    )
    assert small.model.dtype == torch.float32
    expected, found = logits(plain.model.model), logits(small.model.model)
    assert 0 < (expected - found).abs().mean() < 0.3 * expected.std()
    assert len(small.extract(TITLES, Small, on_error="null")) == len(TITLES)


def test_int8_on_a_cpu_with_an_adapter(folder: Path, lora: Path) -> None:
    """The adapter stays beside the quantized weights."""
    pytest.importorskip("torchao")
    tuned = Extractor.from_pretrained(folder, adapter=lora, device="cpu", quantization="int8")
    assert any("lora_" in name for name, _ in tuned.model.model.named_parameters())
    expected, found = by_peft(folder, lora), logits(tuned.model.model)
    assert (expected - found).abs().mean() < 0.06 * expected.std()
    assert len(tuned.extract(TITLES, Small, on_error="null")) == len(TITLES)


@pytest.mark.gpu
@needs_cuda
@pytest.mark.parametrize("quantization", ["nf4", "int8"])
@pytest.mark.parametrize("tuned", [False, True])
def test_quantization_on_cuda(
    backend: Tokenizer,
    fast: PreTrainedTokenizerFast,
    tmp_path: Path,
    quantization: Any,
    tuned: bool,
) -> None:
    pytest.importorskip({"nf4": "bitsandbytes", "int8": "torchao"}[quantization])
    base = saved(tmp_path / "base", backend, fast, hidden_size=128, intermediate_size=256)
    adapter = make_lora(base, tmp_path / "lora") if tuned else None
    options: dict[str, Any] = {"device": "cuda", "adapter": adapter}
    plain = Extractor.from_pretrained(base, **options)
    small = Extractor.from_pretrained(base, quantization=quantization, **options)
    assert small.model.device.type == "cuda"
    expected, found = logits(plain.model.model), logits(small.model.model)
    worst = {"nf4": 0.5, "int8": 0.06}[quantization]
    assert (expected - found).abs().mean() < worst * expected.std()
    assert len(small.extract(TITLES, Small, on_error="null")) == len(TITLES)


# Adapters


@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"target_modules": "all-linear", "use_rslora": True, "rank_pattern": {"q_proj": 2}},
        {"use_dora": True},
        {"modules_to_save": ["lm_head"]},
    ],
    ids=["plain", "scaled", "dora", "head"],
)
def test_an_adapter_is_merged(
    family: str,
    settings: dict[str, Any],
    backend: Tokenizer,
    fast: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> None:
    base = saved(tmp_path / "base", backend, fast, family)
    adapter = make_lora(base, tmp_path / "lora", **settings)
    plain = Extractor.from_pretrained(base, device="cpu").model.model
    tuned = Extractor.from_pretrained(base, adapter=adapter, device="cpu").model.model
    assert type(tuned) is type(plain)
    assert [name for name, _ in tuned.named_modules()] == [n for n, _ in plain.named_modules()]
    expected = by_peft(base, adapter)
    assert torch.allclose(logits(tuned), expected, atol=1e-3 * float(expected.std()))
    assert (logits(plain) - expected).abs().max() > 0.5 * expected.std()


@pytest.mark.filterwarnings("ignore:.*tie.*:UserWarning")
@pytest.mark.parametrize(
    "settings",
    [
        {"target_modules": ["q_proj", "embed_tokens"]},
        {"target_modules": ["q_proj", "lm_head"]},
        {"target_modules": ["q_proj", "lm_head", "embed_tokens"]},
        {"modules_to_save": ["lm_head"]},
        {"modules_to_save": ["embed_tokens"], "ensure_weight_tying": True},
        {"target_modules": ["q_proj", "embed_tokens"], "ensure_weight_tying": True},
    ],
)
def test_adapters_of_shared_embeddings(
    settings: dict[str, Any], backend: Tokenizer, fast: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    """Embeddings and head share one tensor; what is merged into one must not reach the other."""
    base = saved(tmp_path / "base", backend, fast, tie_word_embeddings=True)
    adapter = make_lora(base, tmp_path / "lora", **settings)
    tuned = Extractor.from_pretrained(base, adapter=adapter, device="cpu").model.model
    expected = by_peft(base, adapter)
    assert torch.allclose(logits(tuned), expected, atol=1e-3 * float(expected.std()))


@pytest.mark.slow
def test_an_adapter_by_its_own_name(folder: Path, lora: Path) -> None:
    """Its config names the base model."""
    tuned = Extractor.from_pretrained(lora, device="cpu")
    expected = by_peft(folder, lora)
    assert torch.allclose(logits(tuned.model.model), expected, atol=1e-3 * float(expected.std()))
    both = Extractor.from_pretrained(folder, adapter=lora, device="cpu")
    options: dict[str, Any] = {"on_error": "null"}
    assert tuned.extract(TITLES, Small, **options) == both.extract(TITLES, Small, **options)
    assert tuned.eos_ids == both.eos_ids


def test_an_adapter_in_bfloat16(folder: Path, lora: Path) -> None:
    tuned = Extractor.from_pretrained(folder, adapter=lora, device="cpu", dtype="bfloat16")
    assert {p.dtype for p in tuned.model.model.parameters()} == {torch.bfloat16}
    expected = by_peft(folder, lora)
    assert (logits(tuned.model.model) - expected).abs().mean() < 0.1 * expected.std()


def test_an_adapter_with_a_device_map(folder: Path, lora: Path) -> None:
    mapped = Extractor.from_pretrained(folder, adapter=lora, device_map="cpu")
    expected = by_peft(folder, lora)
    assert torch.allclose(logits(mapped.model.model), expected, atol=1e-3 * float(expected.std()))


def test_tokenizer_and_template_of_an_adapter(
    backend: Tokenizer, lora: Path, folder: Path, copy: Path
) -> None:
    own = PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|endoftext|>", chat_template="{{ 'own' }}"
    )
    (copy / "prompt.jinja").write_text("Base: {{ documents[0].text }}\n")
    tuned = Extractor.from_pretrained(copy, adapter=lora)
    assert tuned.tokenizer.chat_template is None
    assert tuned.defaults.template == "Base: {{ documents[0].text }}\n"
    own.save_pretrained(lora)
    (lora / "prompt.jinja").write_text("Own: {{ documents[0].text }}\n")
    (copy / "tokenizer.json").unlink()
    tuned = Extractor.from_pretrained(copy, adapter=lora)
    assert tuned.tokenizer.chat_template == "{{ 'own' }}"
    assert tuned.defaults.template == "Own: {{ documents[0].text }}\n"
    assert Extractor.from_pretrained(lora).tokenizer.chat_template == "{{ 'own' }}"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"peft_type": "LOHA"}, ["LOHA", "LORA"]),
        ({"task_type": "SEQ_CLS"}, ["SEQ_CLS", "CAUSAL_LM"]),
        ({"megatron_config": {"a": 1}, "megatron_core": "os"}, ["megatron_config"]),
        ({"target_modules": ["abacus"]}, ["abacus"]),
        ({"target_modules": ["q_proj"]}, ["too many", "k_proj", "another"]),
        ({"target_modules": [*ATTENTION, "up_proj"]}, ["lacks", "up_proj", "another"]),
        ({"r": 8}, ["size mismatch", "q_proj"]),
    ],
)
def test_adapters_that_do_not_fit(
    folder: Path, lora: Path, changes: dict[str, Any], said: list[str]
) -> None:
    edit(lora / "adapter_config.json", **changes)
    refused(str(lora), *said, name=folder, adapter=lora)


def test_adapters_with_damaged_files(folder: Path, lora: Path) -> None:
    weights = lora / "adapter_model.safetensors"
    tensors = load_file(weights)
    save_file({key: value * float("nan") for key, value in tensors.items()}, weights)
    refused(str(lora), "NaN", name=folder, adapter=lora)
    weights.write_bytes(LFS)
    refused(str(lora), "damaged", "download", name=folder, adapter=lora)
    (lora / "adapter_config.json").write_bytes(LFS)
    refused(str(lora), "damaged", "download", name=folder, adapter=lora)
    (lora / "adapter_config.json").write_text("[1]")
    refused(str(lora), "holds no JSON object", name=folder, adapter=lora)


def test_adapters_in_other_formats(folder: Path, lora: Path) -> None:
    weights = lora / "adapter_model.safetensors"
    torch.save(load_file(weights), lora / "adapter_model.bin")
    weights.unlink()
    refused(str(lora), "safetensors", "can run code", name=folder, adapter=lora)
    refused(str(lora), "safetensors", "can run code", name=lora)


def test_adapters_and_their_base_models(folder: Path, lora: Path, copy: Path) -> None:
    refused("adapter itself", "base model", name=lora, adapter=lora)
    refused(str(folder), "adapter_config.json", name=folder, adapter=folder)
    refused("./nowhere/at/all", name=folder, adapter="./nowhere/at/all")
    shutil.copy(lora / "adapter_config.json", copy)
    refused(str(copy), "holds an adapter", "`adapter`", name=copy)
    edit(lora / "adapter_config.json", base_model_name_or_path=str(copy))
    refused(str(copy), "holds an adapter", "`adapter`", name=lora)
    edit(lora / "adapter_config.json", base_model_name_or_path=None)
    refused(str(lora), "names no base model", name=lora)
    edit(lora / "adapter_config.json", base_model_name_or_path="./nowhere/at/all")
    refused("nowhere", name=lora)


def test_without_peft(folder: Path, lora: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide(monkeypatch, "peft")
    refused(str(lora), "pip install '.[peft]'", name=folder, adapter=lora)
    refused(str(lora), "pip install '.[peft]'", name=lora)


# Formats and code


def test_sharded_weights(folder: Path, copy: Path) -> None:
    model = Extractor.from_pretrained(folder, device="cpu").model.model
    (copy / "model.safetensors").unlink()
    model.save_pretrained(copy, max_shard_size="30KB")
    shards = sorted(copy.glob("model-*.safetensors"))
    assert len(shards) > 2
    assert (copy / "model.safetensors.index.json").is_file()
    sharded = Extractor.from_pretrained(copy, device="cpu").model.model
    assert torch.equal(logits(sharded), logits(model))
    shards[1].unlink()
    refused(str(copy), shards[1].name, "copy it again", name=copy)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
def test_damaged_files(copy: Path, file: str) -> None:
    (copy / file).write_bytes(LFS)
    refused(str(copy), name=copy)


def test_pickled_weights_named_by_json(copy: Path) -> None:
    """No format but safetensors, whoever names the file."""
    tensors = load_file(copy / "model.safetensors")
    torch.save(tensors, copy / "pytorch_model.bin")
    torch.save(tensors, copy / "adapter_model.bin")
    edit(copy / "config.json", transformers_weights="adapter_model.bin")
    refused(str(copy), "adapter_model.bin", "only safetensors", name=copy)
    edit(copy / "config.json", transformers_weights=None)
    index = {"metadata": {}, "weight_map": dict.fromkeys(tensors, "pytorch_model.bin")}
    (copy / "model.safetensors").rename(copy / "other.safetensors")
    (copy / "model.safetensors.index.json").write_text(json.dumps(index))
    refused(str(copy), "pytorch_model.bin", "only safetensors", name=copy)
    (copy / "other.safetensors").rename(copy / "adapter_model.safetensors")
    (copy / "model.safetensors.index.json").unlink()
    refused(str(copy), "no weights", name=copy)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"model_type": "abacus", "auto_map": {"AutoConfig": "modeling.Abacus"}},
            ["code of its own", "auto_map"],
        ),
        ({"model_type": None, "auto_map": {"AutoConfig": "a.B"}}, ["code of its own"]),
        ({"model_type": "abacus"}, ["'abacus'", "pip install -U transformers"]),
        ({"model_type": "t5"}, ["'t5'", "causal"]),
        ({"num_hidden_layers": "many"}, ["num_hidden_layers"]),
    ],
)
def test_configs_that_cannot_be_run(copy: Path, changes: dict[str, Any], said: list[str]) -> None:
    (copy / "modeling.py").write_text("raise SystemExit('was executed')")
    edit(copy / "config.json", **changes)
    refused(str(copy), *said, name=copy)


def test_known_models_keep_their_code_to_themselves(copy: Path, folder: Path) -> None:
    """A config may offer code of its own for a model that transformers has: it is not run."""
    (copy / "modeling.py").write_text("raise SystemExit('was executed')")
    edit(copy / "config.json", auto_map={"AutoModelForCausalLM": "modeling.Model"})
    own = Extractor.from_pretrained(copy, device="cpu").model.model
    plain = Extractor.from_pretrained(folder, device="cpu").model.model
    assert type(own) is type(plain)


# The Hub


@pytest.fixture
def hub(folder: Path, tmp_path: Path) -> Callable[[str, Path], None]:
    """Puts a folder into a cache of the Hub's, as a download leaves it."""

    def put(name: str, source: Path) -> None:
        root = tmp_path / "hub" / f"models--{name.replace('/', '--')}"
        (root / "refs").mkdir(parents=True)
        (root / "refs" / "main").write_text("a" * 40)
        (root / "refs" / "v1").write_text("a" * 40)
        shutil.copytree(source, root / "snapshots" / ("a" * 40))

    return put


@pytest.mark.release
def test_hub_ids(
    folder: Path, lora: Path, tmp_path: Path, hub: Callable[[str, Path], None]
) -> None:
    """Model, adapter, and adapter that names its base model, out of the cache and offline."""
    edit(lora / "adapter_config.json", base_model_name_or_path="someone/base")
    hub("someone/base", folder)
    hub("someone/adapter", lora)
    script = """
import sys, torch
from schemax import Extractor
from schemax.errors import ModelError
torch.set_num_threads(1)
load = Extractor.from_pretrained
ids = torch.arange(20)[None]
def logits(*args, **options):
    with torch.inference_mode():
        return load(*args, device="cpu", **options).model.model(ids).logits
base, tuned = logits(sys.argv[1]), logits(sys.argv[1], adapter=sys.argv[2])
assert torch.equal(logits("someone/base"), base)
assert torch.equal(logits("someone/base", revision="v1"), base)
assert torch.equal(logits("someone/base", adapter="someone/adapter"), tuned)
assert torch.equal(logits("someone/adapter"), tuned)
assert not torch.equal(base, tuned)
for name in ("someone/nothing", "someone/base"):
    try:
        load("someone/base" if name != "someone/base" else name, adapter=name)
    except ModelError as error:
        assert name in str(error), error
    else:
        raise AssertionError(name)
"""
    done = subprocess.run(
        [sys.executable, "-c", script, str(folder), str(lora)],
        env={**os.environ, "HF_HUB_CACHE": str(tmp_path / "hub"), "HF_HUB_OFFLINE": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
