"""JSON Lines: what is read, what is written, and what stays when a run is cut short."""

from __future__ import annotations

import io
import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemax.errors import InputError
from schemax.io.records import read_records
from schemax.io.writers import open_writer


def records(data: bytes) -> list[Any]:
    return list(read_records(io.BytesIO(data)))


def test_objects_and_strings_are_records() -> None:
    assert records(b'{"a": 1}\n"text"\r\n{"b": null}') == [{"a": 1}, "text", {"b": None}]


def test_blank_lines_are_skipped_but_counted() -> None:
    first, broken = records(b'\n \t\r\n"x"\n\n{\n')
    assert first == "x"
    assert str(broken).startswith("line 5: broken JSON")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b'{"a": }', "broken JSON: Expecting value at column 7"),
        (b"{'a': 1}", "broken JSON"),
        (b'{"a": "b', "broken JSON: Unterminated string starting at column 7"),
        (b'"caf\xe9"', "not valid UTF-8 at byte 5"),
        (b"[1, 2]", "must be an object or a string, not an array"),
        (b"12", "not a number"),
        (b"null", "not null"),
        (b"true", "not true or false"),
        (b"9" * 5000, "cannot be read"),
        (b"[" * 200_000, "cannot be read"),
        (b'{"a": 1} {"b": 2}', "broken JSON: Extra data"),
    ],
)
def test_a_line_that_holds_no_record_says_so_in_its_place(line: bytes, reason: str) -> None:
    before, broken, after = records(b'"one"\n' + line + b'\n"three"\n')
    assert (before, after) == ("one", "three")
    assert isinstance(broken, InputError)
    assert str(broken).startswith("line 2: ")
    assert reason in str(broken)


def test_a_byte_order_mark_is_no_part_of_the_first_record() -> None:
    assert records(b"\xef\xbb\xbf" + b'"x"\n') == ["x"]
    assert records(b"\xef\xbb\xbf") == []


def test_line_separators_of_unicode_do_not_end_a_line() -> None:
    assert records('"a\u2028b\u0085c"\n'.encode()) == ["a\u2028b\u0085c"]


@pytest.mark.slow
@given(st.lists(st.text() | st.dictionaries(st.text(), st.none() | st.text() | st.integers())))
def test_what_is_written_is_read_again(rows: list[Any]) -> None:
    data = "".join(json.dumps(row) + "\n" for row in rows).encode()
    assert records(data) == rows


def written(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_a_file_appears_only_when_all_is_written(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("old")
    with open_writer(str(path), None) as sink:
        sink.write({"a": "é"})
        assert path.read_text() == "old"
        assert len(list(tmp_path.glob("*.partial"))) == 1
    assert path.read_bytes() == '{"a": "é"}\n'.encode()
    assert list(tmp_path.iterdir()) == [path]


def test_an_interrupted_file_stays_beside_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    path.write_text("old")
    interrupt = KeyboardInterrupt()

    def write() -> None:
        with open_writer(str(path), None) as sink:
            sink.write({"a": 1})
            raise interrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    (partial,) = tmp_path.glob("*.partial")
    assert written(partial) == [{"a": 1}]
    assert path.read_text() == "old"
    assert interrupt.__notes__ == [f"what was written so far is in {partial}"]


def test_nothing_stays_of_a_run_that_wrote_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="stop"), open_writer(str(tmp_path / "out.jsonl"), None):
        raise ValueError("stop")
    assert list(tmp_path.iterdir()) == []


def test_links_and_permissions_survive(tmp_path: Path) -> None:
    target, link = tmp_path / "target.jsonl", tmp_path / "link.jsonl"
    target.write_text("old")
    target.chmod(0o640)
    link.symlink_to(target)
    with open_writer(str(link), None) as sink:
        sink.write({})
    assert link.is_symlink()
    assert written(target) == [{}]
    assert stat.S_IMODE(target.stat().st_mode) == 0o640


def test_a_device_is_written_to_as_it_is() -> None:
    with open_writer(os.devnull, None) as sink:
        sink.write({})
    assert not Path(os.devnull).is_file()


def test_a_sink_that_cannot_be_opened_is_an_input_error(tmp_path: Path) -> None:
    for place in (tmp_path / "absent" / "out.jsonl", tmp_path):
        with pytest.raises(InputError, match="cannot write"), open_writer(str(place), None):
            pass


def test_lone_surrogates_are_written_escaped(tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    with open_writer(str(path), None) as sink:
        sink.write({"id": "\ud800", "é": 1})
    assert written(path) == [{"id": "\ud800", "é": 1}]
