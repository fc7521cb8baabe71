"""Files and folders that docs/architecture.md and the code name exist."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "schemax"
ROOTS = (ROOT, PACKAGE, PACKAGE / "runtime")
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_each_named_file_exists() -> None:
    paths = set(re.findall(r"`(\w+/[\w/]+\.py)\b", PAGE))
    assert len(paths) > 20
    missing = [path for path in paths if not any((root / path).is_file() for root in ROOTS)]
    assert not missing


def test_each_file_named_in_the_code_exists() -> None:
    missing = [
        (source.name, path)
        for source in PACKAGE.rglob("*.py")
        for path in re.findall(r"`(\w+/[\w/]+\.py)\b", source.read_text("utf-8"))
        if not any((root / path).is_file() for root in ROOTS)
    ]
    assert not missing


def test_each_named_folder_exists() -> None:
    folders = {f"{path.name}/" for path in PACKAGE.rglob("*") if path.is_dir()}
    folders |= {f"{path.name}/" for path in ROOT.iterdir()}
    assert set(re.findall(r"`(\w+/)`", PAGE)) <= folders


def test_each_room_has_a_line() -> None:
    rooms = {
        folder.name
        for folder in PACKAGE.iterdir()
        if (folder / "__init__.py").is_file() or folder.name == "weights"
    }
    assert rooms == {room for room in rooms if f"`{room}/`" in PAGE}
