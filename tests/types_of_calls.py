"""What a type checker says of users' calls: nothing here runs, the checks run `mypy` on the file.

Classes of several categories need no annotation, and a wrong attribute is found.
"""

from __future__ import annotations

from typing import Any, assert_type

from schemax import AttrSchema, Extraction, Extractor, extract


class Receipt(AttrSchema):
    total: float | None


class Television(AttrSchema):
    brand: str | None


async def calls(extractor: Extractor) -> None:
    receipts = extract([], Receipt)
    assert_type(receipts, list[Receipt])
    receipts[0].brand  # type: ignore[attr-defined]  # noqa: B018
    assert_type(extract([], Receipt, on_error="null"), list[Receipt | None])
    assert_type(await extractor.aextract([], Receipt), list[Receipt])
    assert_type(extractor.extract([], Receipt, on_error="null"), list[Receipt | None])
    assert_type(extractor.extract([], {"a": Receipt}, category="kind"), list[Any])
    mixed = extract([], {"receipt": Receipt, "tv": Television}, category="kind")
    assert_type(mixed, list[Any])
    mixed = extractor.extract([], {"receipt": Receipt, "tv": Television}, category="kind")
    assert_type(mixed, list[Any])
    mixed = await extractor.aextract([], {"receipt": Receipt, "tv": Television}, category="kind")
    assert_type(mixed, list[Any])
    assert_type(next(extractor.stream([], Receipt)), Extraction[Receipt])
    for item in extractor.stream([], {"receipt": Receipt, "tv": Television}, category="kind"):
        assert_type(item, Extraction[Any])
