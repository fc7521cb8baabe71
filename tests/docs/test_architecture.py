"""docs/architecture.md names files of the rooms; each of them exists."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text("utf-8")


def test_each_named_file_exists() -> None:
    paths = set(re.findall(r"`(\w+/[\w/]+\.py)\b", PAGE))
    assert len(paths) > 20
    roots = (ROOT, ROOT / "schemax", ROOT / "schemax" / "runtime")
    missing = [path for path in paths if not any((root / path).is_file() for root in roots)]
    assert not missing


def test_each_room_has_a_line() -> None:
    rooms = {
        folder.name
        for folder in (ROOT / "schemax").iterdir()
        if (folder / "__init__.py").is_file() or folder.name == "weights"
    }
    assert rooms == {room for room in rooms if f"`{room}/`" in PAGE}
