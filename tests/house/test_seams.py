"""Tests use public names; what has none is reached for in tests/seams.py alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("schemax", "benchmarks", "recipes", "reproduce")
PATCHING = {"setattr", "delattr", "getattr", "hasattr"}
NAMED_TUPLES = {"_replace", "_asdict", "_fields", "_make"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def assigned(node: ast.AST) -> str | None:
    """The name that a node defines, if it defines one."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return node.name
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        return node.id
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
        return node.attr
    return None


@cache
def private_names() -> frozenset[str]:
    """All private names that our packages define."""
    files = (file for package in PACKAGES for file in (ROOT / package).rglob("*.py"))
    trees = (ast.parse(file.read_text("utf-8")) for file in files)
    names = (assigned(node) for tree in trees for node in ast.walk(tree))
    return frozenset(name for name in names if name and is_private(name)) - NAMED_TUPLES


def reached_for(source: str) -> Iterator[str]:
    """Private names of our packages that a test's source imports, reads or patches."""
    tree = ast.parse(source)
    own = {name for node in ast.walk(tree) if (name := assigned(node)) is not None}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in PACKAGES:
            parts = [*(node.module or "").split("."), *(alias.name for alias in node.names)]
            yield from (f"line {node.lineno}: {part}" for part in parts if is_private(part))
        elif isinstance(node, ast.Attribute) and is_private(node.attr):
            if node.attr in private_names() and node.attr not in own and not is_of_others(node):
                yield f"line {node.lineno}: {ast.unparse(node)}"
        elif isinstance(node, ast.Call) and last_name(node.func) in PATCHING:
            texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
            for text in texts:
                path = text.split(".") if isinstance(text, str) else []
                if path and is_private(path[-1]) and (path[0] in PACKAGES or is_name(path)):
                    yield f"line {node.lineno}: {text}"


def is_of_others(node: ast.Attribute) -> bool:
    """Names of torch and transformers that schemax sets as well."""
    return last_name(node.value) == "config"


def last_name(node: ast.expr) -> str | None:
    """`c` of `a.b.c`, or of `c`."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else None


def is_name(path: list[str]) -> bool:
    return len(path) == 1 and path[0] in private_names()


@pytest.mark.slow
def test_no_test_reaches_for_private_names() -> None:
    files = [file for file in (ROOT / "tests").rglob("*.py") if file.name != "seams.py"]
    found = {file.name: [*reached_for(file.read_text("utf-8"))] for file in files}
    found = {name: places for name, places in found.items() if places}
    assert not found, f"take a public name, or add a seam to tests/seams.py: {found}"


@pytest.mark.parametrize(
    "source",
    [
        "from schemax.runtime.engine.limits import _BACKOFF",
        "from schemax._insides import backoff",
        "from benchmarks.table_costs import _PASS",
        "extractor._engine.close()",
        "monkeypatch.setattr(limits, '_BACKOFF', 1)",
        "monkeypatch.setattr('schemax.runtime.engine.limits._BACKOFF', 1)",
        "getattr(extractor, '_engine')",
    ],
)
def test_private_names_are_found(source: str) -> None:
    assert len([*reached_for(source)]) == 1


@pytest.mark.parametrize(
    "source",
    [
        "from schemax.runtime.engine.limits import DecodingLimits",
        "from torch.utils._pytree import tree_map",
        "point._replace(x=1)",
        "row['_error']",
        "class Own:\n    def __init__(self):\n        self._engine = 1\n        self._engine + 1",
    ],
)
def test_other_names_are_left_alone(source: str) -> None:
    assert not [*reached_for(source)]
