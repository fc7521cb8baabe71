"""Values that repeat the prompt are reported, and stay."""

from __future__ import annotations

from typing import Any, Literal

import pytest

from schemax import AttrSchema, Extraction, attr
from schemax.base.calibration import Calibration
from schemax.compiler import TextCodec, compile_schema
from schemax.extraction.documents import RecordFields, read_documents
from schemax.extraction.readout import read_out
from schemax.results.echoes import is_echo
from schemax.runtime.slots.outputs import DocumentOutput
from schemax.tokens import SlotOutput


class Invoice(AttrSchema, category="invoice"):
    """An invoice."""

    vendor: str | None = attr("Company that sent it", examples=["Brightline Print", "Acme"])
    about: str | None = attr("What it is for")
    size: Literal["A4", "A5"] | None = attr("Paper size")
    total: float | None = None
    tags: list[str] = attr("Keywords", k_max=30)


def read(codec: TextCodec, text: str, **values: Any) -> Extraction[Invoice]:
    compiled = compile_schema(Invoice, codec, decoding="isolated:layout=gapped")
    written = [compiled.format.escape(values.get(a.name)) + ",\n" for a in compiled.attributes]
    slots = tuple(SlotOutput(tuple(codec.encode(one)), "stop") for one in written)
    (document,) = read_documents([text], RecordFields.of(None, "id", "category"))
    return read_out(document, DocumentOutput(slots, 1), compiled, Calibration())


@pytest.mark.parametrize(
    "vendor", ["Company", "company that", "Brightline Print", "Acme", "Paper size", "vendor"]
)
def test_the_prompt_s_own_words_are_noted(codec: TextCodec, vendor: str) -> None:
    item = read(codec, "Bill 5 of Northwind, printing", vendor=vendor, total=5)
    assert item.value is not None
    assert item.value.vendor == vendor
    assert item.fields["vendor"].note == (
        f'"{vendor}" stands in the prompt, and not in the document'
    )
    assert item.fields["total"].note is None
    assert item.fields["about"].note is None
    assert not item.errors


def test_what_the_document_says_is_never_noted(codec: TextCodec) -> None:
    text = "Acme: the company's paper-size keywords, A4. Brightline PRINT"
    item = read(codec, text, vendor="Acme", about="Company", tags=["Keywords", "brightline print"])
    assert [field.note for field in item.fields.values()] == [None] * 5
    item = read(codec, "Bill of 5", vendor="Northwind", about="Compan", size="A4", total=5)
    assert [field.note for field in item.fields.values()] == [None] * 5


def test_of_a_list_the_items_that_are_echoes_are_named(codec: TextCodec) -> None:
    item = read(codec, "Bill of 5 for keywords", tags=["Keywords", "Acme", "else", "Company"])
    assert item.fields["tags"].note == (
        '"Acme", "Company" stand in the prompt, and not in the document'
    )


@pytest.mark.parametrize(
    ("text", "found"),
    [("Acme", True), ("acme inc", False), ("Acm", False), ("5", False), ("", False), ("-", False)],
)
def test_words_stand_one_after_the_other(text: str, found: bool) -> None:
    assert is_echo(text, "Vendor: the company, such as Acme. At most 5 words; inc.") == found
