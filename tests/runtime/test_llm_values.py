"""What a pretrained model writes into fields: numbers in texts, circles, words of the prompt."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemax import AttrSchema, Extractor, attr

pytestmark = pytest.mark.llm


class Invoice(AttrSchema):
    """An invoice."""

    invoice_number: str | None = attr("Number of the invoice")
    order_number: str | None = attr("Number of the order")
    total: float | None = attr("Amount to be paid")


class Lists(AttrSchema, category="invoice"):
    """An invoice."""

    vendor: str | None = attr("Company")
    buyer: str | None = attr("Company")
    about: str | None = attr("Description")
    items: list[str] = attr("Items")
    note: str | None = attr("Everything else that the text says")


INVOICES = [
    "Invoice 1093 of Miller Hardware, order 55021, 12 May 2024. Amount due: 240.50 USD.",
    "Acme Tools - Invoice 334 - Order 1200 - 3 June 2023 - Total 1,250.00",
    "Bill 90210 from Northwind Traders for order 4471. Total: $18.75. Issued 1 Feb 2022.",
]


@pytest.fixture(scope="module")
def extractor(smollm2: Path) -> Extractor:
    return Extractor.from_pretrained(str(smollm2), dtype="float32")


@pytest.mark.release
def test_numbers_in_texts_are_not_lost(extractor: Extractor) -> None:
    found = extractor.extract(INVOICES, Invoice, examples=())
    assert [one.invoice_number for one in found] == ["1093", "334", "90210"]
    assert all(str(one.order_number).isdigit() for one in found)
    assert [one.total for one in found] == [240.5, 1250, 18.75]  # written behind a lone space


@pytest.mark.release
def test_circles_are_cut(extractor: Extractor) -> None:
    texts = ["Invoice 1093 of Miller Hardware.", "Bill 90210. Total: $18.75.", "Total 77.10 GBP"]
    items = list(extractor.stream([*texts, "x", "Company Company Company"], Lists))
    said = [error.message for item in items for error in item.errors]
    cut = [int(text.split(" for ")[1].split()[0]) for text in said if "repeated itself" in text]
    assert len(cut) >= 3
    assert sorted(cut)[len(cut) // 2] < 60  # the budget of a text, retries included
    assert max(cut) < 120  # that of a list
