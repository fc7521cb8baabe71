"""_OUT.parts: who may write there, and what is removed."""

from __future__ import annotations

import fcntl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from command_line import SCHEMA, Run, jsonl, process, refused, stand_in_runner

from schemax.errors import InputError
from schemax.io.checkpoint import Checkpoint
from schemax.io.storage import Folder


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    jsonl(tmp_path / "in.jsonl", ["LG true 4K"])
    return stand_in_runner(tmp_path, monkeypatch)


ARGS = ("extract", SCHEMA, "in.jsonl", "-o", "out.jsonl")


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("draft.tmp", Path.touch),
        ("manifest.json", lambda path: path.write_text('{"name": "an application"}')),
        ("manifest.json", lambda path: path.write_text("<broken>")),
        ("part-1.jsonl", Path.touch),
        ("part-1-ab.jsonl", Path.touch),
        ("whole.tmp", Path.mkdir),
        ("part-00000.jsonl", lambda path: path.symlink_to("/etc/hostname")),
    ],
)
@pytest.mark.parametrize("more", [(), ("--overwrite",)])
def test_what_no_run_has_written_stays(
    run: Run, tmp_path: Path, name: str, make: Callable[[Path], Any], more: tuple[str, ...]
) -> None:
    own = tmp_path / "_out.jsonl.parts" / name
    own.parent.mkdir()
    make(own)
    refused(run(*ARGS, *more), f"{name} in it was not written by a run; move it elsewhere")
    assert [path.name for path in own.parent.iterdir()] == [name]
    assert not (tmp_path / "out.jsonl").exists()


def test_a_link_to_a_folder_stays_and_the_folder_too(run: Run, tmp_path: Path) -> None:
    far = tmp_path / "large disk"
    far.mkdir()
    (tmp_path / "_out.jsonl.parts").symlink_to(far)
    assert run(*ARGS).exit_code == 0
    assert (tmp_path / "_out.jsonl.parts").is_symlink()
    assert list(far.iterdir()) == []
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 1


def test_a_file_that_comes_while_a_run_is_under_way_stays(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path / "out.jsonl"))
    with checkpoint.opened({"part rows": 1}):
        note = tmp_path / "_out.jsonl.parts" / "note.txt"
        note.write_text("mine")
        checkpoint.remove()
    assert [path.name for path in note.parent.iterdir()] == ["note.txt"]


def test_a_lock_on_a_folder_that_its_owner_removes_is_no_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second run opens the folder, and only then the first one ends."""
    name = str(tmp_path / "_out.jsonl.parts")
    first = Folder(name)
    lock = first.locked()
    lock.__enter__()
    usual = fcntl.flock

    def flock(handle: int, operation: int) -> None:
        monkeypatch.undo()
        first.remove()
        lock.__exit__(None, None, None)
        usual(handle, operation)

    monkeypatch.setattr(fcntl, "flock", flock)
    with Folder(name).locked():
        assert Path(name).is_dir()
        with pytest.raises(InputError, match="another run is writing"), Folder(name).locked():
            pass


RACER = """
import os, sys
from schemax.errors import InputError
from schemax.io.checkpoint import Checkpoint

inside = refused = 0
while inside < 150:
    checkpoint = Checkpoint("out.jsonl")
    try:
        checkpoint.can_go_on({"part rows": 1})
        with checkpoint.opened({"part rows": 1}):
            os.close(os.open("busy", os.O_CREAT | os.O_EXCL))
            with checkpoint.writing():
                checkpoint.add(0, [b"[]"])
            os.remove("busy")
            checkpoint.remove()
            inside += 1
    except InputError as error:
        assert "another run is writing" in str(error), error
        refused += 1
print(refused)
"""


@pytest.mark.slow
def test_of_runs_that_race_one_is_in(tmp_path: Path) -> None:
    jobs = [process("-c", RACER, cwd=tmp_path) for _ in range(3)]
    found = [job.communicate() for job in jobs]
    assert [err.decode() for _, err in found] == ["", "", ""]
    assert sum(int(out) for out, _ in found) > 0
    assert not (tmp_path / "_out.jsonl.parts").exists()


def test_what_came_between_the_first_look_and_the_lock_is_seen(tmp_path: Path) -> None:
    checkpoint = Checkpoint(str(tmp_path / "out.jsonl"))
    mine, theirs = {"part rows": 1, "limit": None}, {"part rows": 1, "limit": 7}
    assert not checkpoint.can_go_on(mine)
    with checkpoint.opened(theirs), checkpoint.writing():
        checkpoint.add(0, [b"[]"])
    with (
        pytest.raises(InputError, match="other settings or another input: limit was 7, is None"),
        checkpoint.opened(mine),
    ):
        pass
    with checkpoint.opened(mine, overwrite=True) as goes_on:
        assert not goes_on
        assert not checkpoint.has_rows()
