"""The command line as a process: pipes, terminals, interrupts."""

from __future__ import annotations

import os
import pty
import signal
import time
from pathlib import Path

import pytest
import tokenizers
from command_line import SCHEMA, Run, jsonl, process, rows, runner, save_model
from conftest import TITLES


@pytest.fixture(scope="module")
def model(backend: tokenizers.Tokenizer, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(backend, tmp_path_factory.mktemp("model"))


@pytest.fixture
def run(tmp_path: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return runner(tmp_path, model, monkeypatch)


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
    # More rows than a pipe holds, so that some are left to write whenever the reader leaves.
    source = jsonl(tmp_path / "in.jsonl", TITLES * 300)
    args = ("-m", "schemax", "extract", SCHEMA, source, "-q", "--batch-size", "2")
    with process(*args, cwd=tmp_path) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        job.stdout.readline()
        job.stdout.close()
        assert job.stderr.read() == b""
    assert job.returncode == 141


@pytest.mark.parametrize(
    ("stop", "status", "word"),
    [(signal.SIGINT, 130, b"interrupted"), (signal.SIGTERM, 143, b"terminated")],
)
def test_a_run_that_is_stopped_keeps_its_rows(
    run: Run, tmp_path: Path, stop: signal.Signals, status: int, word: bytes
) -> None:
    # All different and equally long: read one after the other, in their order.
    source = jsonl(tmp_path / "in.jsonl", [f"Sony KD-{i:04} 55 inch" for i in range(3000)])
    (tmp_path / "out.jsonl").write_text("old")
    args = ("-m", "schemax", "extract", SCHEMA, source, "-o", "out.jsonl", "--batch-size", "2")
    parts = tmp_path / "out.jsonl.parts"
    with process(*args, cwd=tmp_path) as job:
        while not [path for path in parts.glob("open-*") if path.stat().st_size]:
            assert job.poll() is None
            time.sleep(0.05)
        job.send_signal(stop)
        _, err = job.communicate()
    assert job.returncode == status
    assert (tmp_path / "out.jsonl").read_text() == "old"
    assert word in err
    assert b"finished rows are kept in out.jsonl.parts" in err
    assert b"Traceback" not in err
    assert b"\r" not in err


def test_a_bar_on_the_terminal_leaves_the_rows_alone(run: Run, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    args = ("-m", "schemax", "extract", SCHEMA, "-")
    with process(*args, cwd=tmp_path, stderr=theirs) as job:
        out, _ = job.communicate(b'"LG"\n"Sony"\n')
    os.close(theirs)
    shown = os.read(ours, 100_000)
    os.close(ours)
    assert job.returncode == 0
    assert [row["index"] for row in rows(out.decode())] == [0, 1]
    assert b"documents/s" in shown
    assert b"attributes" not in shown
