"""The command line as a process: pipes, terminals, interrupts."""

from __future__ import annotations

import os
import pty
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from command_line import SCHEMA, STAND_IN, Run, jsonl, process, rows
from conftest import TITLES, slow_but


def test_the_command_line_imports_no_verb(tmp_path: Path) -> None:
    code = (
        "import sys, schemax.commands.cli;"
        "late = ('torch', 'numpy', 'schemax.commands.demo');"
        "print([name for name in late if name in sys.modules])"
    )
    out, err = process("-c", code, cwd=tmp_path).communicate()
    assert (out.strip(), err) == (b"[]", b"")


@pytest.mark.slow
@pytest.mark.parametrize(
    "given", slow_but([["check", "television"]], [["extract", "--help"], ["check", "television"]])
)
def test_help_and_checks_do_not_import_torch(tmp_path: Path, given: list[str]) -> None:
    code = (
        "import sys, schemax.commands.cli as cli\n"
        f"try: cli.app({given!r})\n"
        "except SystemExit as end:\n"
        "    heavy = [name for name in ('torch', 'transformers') if name in sys.modules]\n"
        "    sys.exit(end.code or heavy)"
    )
    job = process("-c", code, cwd=tmp_path)
    assert job.communicate()[1].splitlines()[-1:] == [b"[]"]


@pytest.mark.release
def test_a_pipe_carries_rows_and_nothing_else(run: Run, tmp_path: Path) -> None:
    job = process("-m", "schemax", "extract", SCHEMA, "-", cwd=tmp_path)
    out, err = job.communicate(b'"LG"\n{\n"Sony \xf0\x9f\x98\x80"\n')
    assert job.returncode == 1
    assert [row["index"] for row in rows(out.decode())] == [0, 1, 2]
    assert b"line 2: broken JSON" in err
    assert b"\r" not in err
    assert b"Warning" not in err
    assert b"Traceback" not in err


@pytest.mark.release
def test_a_reader_that_leaves_ends_the_run_quietly(run: Run, tmp_path: Path) -> None:
    # More rows than a pipe holds, so that some are left to write whenever the reader leaves.
    source = jsonl(tmp_path / "in.jsonl", TITLES * 300)
    args = ("-m", "schemax", "extract", SCHEMA, source, "-q", "--batch-size", "2")
    with process(*args, cwd=tmp_path) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        job.stdout.readline()
        job.stdout.close()
        said = job.stderr.read().splitlines()  # of a random model, that it knows no such schema
        assert [line for line in said if not line.startswith(b"television: the model would")] == []
    assert job.returncode == 141


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="reads /proc")
def test_an_interrupt_during_imports_is_quiet(tmp_path: Path) -> None:
    with process("-m", "schemax", "schemas", cwd=tmp_path) as job:
        maps = Path(f"/proc/{job.pid}/maps")
        while "pydantic_core" not in maps.read_text():  # one of the first packages
            assert job.poll() is None
            time.sleep(0.005)
        job.send_signal(signal.SIGINT)
        out, err = job.communicate()
    assert (job.returncode, out, err) == (-signal.SIGINT, b"", b"")


@pytest.mark.release
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
    parts = tmp_path / "_out.jsonl.parts"
    with process(*args, cwd=tmp_path) as job:
        while not [path for path in parts.glob("part-*") if path.stat().st_size]:
            assert job.poll() is None
            time.sleep(0.05)
        job.send_signal(stop)
        _, err = job.communicate()
    assert job.returncode == status
    assert (tmp_path / "out.jsonl").read_text() == "old"
    assert word in err
    assert b"finished rows are kept in _out.jsonl.parts" in err
    assert b"Traceback" not in err
    assert b"\r" not in err


@pytest.mark.release
def test_a_bar_on_the_terminal_leaves_the_rows_alone(run: Run, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    args = ("-m", "schemax", "extract", SCHEMA, "-")
    shown = b""
    with process(*args, cwd=tmp_path, stderr=theirs) as job:
        os.close(theirs)
        assert job.stdin is not None
        assert job.stdout is not None
        job.stdin.write(b'"LG"\n"Sony"\n')
        job.stdin.close()
        with suppress(OSError):  # once the process has left the terminal
            while piece := os.read(ours, 100_000):
                shown += piece
        out = job.stdout.read()
    os.close(ours)
    assert job.returncode == 0
    assert [row["index"] for row in rows(out.decode())] == [0, 1]
    assert b"documents/s" in shown
    assert b"attributes" not in shown


@pytest.mark.slow
@pytest.mark.parametrize(
    ("closed", "args", "status", "said"),
    [
        ("<&-", "extract shop.py:Small - -o out.jsonl", 2, "cannot read stdin: it is closed"),
        ("<&-", "extract shop.py:Small in.jsonl -o out.jsonl -q", 0, ""),
        (">&-", "extract shop.py:Small in.jsonl -q", 141, ""),
        (">&-", "extract shop.py:Small in.jsonl -o out.jsonl -q", 0, ""),
        (">&-", "explain shop.py:Small", 141, ""),
        (">&-", "schemas", 141, ""),
        (">&-", "--version", 141, ""),
        (">&-", "--help", 1, ""),
        (">&-", "extract shop.py:Small none.jsonl", 2, "error: cannot read none.jsonl"),
        ("2>&-", "extract shop.py:Small in.jsonl -o out.jsonl", 0, ""),
        ("2>&-", "extract shop.py:Small none.jsonl -o out.jsonl", 2, ""),
        ("<&- >&- 2>&-", "extract shop.py:Small in.jsonl -o out.jsonl", 0, ""),
        ("<&- >&- 2>&-", "extract shop.py:Small -", 2, ""),
    ],
)
def test_streams_that_are_closed_cost_no_traceback(
    run: Run, tmp_path: Path, closed: str, args: str, status: int, said: str
) -> None:
    jsonl(tmp_path / "in.jsonl", ["LG true 4K"])
    command = f'exec "{sys.executable}" "{STAND_IN}" {args} {closed}'
    with process("-c", command, cwd=tmp_path, program="/bin/sh") as job:
        out, err = job.communicate()
    assert (job.returncode, out) == (status, b"")
    assert said.encode() in err
    assert len(err.splitlines()) == bool(said)
    written = tmp_path / "out.jsonl"
    assert written.exists() is (status == 0)
    if status == 0:  # nothing but its row: no library took its handle for stderr
        assert [row["index"] for row in rows(written.read_text())] == [0]


@pytest.mark.slow
def test_rows_do_not_go_where_messages_should_have_gone(run: Run, tmp_path: Path) -> None:
    jsonl(tmp_path / "in.jsonl", ["LG true 4K", ""])
    command = f'exec "{sys.executable}" "{STAND_IN}" extract shop.py:Small in.jsonl 2>&-'
    with process("-c", command, cwd=tmp_path, program="/bin/sh") as job:
        out, err = job.communicate()
    assert (job.returncode, err) == (1, b"")
    assert [row["index"] for row in rows(out.decode())] == [0, 1]
