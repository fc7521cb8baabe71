"""`schemax.extract_files`: the job of the command line as a function; and its one stream."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from command_line import jsonl, records, rows, set_part_rows
from typer.testing import CliRunner

import schemax
from schemax import AttrSchema, Extraction, Extractor, InputError, attr
from schemax.commands.cli import app
from schemax.compiler import TextCodec
from schemax.errors import ModelError, SchemaError
from schemax.extraction.declarations import read_schemas
from schemax.io.rows import MOST_AHEAD, RowForm, compute, in_order
from schemax.results import failed

DOCS = Path(__file__).resolve().parents[2] / "docs"


class Small(AttrSchema):
    brand: str | None = attr("Manufacturer", k_max=6)
    smart: bool | None = attr(k_max=3)


@pytest.fixture
def extractor(codec: TextCodec, decoder_model: Callable[..., Any]) -> Extractor:
    return Extractor(decoder_model().model, codec)


class Stop:
    """Ends a run as an interrupt does, after so many extractions."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, item: Extraction[Any]) -> None:
        self.left -= 1
        if not self.left:
            raise KeyboardInterrupt


@pytest.mark.slow
def test_a_call_goes_on_where_the_last_one_was_stopped(
    extractor: Extractor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    set_part_rows(8, monkeypatch)
    made: list[Any] = [*records(30), 5]
    source, out = jsonl(tmp_path / "in.jsonl", made), tmp_path / "out.jsonl"
    whole = schemax.extract_files(Small, source, tmp_path / "whole.jsonl", extractor=extractor)
    assert (whole.inputs, whole.output) == ((source,), str(tmp_path / "whole.jsonl"))
    assert (whole.rows, whole.failed, whole.computed) == (31, 1, 31)
    assert whole.decoded == 30
    assert whole.passes >= 30
    assert whole.seconds > 0
    with pytest.raises(KeyboardInterrupt) as caught:
        schemax.extract_files(Small, source, out, extractor=extractor, on_extraction=Stop(13))
    assert caught.value.__notes__ == [
        f"finished rows are kept in {tmp_path}/_out.jsonl.parts: run the same again to go on"
    ]
    assert not out.exists()
    seen: list[int] = []
    found = schemax.extract_files(
        Small,
        [Path(source)],
        out,
        extractor=extractor,
        on_extraction=lambda x: seen.append(x.index),
    )
    assert (found.rows, found.computed, len(seen)) == (31, 31 - 13, 31 - 13)
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {
        "in.jsonl",
        *("out.jsonl", "_out.jsonl.run.json", "_out.jsonl.keys"),
        *("whole.jsonl", "_whole.jsonl.run.json", "_whole.jsonl.keys"),
    }
    assert capsys.readouterr() == ("", "")


@pytest.mark.slow
def test_the_command_goes_on_where_a_call_was_stopped(
    saved_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = jsonl(tmp_path / "in.jsonl", records(20)), str(tmp_path / "out.csv")
    (tmp_path / "shop.py").write_text(
        "from schemax import AttrSchema, attr\n"
        "class Small(AttrSchema):\n    brand: str | None = attr(k_max=6)\n"
    )
    monkeypatch.chdir(tmp_path)
    schema = read_schemas("shop.py:Small")
    shown: Any = {"text": ["t"], "model": str(saved_model)}
    with pytest.raises(KeyboardInterrupt):
        schemax.extract_files(schema, source, out, on_extraction=Stop(7), **shown)
    args = ["extract", "shop.py:Small", source, "-o", out, "--text", "t", "-m", str(saved_model)]
    result = CliRunner().invoke(app, args)
    assert result.exit_code == 0, result.output
    assert f"7 finished rows are in {tmp_path}/_out.csv.parts" in result.stderr


def test_another_model_in_memory_is_refused(
    extractor: Extractor, codec: TextCodec, decoder_model: Callable[..., Any], tmp_path: Path
) -> None:
    source, out = jsonl(tmp_path / "in.jsonl", records(9)), tmp_path / "out.jsonl"
    with pytest.raises(KeyboardInterrupt):
        schemax.extract_files(Small, source, out, extractor=extractor, on_extraction=Stop(3))
    other = Extractor(decoder_model(initializer_range=0.5).model, codec)
    with pytest.raises(InputError, match=r"model changed; restore these, or .*overwrite"):
        schemax.extract_files(Small, source, out, extractor=other)
    with pytest.raises(InputError, match="text was None, is \\['t'\\]"):
        schemax.extract_files(Small, source, out, extractor=extractor, text="t")
    found = schemax.extract_files(Small, source, out, extractor=other, overwrite=True)
    assert (found.rows, found.computed) == (9, 9)


def test_options_mean_what_they_mean_to_the_command(extractor: Extractor, tmp_path: Path) -> None:
    made = [{"sku": n, "kind": "ab"[n % 2], "t": f"LG {n}"} for n in range(10)]
    source, out = jsonl(tmp_path / "in.jsonl", made), tmp_path / "out.jsonl"

    class Other(AttrSchema):
        size: str | None = attr(k_max=4)

    found = schemax.extract_files(
        {"a": Small, "b": Other},
        source,
        out,
        extractor=extractor,
        id="sku",
        text="t",
        category="kind",
        limit=8,
        shard="1/3",
        details=True,
    )
    written = rows(out.read_text())
    assert found.rows == 3
    assert [(row["index"], row["id"]) for row in written] == [(1, "1"), (4, "4"), (7, "7")]
    assert [sorted(row["fields"]) for row in written] == [["size"], ["brand", "smart"], ["size"]]


@pytest.mark.parametrize(
    ("given", "kind", "said"),
    [
        ({"inputs": "absent.jsonl"}, InputError, "cannot read absent.jsonl"),
        ({"inputs": []}, InputError, "no input is named"),
        ({"output": "absent/out.jsonl"}, InputError, "cannot write absent/out.jsonl"),
        ({"output": "out.xls"}, InputError, "cannot write out.xls"),
        ({"output": "./in.jsonl"}, InputError, "cannot write ./in.jsonl: it is an input"),
        ({"schema": dict[str, int]}, SchemaError, "no class derived"),
        ({"shard": "3/3"}, ValueError, "shard must be"),
        ({"limit": -1}, ValueError, "limit must be a number of records, not -1"),
        ({"text": 5}, ValueError, "text must be the name of a key, or several, not 5"),
        ({"on_too_long": "cut"}, ValueError, "on_too_long must be"),
        (
            {"decodng": "paper"},
            TypeError,
            "no option 'decodng', perhaps 'decoding'; it has text, id",
        ),
        ({"format": "toml"}, ValueError, "unknown format 'toml'"),
        ({"text": "title"}, InputError, "it has no column 'title'; it has id, t"),
        ({"model": "nowhere/at-all/x"}, ModelError, "nowhere"),
        ({"model": "x", "extractor": True}, ValueError, "a model or an extractor, not both"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_is_written(
    extractor: Extractor,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    given: dict[str, Any],
    kind: type[Exception],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    jsonl(tmp_path / "in.jsonl", records(3))
    call: dict[str, Any] = {"schema": Small, "inputs": "in.jsonl", "output": "out.jsonl"}
    if "model" not in given or "extractor" in given:
        call["extractor"] = extractor
    with pytest.raises(kind, match=said):
        schemax.extract_files(**call | {k: v for k, v in given.items() if v is not True})
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_the_example_of_the_docs(
    saved_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (DOCS / "tables.md").read_text("utf-8")
    (code,) = [block for block in page.split("```python\n") if "extract_files(" in block[:600]]
    monkeypatch.chdir(tmp_path)
    made = [{"id": n, "title": f"LG {n}", "description": "4K"} for n in range(5)]
    jsonl(tmp_path / "catalogue.jsonl", made)
    code = code.split("```")[0].replace("Qwen/Qwen3-4B", str(saved_model))
    namespace: dict[str, Any] = {"Television": Small}
    exec(code, namespace)
    assert namespace["summary"].rows == 5
    assert (tmp_path / "televisions.parquet").is_file()


# The stream itself.


class Straggler:
    """Finishes every record at once, but for the first, which is there when the input ends.

    As a document with a very long value does beside short ones.
    """

    def __init__(self) -> None:
        self.streams = 0

    def __call__(self, records: Iterable[Any]) -> Iterator[Extraction[Any]]:
        self.streams += 1
        straggles = self.streams == 1
        index = -1
        for index, _ in enumerate(records):
            if index or not straggles:
                yield failed(index, None, "read")
        if straggles and index >= 0:
            yield failed(0, None, "read")


def numbered(count: int, pulled: list[int]) -> Iterator[tuple[int, str]]:
    for index in range(count):
        pulled.append(index)
        yield index, "text"


@pytest.mark.slow
def test_a_straggler_holds_back_a_bounded_number_of_rows() -> None:
    pulled: list[int] = []
    extract = Straggler()
    rows = in_order(extract, RowForm(), numbered(MOST_AHEAD + 5000, pulled))
    assert next(rows)[0].index == 0
    assert len(pulled) == MOST_AHEAD
    assert [item.index for item, _ in rows] == list(range(1, MOST_AHEAD + 5000))
    assert extract.streams == 2


def test_rows_that_keep_up_go_through_one_stream() -> None:
    extract = Straggler()
    extract.streams = 1  # nobody straggles
    rows = ((index, index, record) for index, record in numbered(5000, []))
    found = [key for key, _, _ in compute(extract, RowForm(), rows, most_ahead=64)]
    assert found == list(range(5000))
    assert extract.streams == 2


def test_an_input_that_breaks_off_loses_nothing_before() -> None:
    def broken() -> Iterator[tuple[int, int, str]]:
        yield from ((index, index, record) for index, record in numbered(100, []))
        raise InputError("cannot read any further")

    found: list[int] = []
    with pytest.raises(InputError, match="any further"):
        found.extend(key for key, _, _ in compute(Straggler(), RowForm(), broken()))
    assert sorted(found) == list(range(100))


@pytest.mark.slow
def test_rows_are_kept_before_they_are_told(
    extractor: Extractor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All parts go through one stream, and each row is in its file as soon as it is finished."""
    set_part_rows(8, monkeypatch)
    streams: list[int] = []
    usual = Extractor.stream

    def counted(self: Extractor, products: Any, schema: Any, **options: Any) -> Any:
        streams.append(len(streams))
        return usual(self, products, schema, **options)

    monkeypatch.setattr(Extractor, "stream", counted)
    parts = tmp_path / "_out.jsonl.parts"
    seen: list[int] = []
    source = jsonl(tmp_path / "in.jsonl", records(80))
    schemax.extract_files(
        Small,
        source,
        tmp_path / "out.jsonl",
        extractor=extractor,
        decoding=schemax.DecodingConfig(batch_size=4),
        on_extraction=lambda _: seen.append(
            sum(len(part.read_bytes().splitlines()) for part in parts.glob("part-*"))
        ),
    )
    assert len(streams) == 2  # one with nothing in it, to check the options
    assert seen == list(range(1, 81))
    assert not parts.exists()


@pytest.mark.parametrize("damage", ["a row is missing", "a row is cut", "the file is missing"])
def test_rows_that_a_damaged_part_lacks_are_computed_again(
    extractor: Extractor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    set_part_rows(8, monkeypatch)
    source, out = jsonl(tmp_path / "in.jsonl", records(20)), tmp_path / "out.jsonl"
    schemax.extract_files(Small, source, tmp_path / "whole.jsonl", extractor=extractor)
    with pytest.raises(KeyboardInterrupt):
        schemax.extract_files(Small, source, out, extractor=extractor, on_extraction=Stop(20))
    part = min((tmp_path / "_out.jsonl.parts").glob("part-*"))
    lines = part.read_bytes().splitlines(keepends=True)
    if damage == "the file is missing":
        part.unlink()
    else:
        part.write_bytes(b"".join([lines[0][:40] * (damage == "a row is cut"), *lines[1:]]))
    summary = schemax.extract_files(Small, source, out, extractor=extractor)
    lost = {"a row is missing": 1, "a row is cut": 2, "the file is missing": 8}[damage]
    assert (summary.rows, summary.computed) == (20, lost)
    assert out.read_bytes() == (tmp_path / "whole.jsonl").read_bytes()
