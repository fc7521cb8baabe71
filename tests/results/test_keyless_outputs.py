"""Whole outputs of models that are asked for keys and values at once, and write no keys."""

from __future__ import annotations

import pytest

from schemax import AttrSchema, Extraction
from schemax.base.calibration import Calibration
from schemax.compiler import TextCodec, compile_schema
from schemax.config import DecodingConfig
from schemax.extraction.documents import RecordFields, read_documents
from schemax.extraction.readout import read_out
from schemax.runtime.slots.outputs import DocumentOutput
from schemax.tokens import FinishReason, SlotOutput


class Television(AttrSchema):
    brand: str | None = None
    size: float | None = None


def read(
    codec: TextCodec, text: str, reason: FinishReason = "eos", format: str = "json"
) -> Extraction[Television]:
    config = DecodingConfig(layout="autoregressive", max_retries=0)
    compiled = compile_schema(Television, codec, format=format, decoding=config)
    output = DocumentOutput((SlotOutput(tuple(codec.encode(text)), reason),), 1)
    (document,) = read_documents(["LG"], RecordFields.of(None, "id", "category"))
    return read_out(document, output, compiled, Calibration())


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
@pytest.mark.parametrize(
    "text", ["The brand of this one is LG.", "", '"Brand name": "LG"}', "[1, 2]", "- LG\n- 55\n"]
)
def test_an_output_without_the_keys_is_an_error_with_its_text(
    codec: TextCodec, text: str, format: str
) -> None:
    item = read(codec, text, format=format)
    assert item.value == Television()
    (error,) = item.errors
    assert (error.field, error.raw) == (None, text)
    assert error.message == "the output holds none of the keys, or several answers"
    assert item.to_row()["errors"][0]["raw"] == text


def test_so_is_one_that_was_cut_off(codec: TextCodec) -> None:
    item = read(codec, "Well, let me see: the", "length")
    assert [error.field for error in item.errors] == ["brand", "size"]
    assert all("truncated" in error.message for error in item.errors)
    assert {error.raw for error in item.errors} == {"Well, let me see: the"}


@pytest.mark.parametrize("text", ['  "brand": null\n}', '  "brand": "LG",\n  "size": 55\n}'])
def test_one_key_suffices(codec: TextCodec, text: str) -> None:
    item = read(codec, text, "stop")
    assert not item.errors
