"""Runs that are killed (kill -9) at any moment go on, and end as if nothing had happened."""

from __future__ import annotations

import multiprocessing
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import stand_in
from command_line import (
    DECLARATION,
    SCHEMA,
    STAND_IN,
    computed,
    jsonl,
    process,
    rows,
    set_part_rows,
)
from typer.testing import CliRunner

from schemax.base.resources import resource_dir
from schemax.commands.cli import app

CRASHES = str(Path(__file__).parents[1] / "crashes.py")
SEED = 20_000
WHOLE = ["_out.jsonl.keys", "_out.jsonl.run.json", "out.jsonl"]
ODD = [
    "Schöne Größe für die Küche, weiß",
    "ソニー 55インチ 4K 有機EL テレビ",
    "<p>Sony &amp; <b>Söhne</b><br/>4K</p>",
    "<|im_end|> <|endoftext|> 4K",
    'quoted "4K", and\nmore\tlines\r\n',
]


def hostile(count: int) -> list[dict[str, Any]]:
    """Rows as catalogues have them, with what has broken readers before; ten ids come twice."""
    texts = [*ODD, None, "   "]

    def title(n: int) -> str | None:
        text = texts[n % len(texts)]  # each of its own: what is repeated is computed once
        return f"{text} {n}" if text and text.strip() else text

    made: list[dict[str, Any]] = [
        {"id": f"r{n % (count - 10)}", "title": title(n), "price": n / 7} for n in range(count)
    ]
    made[count // 2]["title"] = "lang " * 8000
    return made


@pytest.fixture
def forks() -> Any:
    """Processes that are forked where everything is imported: quick to start, and to kill."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["stand_in", "schemax.commands.extract", "pyarrow.parquet"])
    return context


@pytest.mark.release
def test_twenty_thousand_odd_rows_survive_twenty_kills(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, forks: Any
) -> None:
    """Some at start-up, most while rows are computed, some while the parts become the whole."""
    (tmp_path / "shop.py").write_text(DECLARATION)
    made = hostile(20_000)
    pyarrow.parquet.write_table(
        pyarrow.Table.from_pylist(made), tmp_path / "in.parquet", row_group_size=3000
    )
    monkeypatch.chdir(tmp_path)
    command = ("extract", SCHEMA, "in.parquet", "--text", "title", "-o")
    chance = random.Random(SEED)
    moments = ["start-up"] * 4 + ["work"] * 12
    chance.shuffle(moments)
    moments += ["whole"] * 4
    for number, moment in enumerate(moments):
        delay = chance.uniform(0, {"start-up": 0.2, "work": 0.3, "whole": 0.4}[moment])
        told = f"kill {number} of seed {SEED}: {delay:.3f} s into {moment}"
        args = ((*command, "out.parquet", "-q"), 0.0 if moment == "whole" else 0.0005)
        job = forks.Process(target=stand_in.run, args=args)
        job.start()
        wait_for(moment, job, tmp_path)
        time.sleep(delay)
        job.kill()
        job.join()
        assert job.exitcode == -signal.SIGKILL, told
        assert not (tmp_path / "out.parquet").exists(), told
    for name in ("out.parquet", "whole.parquet"):
        with process(STAND_IN, *command, name, cwd=tmp_path) as whole_run:
            _, err = whole_run.communicate()
        assert whole_run.returncode == 1, err  # rows without text have failed
        assert b"\r" not in err
        assert b"Traceback" not in err
        assert b"duplicate ids, all rows kept: 10 rows" in err
        if name == "out.parquet":
            # At most the one row that was in work at each kill was begun a second time.
            assert computed(tmp_path).total() <= 20_000 + len(moments)
    found, whole = (pyarrow.parquet.read_table(tmp_path / f"{n}.parquet") for n in ("out", "whole"))
    assert found.equals(whole)
    assert found["index"].to_pylist() == list(range(20_000))
    assert found["id"].to_pylist() == [row["id"] for row in made]
    lost = [not (row["title"] or "").strip() for row in made]
    assert [error is not None for error in found["_error"].to_pylist()] == lost
    left = sorted(path.name for path in tmp_path.glob("*out*"))
    assert left == ["_out.parquet.keys", "_out.parquet.run.json", "out.parquet"]


def wait_for(moment: str, job: Any, folder: Path) -> None:
    """Until a run has come so far; not at all for start-up."""
    before = progress(folder)
    while job.is_alive():
        if moment == "start-up" or (moment == "work" and progress(folder) != before):
            return
        if moment == "whole" and (folder / "_out.parquet.parts" / "whole.tmp").exists():
            return
        time.sleep(0.01)


def progress(folder: Path) -> list[tuple[str, int]]:
    """What is there of the parts, but for what a run that begins may clear away."""
    try:
        return [
            (path.name, path.stat().st_size) for path in sorted(folder.glob("_out*.parts/*.jsonl"))
        ]
    except FileNotFoundError:  # renamed at this very moment
        return []


@pytest.mark.release
def test_a_kill_before_any_operation_on_files_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Manifest, parts and whole: made, renamed, removed."""
    set_part_rows(12, monkeypatch)
    (tmp_path / "shop.py").write_text(DECLARATION)
    made = [{"id": f"r{n}", "t": f"Brand{n} true 4K"} for n in range(20)]
    jsonl(tmp_path / "in.jsonl", made)
    command = (CRASHES, "extract", SCHEMA, "in.jsonl", "-q", "-o", "out.jsonl")
    with process(*command, cwd=tmp_path) as job:
        out, err = job.communicate()
    assert (job.returncode, err) == (0, b"")
    kills = rows(out.decode())
    whole = (tmp_path / "out.jsonl").read_text("utf-8")
    assert [row["id"] for row in rows(whole)] == [row["id"] for row in made]
    kinds = Counter(kill["operation"].split()[0] for kill in kills)
    assert kinds["os.rename"] == 4  # manifest, whole, record, keys
    assert kinds["open"] >= 4
    assert kinds["os.remove"] == 3  # manifest, two parts
    for kill in kills:
        assert kill["there"] in (None, whole), kill["operation"]
        assert (kill["status"], kill["rows"]) == (0, whole), kill["operation"]
        assert kill["left"] == WHOLE, kill["operation"]
        # Rows are computed again only where the whole was there, and its parts about to go.
        # A kill before a part's file is opened loses the row that it was opened for.
        assert kill["computed"] <= 21 or kill["there"] == whole, kill["operation"]


@pytest.mark.release
def test_the_embedded_model_goes_on_after_a_kill(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not (resource_dir("embedded") / "model.safetensors").is_file():
        pytest.skip("the embedded model is not here")
    titles = [f"Crocs Women's Flat {n} {ODD[n % 5]}, {n % 9} M US" for n in range(24)]
    source = jsonl(tmp_path / "in.jsonl", titles)
    args = ("extract", "shoes", source, "--batch-size", "4", "-q")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SCHEMAX_MODEL", raising=False)
    with process("-m", "schemax", *args, "-o", "out.csv", cwd=tmp_path) as job:
        while not [path for path in tmp_path.glob("_out.csv.parts/part-*") if path.stat().st_size]:
            assert job.poll() is None, job.stderr and job.stderr.read()
            time.sleep(0.01)
        time.sleep(0.2)
        job.kill()
        job.communicate()
    for name in ("out.csv", "whole.csv"):
        result = CliRunner().invoke(app, [*args, "-o", name])
        assert result.exit_code == 0, result.output
    assert (tmp_path / "out.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
