"""The command line, with a tiny random model: what is written, what is said, and how it ends."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from conftest import TITLES, tiny_model
from typer.testing import CliRunner

import schemax
from schemax.cli import app
from schemax.commands.demo import LISTINGS
from schemax.resources import resource_dir

Result = Any  # of typer.testing, which does not export it
Run = Callable[..., Result]

DECLARATION = '''
from typing import Literal
from schemax.schema import AttrSchema, attr

class Small(AttrSchema, category="television"):
    """Short budgets."""
    brand: str | None = attr("Manufacturer", k_max=6)
    smart: bool | None = attr(k_max=3)
    resolution: Literal["720p", "4K"] | None = attr(k_max=7)

class Strict(AttrSchema):
    year: int = attr("Year", k_max=3, ge=1900)
'''


@pytest.fixture(scope="module")
def model(backend: tokenizers.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as transformers saves it."""
    folder = tmp_path_factory.mktemp("model")
    tiny_model("qwen3", backend.get_vocab_size()).save_pretrained(folder)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"})
    )
    return folder


@pytest.fixture
def run(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command in a folder of its own, with the tiny model as the default one."""
    (tmp_path / "shop.py").write_text(DECLARATION)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SCHEMAX_MODEL", str(model))

    def invoke(*args: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(app, list(args), input=stdin)

    return invoke


SCHEMA = "shop.py:Small"


def jsonl(path: Path, records: Sequence[Any]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return str(path)


def rows(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def refused(result: Result, *said: str) -> None:
    """Exit status 2, and one line that says all this."""
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    for words in said:
        assert words in line


# --- extract ------------------------------------------------------------------------------------


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
    assert "products/s" in summary
    assert "passes per product" in summary


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
    assert result.stderr.count("failed:") == 21


# --- what is refused ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--format", "toml"), ("'toml'", "json, yaml, xml")),
        (("--decoding", "fast"), ("'fast'", "isolated, paper, autoregressive")),
        (("--template", "poem"), ("'poem'", "generic, standard, verbatim")),
        (("--model", "nowhere/at/all"), ("no model folder nowhere/at/all",)),
        (("--model", "./nowhere"), ("no model folder ./nowhere",)),
        (("--model", "someone/nothing"), ("someone/nothing",)),
        (("--dtype", "int8"), ("'int8'", "bfloat16")),
        (("--device", "abacus"), ("abacus",)),
        (("-o", "absent/out.jsonl"), ("cannot write absent/out.jsonl",)),
    ],
)
def test_settings_that_cannot_be_used(
    run: Run, monkeypatch: pytest.MonkeyPatch, options: Sequence[str], said: Sequence[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
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
        ("empty.json", ()),
        ("bad.py:Bad", ("Bad.a",)),
    ],
)
def test_schemas_that_cannot_be_used(
    run: Run, tmp_path: Path, schema: str, said: Sequence[str]
) -> None:
    (tmp_path / "broken.py").write_text("class A(")
    (tmp_path / "broken.json").write_text("{")
    (tmp_path / "empty.json").write_text('{"type": "object"}')
    code = "from pydantic import BaseModel\nclass Bad(BaseModel):\n    a: dict[str, str]\n"
    (tmp_path / "bad.py").write_text(code)
    refused(run("extract", schema, "-", stdin=b'"LG"\n'), *said)
    refused(run("explain", schema), *said)


def test_an_input_that_is_not_there(run: Run, tmp_path: Path) -> None:
    refused(run("extract", SCHEMA, "absent.jsonl", "-o", "out.jsonl"), "cannot read absent.jsonl")
    refused(run("extract", SCHEMA, str(tmp_path)), "cannot read")
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


# --- schema names -------------------------------------------------------------------------------


def test_schemas_come_from_names_modules_and_files(run: Run, tmp_path: Path) -> None:
    document = {"title": "Lamp", "type": "object", "properties": {"watts": {"type": "number"}}}
    (tmp_path / "lamp.json").write_text(json.dumps(document))
    for schema, slot in (
        ("television", "screen_size"),
        ("breakfast-cereal", "flavor"),
        ("shop:Small", "resolution"),
        ("shop.py:Strict", "year"),
        ("lamp.json", "watts"),
    ):
        result = run("explain", schema, "--json")
        assert result.exit_code == 0, result.output
        assert slot in [one["name"] for one in json.loads(result.stdout)["slots"]]


def test_schemas_lists_what_is_ready_made(run: Run) -> None:
    result = run("schemas")
    assert result.exit_code == 0
    assert "television\n    brand, model, screen_size" in result.stdout


# --- explain ------------------------------------------------------------------------------------


@pytest.mark.parametrize("format", ["json", "yaml", "xml"])
@pytest.mark.parametrize("decoding", ["isolated", "paper", "autoregressive"])
def test_explain_shows_the_contract(run: Run, format: str, decoding: str) -> None:
    result = run("explain", SCHEMA, "--format", format, "--decoding", decoding)
    assert result.exit_code == 0, result.output
    for part in ("Prompt", "Stop rule", "Who sees whom", "Steps", "At most", "Manufacturer"):
        assert part in result.stdout
    assert ("⟦brand, " in result.stdout) == (decoding != "autoregressive")
    assert ("«text 6»" in result.stdout) == (decoding == "paper")


def test_explain_gives_the_same_as_data(run: Run) -> None:
    contract = json.loads(run("explain", SCHEMA, "--json", "--text", "LG C3").stdout)
    assert [slot["k_max"] for slot in contract["slots"]] == [6, 3, 7]
    assert contract["steps"]["this"] == 7
    assert contract["steps"]["autoregressive"] > 16
    tokens = contract["tokens"]
    start = tokens["instruction"] + tokens["documents"] + tokens["opening"]
    for slot in contract["slots"]:
        assert slot["key_start"] == start
        assert slot["first_value"] == slot["key_end"] + 1 == start + slot["key_tokens"]


def test_explain_shows_the_gaps_of_the_paper(run: Run) -> None:
    contract = json.loads(run("explain", SCHEMA, "--json", "--decoding", "paper").stdout)
    first, second, _ = contract["slots"]
    assert [slot["k_max"] for slot in contract["slots"]] == [6, 3, 7]
    assert second["key_start"] == first["key_end"] + first["k_max"] + 1
    assert contract["stop"]["rule"] == "at the end of the line"


def seen(run: Run, decoding: str) -> dict[str, set[str]]:
    picture = json.loads(run("explain", SCHEMA, "--json", "--decoding", decoding).stdout)["picture"]
    labels = picture["labels"]
    return {
        label: {other for other, sees in zip(labels, row, strict=True) if sees}
        for label, row in zip(labels, picture["sees"], strict=True)
    }


def test_the_picture_follows_the_rule(run: Run) -> None:
    isolated = seen(run, "isolated")
    assert isolated["v2.2"] == {"I", "D", "S", "k2", "v2.1", "v2.2"}
    paper = seen(run, "paper")
    prompt = {"I", "D1", "D2", "S"}
    assert paper["ka2"] == {*prompt, "ka1", "ka2"}
    assert paper["va2.1"] == {*prompt, "ka1", "va1.1", "ka2", "va2.1"}
    assert seen(run, "autoregressive")["w2"] == {"I", "D", "S", "w1", "w2"}


def test_explain_needs_no_weights(run: Run, model: Path, tmp_path: Path) -> None:
    shutil.copy(model / "tokenizer.json", tmp_path)
    for place in (".", "tokenizer.json"):
        assert run("explain", SCHEMA, "--tokenizer", place).exit_code == 0
    refused(run("explain", SCHEMA, "--tokenizer", ".", "--model", "."), "not both")
    (tmp_path / "tokenizer.json").write_text("{}")
    refused(run("explain", SCHEMA, "--tokenizer", "."), "cannot be read")
    (tmp_path / "tokenizer.json").unlink()
    refused(run("explain", SCHEMA, "--model", "."), "tokenizer.json")


def test_explain_uses_the_prompt_that_a_model_brings(run: Run, model: Path, tmp_path: Path) -> None:
    shutil.copytree(model, tmp_path / "own")
    (tmp_path / "own" / "prompt.jinja").write_text("OWN\n{{ documents[0].text }}\n")
    own = json.loads(run("explain", SCHEMA, "--json", "-m", "own").stdout)
    assert own["prompt"].startswith("OWN\n«text»")
    named = json.loads(
        run("explain", SCHEMA, "--json", "-m", "own", "--template", "verbatim").stdout
    )
    assert "Rules:" in named["prompt"]


def test_explain_refuses_what_extract_refuses(run: Run) -> None:
    refused(run("explain", SCHEMA, "--format", "toml"), "json, yaml, xml")
    refused(run("explain", SCHEMA, "--decoding", "fast"), "isolated, paper")


# --- demo, version, help ------------------------------------------------------------------------


def test_demo_shows_values_costs_and_what_comes_next(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A random model never stops writing, so two listings are plenty.
    monkeypatch.setattr("schemax.commands.demo.LISTINGS", LISTINGS[:2])
    result = run("demo")
    assert result.exit_code == 0, result.output
    for part in ("Northfell", "hyper-parallel", "autoregressive", "schemax extract"):
        assert part in result.stdout
    alone = run("demo", "--no-compare")
    assert alone.exit_code == 0
    assert "autoregressive" not in alone.stdout


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


# --- real processes -----------------------------------------------------------------------------


def process(*args: str, cwd: Path, **settings: Any) -> subprocess.Popen[bytes]:
    root = str(Path(schemax.__file__).parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, *args],
        cwd=cwd,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **settings,
    )


def test_the_command_line_does_not_import_torch(tmp_path: Path) -> None:
    code = (
        "import sys, schemax.cli;"
        "print([name for name in ('torch', 'transformers') if name in sys.modules])"
    )
    out, err = process("-c", code, cwd=tmp_path).communicate()
    assert (out.strip(), err) == (b"[]", b"")


def test_a_pipe_carries_rows_and_nothing_else(run: Run, tmp_path: Path) -> None:
    job = process("-m", "schemax", "extract", SCHEMA, "-", cwd=tmp_path)
    out, err = job.communicate(b'"LG"\n{\n"Sony \xf0\x9f\x98\x80"\n')
    assert job.returncode == 1
    assert [row["index"] for row in rows(out.decode())] == [0, 1, 2]
    assert b"line 2: broken JSON" in err
    assert b"\r" not in err
    assert b"Warning" not in err
    assert b"Traceback" not in err


def test_a_reader_that_leaves_ends_the_run_quietly(run: Run, tmp_path: Path) -> None:
    # The longest are read first, so that rows come one batch after the other.
    source = jsonl(tmp_path / "in.jsonl", sorted(TITLES * 10, key=len, reverse=True))
    args = ("-m", "schemax", "extract", SCHEMA, source, "-q", "--batch-size", "2")
    with process(*args, cwd=tmp_path) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        job.stdout.readline()
        job.stdout.close()
        assert job.stderr.read() == b""
    assert job.returncode == 141


def test_an_interrupt_keeps_what_was_written(run: Run, tmp_path: Path) -> None:
    source = jsonl(tmp_path / "in.jsonl", sorted(TITLES * 100, key=len, reverse=True))
    (tmp_path / "out.jsonl").write_text("old")
    args = ("-m", "schemax", "extract", SCHEMA, source, "-o", "out.jsonl", "--batch-size", "2")
    with process(*args, cwd=tmp_path) as job:
        while not [path for path in tmp_path.glob("*.partial") if path.stat().st_size]:
            assert job.poll() is None
            time.sleep(0.05)
        job.send_signal(signal.SIGINT)
        _, err = job.communicate()
    assert job.returncode == 130
    (partial,) = tmp_path.glob("*.partial")
    assert rows(partial.read_text("utf-8"))[0]["index"] == 0
    assert (tmp_path / "out.jsonl").read_text() == "old"
    assert b"interrupted" in err
    assert partial.name.encode() in err
    assert b"Traceback" not in err
