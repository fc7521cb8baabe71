"""What the tests of the command line share: a model on disk, schemas, and ways to run commands."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from conftest import tiny_model
from stand_in import StandIn
from typer.testing import CliRunner

import schemax
from schemax.commands import options
from schemax.commands.cli import app

Result = Any  # of typer.testing, which does not export it
Run = Callable[..., Result]

SCHEMA = "shop.py:Small"
STAND_IN = str(Path(__file__).with_name("stand_in.py"))

DECLARATION = '''
from typing import Literal
from schemax.attributes import attr
from schemax.extraction.schema import AttrSchema

class Small(AttrSchema, category="television"):
    """Short budgets."""
    brand: str | None = attr("Manufacturer", k_max=6)
    smart: bool | None = attr(k_max=3)
    resolution: Literal["720p", "4K"] | None = attr(k_max=7)

class Strict(AttrSchema):
    year: int = attr("Year", k_max=3, ge=1900)
'''


def save_model(backend: tokenizers.Tokenizer, folder: Path) -> Path:
    """A folder as transformers saves it."""
    tiny_model("qwen3", backend.get_vocab_size()).save_pretrained(folder)
    backend.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|endoftext|>"})
    )
    return folder


def runner(folder: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs commands in a folder that holds `shop.py`, with that model as the default one."""
    (folder / "shop.py").write_text(DECLARATION)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("SCHEMAX_MODEL", str(model))

    def invoke(*args: str, stdin: bytes | None = None) -> Result:
        return CliRunner().invoke(app, list(args), input=stdin)

    return invoke


def stand_in_runner(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """The same with the stand-in for the model, where there are many rows."""
    (folder / "shop.py").write_text(DECLARATION)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(options, "load_extractor", lambda *_, **__: StandIn())
    return lambda *args: CliRunner().invoke(app, list(args))


def set_part_rows(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """How many rows a part has, in this process and in those that the stand-in runs in."""
    monkeypatch.setattr("schemax.io.checkpoint.PART_ROWS", rows)
    monkeypatch.setenv("PART_ROWS", str(rows))


def records(count: int) -> list[dict[str, Any]]:
    """For the stand-in, whose values are a text's first words."""
    return [{"id": f"r{n}", "t": f"Brand{n} true 4K {'long ' * (n % 7)}"} for n in range(count)]


def computed(folder: Path) -> Counter[str]:
    """How often the stand-in was asked for the row of each id."""
    return Counter((folder / "computed").read_text("utf-8").splitlines())


def process(
    *args: str, cwd: Path, program: str = sys.executable, **settings: Any
) -> subprocess.Popen[bytes]:
    root = str(Path(schemax.__file__).parents[1])
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen([program, *args], cwd=cwd, env=environment, **pipes | settings)


def jsonl(path: Path, records: Sequence[Any]) -> str:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return str(path)


def rows(text: str) -> list[Any]:
    return [json.loads(line) for line in text.splitlines()]


def refused_by(
    main: Callable[[Sequence[str]], None],
    arguments: Sequence[str],
    capsys: pytest.CaptureFixture[str],
    *said: str,
) -> None:
    """Exit status 2 of a command that argparse reads, and a last line that says all this."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    written = capsys.readouterr()
    assert written.out == ""
    for words in said:
        assert words in written.err.splitlines()[-1]


def refused(result: Result, *said: str) -> None:
    """Exit status 2, and one line that says all this."""
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    for words in said:
        assert words in line
