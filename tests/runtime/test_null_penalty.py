"""How likely null is: what a penalty does to choices and probabilities, and where it is set."""

from __future__ import annotations

import json
from copy import copy
from dataclasses import replace
from math import exp
from pathlib import Path
from typing import Any, Literal

import pytest
from command_line import jsonl, refused
from conftest import TITLES, combinations
from constrained import forked
from decoding import WAYS, assert_right, compiled_in
from grammar_walks import FORMATS
from typer.testing import CliRunner

from schemax import AttrSchema, DecodingConfig, Extractor, attr
from schemax.base.calibration import FILE, Calibration, read_calibration
from schemax.commands.cli import app
from schemax.compiler import TextCodec
from schemax.config import resolve_decoding
from schemax.runtime.engine.engine import decode


class Shoe(AttrSchema):
    brand: str | None = attr(k_max=5)
    size: float | None = attr(k_max=6)
    color: Literal["red", "blue"] | None = None
    tags: list[str] = attr(k_max=8, default_factory=list)
    code: str = attr(k_max=3)


SLOTS = [way for way in WAYS if way != "autoregressive"]


@combinations("way, format", SLOTS, FORMATS)
def test_it_is_the_oracles(decoder_model: Any, codec: TextCodec, way: str, format: str) -> None:
    nulls = []
    for penalty in (-100.0, 0.0, 2.5, 100.0):
        compiled = compiled_in(way, Shoe, codec, null_penalty=penalty)
        found = assert_right(decoder_model(), compiled, TITLES[:4])
        null = compiled.format.escape(None)
        raw = [compiled.decode_slot(slot.ids)[0] for row in found for slot in row]
        nulls.append(sum(text == null for text in raw))
    # All but the code may be null. A random model also writes it in tokens of another cut.
    assert nulls[0] == 16 > nulls[1] >= nulls[2] >= nulls[3]


def test_it_is_the_oracles_where_models_fork(codec: TextCodec) -> None:
    found = {}
    for penalty in (-100.0, 2.5):
        compiled = compiled_in("branched", Shoe, codec, null_penalty=penalty)
        outputs = assert_right(forked(codec), compiled, TITLES[:2])
        null = compiled.format.escape(None)
        raw = [compiled.decode_slot(slot.ids)[0] for row in outputs for slot in row]
        found[penalty] = sum(text == null for text in raw)
    assert found[-100.0] == 8 >= found[2.5]


@pytest.fixture(scope="module")
def extractor(saved_model: Path) -> Extractor:
    return Extractor.from_pretrained(saved_model)


class Brand(AttrSchema):
    brand: str | None = attr(k_max=5)


def read(extractor: Extractor, **changes: Any) -> list[Any]:
    decoding = DecodingConfig(max_retries=0, **changes)
    return sorted(extractor.stream(TITLES, Brand, decoding=decoding), key=lambda item: item.index)


def test_probabilities_by_hand(extractor: Extractor) -> None:
    """Of what is asked of all tokens: an unconstrained slot."""
    plain = read(extractor, constrain=False)
    for one, other in zip(plain, read(extractor, constrain=False, null_penalty=1.5), strict=True):
        before = one.fields["brand"].null_probability
        after = other.fields["brand"].null_probability
        expected = before * exp(-1.5) / (before * exp(-1.5) + 1 - before)
        assert after == pytest.approx(expected, rel=1e-3)


def test_calls_with_other_penalties_share_no_passes(extractor: Extractor) -> None:
    """Both are under way at once, and each gives what it gives by itself."""
    alone = {penalty: read(extractor, null_penalty=penalty) for penalty in (-100.0, 100.0)}
    streams = {
        penalty: extractor.stream(
            TITLES, Brand, decoding=DecodingConfig(max_retries=0, null_penalty=penalty)
        )
        for penalty in alone
    }
    together: dict[float, list[Any]] = {penalty: [] for penalty in alone}
    raw: dict[float, list[str]] = {}
    for _ in TITLES:
        for penalty, stream in streams.items():
            together[penalty].append(next(stream))
    for penalty, items in together.items():
        items.sort(key=lambda item: item.index)
        raw[penalty] = [item.fields["brand"].raw for item in items]
        assert raw[penalty] == [item.fields["brand"].raw for item in alone[penalty]]
    assert all(text == " null" for text in raw[-100.0])
    assert raw[100.0] != raw[-100.0]  # where null may stand in another cut


def test_the_models_own_and_another(extractor: Extractor) -> None:
    own = copy(extractor)
    own.defaults = replace(own.defaults, calibration=Calibration(null_penalty=-100))
    assert all(item.value.brand is None for item in read(own))
    plain = [item.value for item in read(extractor)]
    assert [item.value for item in read(own, null_penalty=0)] == plain
    assert own.compile(Brand).decoding.null_penalty == -100
    assert own.compile(Brand, decoding="paper").decoding.null_penalty == 0
    untrained = DecodingConfig(extractive=True, contextual_calibration=True)
    assert extractor.compile(Brand).decoding == untrained


def test_the_setting() -> None:
    assert resolve_decoding("isolated").null_penalty is None
    assert resolve_decoding("isolated:null_penalty=-1.5").null_penalty == -1.5
    for wrong in (101, float("nan"), "x", True):
        with pytest.raises(ValueError, match="null_penalty"):
            DecodingConfig(null_penalty=wrong)  # type: ignore[arg-type]


ROWS: list[dict[str, Any]] = [
    {"category": "Tea", "text": text, "attributes": {"Brand": "LG", "Size": "78"[n % 2]}}
    for n, text in enumerate(TITLES)
]
SHOP = """
from typing import Literal
from schemax import AttrSchema, attr

class Tea(AttrSchema):
    brand: Literal["LG", "Sony"] = attr(title="Brand", k_max=12)
    size: Literal["7", "8"] | None = attr(title="Size", k_max=12)
"""


def test_calibrate_keeps_the_best(saved_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for file in saved_model.iterdir():
        (folder / file.name).symlink_to(file)
    (tmp_path / "shop.py").write_text(SHOP)
    gold = jsonl(tmp_path / "gold.jsonl", ROWS)
    arguments = ["calibrate", gold, "--model", folder, "--schemas", f"{tmp_path / 'shop.py'}:Tea"]

    def run(penalties: str) -> Any:
        return CliRunner().invoke(app, [*map(str, arguments), "--null-penalty", penalties])

    done = run("-100,100")
    assert done.exit_code == 0, done.output
    assert read_calibration(folder / FILE).null_penalty == 100
    assert "null_penalty 100" in done.stderr
    assert json.loads((folder / FILE).read_text())["null_penalty"] == 100
    refused(run("1,x"), "--null-penalty 1,x")
    refused(run(","), "--null-penalty names no number")
    refused(run("1000"), "null_penalty must be from -100 to 100")


class Long(AttrSchema):
    tags: list[str] = attr(long=True, default_factory=list)
    brand: str | None = attr(k_max=5)


def test_numbers_of_items_are_not_penalised(decoder_model: Any, codec: TextCodec) -> None:
    found = []
    for penalty in (-100.0, 0.0):
        compiled = compiled_in("branched", Long, codec, null_penalty=penalty)
        prompts = compiled.encode(TITLES[:4])
        found.append(decode(decoder_model(), prompts, compiled.stop, compiled.decoding))
    for (count, brand), (same, _) in zip(*found, strict=True):
        assert count.ids == same.ids
        assert compiled.decode_slot(brand.ids)[0] == " null"
