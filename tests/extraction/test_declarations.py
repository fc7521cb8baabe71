"""A schema named on the command line."""

from __future__ import annotations

import os
from pathlib import Path

from schemax.attributes import compile_attributes
from schemax.extraction.declarations import read_schemas

WRITTEN = """
from schemax import AttrSchema, attr
class Tv(AttrSchema):
    brand: str | None = attr(k_max={})
"""


def test_a_schema_file_is_read_as_it_stands(tmp_path: Path) -> None:
    """Bytecode of a file counts as that of another of its size, changed in the same second."""
    path = tmp_path / "shop.py"
    for k_max in (6, 9):
        path.write_text(WRITTEN.format(k_max))
        os.utime(path, (1_700_000_000, 1_700_000_000))
        schema = read_schemas(f"{path}:Tv")
        assert isinstance(schema, type)
        assert [attribute.k_max for attribute in compile_attributes(schema)] == [k_max]
