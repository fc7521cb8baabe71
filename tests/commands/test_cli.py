"""`schemax extract` and the small verbs, with a tiny random model."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest
from command_line import SCHEMA, Run, jsonl, refused, rows
from conftest import TITLES
from seams import replaced

from schemax.base.resources import resource_dir
from schemax.commands import demo
from schemax.errors import ModelError


def test_rows_come_in_the_order_of_the_input(run: Run, tmp_path: Path) -> None:
    # Long ones are read first, so this is not the order in which they finish.
    titles = sorted(TITLES, key=len) * 3
    source = jsonl(tmp_path / "in.jsonl", [{"id": n, "t": title} for n, title in enumerate(titles)])
    result = run("extract", SCHEMA, source, "-o", "out.jsonl", "--batch-size", "2")
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    found = rows((tmp_path / "out.jsonl").read_text("utf-8"))
    assert [row["index"] for row in found] == list(range(len(titles)))
    assert [row["id"] for row in found] == [str(n) for n in range(len(titles))]
    assert [set(row) for row in found] == [{"id", "index", "attributes", "errors"}] * len(titles)
    assert set(found[0]["attributes"]) == {"brand", "smart", "resolution"}
    summary = result.stderr.splitlines()[-1]
    assert summary.startswith("21 rows, 0 failed, ")
    assert "documents/s" in summary
    assert "passes per document" in summary


def test_a_broken_line_costs_itself_alone(run: Run, tmp_path: Path) -> None:
    lines = [b'{"id": "a", "t": "LG"}', b'"Sony"', b'{"t": ', b"", b'{"t": "x"}', b'"\xff"']
    (tmp_path / "in.jsonl").write_bytes(b"\n".join(lines))
    result = run("extract", SCHEMA, "in.jsonl")
    assert result.exit_code == 1
    assert "line 3: broken JSON" in result.stderr
    assert "line 6: not valid UTF-8" in result.stderr
    found = rows(result.stdout)
    assert [row["index"] for row in found] == [0, 1, 2, 3, 4]
    assert [row["attributes"] is None for row in found] == [False, False, True, False, True]
    message = "line 3: broken JSON: Expecting value at column 7"
    assert found[2] == {
        "id": None,
        "index": 2,
        "attributes": None,
        "errors": [{"field": None, "message": message, "raw": None}],
    }


@pytest.mark.parametrize(
    ("allowed", "status"), [("0", 1), ("1", 1), ("2", 0), ("39%", 1), ("40%", 0), ("100%", 0)]
)
def test_failed_rows_up_to_max_errors_are_accepted(run: Run, allowed: str, status: int) -> None:
    data = b'"LG"\n{\n"Sony"\n[]\n"x"\n'
    result = run("extract", SCHEMA, "-", "--max-errors", allowed, stdin=data)
    assert result.exit_code == status
    assert len(rows(result.stdout)) == 5


@pytest.mark.parametrize("allowed", ["-1", "some", "1.5", "-1%", "nan%", "%"])
def test_a_max_errors_that_is_none_is_refused(run: Run, allowed: str) -> None:
    refused(run("extract", SCHEMA, "-", f"--max-errors={allowed}", stdin=b""), "--max-errors")


def test_an_empty_file_gives_an_empty_file(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(b"")
    result = run("extract", SCHEMA, "in.jsonl", "-o", "out.jsonl")
    assert result.exit_code == 0
    assert (tmp_path / "out.jsonl").read_bytes() == b""
    assert "0 rows" in result.stderr


def test_records_without_text_fail_and_say_why(run: Run) -> None:
    data = b'{"id": 7, "t": ""}\n{"other": "x"}\n""\n{"t": {"a": 1}}\n'
    result = run("extract", SCHEMA, "-", "--text", "t", "-q", stdin=data)
    assert result.exit_code == 1
    reasons = [row["errors"][0]["message"] for row in rows(result.stdout)]
    assert reasons[0] == reasons[2] == "the text is empty"
    assert reasons[1] == "the record has no t; it has other"
    assert "holds a dict" in reasons[3]
    assert "failed: record 0 (7): the text is empty" in result.stderr


def test_hostile_text_is_only_text(run: Run) -> None:
    texts = [
        "<|endoftext|>",
        "{{ 7*7 }}",
        "</product>",
        "a\0b",
        "\ud800",
        "😀",
        "שלום",
        "-o",
        "[red]",
    ]
    data = "".join(json.dumps({"id": text, "t": text}) + "\n" for text in texts).encode()
    result = run("extract", SCHEMA, "-", stdin=data)
    assert result.exit_code == 0
    assert [row["id"] for row in rows(result.stdout)] == texts


def test_a_document_too_long_fails_alone(run: Run) -> None:
    data = json.dumps("word " * 8000).encode() + b'\n"LG"\n'
    result = run("extract", SCHEMA, "-", stdin=data)
    assert result.exit_code == 1
    long, short = rows(result.stdout)
    assert "too long" in long["errors"][0]["message"]
    assert short["attributes"] is not None


def test_limit_reads_the_first_records_only(run: Run) -> None:
    result = run("extract", SCHEMA, "-", "--limit", "2", stdin=b'"a"\n"b"\n{\n')
    assert result.exit_code == 0
    assert len(rows(result.stdout)) == 2


def test_details_tell_how_every_field_ended(run: Run) -> None:
    result = run("extract", SCHEMA, "-", "--details", stdin=b'"LG"\n')
    (row,) = rows(result.stdout)
    assert set(row["fields"]) == {"brand", "smart", "resolution"}
    assert {"raw", "value", "finish_reason", "tokens"} <= set(row["fields"]["brand"])


def test_id_and_text_name_the_keys(run: Run) -> None:
    data = b'{"sku": 5, "title": "LG", "other": {"deep": 1}}\n'
    result = run("extract", SCHEMA, "-", "--id", "sku", "--text", "title, absent", stdin=data)
    assert result.exit_code == 0
    assert rows(result.stdout)[0]["id"] == "5"
    refused(run("extract", SCHEMA, "-", "--text", " , ", stdin=b""), "--text")


@pytest.mark.slow
def test_mixed_categories_are_read_by_their_own_schemas(run: Run) -> None:
    data = b'{"kind": "TV", "t": "LG"}\n{"kind": "tea", "t": "Mint"}\n{"kind": "?", "t": "x"}\n'
    result = run("extract", f"TV={SCHEMA},tea", "-", "--category", "kind", stdin=data)
    assert result.exit_code == 1
    television, tea, unknown = rows(result.stdout)
    assert "resolution" in television["attributes"]
    assert "tea_variety" in tea["attributes"]
    assert "'TV', 'tea'" in unknown["errors"][0]["message"]


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
@pytest.mark.parametrize("decoding", ["isolated", "paper", "autoregressive"])
def test_every_format_and_preset_runs(run: Run, format: str, decoding: str) -> None:
    options = ("--format", format, "--decoding", decoding, "--template", "standard")
    result = run("extract", SCHEMA, "-", *options, stdin=b'"LG"\n"Sony"\n')
    assert result.exit_code == 0, result.output
    assert len(rows(result.stdout)) == 2


def test_quiet_says_nothing(run: Run) -> None:
    result = run("extract", SCHEMA, "-", "--quiet", stdin=b'"LG"\n')
    assert result.exit_code == 0
    assert result.stderr == ""


def test_rows_that_cannot_become_instances_fail(run: Run) -> None:
    result = run("extract", "shop.py:Strict", "-", stdin=b'"LG"\n')
    assert result.exit_code == 1
    assert rows(result.stdout)[0]["attributes"] is None
    assert "failed: record 0: year: " in result.stderr


def test_a_serializer_that_raises_costs_its_row(run: Run, tmp_path: Path) -> None:
    code = (
        "from pydantic import BaseModel, computed_field\n"
        "class Odd(BaseModel):\n"
        "    a: str | None = None\n"
        "    @computed_field\n"
        "    def twice(self) -> str:\n"
        "        raise RuntimeError('no')\n"
    )
    (tmp_path / "odd.py").write_text(code)
    result = run("extract", "odd.py:Odd", "-", stdin=b'"LG"\n"x"\n')
    assert result.exit_code == 1
    assert [row["attributes"] for row in rows(result.stdout)] == [None, None]
    assert "cannot be written" in result.stderr


def test_many_failures_are_not_all_told(run: Run) -> None:
    result = run("extract", SCHEMA, "-", stdin=b"{\n" * 50)
    assert result.exit_code == 1
    assert len(rows(result.stdout)) == 50
    assert result.stderr.count("failed: record") == 1
    assert "failed: 50 times line …: broken JSON: " in result.stderr


@pytest.mark.slow
def test_demo_shows_values_costs_and_what_comes_next(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A random model never stops writing, so two listings are plenty.
    monkeypatch.setattr(demo, "LISTINGS", demo.LISTINGS[:2])
    result = run("demo")
    assert result.exit_code == 0, result.output
    for part in ("Samsung", "Northfell", "hyper-parallel", "autoregressive", "schemax extract"):
        assert part in result.stdout
    alone = run("demo", "--no-compare")
    assert alone.exit_code == 0
    assert "autoregressive" not in alone.stdout


@pytest.mark.slow
def test_the_baseline_of_the_demo_is_bounded_and_comes_after_the_values(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo, "LISTINGS", demo.LISTINGS[:3])
    replaced(monkeypatch, "seconds of the demo's baseline", 0)
    assert "1 of the listings" in run("demo").stdout

    def stopped(*_: object) -> tuple[int, float]:
        raise ModelError("stopped here")

    replaced(monkeypatch, "cost of a listing", stopped)
    result = run("demo")
    assert "stopped here" in result.stderr
    assert "Samsung" in result.stdout


def test_the_demo_declares_the_television_of_the_readme() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
    declared = readme.split('"""A television set."""')[1].split("\n\n\n")[0]
    assert declared.strip() in inspect.getsource(demo.Television)


@pytest.mark.slow
def test_the_default_model_says_what_it_is_for(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    if not (resource_dir("embedded") / "model.safetensors").is_file():
        pytest.skip("the embedded model is not here")
    monkeypatch.delenv("SCHEMAX_MODEL")
    result = run("extract", "coffee", "-", stdin=b'"Ground coffee"\n')
    assert result.exit_code == 0
    (note,) = [line for line in result.stderr.splitlines() if line.startswith("note: ")]
    assert "embedded model" in note
    assert run("explain", "coffee").exit_code == 0


def test_version_and_help(run: Run) -> None:
    assert run("--version").stdout.startswith("schemax ")
    for args in ((), ("extract",), ("explain",), ("demo",), ("schemas",)):
        result = run(*args, "--help")
        assert result.exit_code == 0
        assert "Usage" in result.stdout
