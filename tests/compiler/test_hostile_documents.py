"""Documents that tokenizers fail on are rows with an error; they never end a run."""

from __future__ import annotations

from pathlib import Path

import pytest
import tokenizers
from command_line import jsonl, rows
from conftest import Small, tiny_model
from tokenizers import Tokenizer, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from schemax import Extraction, Extractor, InputError, extract_files
from schemax.compiler import TextCodec
from schemax.extraction.documents import MOST_CHARACTERS
from schemax.io.estimate import estimate
from schemax.io.long_documents import TooLong
from schemax.io.readers import InputFiles
from schemax.io.task import Task

# A regular expression that backtracks until it gives up.
HOSTILE = "x" + "a" * 26 + "?"


@pytest.fixture(scope="module")
def panicking(backend: Tokenizer) -> Tokenizer:
    """A tokenizer whose Rust code panics over some texts."""
    made = Tokenizer.from_str(backend.to_str())
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(r"(a|a)+(?=!)b"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    return made


@pytest.fixture(scope="module")
def extractor(panicking: Tokenizer) -> Extractor:
    fast = PreTrainedTokenizerFast(tokenizer_object=panicking, eos_token="<|endoftext|>")
    return Extractor(tiny_model("qwen3", panicking.get_vocab_size()), fast)


def test_a_panic_is_an_error_with_a_reason(panicking: Tokenizer) -> None:
    codec = TextCodec(panicking)
    for fail in (lambda: codec.encode(HOSTILE), lambda: codec.encode_batch(["a", HOSTILE])):
        with pytest.raises(InputError, match="the tokenizer fails on this text"):
            fail()
    assert codec.decode_bytes(codec.encode("still here")) == b"still here"


@pytest.mark.slow
@pytest.mark.parametrize("decoding", ["isolated", "paper:documents_per_prompt=2"])
def test_a_panic_is_the_error_of_its_row(extractor: Extractor, decoding: str) -> None:
    products = ["LG OLED C3", HOSTILE, "Sony Bravia", {"id": "7", "t": HOSTILE}, "TCL Roku"]
    found = sorted(extractor.stream(products, Small, decoding=decoding), key=lambda i: i.index)
    assert [item.index for item in found] == list(range(5))
    failed = {item.index: item.errors[0].message for item in found if not item.fields}
    assert list(failed) == [1, 3]
    assert all("the tokenizer fails on this text" in message for message in failed.values())
    assert found[3].document_id == "7"
    # The others are read as they are without these two.
    good = [products[at] for at in (0, 2, 4)]
    alone = sorted(extractor.stream(good, Small, decoding=decoding), key=lambda i: i.index)
    assert [_raw(item) for item in found if item.fields] == [_raw(item) for item in alone]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["truncate", "chunk"])
def test_a_panic_over_a_long_document_is_the_error_of_its_row(
    extractor: Extractor, tmp_path: Path, mode: TooLong
) -> None:
    long = "LG " * 4000
    source = jsonl(tmp_path / "in.jsonl", ["LG OLED C3", f"{long}{HOSTILE}", long, "TCL Roku"])
    output = tmp_path / "out.jsonl"
    summary = extract_files(Small, source, output, extractor=extractor, on_too_long=mode)
    found = rows(output.read_text("utf-8"))
    assert (summary.failed, len(found)) == (1, 4)
    assert "the tokenizer fails on this text" in found[1]["errors"][0]["message"]
    assert all(found[at]["attributes"] is not None for at in (0, 2, 3))


def test_an_estimate_counts_what_panics_as_unreadable(extractor: Extractor, tmp_path: Path) -> None:
    source = InputFiles.of([jsonl(tmp_path / "in.jsonl", ["LG OLED C3", HOSTILE])])
    found = [*estimate(source, Task(Small, {}, lambda: extractor, None))]
    assert "sample: 2 rows out of all rows" in found
    assert "fit the context: 1 of 1; cannot be read: 1" in found


def _raw(item: Extraction[Small]) -> dict[str, str]:
    return {name: field.raw for name, field in item.fields.items()}


def test_a_document_beyond_the_bound_never_reaches_the_tokenizer(extractor: Extractor) -> None:
    blank = " " * MOST_CHARACTERS
    products = ["LG", f"x{blank}y", {"id": "b", "t": f"x{blank}y"}, "Sony"]
    found = sorted(extractor.stream(products, Small), key=lambda item: item.index)
    failed = {item.index: item.errors[0].message for item in found if not item.fields}
    assert list(failed) == [1, 2]
    assert all("10,000,002 characters, more than the 10,000,000" in m for m in failed.values())
