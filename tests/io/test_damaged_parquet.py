"""Damaged footers of Parquet files: pyarrow refuses them, or reads them, and never aborts."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
import io
from contextlib import suppress
import pyarrow, pyarrow.parquet
from schemax.io.arrow import read_parquet

file = io.BytesIO()
pyarrow.parquet.write_table(pyarrow.table({"a": ["x", "y"], "b": [1, 2]}), file)
whole = file.getvalue()
footer = len(whole) - 8 - int.from_bytes(whole[-8:-4], "little")
for place in range(footer, footer + 120):
    for value in (0, 0x15, 0x2C, 0x80, whole[place] ^ 0x10):
        damaged = whole[:place] + bytes([value]) + whole[place + 1 :]
        with suppress(OSError, ValueError, pyarrow.ArrowException):
            list(read_parquet(io.BytesIO(damaged), "x.parquet", ["a"]))
print("done")
"""


@pytest.mark.slow
def test_no_damage_ends_the_process() -> None:
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]
