"""docs/tasks, docs/schemas.md and docs/discover.md: code and commands, run as they stand there."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from schemax import AttrSchema, Extractor, load_schema, schema_names
from schemax.attributes import compile_attributes
from schemax.attributes.ready_made import is_task
from schemax.base.resources import resource_dir
from schemax.commands.cli import app

ROOT = Path(__file__).resolve().parents[2]
FOLDER = str(resource_dir("embedded"))
TASKS = [name for name in schema_names() if is_task(name)]

pytestmark = pytest.mark.filterwarnings("ignore:using the embedded model")


@pytest.fixture(autouse=True)
def in_the_checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("SCHEMAX_MODEL", raising=False)


def page(task: str) -> str:
    return (ROOT / "docs" / "tasks" / f"{task}.md").read_text("utf-8")


def blocks(task: str) -> list[str]:
    return blocks_of(page(task))


def blocks_of(text: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", text, re.DOTALL)


def samples(task: str) -> list[Any]:
    lines = (ROOT / "docs" / "samples" / f"{task}.jsonl").read_text("utf-8").splitlines()
    return [json.loads(line) for line in lines]


def declared(task: str, names: Mapping[str, Any]) -> type[AttrSchema]:
    """The class of a page that is no part of another."""
    classes = [item for item in names.values() if isinstance(item, type)]
    own = [item for item in classes if issubclass(item, AttrSchema) and item is not AttrSchema]
    return own[-1]


def _run(code: str, names: dict[str, Any]) -> None:
    shown = re.sub(r"Qwen/Qwen3-\dB", FOLDER, code)
    exec(compile(shown, "page.md", "exec", dont_inherit=True), names)


def executed(codes: list[str]) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "page"}
    for code in codes:
        _run(code, names)
    return names


def test_every_task_has_a_page_and_samples() -> None:
    assert len(TASKS) == 10
    for folder, suffix in (("tasks", "md"), ("samples", "jsonl")):
        found = {path.stem for path in (ROOT / "docs" / folder).glob(f"*.{suffix}")}
        assert found - {"README"} == set(TASKS)
    index = (ROOT / "docs" / "tasks.md").read_text("utf-8")
    assert all(f"tasks/{task}.md" in index for task in TASKS)


@pytest.mark.parametrize("task", TASKS)
def test_the_declaration_of_the_page_is_the_ready_made_one(task: str) -> None:
    schema = declared(task, executed(blocks(task)[:1]))
    shown, known = compile_attributes(schema), compile_attributes(load_schema(task))
    assert [(a.path, a.kind, a.description, a.choices) for a in shown] == [
        (a.path, a.kind, a.description, a.choices) for a in known
    ]


@pytest.mark.parametrize("task", TASKS)
def test_what_is_right_stands_in_the_samples(task: str) -> None:
    schema = load_schema(task)
    rows = samples(task)
    assert 5 <= len(rows) <= 10
    for row in rows:
        filled = {"address": {}, **row["attributes"]} if task == "form" else row["attributes"]
        assert schema.model_validate(filled, strict=False) is not None
        free = {item.path[-1] for item in compile_attributes(schema) if not item.choices}
        for name, value in _texts(row["attributes"]):
            is_date = re.fullmatch(r"\d{4}-\d\d-\d\d", value)
            assert name not in free or value in row["text"] or is_date, value


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield name, value
    for key, part in value.items() if isinstance(value, dict) else ():
        yield from _texts(part, key)
    for part in value if isinstance(value, list) else ():
        yield from _texts(part, name)


@pytest.mark.parametrize(
    "task",
    [
        name if name == "ingredient" else pytest.param(name, marks=pytest.mark.slow)
        for name in TASKS
    ],
)
def test_the_code_of_the_page_runs(task: str) -> None:
    names = executed(blocks(task))
    schema = declared(task, names)
    assert len(names["found"]) == len(samples(task))
    assert all(item is None or isinstance(item, schema) for item in names["found"])
    index = (ROOT / "docs" / "tasks.md").read_text("utf-8")
    (row,) = re.findall(rf"^\| \[.*\| `{task}` \|.*$", index, re.MULTILINE)
    assert row.endswith(f"| {_values_read(names['found'], schema, task)} |")


@pytest.mark.slow
def test_the_code_for_a_larger_model_runs() -> None:
    index = (ROOT / "docs" / "tasks.md").read_text("utf-8")
    names = executed([*blocks("ticket"), *blocks_of(index)])
    assert isinstance(names["extractor"], Extractor)
    assert names["extractor"].defaults.template == "generic"
    assert len(names["found"]) == len(samples("ticket"))


def _values_read(found: list[Any], schema: type[AttrSchema], task: str) -> str:
    """What docs/tasks.md says of the embedded model: right values of those that samples state."""
    stated = right = 0
    for item, row in zip(found, samples(task), strict=True):
        filled = {"address": {}, **row["attributes"]} if task == "form" else row["attributes"]
        gold = _flat(schema.model_validate(filled).model_dump(mode="json"))
        read = _flat(item.model_dump(mode="json")) if item is not None else {}
        names = [name for name, value in gold.items() if value not in (None, [])]
        stated += len(names)
        right += sum(read.get(name) == gold[name] for name in names)
    return f"{right} of {stated}"


def _flat(row: Mapping[str, Any], around: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in row.items():
        inner = (
            _flat(value, f"{around}{name}.") if isinstance(value, dict) else {around + name: value}
        )
        found |= inner
    return found


@pytest.mark.parametrize("task", ["ingredient", pytest.param("invoice", marks=pytest.mark.slow)])
def test_the_command_of_the_page_runs(task: str, tmp_path: Path) -> None:
    (line,) = re.findall(r"^schemax (extract .*)$", page(task), re.MULTILINE)
    output = tmp_path / "out.jsonl"
    words = line.replace(f"-o {task}.jsonl", "").split()
    result = CliRunner().invoke(app, [*words, "-o", str(output)])
    assert result.exit_code == 0, result.output
    rows = [json.loads(text) for text in output.read_text("utf-8").splitlines()]
    assert [row["id"] for row in rows] == [row["id"] for row in samples(task)]


def test_the_page_on_ready_made_schemas() -> None:
    text = (ROOT / "docs" / "schemas.md").read_text("utf-8")
    listed = re.findall(r"`(\w+)`", text.partition("| of | schemas |")[2].partition("\n\n")[0])
    assert sorted(listed) == list(schema_names())
    names = executed(blocks_of(text))
    assert names["tea"].net_content == "20 Count"
    assert names["boot"].gender == "Women"


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:city bicycles. do not rely on what was found")
def test_the_page_on_discovery(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "discover.md").read_text("utf-8")
    properties = json.loads(executed(blocks_of(text))["document"])["properties"]
    assert {name: "enum" in str(node) for name, node in properties.items()} == {
        "frame": True,
        "weight": False,
        "lights_included": False,
    }
