"""What the command line refuses: exit status 2, and one line that says why."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest
import tokenizers
from command_line import SCHEMA, Run, jsonl, refused, runner, save_model


@pytest.fixture(scope="module")
def model(backend: tokenizers.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(backend, tmp_path_factory.mktemp("model"))


@pytest.fixture
def run(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(tmp_path, model, monkeypatch)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--format", "toml"), ("'toml'", "json, yaml, xml")),
        (("--decoding", "fast"), ("'fast'", "isolated, paper, autoregressive")),
        (("--template", "poem"), ("'poem'", "generic, paper, standard, verbatim")),
        (("--model", "nowhere/at/all"), ("no model folder nowhere/at/all",)),
        (("--model", "./nowhere"), ("no model folder ./nowhere",)),
        (("--dtype", "int8"), ("'int8'", "bfloat16")),
        (("--device", "abacus"), ("abacus",)),
        (("-o", "absent/out.jsonl"), ("cannot write absent/out.jsonl",)),
    ],
)
def test_settings_that_cannot_be_used(
    run: Run, options: Sequence[str], said: Sequence[str]
) -> None:
    refused(run("extract", SCHEMA, "-", *options, stdin=b'"LG"\n'), *said)


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("unicorns", ("'unicorns'", "coffee", "television")),
        ("shop.py:Large", ("'Large'", "Small, Strict")),
        ("shop.py", ("file.py:Class", "Small, Strict")),
        ("absent.py:Small", ("no such file: absent.py",)),
        ("absent_module:Small", ("absent_module", "ModuleNotFoundError")),
        ("json:dumps", ("'dumps'", "declares none")),
        ("broken.py:A", ("broken.py", "SyntaxError")),
        ("absent.json", ("cannot read absent.json",)),
        ("broken.json", ("not valid JSON",)),
        ("rows.jsonl", ("rows.jsonl is no schema", "schema.json")),
        ("empty.json", ()),
        ("bad.py:Bad", ("Bad.a",)),
    ],
)
def test_schemas_that_cannot_be_used(
    run: Run, tmp_path: Path, schema: str, said: Sequence[str]
) -> None:
    (tmp_path / "broken.py").write_text("class A(")
    (tmp_path / "rows.jsonl").write_text("{}")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "empty.json").write_text('{"type": "object"}')
    code = "from pydantic import BaseModel\nclass Bad(BaseModel):\n    a: dict\n"
    (tmp_path / "bad.py").write_text(code)
    refused(run("extract", schema, "-", stdin=b'"LG"\n'), *said)
    refused(run("explain", schema), *said)


def test_an_input_that_is_not_there(run: Run, tmp_path: Path) -> None:
    refused(run("extract", SCHEMA, "absent.jsonl", "-o", "out.jsonl"), "cannot read absent.jsonl")
    refused(run("extract", SCHEMA, str(tmp_path)), "cannot read")
    said = "cannot open absent.jsonl: No such file or directory"
    refused(run("evaluate", "absent.jsonl"), said)
    refused(run("train", "absent.jsonl", "-o", "out"), said)
    refused(run("check", "absent.json"), "cannot read absent.json: No such file or directory")
    refused(run("report", "absent.csv"), "cannot read absent.csv: No such file or directory")
    refused(run("trace", SCHEMA, "absent.csv"), "no such file: absent.csv")
    assert not (tmp_path / "out.jsonl").exists()


@pytest.mark.parametrize("missing", ["config.json", "model.safetensors", "tokenizer.json"])
def test_model_folders_that_lack_something(
    run: Run, model: Path, tmp_path: Path, missing: str
) -> None:
    shutil.copytree(model, tmp_path / "part")
    (tmp_path / "part" / missing).unlink()
    result = run("extract", SCHEMA, "-", "-m", "part", "-o", "out.jsonl", stdin=b'"LG"\n')
    refused(result, "part")
    assert not list(tmp_path.glob("out.jsonl*"))


@pytest.mark.parametrize("damaged", ["config.json", "tokenizer.json"])
def test_model_folders_with_a_damaged_file(
    run: Run, model: Path, tmp_path: Path, damaged: str
) -> None:
    shutil.copytree(model, tmp_path / "part")
    # What a clone without large-file support leaves behind.
    (tmp_path / "part" / damaged).write_text("version https://git-lfs.github.com/spec/v1\n")
    refused(run("extract", SCHEMA, "-", "-m", "part", stdin=b'"LG"\n'), "part")


def test_unknown_options_are_refused(run: Run) -> None:
    for args in (("extract", SCHEMA), ("extract", SCHEMA, "-", "--colour"), ("nonsense",)):
        result = run(*args)
        assert result.exit_code == 2
        assert "Traceback" not in result.output


def test_numbers_beyond_64_bits_are_refused(run: Run, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", [{"t": "LG"}])
    result = run("extract", SCHEMA, source, "--limit", "99999999999999999999")
    assert result.exit_code == 2
    assert "Invalid value for '--limit': 99999999999999999999 is too large" in result.stderr


def test_a_table_without_a_header_is_no_input(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_bytes(b"")
    (tmp_path / "out.csv").write_text("earlier")
    done = run("extract", SCHEMA, "in.csv", "--text", "title", "-o", "out.csv")
    refused(done, "cannot read in.csv: empty, without the header that names columns")
    assert (tmp_path / "out.csv").read_text() == "earlier"
