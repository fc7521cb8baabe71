"""Several documents in one prompt, and one output for all of them (Cheng et al., 2023)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import tokenizers
import torch
from conftest import TITLES, slow_but, tiny_model
from constrained import forked
from decoding import TEMPLATE, assert_right, outputs_of, run, streamed
from transformers import PreTrainedTokenizerFast

from schemax import AttrSchema, Extraction, Extractor
from schemax.base.calibration import Calibration
from schemax.compiler import CompiledSchema, TextCodec, compile_schema
from schemax.config import PRESETS, DecodingConfig
from schemax.extraction.documents import RecordFields, read_documents
from schemax.extraction.readout import read_out
from schemax.formats import DocumentKey, get_format
from schemax.runtime.engine import stream as stream_module
from schemax.runtime.models.model import DecoderModel

CONFIG = DecodingConfig(
    layout="autoregressive", documents="stacked", documents_per_prompt=3, k_max=8, max_retries=0
)


def compiled_for(schema: Any, codec: Any, format: str = "json", **changes: Any) -> CompiledSchema:
    config = replace(CONFIG, **changes)
    return compile_schema(schema, codec, format=format, template=TEMPLATE, decoding=config)


@pytest.mark.slow
@pytest.mark.parametrize("format", slow_but({"json"}, ["json", "yaml", "xml"]))
@pytest.mark.parametrize("temperature", slow_but({0.0}, [0.0, 1.2]))
@pytest.mark.parametrize("in_flight", slow_but({4}, [1, 4, None]))
def test_outputs_equal_the_oracle(
    decoder_model: Callable[..., DecoderModel],
    codec: TextCodec,
    small: Any,
    format: str,
    temperature: float,
    in_flight: int | None,
) -> None:
    """Seven documents in prompts of three: the last one has its document to itself."""
    compiled = compiled_for(small, codec, format, temperature=temperature, documents_per_prompt=3)
    outputs = assert_right(decoder_model(), compiled, TITLES, in_flight)
    assert [len(slots) for slots in outputs] == [1, 1, 1]


def test_outputs_equal_plain_generate(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any
) -> None:
    compiled = compiled_for(small, codec, constrain="nothing")
    model = decoder_model()
    texts = TITLES[1:4]
    prompts = compiled.encode(texts)
    for prompt, (slot,) in zip(prompts, run(model, compiled, texts), strict=True):
        head = [*prompt.instruction, *(i for d in prompt.documents for i in d), *prompt.opening]
        request = torch.tensor([head])
        generated = model.model.generate(
            request,
            attention_mask=torch.ones_like(request),
            max_new_tokens=len(slot.ids),
            do_sample=False,
            eos_token_id=-1,
            pad_token_id=0,
        )
        assert list(slot.ids) == generated[0, len(head) :].tolist()


@pytest.mark.slow
@pytest.mark.parametrize("kind", slow_but({"in sequence"}, ["in sequence", "forks"]))
def test_every_document_of_a_prompt_gets_its_output(
    decoder_model: Callable[..., DecoderModel], codec: TextCodec, small: Any, kind: str
) -> None:
    model = decoder_model() if kind == "in sequence" else forked(codec)
    compiled = compiled_for(small, codec)
    outputs = outputs_of(model, compiled, TITLES)
    assert [output.document for output in outputs] == [0, 1, 2, 0, 1, 2, 0]
    assert outputs[0].slots == outputs[2].slots != outputs[3].slots
    assert all(len(output.slots) == 1 for output in outputs)


@pytest.fixture
def extractor(codec: TextCodec, backend: tokenizers.Tokenizer) -> Extractor:
    fast = PreTrainedTokenizerFast(tokenizer_object=backend, eos_token="<|endoftext|>")
    return Extractor(tiny_model("qwen3", codec.vocab_size), fast)


def written(format: str, brands: list[str | None]) -> str:
    """One output for documents 1 to n, as the format writes it."""
    texts = get_format(format)
    paths = [(DocumentKey(str(n + 1)), "brand") for n in range(len(brands))]
    parts = [texts.opening()]
    for n, (path, brand) in enumerate(zip(paths, brands, strict=True)):
        parts += [texts.key(path, paths[n - 1] if n else None), texts.escape(brand)]
    return "".join([*parts, texts.closing(paths[-1])])


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
def test_one_output_becomes_the_instances_of_all_its_documents(
    codec: TextCodec, extractor: Extractor, format: str
) -> None:
    brands = ["LG", None, "Sony"]
    found = extractions_of(codec, extractor, format, written(format, brands), ends=True)
    assert [item.value.brand for item in found if item.value] == brands
    assert all(item.ok and not item.errors for item in found)


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
def test_of_an_output_that_is_cut_off_the_documents_before_the_cut_have_values(
    codec: TextCodec, extractor: Extractor, format: str
) -> None:
    text = written(format, ["LG", "Sony", "TCL"])
    text = text[: text.index("TCL") + 1]
    first, second, third = extractions_of(codec, extractor, format, text, ends=False)
    assert [item.value and item.value.brand for item in (first, second, third)] == [
        "LG",
        "Sony",
        None,
    ]
    assert not first.errors
    assert not second.errors
    assert "truncated" in third.errors[0].message


class Brand(AttrSchema):
    brand: str | None


def extractions_of(
    codec: TextCodec, extractor: Extractor, format: str, text: str, *, ends: bool
) -> list[Extraction[Brand]]:
    """Of three documents whose output the model is made to write."""
    config = replace(CONFIG, constrain="nothing", k_max=len(codec.encode(text)) // 3)
    compiled = compile_schema(Brand, codec, format=format, template=TEMPLATE, decoding=config)
    (prompt,) = compiled.encode(["a", "b", "c"])
    body = text.removeprefix(codec.decode_bytes(prompt.opening).decode().strip())
    ids = (*codec.encode(body), *([codec.eos_ids[0]] if ends else []))
    given = replace(prompt, answers=((ids,),), k_max=(len(ids),))
    ((_, first), *rest) = streamed(extractor.model, [given], compiled.stop, config)
    documents = read_documents(["a", "b", "c"], RecordFields.of(None, "id", "category"))
    outputs = [first, *(output for _, output in rest)]
    return [
        read_out(document, output, compiled, Calibration())
        for document, output in zip(documents, outputs, strict=True)
    ]


@pytest.mark.parametrize("decoding", ["autoregressive", "paper"])
def test_documents_too_large_together_are_read_alone(
    extractor: Extractor, small: Any, monkeypatch: pytest.MonkeyPatch, decoding: str
) -> None:
    """Memory that does not suffice for a prompt of three may suffice for each of them."""
    changes: Any = {"documents_per_prompt": 3, "k_max": 4, "max_retries": 0}
    config = replace(PRESETS[decoding], documents="stacked", **changes)
    texts = ["LG " * 30, "Sony " * 30, "TCL " * 30, "Hisense " * 300]
    usual = stream_module.make_batch
    sizes: list[int] = []

    def scarce(scheduler: Any, *rest: Any) -> Any:
        batch = usual(scheduler, *rest)
        sizes.append(max((len(one.request.stem) for one in scheduler.entering), default=0))
        if sizes[-1] > 140:
            raise torch.OutOfMemoryError("scarce")
        return batch

    monkeypatch.setattr(stream_module, "make_batch", scarce)
    stream = extractor.stream(texts, small, template=TEMPLATE, decoding=config)
    found = sorted(stream, key=lambda item: item.index)
    assert [item.index for item in found] == [0, 1, 2, 3]
    assert ["memory" in str(item.errors) for item in found] == [False, False, False, True]
    assert max(sizes) > 140
