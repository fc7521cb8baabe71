"""What `schemax trace` says is what was decoded, pass by pass."""

from __future__ import annotations

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from math import isclose
from pathlib import Path
from typing import Any, Literal

import pytest
from chromium import Browser, find_chromium
from conftest import slow_but
from decoding import TEMPLATE
from document_files import docx_of, word
from families import FORK
from pydantic import field_validator
from typer.testing import CliRunner

from schemax import AttrSchema, DecodingConfig, Extractor, InputError, attr, load_schema
from schemax.base.resources import resource_dir
from schemax.commands.cli import app
from schemax.evaluation.diagnosis.tracing import DocumentTrace, playback, trace

TITLE = "Sony 55-Inch BRAVIA 4K UHD Smart TV </script><b>é 😀"


@pytest.fixture(scope="module")
def embedded() -> Extractor:
    return Extractor.from_pretrained(resource_dir("embedded"), device="cpu")


def written(found: DocumentTrace, field: str, as_text: bool = False) -> list[int]:
    return [
        token
        for one in found.passes
        for item in one
        if (item.field, item.as_text) == (field, as_text)
        for token in item.token_ids
    ]


@pytest.mark.parametrize("way", slow_but({"isolated"}, ["isolated", "paper", "autoregressive"]))
def test_passes_put_together_are_what_was_extracted(embedded: Extractor, way: str) -> None:
    """Probabilities are those by which confidences are told, and rivals come first."""
    schema = load_schema("television")
    found = trace(embedded, TITLE, schema, decoding=way)
    (item,) = embedded.stream([TITLE], schema, decoding=way)
    assert found.extraction.value == item.value
    assert len(found.passes) == found.extraction.steps >= item.steps  # which reads drafts
    codec = embedded.compile(schema).codec
    if way == "autoregressive":
        assert {one.field for row in found.passes for one in row} == {"output"}
        assert found.one_by_one >= len(found.passes)
        return
    for name, result in found.extraction.fields.items():
        text = codec.decode_bytes(written(found, name)).decode()
        assert text.startswith(result.raw)
        assert len(written(found, name)) == result.tokens
    assert found.one_by_one > 3 * len(found.passes)
    for row in found.passes:
        for one in row:
            assert 0 <= one.probability <= 1
            shares = [share for _, share in one.rivals]
            assert shares == sorted(shares, reverse=True)
            if one.text == one.rivals[0][0] and way == "paper":
                assert isclose(one.probability, shares[0], rel_tol=1e-4)


class Listing(AttrSchema):
    brand: str | None = None
    parts: list[str] = attr(long=True, default_factory=list)


def test_lists_and_what_cannot_be_read(embedded: Extractor) -> None:
    found = trace(embedded, {"title": TITLE, "seller": "Shop"}, Listing)
    assert "seller" in found.text
    assert {one.field for row in found.passes for one in row} == {"brand", "parts"}
    with pytest.raises(InputError, match="positions"):
        trace(embedded, "word " * 40_000, Listing)
    with pytest.raises(InputError):
        trace(embedded, {"id": "1"}, Listing)


BOOT = "Northfell Women's Tamarack Waterproof Hiking Boot, Dark Olive, 8.5 M US"


class Offer(AttrSchema):
    brand: str | None = None
    gender: Literal["men", "women"] | None = attr("Who it is made for")
    size: str | None = attr(after=("brand", "gender"))


def test_later_waves_and_texts_of_choices_are_shown_with_their_fields(embedded: Extractor) -> None:
    found = trace(embedded, BOOT, Offer)
    (item,) = embedded.stream([BOOT], Offer)
    assert found.extraction.value == item.value
    assert len(found.passes) == found.extraction.steps >= item.steps  # which reads drafts
    codec = embedded.compile(Offer).codec
    for name, result in found.extraction.fields.items():
        ids = written(found, name, result.note is not None and "read as" in result.note)
        assert codec.decode_bytes(ids).decode().startswith(result.raw)
    fields = found.extraction.fields
    assert fields["gender"].note == '"Women\'s" read as women (similar spelling)'
    first = {
        name: min(n for n, row in enumerate(found.passes) if any(w.field == name for w in row))
        for name in fields
    }
    assert first["size"] > first["brand"] == first["gender"]
    assert found.to_dict()["passes"][-1][-1]["field"] == "size"


REFUSING = """
from schemax import AttrSchema
from test_trace import Offer
from pydantic import field_validator

class Refusing(Offer):
    @field_validator("brand")
    def _check(cls, brand):
        raise ValueError("no brand of ours")
"""


@pytest.mark.slow
def test_second_chances_and_texts_of_choices_have_rows(
    embedded: Extractor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Refusing(Offer):
        @field_validator("brand")
        @classmethod
        def _check(cls, brand: str) -> str:
            raise ValueError("no brand of ours")

    config = DecodingConfig(max_repairs=1)
    found = trace(embedded, BOOT, Refusing, decoding=config)
    again = [one for row in found.passes for one in row if one.again]
    assert {(one.field, one.row) for one in again} == {("brand", "brand (second chance)")}
    first = [one for row in found.passes for one in row if one.row == "brand"]
    result = found.extraction.fields["brand"]
    assert sum(len(one.token_ids) for one in (*first, *again)) == result.tokens
    monkeypatch.setenv("SCHEMAX_MODEL", "embedded")
    monkeypatch.setenv("COLUMNS", "300")
    (tmp_path / "refusing.py").write_text(REFUSING)
    page, schema = tmp_path / "page.html", f"{tmp_path / 'refusing.py'}:Refusing"
    arguments = ["trace", schema, BOOT, "--decoding", "isolated:max_repairs=1"]
    shown = CliRunner().invoke(app, arguments).stdout.splitlines()
    rows = ("brand ", "brand (second chance) ", "gender ", "gender (as text) ", "size ")
    assert [line for line in shown if line.startswith(rows)] == shown[2:7]
    assert all(line.startswith(row) for line, row in zip(shown[2:7], rows, strict=True))
    assert any("read as women" in line for line in shown[7:])
    assert "brand: no brand of ours" in shown[-1]
    CliRunner().invoke(app, [*arguments, "-o", str(page)])
    assert '"again":true' in page.read_text("utf-8").replace(" ", "")


def test_a_model_that_decodes_a_row_per_slot(codec: Any) -> None:
    (family,) = [family for family in FORK if family.name == "bloom"]
    extractor = Extractor(family.model(codec.vocab_size), codec, eos_ids=(0,))
    schema = load_schema("television")
    found = trace(extractor, TITLE, schema, template=TEMPLATE)
    (item,) = extractor.stream([TITLE], schema, template=TEMPLATE)
    assert found.extraction.value == item.value
    for name, result in item.fields.items():
        assert len(written(found, name)) == result.tokens


@pytest.mark.slow
def test_traces_share_passes(embedded: Extractor, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of several documents at once every one is told what was written for it alone."""
    schema, texts = load_schema("television"), [f"{TITLE} {n}" for n in range(8)]
    alone = {text: trace(embedded, text, schema) for text in texts}
    usual, passes = embedded.model.run_batch, 0
    together = threading.Barrier(len(texts))

    def run_batch(*pass_: Any) -> Any:
        nonlocal passes
        passes += 1
        time.sleep(0.05)
        return usual(*pass_)

    def one(text: str) -> DocumentTrace:
        together.wait()
        return trace(embedded, text, schema)

    monkeypatch.setattr(embedded.model, "run_batch", run_batch)
    with ThreadPoolExecutor(len(texts)) as pool:
        found = dict(zip(texts, pool.map(one, texts), strict=True))
    assert passes < sum(len(one.passes) for one in alone.values()) / 2
    for text, one in found.items():
        assert one.extraction.value == alone[text].extraction.value
        tokens = [[item.token_ids for item in row] for row in one.passes]
        assert tokens == [[item.token_ids for item in row] for row in alone[text].passes]


def run(*args: str) -> Any:
    return CliRunner().invoke(app, ["trace", "television", *args])


def test_a_long_trace_fits_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = run(TITLE).stdout.splitlines()
    assert len([line for line in lines if line.startswith("field ")]) > 1
    assert all(len(line) <= 60 for line in lines if ":" not in line)
    assert any(line.startswith("brand ") for line in lines)


@pytest.mark.slow
def test_the_command(tmp_path: Path) -> None:
    result = run(TITLE)
    assert result.exit_code == 0
    assert "pass 2" in result.stdout
    assert "one token at a time takes" in result.stderr
    found = json.loads(run(TITLE, "--json").stdout)
    assert found["text"] == TITLE
    assert found["passes"][0][0]["field"] == "brand"
    page = tmp_path / "page.html"
    assert run(TITLE, "-o", str(page)).exit_code == 0
    assert "</script><b>" not in page.read_text("utf-8")
    refused = run(TITLE, "-o", "page.txt")
    assert (refused.exit_code, "must end with .html" in refused.stderr) == (2, True)


@pytest.mark.slow
def test_files_give_their_first_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("tvs.jsonl").write_text(json.dumps({"id": 1, "title": TITLE}) + '\n"LG"\n', "utf-8")
    Path("tv.txt").write_text(TITLE, "utf-8")
    Path("none.csv").write_text("title\n")
    Path("broken.jsonl").write_text("{\n")
    Path("old.txt").write_bytes("Sony Télé".encode("cp1252"))
    Path("tv.docx").write_bytes(docx_of(word("<w:p><w:r><w:t>Sony Télé</w:t></w:r></w:p>")))
    for name in ("old.txt", "tv.docx"):
        assert json.loads(run(name, "--json").stdout)["text"] == "Sony Télé"
    for name in ("tvs.jsonl", "tv.txt"):
        result = run(name, "--json")
        assert json.loads(result.stdout)["text"] == TITLE
        assert f"note: the first document of {name}" in result.stderr
    for name, said in (
        ("none.csv", "none.csv holds no document"),
        ("broken.jsonl", "line 1"),
        ("absent.jsonl", "no such file: absent.jsonl; give the text of a document"),
        ("absent.pdf", "no such file: absent.pdf; give the text of a document"),
        (".", ". is a folder; name a file"),
    ):
        result = run(name)
        assert (result.exit_code, said in result.stderr) == (2, True), result.stderr


@pytest.mark.slow
@pytest.mark.skipif(find_chromium() is None, reason="no Chromium")
def test_the_page_plays_in_a_browser(embedded: Extractor, tmp_path: Path) -> None:
    found, page = trace(embedded, TITLE, load_schema("television")), tmp_path / "page.html"
    page.write_text(playback(found, "television"), "utf-8")
    others = tmp_path / "others.html"
    others.write_text(playback(trace(embedded, BOOT, Offer), "offer"), "utf-8")
    try:
        browser = Browser(str(find_chromium()), tmp_path / "profile")
    except (OSError, AssertionError):
        pytest.skip("Chromium does not start")
    try:
        browser.open(page)
        passes = len(found.passes)
        browser.wait(f"document.getElementById('at').max === '{passes}'")
        visible = "document.querySelectorAll('td:not(.later) .token').length"
        assert browser.run(visible) == sum(map(len, found.passes))
        assert browser.run("document.getElementById('document').textContent") == TITLE
        assert "Sony" in browser.run("document.querySelector('mark').textContent")
        browser.click("#play")
        browser.wait("document.getElementById('at').value === '1'")
        assert browser.run(visible) == len(found.passes[0])
        browser.wait(f"document.getElementById('at').value === '{passes}'")
        assert (browser.trouble, browser.requests) == ([], [page.as_uri()])
        names = "[...document.querySelectorAll('tbody th')].map((one) => one.textContent).join()"
        browser.open(others)
        browser.wait(f"{names} === 'brand,gender,gender (as text),size'")
        assert "read as women" in browser.run("document.querySelector('.note').textContent")
        assert browser.trouble == []
        assert browser.requests == [others.as_uri()]
    finally:
        browser.close()
