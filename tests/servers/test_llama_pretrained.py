"""llama.cpp's servers with a pretrained model, as GGUF, against the same weights in this process.

Marked `llm`. The folder of SmolLM2-135M-Instruct for transformers is made from the GGUF file, so
that both have the same weights (fixtures `smollm2`, `smollm2_gguf`). $SCHEMAX_LLAMA_SERVER is the
command that starts a server: `llama-server`, or `python -m llama_cpp.server` of an environment with
llama-cpp-python[server]. Without it, these tests skip.

The server's products round otherwise: it multiplies 8-bit activations with the 4-bit weights.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any, Literal

import pytest
from command_line import jsonl, rows
from typer.testing import CliRunner

from recipes.servers import NATIVE, Server, llama_server
from schemax import AttrSchema, DecodingConfig, Extractor, attr
from schemax.commands.cli import app

pytestmark = pytest.mark.llm

PROGRAM = os.environ.get("SCHEMAX_LLAMA_SERVER")


class Shoe(AttrSchema, category="shoe"):
    """A pair of shoes."""

    brand: str | None = attr("maker of the shoe")
    gender: str | None = attr("whom it is made for")
    color: str | None = None


TITLES = [
    "Florsheim Men's Milano Slip-On Loafer,Burgundy,10 D US",
    "Skechers Women's Go Walk Joy Walking Shoe, Navy",
    "adidas Men's Cloudfoam Running Shoe, Black",
]
SHOWN = [
    ("Crocs Unisex Classic Clog, Red", {"brand": "Crocs", "gender": "Unisex", "color": "Red"}),
    ("Nike Women's Air Max Sneaker", {"brand": "Nike", "gender": "Women's", "color": None}),
]


class Order(AttrSchema, category="order"):
    """An order of a shop."""

    customer: str | None = attr("name of the customer")
    pieces: int | None = attr("how many pieces", strict=True)
    total: float | None = attr("amount to pay")
    paid: bool | None = attr("whether it has been paid")
    shipping: Literal["air", "sea", "road"] | None = attr("how it is sent")
    ordered: date | None = attr("day of the order")
    items: list[str] = attr("what was ordered", default_factory=list)


ORDERS = [
    "Order of Maria Lopez, 2024-06-09: 3 pieces (cup, plate, bowl), total 41.50, paid, by air.",
    "Order of John Smith, 2023-11-30: 2 pieces (desk, lamp), total 250.00, not paid, by sea.",
]
SHOWN_ORDERS = [
    (
        "Order of Ann Lee, 2022-01-15: 1 piece (chair), total 99.90, paid, by road.",
        {
            "customer": "Ann Lee",
            "pieces": 1,
            "total": 99.9,
            "paid": True,
            "shipping": "road",
            "ordered": "2022-01-15",
            "items": ["chair"],
        },
    )
]


@pytest.fixture(scope="module")
def here(smollm2: Path) -> Extractor:
    plain = DecodingConfig(constrain="types", contextual_calibration=False)  # as servers decode
    return Extractor.from_pretrained(smollm2, device="cpu", dtype="float32", decoding=plain)


@pytest.fixture(scope="module")
def llama(request: pytest.FixtureRequest) -> Iterator[Server]:
    if not PROGRAM:
        pytest.skip("set SCHEMAX_LLAMA_SERVER to the command that starts a server")
    with llama_server(PROGRAM, request.getfixturevalue("smollm2_gguf")) as made:
        yield made


def read(extractor: Extractor, texts: Sequence[str], schema: Any, **more: Any) -> list[Any]:
    return sorted(extractor.stream(texts, schema, **more), key=lambda item: item.index)


def same(found: Sequence[Any], others: Sequence[Any]) -> float:
    """The share of fields that have the same value."""
    pairs = [
        (field.value, other.fields[name].value)
        for item, other in zip(found, others, strict=True)
        for name, field in item.fields.items()
    ]
    return sum(one == other for one, other in pairs) / len(pairs)


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
def test_rows_are_those_of_the_same_weights_here(
    here: Extractor, llama: Server, smollm2: Path, format: str
) -> None:
    there = Extractor.from_server(llama.url, tokenizer=smollm2)
    assert there.model.served.kind == (
        "llama.cpp" if NATIVE in str(PROGRAM) else "llama-cpp-python"
    )
    shown = {"format": format, "examples": SHOWN}
    found = read(there, TITLES, Shoe, **shown)
    assert not any(item.errors for item in found)
    others = read(here, TITLES, Shoe, **shown)
    # Of a text the server reads a line break and its indent as one token: in JSON and XML.
    is_exact = there.model.takes_ids or format == "yaml"
    assert same(found, others) >= (7 / 9 if is_exact else 5 / 9)


def test_typed_fields(here: Extractor, llama: Server, smollm2: Path) -> None:
    there = Extractor.from_server(llama.url, tokenizer=smollm2)
    found = read(there, ORDERS, Order, examples=SHOWN_ORDERS)
    for item in found:
        assert item.value is not None
        assert item.value == Order.model_validate(item.value.model_dump())
    first = found[0].value
    assert (first.customer, first.pieces, first.total) == ("Maria Lopez", 3, 41.5)
    assert isinstance(first.ordered, date)
    assert first.shipping == "air"
    assert first.items == ["cup", "plate", "bowl"]
    assert same(found, read(here, ORDERS, Order, examples=SHOWN_ORDERS)) >= 10 / 14


def test_confidences(here: Extractor, llama: Server, smollm2: Path) -> None:
    there = Extractor.from_server(llama.url, tokenizer=smollm2, probabilities=True)
    found = read(there, TITLES[:1], Shoe, examples=SHOWN)
    right = read(here, TITLES[:1], Shoe, examples=SHOWN)
    for name, field in found[0].fields.items():
        if field.raw == right[0].fields[name].raw:
            assert field.confidence == pytest.approx(right[0].fields[name].confidence, abs=0.15)


def test_chats_show_examples_as_turns(llama: Server) -> None:
    there = Extractor.from_server(llama.url, kind="openai", probabilities=False)
    found = read(there, TITLES, Shoe, examples=SHOWN)
    assert all(item.value is not None for item in found)
    assert sum(item.value.brand in TITLES[item.index] for item in found) >= 2


def test_the_command_line(llama: Server, smollm2: Path, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", [{"id": n, "t": text} for n, text in enumerate(TITLES)])
    shown = [
        {"category": "shoe", "text": text, "attributes": dict(values)} for text, values in SHOWN
    ]
    command = ["extract", f"{__file__}:Shoe", source, "--examples", jsonl(tmp_path / "x", shown)]
    command += ["--server", llama.url, "--tokenizer", str(smollm2)]
    done = CliRunner().invoke(app, list(map(str, command)))
    assert done.exit_code == 0, done.output
    brands = [row["attributes"]["brand"] for row in rows(done.stdout)]
    assert sum(brand in text for brand, text in zip(brands, TITLES, strict=True)) >= 2
